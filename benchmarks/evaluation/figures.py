"""Figures as SVG, where matplotlib is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.evaluation.chains import Workload

MARKS = {
    "lc2": ("s", "LC-2"), "lc3": ("D", "LC-3"), "lc4": ("P", "LC-4"), "excp": ("^", "ExCP-style"), "qd10":
    ("v", "QD-style, 10 bits"), "topn5": ("x", "TOPN 5 %"), "scar5": ("+", "SCAR 5 %"), "bf16": ("o",
    "bfloat16"),
}  # fmt: skip


def pyplot() -> Any:
    """matplotlib's module for figures, set up for SVG; None where it is not installed."""
    try:
        import matplotlib as mpl
    except ImportError:
        print("left out: matplotlib is not installed, so no figures", flush=True)
        return None
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "lcstore"  # the same figure gives the same file
    from matplotlib import pyplot as plt

    return plt


def rate_figure(panels: list[tuple[Workload, dict[str, list[dict[str, Any]]]]], file: Path) -> bool:
    """Bits per weight against error, a panel per workload; False without matplotlib."""
    plt = pyplot()
    if plt is None or not panels:
        return False
    columns = 2
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(10, 3.6 * rows), squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, (workload, chains) in zip(axes.flat, panels, strict=False):
        _panel(axis, workload, chains)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=6, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)
    return True


def _panel(axis: Any, workload: Workload, chains: dict[str, list[dict[str, Any]]]) -> None:
    errors = np.geomspace(0.05, 6, 60)
    axis.plot(errors, 0.5 * np.log2(1 + errors**-2), ":", color="gray", label="Gaussian bound")
    for name, style, color in (("lcstore", "o-", "C0"), ("sz3", "--", "C1"), ("zfp", "--", "C2")):
        found = sorted(chains.get(name, []), key=lambda one: float(one["error"]))
        if not found:
            continue
        e = [one["error"] for one in found]
        axis.plot(
            e,
            [_bits(one) for one in found],
            style,
            color=color,
            ms=3,
            label=name if name == "lcstore" else {"sz3": "SZ3"}.get(name, name),
        )
        if name == "lcstore":
            axis.plot(
                e,
                [_bits(one, beside=True) for one in found],
                "-",
                color=color,
                lw=0.7,
                alpha=0.6,
                label="lcstore, all a store writes",
            )
    for index, (name, (mark, label)) in enumerate(MARKS.items()):
        for one in chains.get(name, [])[:1]:
            axis.plot([one["error"]], [_bits(one)], mark, color=f"C{(index + 3) % 10}", ms=6, label=label)
    axis.set(
        xscale="log",
        yscale="log",
        xlim=(0.04, 8),
        title=workload.title,
        xlabel="error, intervals",
        ylabel="bits per weight",
    )
    axis.grid(visible=True, which="major", alpha=0.3)


def _bits(one: dict[str, Any], *, beside: bool = False) -> float:
    size: float = one["mean_bytes"] + (one["mean_beside"] if beside else 0)
    return 8 * size / float(one["elements"])
