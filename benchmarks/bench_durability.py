"""What the default durability costs: bytes and seconds of saves with ``"default"`` beside ``"none"``.

    python -m benchmarks.bench_durability [--quick] [--long]

Two hundred states of the GPT, five iterations apart, are trained once and saved each into four stores in a
local directory: the whole AdamW state and the weights alone, with either durability. Which of the two goes
first alternates, so that a busy moment of the machine hits both. Seconds are those that a caller waits, with
the anchor that is now and then added within a save. `--long` makes 800 saves of the weights alone, by going
through the states to and fro: where anchors are due only now and then, it tells what they come to.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np

import lcstore
from benchmarks.measure import Report, arguments
from benchmarks.workloads import trace
from benchmarks.workloads_cache import Trace
from lcstore.format import keys
from lcstore.storage.memory import MemoryBackend

SAVES = 200
EVERY = 5
Name: TypeAlias = Literal["none", "default"]
NAMES: Final[tuple[Name, ...]] = ("none", "default")
#: What is saved, and the bar on the bytes of ``default`` over those of ``none``.
WHOLE, WEIGHTS = "whole AdamW state", "weights alone"
BYTES: Final = {WHOLE: 1.2, WEIGHTS: 1.3}
#: The bars on the seconds of a save of the whole state: median, and mean.
SECONDS: Final = {"median": 1.05, "mean": 1.15}


def main() -> None:
    asked = arguments(__doc__ or "", long="800 saves of the weights alone")
    report = Report("durability-long" if asked.long else "durability", asked.quick)
    contents = [WEIGHTS] if asked.long else [WHOLE, WEIGHTS]
    count = 12 if asked.quick else SAVES
    cycle = [*range(count), *range(count - 2, 0, -1)]
    order = [cycle[at % len(cycle)] for at in range(4 * count if asked.long else count)]
    folder = Path(tempfile.mkdtemp(prefix="lcstore-bench-"))
    try:
        sides = run(folder, trace("gpt", every=EVERY, count=count, moments=count), order, contents)
        for content in contents:
            stored(report, content, sides)
            taken(report, content, sides)
    finally:
        shutil.rmtree(folder)
    report.write()


@dataclass
class Side:
    """One store, and what its saves were."""

    root: Path
    durability: Name
    store: lcstore.Store = field(init=False)
    infos: list[lcstore.SaveInfo] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = lcstore.open(self.root, policy="balanced", durability=self.durability)

    def save(self, step: int, state: Any) -> None:
        """Save, and note how long that took a caller."""
        began = time.perf_counter()
        self.infos.append(self.store.save(step, state))
        self.seconds.append(time.perf_counter() - began)


Sides: TypeAlias = dict[tuple[str, Name], Side]


def run(folder: Path, saves: Trace, order: Sequence[int], contents: Sequence[str]) -> Sides:
    """Save states of a trace, in this order, into all stores."""
    pairs = [(content, name) for content in contents for name in NAMES]
    warm_up(saves)
    sides = {pair: Side(folder / str(number), pair[1]) for number, pair in enumerate(pairs)}
    for step, at in enumerate(order):
        state = in_memory(saves.state(at))
        for content, name in pairs if step % 2 else reversed(pairs):
            sides[content, name].save(step, state if content == WHOLE else {"model": state["model"]})
        if step % 50 == 49:
            print(f"{step + 1} saves", flush=True)
    for side in sides.values():
        side.store.close()
    return sides


def warm_up(saves: Trace) -> None:
    """Have the kernels compiled."""
    for name in NAMES:
        with lcstore.open(MemoryBackend.fresh(), durability=name) as store:
            for step in range(3):
                store.save(step, saves.state(step))


def in_memory(tree: Any) -> Any:
    """Return a copy of a state that is read from disk as it is used."""
    if isinstance(tree, dict):
        return {key: in_memory(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [in_memory(value) for value in tree]
    return np.array(tree) if isinstance(tree, np.ndarray) else tree


def stored(report: Report, content: str, sides: Sides) -> None:
    """Bytes of the two stores, by what they are for."""
    none, default = (kinds(sides[content, name].root) for name in NAMES)
    rows = [[kind, none[kind], default[kind], share(default[kind] - none[kind], none)] for kind in default]
    ratio = default.total() / none.total()
    rows.append(["everything", none.total(), default.total(), f"{100 * (ratio - 1):.1f} %"])
    blocks = [on_disk(sides[content, name].root) for name in NAMES]
    rows.append(["on disk, in whole blocks", *blocks, f"{100 * (blocks[1] / blocks[0] - 1):.1f} %"])
    count = len(sides[content, "none"].infos)
    head = ["", *NAMES, "more, of all bytes of none"]
    report.table(f"{content}, {count} saves: bytes", head, rows)
    report.data[f"{content}, bytes"] = [dict(zip(head, row, strict=True)) for row in rows]
    report.bar(f"{content}: bytes, default over none", ratio, f"<= {BYTES[content]}", ratio <= BYTES[content])


def share(nbytes: int, none: Counter[str]) -> str:
    """Return bytes as a part of the store without durability."""
    return f"{100 * nbytes / none.total():.2f} %"


def kinds(root: Path) -> Counter[str]:
    """Bytes of a store by what they are for."""
    with lcstore.open(root, "r") as store:
        total = store.stats().bytes_stored["total"]
    files = {path.relative_to(root).as_posix(): path.stat().st_size for path in files_of(root)}
    added = {keys.parse_edge_key(key).edge for key in files if key.startswith(f"{keys.EDGES}/")}
    found = Counter[str](dict.fromkeys(("chunks", "records and metadata", "parity", "copies", "anchors"), 0))
    for key, nbytes in files.items():
        found[kind_of(key, added)] += nbytes
    assert found.total() == total
    return found


def kind_of(key: str, added: set[str]) -> str:
    """Return what an object is for; `added` are the edges that no state was saved with."""
    if keys.edge_of(key) in added:
        return "anchors"
    if keys.is_parity(key):
        return "parity"
    if key.startswith(f"{keys.COPIES}/") or keys.copied_from(key) is not None:
        return "copies"
    if keys.is_data_key(key) and keys.parse_data_key(key).chunk is not None:
        return "chunks"
    return "records and metadata"


def files_of(root: Path) -> list[Path]:
    """Return the files below a folder."""
    return [path for path in root.rglob("*") if path.is_file()]


def on_disk(root: Path) -> int:
    """Return the bytes of the blocks that files take."""
    return sum(512 * path.stat().st_blocks for path in files_of(root))


def taken(report: Report, content: str, sides: Sides) -> None:
    """Seconds of the saves after the first, and where they go."""
    pair = [sides[content, name] for name in NAMES]
    waited = [side.seconds[1:] for side in pair]
    infos = [side.infos[1:] for side in pair]
    rows = {
        "median": [statistics.median(seconds) for seconds in waited],
        "mean": [statistics.fmean(seconds) for seconds in waited],
        "longest": [max(seconds) for seconds in waited],
    }
    for phase in infos[0][0].seconds:
        rows[f"{phase}, median"] = [statistics.median(i.seconds[phase] for i in of) for of in infos]
    rows["objects, median"] = [statistics.median(i.objects for i in of) for of in infos]
    table = [[what, *values, values[1] / values[0]] for what, values in rows.items()]
    quotients = [default / none for none, default in zip(*waited, strict=True)]
    table.append(["save by save, median of the quotients", "", "", statistics.median(quotients)])
    report.table(f"{content}: seconds of a save", ["", *NAMES, "default / none"], table)
    report.data[f"{content}, seconds"] = {side.durability: side.seconds for side in pair}
    report.data[f"{content}, times"] = rows
    if content == WHOLE:
        for what, bar in SECONDS.items():
            ratio = rows[what][1] / rows[what][0]
            report.bar(f"seconds of a save, {what}", ratio, f"<= {bar}", ratio <= bar)


if __name__ == "__main__":
    main()
