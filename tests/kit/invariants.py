"""What must hold of a store at any moment, checked against a model of it by a process that has just begun.

That nothing had to be rebuilt is among it: tests run with warnings as errors.
"""

from __future__ import annotations

from typing import Any

from kit.model import Snapshot, StoreModel
from lcstore.check.findings import Level
from lcstore.errors import FallbackWarning, LcstoreError, NotFoundError
from lcstore.storage.backend import Backend
from lcstore.store.opening import open_store
from lcstore.store.store import Store


class BrokenStoreError(AssertionError):
    """A store breaks a promise. `problems` says which, one text each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(["the store breaks its promises:", *problems]))
        self.problems = problems


def check_store(
    backend: Backend, model: StoreModel, *, settled: bool = True, level: Level | None = "checksum"
) -> None:
    """Raise `BrokenStoreError` unless everything holds; parameters as for `problems`."""
    found = problems(backend, model, settled=settled, level=level)
    if found:
        raise BrokenStoreError(found)


def problems(
    backend: Backend, model: StoreModel, *, settled: bool = True, level: Level | None = "checksum"
) -> list[str]:
    """Return what is wrong with a store, as a process sees it that opens it now; empty if nothing is.

    Parameters
    ----------
    backend
        Where the store is, without faults.
    model
        What was acknowledged.
    settled
        Whether the model knows every state. If not (a save died, or others write at this moment), there may
        be more: each of those must restore too.
    level
        How thoroughly to verify; None leaves that out.
    """
    try:
        store = open_store(backend, "r", threads=1)
    except NotFoundError as error:
        return [
            f"acknowledged step {known.step} is lost: there is no store: {error}" for known in model.kept()
        ]
    except (LcstoreError, FallbackWarning) as error:
        return [f"cannot be opened: {_text(error)}"]
    with store:
        found = lost(store, model) + disagreements(store, model, settled=settled)
        return found if level is None else found + damage(store, level)


def lost(store: Store, model: StoreModel) -> list[str]:
    """Return the acknowledged states that do not restore to the bits that they had when acknowledged."""
    found = []
    for known in model.kept():
        problem = _differs(store, known.node, known.snapshot)
        if problem:
            found.append(f"acknowledged step {known.step} (node {known.node}) {problem}")
    return found


def disagreements(store: Store, model: StoreModel, *, settled: bool = True) -> list[str]:
    """Return where the store's listings contradict the model: steps, the latest, tags, strangers."""
    try:
        steps = set(store.steps())
        latest = store.info().node if steps else None
        nodes = {state.node: state for state in store.states(records=False)}
        found = _tags(store, model) if settled else []
    except (LcstoreError, FallbackWarning) as error:
        return [f"cannot be listed: {_text(error)}"]
    must, may = set(model.steps()), {known.step for known in model.possible()}
    strangers = sorted(nodes.keys() - model.known.keys())
    if not settled:
        may |= {nodes[node].step for node in strangers}
        found += [f"node {node} {problem}" for node in strangers if (problem := _differs(store, node, None))]
    elif strangers:
        found.append(f"nodes that nobody saved: {strangers}")
    if must - steps:
        found.append(f"steps missing from the list: {sorted(must - steps)}")
    if steps - may:
        found.append(f"steps listed that should not be: {sorted(steps - may)}")
    expected = model.latest()
    if expected is not None and latest != expected.node and settled and not model.doubtful:
        found.append(f"the latest is node {latest}, not {expected.node} (step {expected.step})")
    return found


def damage(store: Store, level: Level = "checksum") -> list[str]:
    """Return the errors that `verify` finds, and what it says can be rebuilt."""
    try:
        report = store.verify(level)
    except (LcstoreError, FallbackWarning) as error:
        return [f"verify fails: {_text(error)}"]
    wrong = [f for f in report.findings if f.severity == "error" or f.check == "rebuild"]
    return [f"verify: {finding.check}: {finding.key}: {finding.message}" for finding in wrong]


def refuses_to_go_on(backend: Backend, step: int, state: Any) -> list[str]:
    """Return why a new process cannot go on from the latest state and save; empty if it can.

    Two states are saved: one on top of what was found (an anchor where there is nothing), and one more.
    """
    try:
        with open_store(backend, "a", threads=1) as store:
            if store.steps():
                store.resume()
            nodes = [store.save(step, state).node, store.save(step + 1, state).node]
        with open_store(backend, "r", threads=1) as fresh:
            wanted = Snapshot.of(state)
            seen = [Snapshot.of(fresh.restore(node)) for node in nodes]
            report = fresh.verify()
    except (LcstoreError, FallbackWarning) as error:
        return [f"cannot be saved to again: {_text(error)}"]
    found = [
        f"a later save is damaged: {f.check}: {f.key}: {f.message}"
        for f in report.findings
        if f.severity == "error"
    ]
    if any(snapshot.leaves != wanted.leaves for snapshot in seen):
        found.append("a later save does not come back")
    return found


def _differs(store: Store, node: str, snapshot: Snapshot | None) -> str:
    try:
        now = Snapshot.of(store.restore(node))
    except (LcstoreError, FallbackWarning) as error:
        return f"does not restore: {_text(error)}"
    if snapshot is None:
        return ""
    differences = snapshot.differences(now)
    return f"restores to other bits: {', '.join(differences[:5])}" if differences else ""


def _tags(store: Store, model: StoreModel) -> list[str]:
    wanted: dict[str, str] = {tag: known.node for known in model.possible() for tag in known.tags}
    found = []
    for tag, node in wanted.items():
        try:
            there = store.info(tag).node
        except NotFoundError:
            there = None
        if there != node and not model.doubtful:
            found.append(f"tag {tag!r} is on {there}, not on {node}")
    return found


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
