"""What tensors are called in a file: dotted, as `state_dict` has it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile

from lcstore.state.names import Name, format_name, is_glob, leading

#: What a state is called that is one tensor and no tree.
_ALONE = "state"


def file_keys(names: Sequence[Name], left_out: int = 0, *, dotted: bool = True) -> list[str]:
    """Return what tensors are called in a file, each otherwise than the others.

    The parts of a name are joined by dots, without the first `left_out` of them: ``("model", "fc.weight")``
    is ``"fc.weight"`` where `left_out` is 1. Where two names would be one so, all of them are texts of names
    (``"model/fc.weight"``), which are never. So they are if not `dotted`.
    """
    keys = [".".join(map(str, name[left_out:])) or _ALONE for name in names]
    if dotted and len({*keys}) == len(keys):
        return keys
    return [format_name(name) or _ALONE for name in names]


def parts_left_out(asked: str | Iterable[str] | None, names: Sequence[Name]) -> int:
    """Return how many parts of `names` a caller who asked for them has said, and does not want in each.

    They are what all that was asked for begins with, up to the first wildcard: ``"model/**"`` and ``"model"``
    say ``model``. One part of a name, at least, is always left.
    """
    texts = ["**"] if asked is None else [asked] if isinstance(asked, str) else [*asked]
    said = [[*takewhile(lambda part: not is_glob(part), text.split("/"))] for text in texts]
    most = min([len(name) - 1 for name in names] + [len(parts) for parts in said]) if names else 0
    while most > 0 and len({leading(name)[most] for name in names} | {"/".join(p[:most]) for p in said}) > 1:
        most -= 1
    return max(most, 0)
