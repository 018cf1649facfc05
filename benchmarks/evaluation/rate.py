"""(e) Rate against error: curves, tables at equal error, whole states."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.evaluation.cells import Cells
from benchmarks.evaluation.chains import (
    MAIN,
    WORKLOADS,
    Workload,
    at_hand,
    chain,
    distance,
    matched,
    matrices,
)
from benchmarks.evaluation.figures import rate_figure
from benchmarks.evaluation.names import NAMES, PRESETS
from benchmarks.evaluation.pages import Page
from benchmarks.peers import PEERS, Tensors, make
from benchmarks.peers.ours import LCStore
from lcstore.track.policy import PRESETS as policies

SETTINGS = (0.1, 0.18, 0.35, 0.7, 1.0, 1.4, 2.0, 4.0)
BOUNDS = (0.125, 0.35, 1.0, 2.0, 4.0)
#: Deltas of whole states that do not count: few saves hold moments.
WHOLE_WARM = 2
#: Peers with nothing to be set, besides lcstore's presets.
FIXED = tuple(name for name in PEERS if name not in PRESETS)

#: What the presets aim at.
ERRORS = tuple(policies[name].error for name in PRESETS)

Chain = dict[str, Any]


def run(cells: Cells, page: Page, only: list[str]) -> None:
    """Everything of this part."""
    page.head(
        "(e) Rate against error",
        "A save's error is its distance from the exact state over the distance of the last two exact "
        "states (one interval). "
        "Bytes are means over the deltas after the first four, and lcstore's are those of a run that goes "
        "on for long: its very first deltas are nearer, and larger; `beside` is what a store adds: Zarr "
        "metadata, layouts, records. Weights of two dimensions and more are compared. SZ3 and zfp get "
        "a bound for each "
        "tensor in units of its last move; their line is a search over that number. Peers that are "
        "slow in Python see fewer saves of the GPT.",
    )
    panels = []
    matches: list[dict[str, Any]] = []
    for key in [k for k in WORKLOADS if not only or k in only]:
        workload = WORKLOADS[key]
        if not at_hand(workload, cells.quick):
            page.say(f"{workload.title}: left out of the quick mode, as its trace has to be trained first.")
            continue
        found = curve(cells, workload)
        equal = at_equal_error(cells, workload, found)
        panels.append((workload, found))
        matches.append({"workload": workload, "chains": found, **equal})
    summary(page, matches)
    for match in matches:
        table(page, match["workload"], match["chains"])
    if rate_figure(panels, page.folder / "rate.svg"):
        page.figure(
            "rate.svg",
            "Bits per weight against error: lcstore's line lies below and left of LC's points, and "
            "the lower, dotted line is what no code of "
            "white Gaussian updates can pass (sparse updates can: they are not white).",
        )
    ahead = []
    for workload, found in panels:
        if said := behind(workload, found):
            page.say(said)
        else:
            ahead.append(workload.title)
    page.say(
        f"SZ3 takes more bytes than lcstore's frames at every error that both reach, on: {'; '.join(ahead)}."
    )
    whole(cells, page, only)


def behind(workload: Workload, chains: dict[str, list[Chain]]) -> str:
    """Say where SZ3 takes less than lcstore, if it does; lines between points are straight in logarithms."""
    at = np.geomspace(0.05, 4, 40)
    lines = {}
    for peer in ("lcstore", "sz3"):
        points = sorted((one["error"], one["mean_bytes"]) for one in chains.get(peer, []))
        if not points:
            return f"{workload.title}: SZ3 was left out."
        errors, sizes = np.log(np.array(points)).T
        lines[peer] = np.interp(np.log(at), errors, sizes, left=np.nan, right=np.nan)
    less = at[lines["sz3"] < lines["lcstore"]]
    if not less.size:
        return ""
    most = float(np.nanmax(lines["lcstore"] - lines["sz3"]))
    return (
        f"{workload.title}: lcstore loses to SZ3 at errors from {less.min():.2g} to {less.max():.2g}, "
        f"by {100 * (np.exp(most) - 1):.0f} % at most."
    )


def curve(cells: Cells, workload: Workload) -> dict[str, list[Chain]]:
    """All chains of a workload by peer; peers with a setting have several."""
    wanted: list[tuple[str, float | None]] = [(name, None) for name in (*FIXED, *PRESETS)]
    settings, bounds = (SETTINGS[1::2], BOUNDS[::2]) if cells.quick else (SETTINGS, BOUNDS)
    wanted += [("lcstore", s) for s in settings] + [(p, b) for p in ("sz3", "zfp") for b in bounds]
    out: dict[str, list[Chain]] = {}
    for name, setting in wanted:
        if (found := chain(cells, workload, name, setting)) is not None:
            out.setdefault(name, []).append(found)
    return out


def at_equal_error(cells: Cells, workload: Workload, chains: dict[str, list[Chain]]) -> dict[str, Any]:
    """The tunable peers at the error of LC-2 and of LC-3; and lcstore at 0.1."""
    rounds = 5 if cells.quick else 7
    out: dict[str, Any] = {}
    for lc in ("lc2", "lc3"):
        error = chains[lc][0]["error"]
        out[lc] = {peer: matched(cells, workload, peer, error, rounds) for peer in ("lcstore", "sz3", "zfp")}
    if workload.every == 1:
        out["fine"] = matched(cells, workload, "lcstore", 0.1 / 1.02, rounds)
    return out


def summary(page: Page, matches: list[dict[str, Any]]) -> None:
    """lcstore at the errors of LC-2 and LC-3, with its bars."""
    head = [
        "workload",
        "peer",
        "e of the peer",
        "its bytes",
        "lcstore: e",
        "frames",
        "beside",
        "times fewer",
        "with what is beside",
    ]
    rows: list[list[object]] = []
    for match in matches:
        for lc, bar in (("lc2", 2.0), ("lc3", 1.15)):
            other, ours = match["chains"][lc][0], match[lc]["lcstore"]
            title = match["workload"].title
            if ours is None:
                page.bar(
                    f"{title}: as fine as {NAMES[lc]} (e {other['error']:.2g})",
                    float("nan"),
                    "reached",
                    False,
                )
                continue
            rows.append(_equal_row(title, NAMES[lc], other, ours))
            ratio = other["mean_bytes"] / ours["mean_bytes"]
            page.bar(f"{title}: fewer bytes than {NAMES[lc]} at its error", ratio, f">= {bar}", ratio >= bar)
            for bounded in ("sz3", "zfp"):
                if (rival := match[lc][bounded]) is None:
                    continue
                rows.append(_equal_row(title, f"{NAMES[bounded]} at {NAMES[lc]}'s error", rival, ours))
                ratio = rival["mean_bytes"] / ours["mean_bytes"]
                if bounded == "sz3":
                    page.bar(f"{title}: fewer bytes than SZ3 at {NAMES[lc]}'s error", ratio, "> 1", ratio > 1)
        if (fine := match.get("fine")) is not None:
            other = match["chains"].get("xor-zstd", [None])[0]
            if other is not None:
                rows.append(_equal_row(match["workload"].title, NAMES["xor-zstd"], other, fine))
                ratio = other["mean_bytes"] / fine["mean_bytes"]
                if match["workload"].name == "dlrm":
                    page.bar(
                        f"{match['workload'].title}: fewer bytes than lossless XOR at e <= 0.1",
                        ratio,
                        "> 1",
                        ratio > 1,
                    )
    text = (
        "lcstore tuned to the error of LC-2 and of LC-3: frames against frames, and once more with "
        "everything "
        "that a store adds, which is more than the weights themselves where a model has a few "
        "thousand of them. Its bars are of `times fewer`: 2 for LC-2, 1.15 for LC-3, above 1 for SZ3 and, on "
        "DLRM with every update, for lossless XOR beside lcstore at e <= 0.1."
    )
    page.table("At equal error", text, head, rows)


def _equal_row(title: str, name: str, other: Chain, ours: Chain) -> list[object]:
    bytes_, frames, beside = other["mean_bytes"], ours["mean_bytes"], ours["mean_beside"]
    return [
        title,
        name,
        other["error"],
        int(bytes_),
        ours["error"],
        int(frames),
        int(beside),
        bytes_ / frames,
        bytes_ / (frames + beside),
    ]


def table(page: Page, workload: Workload, chains: dict[str, list[Chain]]) -> None:
    """All peers on one workload, by error."""
    head = [
        "",
        "error e",
        "e of the last save",
        "bits per weight",
        "ratio to float32",
        "ratio with what is beside",
        "ms per save",
    ]
    rows = []
    for name, found in chains.items():
        for one in found:
            if name == "lcstore" and one["setting"] in ERRORS:
                continue  # a preset is that
            label = NAMES[name] if one["setting"] is None else f"{NAMES[name]} at {one['setting']:g}"
            size, whole_size = one["mean_bytes"], one["mean_bytes"] + one["mean_beside"]
            raw = 4 * one["elements"]
            rows.append(
                [
                    label,
                    one["error"],
                    one["last_error"],
                    8 * size / one["elements"],
                    raw / size,
                    raw / whole_size,
                    1e3 * one["save_seconds"],
                ]
            )
    rows.sort(key=lambda row: float(row[1]))
    elements = next(iter(chains.values()))[0]["elements"]
    apart = "one update apart" if workload.every == 1 else f"{workload.every} updates apart"
    text = (
        f"Deltas of {elements:,} weights, {apart}: every scheme by its error, the finest first. "
        f"`high`, `balanced` and `small` are lcstore at {ERRORS[0]:g}, {ERRORS[1]:g} and {ERRORS[2]:g}."
    )
    page.table(f"{workload.title}: all schemes", text, head, rows)


def whole(cells: Cells, page: Page, only: list[str]) -> None:
    """Bytes of the whole state for each save: weights, biases, moments, everything a store writes."""
    head = ["workload", "raw bytes", "scheme", "bytes per save", "ratio", "e of the weights"]
    rows = []
    for key in [k for k in MAIN if not only or k in only]:
        workload = WORKLOADS[key]
        if not at_hand(workload, cells.quick):
            continue
        for scheme in ("lc2", "lc3", *PRESETS):
            found = cells.get(f"whole-{key}-{scheme}", partial(whole_state, cells, workload, scheme))
            label = f"{NAMES[scheme]} weights, the rest float32" if scheme.startswith("lc") else NAMES[scheme]
            rows.append(
                [
                    workload.title,
                    int(found["raw"]),
                    label,
                    int(found["bytes"]),
                    found["raw"] / found["bytes"],
                    found["error"],
                ]
            )
    text = (
        "What one save of everything costs, records and all: SGD has weights alone, AdamW's moments "
        "are two thirds of the GPT's state. "
        "On models of a few thousand weights the records weigh more than the weights, and the "
        "paper's bare frames are smaller."
    )
    page.table("The whole state", text, head, rows)


def whole_state(cells: Cells, workload: Workload, scheme: str) -> dict[str, float]:
    """Mean bytes of a delta of the whole state."""
    saves = workload.trace(cells.quick)
    count = saves.moments or len(saves)
    peer = make(scheme)
    sizes, errors, raw = [], [], 0
    before: Tensors | None = None
    for index in range(count):
        tensors = saves[index]
        weights = matrices(tensors)
        rest = sum(array.nbytes for path, array in tensors.items() if path not in weights)
        raw = rest + sum(array.nbytes for array in weights.values())
        size = peer.save_tree(saves.state(index)) if isinstance(peer, LCStore) else peer.save(weights) + rest
        if before is not None:
            sizes.append(size)
            view = {p: a for p, a in peer.view().items() if p in weights}
            errors.append(distance(weights, view) / distance(weights, before))
        before = weights
    return {"raw": raw, "bytes": float(np.mean(sizes)), "error": float(np.mean(errors[WHOLE_WARM:]))}
