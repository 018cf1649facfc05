"""The kit catches each store that is broken on purpose, and finds nothing in the sound one."""

from __future__ import annotations

import pytest
from broken_stores import BROKEN, LOOKS

pytestmark = [pytest.mark.once, pytest.mark.unprotected]


@pytest.mark.parametrize("name", LOOKS)
def test_the_sound_store_passes(name, tmp_path):
    assert LOOKS[name](tmp_path) == []


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_store_is_caught(name, tmp_path):
    broken = BROKEN[name]
    with broken.breakage():
        found = broken.look(tmp_path)
    assert found
    assert any(broken.says in problem for problem in found), found
