"""Parts of paths that stand for the names of tensors."""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st
from saved import ODD_NAMES

from lcstore.filesystem.quoting import NAMELESS, quoted

HOSTILE = st.text(alphabet="./~#:*?[]\\\n\0xX2eENnpyzar.jsonc", max_size=12)
PARTS = st.one_of(
    HOSTILE, st.text(max_size=8).filter(str.isascii), st.integers(-3, 3), st.sampled_from(ODD_NAMES)
)
NAMES = st.lists(PARTS, max_size=3).map(tuple)


@given(NAMES)
def test_parts_of_paths_mean_nothing_else(name):
    parts = quoted(name)
    assert len(parts) == max(1, len(name))
    for part in parts:
        assert part
        assert part not in (".", "..", "zarr.json")
        assert not set(part) & set('/\\:*?[]<>|"\n\0')
        assert not part.endswith(".npy")


@given(NAMES, NAMES)
def test_no_two_names_share_a_path(one, other):
    assert (quoted(one) == quoted(other)) == (one == other)


def test_usual_names_stay_as_they_are():
    usual = "layers.0.self_attn-q_proj.weight" + string.ascii_letters
    assert quoted(("model", usual, 3)) == ("model", usual, "#3")
    assert quoted(()) == (NAMELESS,)
