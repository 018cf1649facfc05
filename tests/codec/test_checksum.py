"""Checksums of pieces are those of their bytes, whether these are gone over or their checksums joined."""

from __future__ import annotations

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcstore.coders.checksum import checksum, joined
from lcstore.frames import frame as frames
from lcstore.frames.lossless import encode_lossless
from lcstore.frames.pieces import Pieces


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_pieces_have_the_checksum_of_their_bytes(pieces: list[bytes]):
    whole = google_crc32c.value(b"".join(pieces))
    assert checksum(pieces) == checksum(map(memoryview, pieces)) == whole
    crc = 0
    for piece in pieces:
        crc = joined(crc, google_crc32c.value(piece), len(piece))
    assert crc == whole


@pytest.mark.parametrize("length", [0, 1, 4095, 1 << 20, (1 << 24) + 17])
def test_long_pieces_are_joined(length):
    rng = np.random.default_rng(length)
    one, other = rng.bytes(77), rng.bytes(length)
    assert joined(google_crc32c.value(one), google_crc32c.value(other), length) == google_crc32c.value(
        one + other
    )


def test_planes_are_gone_over_once(monkeypatch: pytest.MonkeyPatch):
    """The frame around them knows their checksums: it adds few bytes of its own."""
    values = np.random.default_rng(0).standard_normal(1 << 16).astype(np.float32)
    seen = 0

    def counting(pieces, before=0):
        nonlocal seen
        pieces = [*pieces]
        seen += sum(map(len, pieces))
        return checksum(pieces, before)

    monkeypatch.setattr(frames, "checksum", counting)
    data = encode_lossless(Pieces.of(values))
    assert len(data) - 200 < seen < len(data) + 200
    monkeypatch.undo()
    assert frames.parse_frame(data).count == values.size
