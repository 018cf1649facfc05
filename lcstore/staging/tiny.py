"""Tensors so many and so small that their names take more than they do, as entries of a list have."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

from lcstore.layout.layout import Layout
from lcstore.state.names import Name, format_name
from lcstore.state.roles import is_optimizer

#: How many tensors are many, and below how many bytes of each, on average, its name takes more.
_MANY: Final = 1000
_BYTES: Final = 256


def tiny_said(step: int, layout: Layout | None) -> str | None:
    """Return what is to be said of many tiny tensors in one list or dict; None where there are none.

    The entries of a model are many, too: beside its gains and biases lies what makes the average large. What
    an optimizer counts is nobody's to join.
    """
    if layout is None or len(layout.tensors) < _MANY:
        return None
    names: defaultdict[Name, list[Name]] = defaultdict(list)
    sizes = Counter[Name]()
    for spec in layout.tensors:
        place = _container(spec.name)
        names[place].append(spec.name)
        sizes[place] += spec.size * spec.itemsize
    counts = {place: len(some) for place, some in names.items()}
    tiny = [place for place, count in counts.items() if count >= _MANY and sizes[place] < _BYTES * count]
    tiny = [place for place in tiny if not all(map(is_optimizer, names[place]))]
    if not tiny:
        return None
    place = max(tiny, key=counts.__getitem__)
    where = f"below {format_name(place)!r}" if place else "at the top of the state"
    return (
        f"step {step}: {counts[place]:,} tensors {where} hold {sizes[place] / counts[place]:.0f} bytes each: "
        "their names take more than they do, in every save. Join them to one for each field, as by np.stack"
    )


def _container(name: Name) -> Name:
    """Return the list that a tensor is in, the outermost one; else the dict."""
    place = next((at for at, part in enumerate(name) if isinstance(part, int)), len(name) - 1)
    return name[: max(place, 0)]
