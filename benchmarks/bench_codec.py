"""Speed of the codec on deltas of GPT weights, one core, beside memcpy of the same bytes and beside others.

    python -m benchmarks.bench_codec [--quick]

The input is 64 MiB of float32: matrices of the GPT at several times of its training, put end to end and
tracked through five saves before the one that is measured, at the balanced policy. *Encode* is what a save
does with it: read state and track, quantize, move the track, digest, choose a coder, code, frame. *Decode* is
a frame parsed, checked, decoded and added to the track. Both are ratios to `numpy.copyto` of the 64 MiB.

Second moments are those of the GPT's matrices in its early saves, end to end in one frame, at the steps of
the policies.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import zstandard
from zipnn import ZipNN

from benchmarks.inputs import block, delta_chunks, draft, gpt, place_of, run_jobs, take_back, warmed
from benchmarks.measure import Race, Report, arguments, one_thread
from benchmarks.workloads_cache import Trace
from lcstore.codec.factored import CODES, Part, encode_factored
from lcstore.codec.values import decode_values
from lcstore.coders import entropy
from lcstore.coders.tables import TableCache
from lcstore.edges import deltas, frames
from lcstore.frames.frame import parse_frame
from lcstore.track.coding import Coder
from lcstore.track.draft import Draft
from lcstore.track.fusedpass import Advance
from lcstore.track.policy import policy_of

#: Saves before the one that is measured.
WARM = 5


def main() -> None:
    quick = arguments(__doc__ or "").quick
    one_thread()
    report = Report("codec", quick)
    saves = gpt()
    elements = 1 << (22 if quick else 24)
    before, now = (block(saves, later, elements) for later in (WARM - 1, WARM))
    policy = policy_of("balanced")
    track = warmed([block(saves, later, elements).state for later in range(WARM)], policy)
    made = draft(track, now.state, policy)
    parts = run_jobs(made)
    ours(report, now.raw, made, parts, 3 if quick else 15)
    phases(report, now.raw, made, 3 if quick else 9)
    moments(report, saves, elements, 3 if quick else 9)
    others(report, before.raw, now.raw, sum(map(len, parts)), 1 if quick else 5)
    report.write()


def ours(report: Report, raw: np.ndarray, made: Draft, parts: list[bytes], rounds: int) -> None:
    """Encode and decode in rounds with memcpy. The draft has been coded, and is left as before that."""
    error, _ = made.tracking()
    targets = [place_of(made, name, chunk).copy() for name, chunk in delta_chunks(made)]
    take_back(made, parts)
    sign = 1

    def decode() -> None:
        for part, target in zip(parts, targets, strict=True):
            deltas.apply_delta(part, target, sign)

    def turn() -> None:
        nonlocal sign
        sign = -sign

    race = Race(raw)
    race.add("encode", lambda: run_jobs(made), after=lambda: take_back(made, parts))
    race.add("decode and apply", decode, after=turn)
    results = race.run(rounds)
    size = sum(map(len, parts))
    report.data |= {"bytes": raw.nbytes, "frames": len(parts), "coded": size, "error": error}
    report.data["speed"] = results
    report.table(
        f"{raw.nbytes / 2**20:.0f} MiB of GPT weights, one core ({rounds} rounds)",
        ["", "ms", "GB/s", "x memcpy", "lowest", "highest"],
        [
            [name, 1e3 * r["seconds"], r["gigabytes_per_second"], r["ratio"], r["ratio_low"], r["ratio_high"]]
            for name, r in results.items()
        ],
    )
    report.say(
        f"coded: {size:,} bytes, {8 * size / raw.size:.3f} bits per weight, {raw.nbytes / size:.1f}x, "
        f"tracking error {error:.2f} intervals"
    )
    encode, decoded = results["encode"]["ratio"], results["decode and apply"]["ratio"]
    report.bar("encode, x memcpy", encode, ">= 0.15, aim 0.25", encode >= 0.15)
    report.bar("decode and apply, x memcpy", decoded, ">= 0.3, aim 0.5", decoded >= 0.3)


def moments(report: Report, saves: Trace, elements: int, rounds: int) -> None:
    """Encode and decode second moments at the step of each policy, as their chunks are."""
    raw, parts = second_moments(saves, elements)
    race = Race(raw)
    sizes: dict[str, int] = {}
    for name in ("high", "balanced", "small"):
        step = round((policy_of(name).second_moment or 0) * CODES)
        cache = TableCache()

        def encode(step: int = step, cache: TableCache = cache) -> bytes:
            made = encode_factored(raw, parts, step, cache=cache)
            return b"" if made is None else made.data

        data = encode()
        sizes[name] = len(data)
        race.add(f"{name}: encode", encode)
        race.add(f"{name}: decode", lambda data=data: decode_values(parse_frame(data, expected=raw.size)))  # type: ignore[misc]
    results = race.run(rounds)
    report.data["second moments"] = {"bytes": raw.nbytes, "sizes": sizes, "speed": results}
    rows = [
        [name, 8 * sizes[name.split(":")[0]] / raw.size, r["gigabytes_per_second"], r["ratio"]]
        for name, r in results.items()
        if name != "memcpy"
    ]
    head = ["", "bits per element", "GB/s", "x memcpy"]
    report.table(f"{raw.nbytes / 2**20:.0f} MiB of second moments, one core ({rounds} rounds)", head, rows)


def second_moments(saves: Trace, elements: int) -> tuple[np.ndarray, list[Part]]:
    """The second moments of matrices, one save after another, until there are `elements`."""
    raw, parts, at = np.empty(elements, np.float32), [], 0
    for index in range(saves.moments):
        for path, array in saves[index].items():
            size = min(array.size, elements - at)
            if path.endswith("exp_avg_sq") and array.ndim >= 2 and size:
                raw[at : at + size] = array.reshape(-1)[:size]
                parts.append(Part(at, size, array.shape[1], 0))
                at += size
    return raw[:at], parts


class Phases:
    """Stopwatches around functions of the library, for as long as it is open."""

    def __init__(self, watched: dict[str, tuple[Any, str]]) -> None:
        self.watched = watched
        self.seconds = dict.fromkeys(watched, 0.0)

    def __enter__(self) -> Phases:
        self.before = {name: getattr(owner, attribute) for name, (owner, attribute) in self.watched.items()}
        for name, (owner, attribute) in self.watched.items():
            setattr(owner, attribute, self._timed(name, self.before[name]))
        return self

    def __exit__(self, *_: object) -> None:
        for name, (owner, attribute) in self.watched.items():
            setattr(owner, attribute, self.before[name])

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[name] += time.perf_counter() - began

        return run


def phases(report: Report, raw: np.ndarray, made: Draft, repeats: int) -> None:
    """Where encode and decode spend their time."""
    watched = {
        "encode": (Coder, "code_deltas"),
        "  advance (quantize, move, digest)": (Advance, "over"),
        "  choose a coder": (entropy, "_try_packs"),
        "  choose: tokens": (entropy, "_try_runs"),
        "  count and emit": (entropy, "_run_pack"),
        "  count and emit, tokens": (entropy, "_run_runs"),
        "  frame and crc": (frames, "build_frame"),
        "decode": (deltas, "apply_delta"),
        "  parse and crc": (deltas, "delta_frame"),
        "  decode levels, add to the track": (deltas.adding, "add_frames"),
    }
    taken: dict[str, list[float]] = {name: [] for name in watched}
    for _ in range(repeats):
        with Phases(watched) as watch:
            # Jobs are bound when listed: code through the class, so that its stopwatch counts.
            chunks = delta_chunks(made)
            parts = [made.coder.code_deltas(name, chunk, []).chunk for name, chunk in chunks]
            for (name, chunk), part in zip(chunks, parts, strict=True):
                if part is not None:
                    deltas.apply_delta(part.data, place_of(made, name, chunk), -1)
        for name, seconds in watch.seconds.items():
            taken[name].append(seconds)
    medians = {name: float(np.median(times)) for name, times in taken.items()}
    report.data["phases"] = {name.strip(): seconds for name, seconds in medians.items()}
    report.table(
        "Phases",
        ["", "ms", "GB/s of float32"],
        [[name, 1e3 * s, raw.nbytes / s / 1e9 if s else "-"] for name, s in medians.items()],
    )
    run_jobs(made)


def others(report: Report, before: np.ndarray, now: np.ndarray, size: int, rounds: int) -> None:
    """Lossless peers, one thread: what exact deltas or states cost."""
    from pcodec import ChunkConfig
    from pcodec.standalone import simple_compress, simple_decompress_into

    difference = (before.view(np.uint32) ^ now.view(np.uint32)).tobytes()
    plain = now.tobytes()
    pack = zstandard.ZstdCompressor(level=3)
    unpack = zstandard.ZstdDecompressor()
    zipnn = ZipNN(input_format="byte", bytearray_dtype="float32", threads=1)
    target = np.empty_like(now)
    packed = {
        "zstd-3 of the XOR": (lambda: pack.compress(difference), unpack.decompress),
        "zipnn of the weights": (lambda: zipnn.compress(plain), zipnn.decompress),
        "pcodec of the weights": (
            lambda: simple_compress(now, ChunkConfig()),
            lambda data: simple_decompress_into(data, target),
        ),
    }
    race = Race(now)
    sizes = {}
    for name, (compress, decompress) in packed.items():
        data = compress()
        sizes[name] = len(data)
        race.add(f"{name}: encode", compress)
        race.add(f"{name}: decode", lambda d=decompress, data=data: d(data))  # type: ignore[misc]
    results = race.run(rounds)
    rows = [["lcstore, lossy", now.nbytes / size, "", "see above", "see above"]]
    for name, nbytes in sizes.items():
        encode, decode = (results[f"{name}: {way}"] for way in ("encode", "decode"))
        rows.append([name, now.nbytes / nbytes, nbytes, encode["ratio"], decode["ratio"]])
    report.data["others"] = {"sizes": sizes, "speed": results}
    head = ["", "ratio", "bytes", "encode, x memcpy", "decode, x memcpy"]
    report.table("Lossless, beside it", head, rows)


if __name__ == "__main__":
    main()
