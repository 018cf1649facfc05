"""Evaluate lcstore beside its peers, and write docs/evaluation/.

    python -m benchmarks.evaluation [--quick] [--only rate recovery ...] [--workloads lenet mf ...]

Every result is kept under benchmarks/results/ and not computed again; delete a file there to have it anew.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.evaluation.cells import Cells
from benchmarks.evaluation.pages import Page
from benchmarks.peers.base import Missing, optional

#: In the order of worth.
PARTS = ("rate", "recovery", "breakdown", "buckets", "overhead", "restores")
TITLES = {
    "rate": "(e) Rate against error, and whole states",
    "recovery": "(b) Recovery: rework after a failure",
    "breakdown": "(a) Where the bytes go: exponents, promotion, Huffman",
    "buckets": "(c) Which buckets matter",
    "overhead": "(d) Overhead of saves",
    "restores": "(f) Final quality after lossy restores",
}
LIBRARIES = ("numpy", "torch", "scikit-learn", "zstandard", "zipnn", "pcodec", "pysz", "zfpy")
DOCS = Path(__file__).parents[2] / "docs" / "evaluation"


def main() -> None:
    # Threads that wait by spinning make small networks ten times slower on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few saves, one seed: to see that it runs")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="these parts alone")
    parser.add_argument("--workloads", nargs="+", default=[], help="these workloads alone")
    parser.add_argument(
        "--out", type=Path, help="where the pages go (docs/evaluation; quick: a temporary folder)"
    )
    asked = parser.parse_args()
    cells = Cells(asked.quick)
    folder = asked.out or (Path(tempfile.mkdtemp(prefix="evaluation-")) if asked.quick else DOCS)
    folder.mkdir(parents=True, exist_ok=True)
    for part in asked.only:
        page = Page(folder, part)
        import_module(f"benchmarks.evaluation.{part}").run(cells, page, asked.workloads)
        page.write()
        for what, value, wanted, met in page.bars:
            print(f"{'ok  ' if met else 'FAIL'} {what}: {value:.3g} (bar: {wanted})", flush=True)
    for line in sorted(cells.missing):
        print(f"left out: {line}", flush=True)
    write_index(folder, sorted(cells.missing), quick=asked.quick)
    print(f"written: {folder}", flush=True)


def write_index(folder: Path, missing: list[str], *, quick: bool) -> None:
    """Write README.md: the pages that are there, what made them, what is missing."""
    pages = [f"- [{TITLES[part]}]({part}.md)" for part in PARTS if (folder / f"{part}.md").exists()]
    versions = ", ".join(f"{name} {_version(name)}" for name in LIBRARIES)
    lines = [
        "# Evaluation",
        "",
        "lcstore beside its peers, on training runs made on the spot by `python -m benchmarks.evaluation`"
        + (" (quick mode: few saves, one seed)." if quick else "."),
        "Peers are written from their papers' recipes, except SZ3 and zfp, which are their authors' "
        "libraries; "
        "what each leaves out is said in `benchmarks/peers/`. All models are small, in float32, on a "
        "CPU; ratings and "
        "clicks are made up from stated models.",
        "",
        *pages,
        "",
        f"Made with Python {platform.python_version()}, {versions}.",
        *(f"Left out: {line}." for line in missing),
        "",
    ]
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")


def _version(name: str) -> str:
    try:
        if name == "zfpy":
            optional(name)  # finds its folder
        return version(name)
    except (Missing, PackageNotFoundError):
        return "not installed"


if __name__ == "__main__":
    main()
