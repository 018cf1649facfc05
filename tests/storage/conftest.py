"""Servers that live as long as a module's tests, and a store to read."""

from __future__ import annotations

import pytest
from kit import servers
from kit.servers import small_state

import lcstore


@pytest.fixture(scope="module")
def moto():
    with servers.moto() as served:
        yield served


@pytest.fixture(scope="session")
def packed(tmp_path_factory):
    """A folder with a store of five states in ``runs/run1``."""
    folder = tmp_path_factory.mktemp("packed")
    with lcstore.open(folder / "runs/run1") as store:
        for number in range(5):
            store.save(number, small_state(number))
    return folder
