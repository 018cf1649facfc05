"""Retention rules, and what they decide. Pure: no I/O, no clock.

A rule is any of these, united with ``|``:

- **Rules that keep** name states to keep: `LatestN`, `EveryNSteps`, `EveryNSeconds`, `BestN`, `LogSpaced`,
  `Budget`, `Tagged`, `Pinned`, and `EachRun` of these. A state that any of them names is kept.
- **Modifiers** take something away from states that are kept, and never keep or drop one: `Strip` (tensors),
  `ExactOnly` (exact values). Several `Strip` add up. A state keeps its exact value if any `ExactOnly`
  names it.

Where no rule keeps, every state is kept, and only the modifiers act. Without `ExactOnly` every exact value
stays.

Always, whatever the rule says:

- the latest state of every run is kept and not stripped, unless another run took its place;
- where the weights of that state are known not to be finite, so is the last one before it in which they are;
- a pinned state is kept, not stripped, and keeps its exact value;
- where the rules that keep name no state at all, that is an error, not an order to drop everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from lcstore.errors import InvalidInputError
from lcstore.retention.base import Keep, Retention, keeps_of
from lcstore.retention.candidates import BEFORE_NOT_FINITE, Candidate, in_order, stays_anyway
from lcstore.retention.keep import EachRun, Pinned, Tagged
from lcstore.retention.modify import ExactOnly, Strip
from lcstore.units import counted

#: What the reasons begin with for which a rule lets go: of states, of exact values, of tensors.
NOT_KEPT: Final = "not kept by "
EXACT_NOT_KEPT: Final = "exact value not kept by "
STRIPPED: Final = "stripped of "
BY_RULE: Final = (NOT_KEPT, EXACT_NOT_KEPT, STRIPPED)


@dataclass(frozen=True)
class Decision:
    """What a rule decides about some states.

    Attributes
    ----------
    kept
        The nodes to keep.
    retired
        The others, each with the reason.
    exact_let_go
        Kept nodes whose exact value is let go, with the reason.
    stripped
        Kept nodes with the globs of the tensors that are let go there.
    kept_by
        For each kept node what keeps it: rules, ``"pinned"``, ``"latest of its run"``, ``"last before values
        that are not finite"``.
    notes
        What the user may want to know, such as a rule that names no state.
    """

    kept: frozenset[str]
    retired: dict[str, str] = field(default_factory=dict)
    exact_let_go: dict[str, str] = field(default_factory=dict)
    stripped: dict[str, tuple[str, ...]] = field(default_factory=dict)
    kept_by: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def decide(rule: Retention, candidates: Iterable[Candidate]) -> Decision:
    """Return what `rule` keeps, strips and lets go of.

    Deciding again about the survivors lets nothing more go.

    Parameters
    ----------
    rule
        A single one, or several united with ``|``.
    candidates
        The states that are kept so far, in any order. Nothing is decided about others.

    Raises
    ------
    InvalidInputError
        The rules that keep name no state at all, or one of them goes by a metric that no state has while they
        have others, or a modifier's inner rules name none because no state has
        the metric; a node is there twice.
    """
    items = in_order(candidates)
    if not items:
        return Decision(frozenset())
    notes, more = list[str](), list[str]()
    let_go = _let_go(rule, items, more)
    # An exact value that goes anyway takes no room of a budget.
    left = [replace(item, exact_bytes=0) if item.node in let_go else item for item in items]
    kept_by = _kept_by(keeps_of(rule), left, notes)
    reason = f"{NOT_KEPT}{' or '.join(map(str, keeps_of(rule)))}"
    kept = [item for item in items if item.node in kept_by]
    return Decision(
        kept=frozenset(kept_by),
        retired={item.node: reason for item in items if item.node not in kept_by},
        exact_let_go={node: why for node, why in let_go.items() if node in kept_by},
        stripped=_stripped(rule, items, kept, more),
        kept_by=kept_by,
        notes=tuple(dict.fromkeys([*notes, *more])),
    )


def _kept_by(
    keeps: Sequence[Keep], items: Sequence[Candidate], notes: list[str]
) -> dict[str, tuple[str, ...]]:
    stays = stays_anyway(items)
    found: dict[str, list[str]] = {item.node: [] for item in items}
    for part in keeps:
        lacks = part.lacking(items)
        if lacks and any(item.metrics for item in items):
            # What other rules name would be all that stays, and the name may be mistyped.
            raise InvalidInputError(f"nothing is let go of: {lacks}")
        named = _named([part], items, notes)
        for item in items:
            if item.node in named:
                found[item.node].append(part.why(item))
    if keeps and not any(found.values()):
        raise InvalidInputError(f"the rule names no state to keep: {'; '.join(notes)}")
    usual = (Tagged(), Pinned())  # most runs have none
    no_news = {_names_none(part) for part in (*usual, *map(EachRun, usual))}
    notes[:] = [note for note in notes if note not in no_news]
    for item in items:
        found[item.node] += ["pinned"] * item.pinned + stays.get(item.node, [])
        if found[item.node] == [BEFORE_NOT_FINITE] and keeps:
            notes.append(
                f"step {item.step} stays, whatever the rule says: it is the last before weights were no "
                "longer finite, and store.rewind goes back to it"
            )
    for part in keeps:
        unjudged = part.unjudged(items)
        going = [node for node in unjudged if not found[node]]
        if going and len(unjudged) < len(items):  # else that is said already
            lack = "lacks the metric" if len(going) == 1 else "lack the metric"
            notes.append(f"{counted(len(going), 'state')} of those that go {lack} that {part} goes by")
    return {node: tuple(by) for node, by in found.items() if by or not keeps}


def _let_go(rule: Retention, items: Sequence[Candidate], notes: list[str]) -> dict[str, str]:
    """Return which states lose their exact value, kept or not, with the reason."""
    exacts = [part for part in rule.parts if isinstance(part, ExactOnly)]
    if not exacts:
        return {}
    named = {node for part in exacts for node in _inner(part, part.inner, items, notes)}
    reason = f"{EXACT_NOT_KEPT}{' or '.join(map(str, exacts))}"
    return {item.node: reason for item in items if item.exact and not item.pinned and item.node not in named}


def _stripped(
    rule: Retention, items: Sequence[Candidate], kept: Sequence[Candidate], notes: list[str]
) -> dict[str, tuple[str, ...]]:
    stays = stays_anyway(items).keys()
    found: dict[str, list[str]] = {}
    for part in rule.parts:
        if isinstance(part, Strip):
            spared = _inner(part, part.after, items, notes) | stays
            for item in kept:
                if not item.pinned and item.node not in spared:
                    found.setdefault(item.node, []).append(part.glob)
    return {node: tuple(dict.fromkeys(globs)) for node, globs in found.items()}


def _inner(owner: Retention, rule: Retention, items: Sequence[Candidate], notes: list[str]) -> set[str]:
    """Return what the rules inside a modifier name. Naming none is well unless data is missing."""
    keeps = keeps_of(rule)
    named = _named(keeps, items, notes)
    if not named:
        lacks = [lack for part in keeps if (lack := part.lacking(items))]
        if lacks:
            raise InvalidInputError(f"{owner} would spare nothing: {'; '.join(lacks)}")
    return named


def _names_none(part: Keep) -> str:
    return f"{part} names no state"


def _named(keeps: Iterable[Keep], items: Sequence[Candidate], notes: list[str]) -> set[str]:
    names: set[str] = set()
    for part in keeps:
        found = part.named(items)
        if not found:
            # What is lacking says it in words, however the rule was written.
            notes.append(part.lacking(items) or _names_none(part))
        names |= found
    return names
