"""Lossless coders of a state or of its XOR with the one before: zstd after a byte shuffle, zipnn, pcodec."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.peers.base import Peer, Tensors, optional


class Lossless(Peer):
    """All tensors end to end; `xor` codes the bits that changed."""

    def __init__(self, coder: str, *, xor: bool) -> None:
        super().__init__()
        self.xor = xor
        self.pack: Any = {"zstd": _zstd, "zipnn": _zipnn, "pcodec": _pcodec}[coder]()

    def code(self, state: Tensors) -> int:
        assert self.held is not None
        bits = np.concatenate([array.reshape(-1) for array in state.values()]).view(np.uint32)
        if self.xor:
            bits = bits ^ np.concatenate([self.held[path].reshape(-1) for path in state]).view(np.uint32)
        size: int = self.pack(bits)
        self.held = {path: array.copy() for path, array in state.items()}
        return size


def _zstd() -> Any:
    coder = optional("zstandard").ZstdCompressor(level=3)
    return lambda bits: len(
        coder.compress(np.ascontiguousarray(bits.view(np.uint8).reshape(-1, 4).T).tobytes())
    )


def _zipnn() -> Any:
    library = optional("zipnn")

    def pack(bits: np.ndarray) -> int:
        coder = library.ZipNN(bytearray_dtype="float32", input_format="byte")
        return len(coder.compress(bytearray(bits.tobytes())))

    return pack


def _pcodec() -> Any:
    library = optional("pcodec")
    return lambda bits: len(library.standalone.simple_compress(bits, library.ChunkConfig()))
