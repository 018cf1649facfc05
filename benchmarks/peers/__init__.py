"""Peers: other ways to keep checkpoints, all with one interface, so that they can be measured like lcstore.

    from benchmarks.peers import make
    peer = make("lc2")
    written = peer.save({"model/fc.weight": array})
    peer.restore()

`PEERS` has them by name. Some need libraries of the `bench` extra; without its library `make` raises
`Missing`.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.peers import bounded, casts, lc, lossless, ours, partial, quantized
from benchmarks.peers.base import Missing, Peer, Tensors

#: Peers that have nothing to be set.
PEERS: dict[str, Callable[[], Peer]] = {
    "lc2": lambda: lc.LC(2),
    "lc3": lambda: lc.LC(3),
    "lc4": lambda: lc.LC(4),
    "lc2-global": lambda: lc.GlobalLC(2),
    "lc3-global": lambda: lc.GlobalLC(3),
    "scar5": lambda: partial.Scar(0.05),
    "scar10": lambda: partial.Scar(0.1),
    "topn5": lambda: partial.TopN(0.05),
    "topn10": lambda: partial.TopN(0.1),
    "excp": quantized.ExCP,
    "inshrinkerator": quantized.Inshrinkerator,
    "qd8": lambda: quantized.QD(8),
    "qd10": lambda: quantized.QD(10),
    "zstd": lambda: lossless.Lossless("zstd", xor=False),
    "xor-zstd": lambda: lossless.Lossless("zstd", xor=True),
    "zipnn": lambda: lossless.Lossless("zipnn", xor=False),
    "xor-zipnn": lambda: lossless.Lossless("zipnn", xor=True),
    "pcodec": lambda: lossless.Lossless("pcodec", xor=False),
    "xor-pcodec": lambda: lossless.Lossless("pcodec", xor=True),
    "bf16": casts.BFloat16,
    "int8": lambda: casts.Blocks(8, 256),
    "int4": lambda: casts.Blocks(4, 64),
    "high": lambda: ours.LCStore("high"),
    "balanced": lambda: ours.LCStore("balanced"),
    "small": lambda: ours.LCStore("small"),
}
#: Peers with one number: a policy's error, or a bound in units of each tensor's last move.
TUNABLE: dict[str, Callable[[float], Peer]] = {
    "lcstore": ours.LCStore,
    "sz3": bounded.SZ3,
    "zfp": bounded.Zfp,
}


def make(name: str, setting: float | None = None) -> Peer:
    """Make a peer; those in `TUNABLE` take a setting.

    Raises
    ------
    Missing
        A library that it needs is not installed.
    """
    return PEERS[name]() if setting is None else TUNABLE[name](setting)


__all__ = ["PEERS", "TUNABLE", "Missing", "Peer", "Tensors", "make"]
