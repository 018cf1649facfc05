"""What every retention rule is, and how rules go together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Final, Literal, TypeAlias

from lcstore.errors import InvalidInputError
from lcstore.limits import MAX_STEP
from lcstore.retention.candidates import Candidate

Mode: TypeAlias = Literal["min", "max"]

#: Words in names of metrics of which nobody wants the least.
_MORE_IS_BETTER: Final = re.compile(
    r"(?<![a-z])(acc|accuracy|auc|auroc|bleu|dice|f1|iou|map|miou|precision|psnr|recall|reward|rouge|ssim)(?![a-z])"
)


class Retention:
    """A retention rule: what is kept. Rules go together with ``|``; what any of them names is kept.

    A program that decides for itself tags what is to stay, for the rule `Tagged`: own classes are refused.
    ``str`` gives the text that `parse_retention` turns into an equal rule.
    """

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        """Refuse rules of users: nothing would ask them, and states that they name would go."""
        if cls.__module__.partition(".")[0] != "lcstore":
            raise InvalidInputError(
                f"{cls.__name__} would be asked by nobody: a rule has to name the same states again once "
                "others are gone. Tag what your program wants kept, as in store.tag('eval-500', 500), and "
                "keep it with the rule Tagged('eval-*')"
            )

    @property
    def parts(self) -> tuple[Retention, ...]:
        """The rules that this one unites; itself where it is a single one."""
        return (self,)

    def __or__(self, other: object) -> Retention:
        if not isinstance(other, Retention):
            return NotImplemented
        parts = tuple(dict.fromkeys(self.parts + other.parts))
        return parts[0] if len(parts) == 1 else Union(parts)

    def arguments(self) -> list[str]:
        """Return the arguments as they are written; what has its default is left out."""
        texts = []
        for spec in fields(self):  # type: ignore[arg-type]  # every rule below is a dataclass
            value = getattr(self, spec.name)
            if spec.default is MISSING:
                texts.append(repr(value))
            elif value != spec.default:
                texts.append(f"{spec.name}={value!r}")
        return texts

    def __str__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.arguments())})"

    def __repr__(self) -> str:
        return str(self)


class Keep(Retention):
    """A rule that names states to keep."""

    __slots__ = ()

    def named(self, candidates: Sequence[Candidate]) -> set[str]:
        """Return the nodes to keep.

        Whatever is taken out of `candidates`, a named node that stays is named again. This is what makes a
        decision stable: deciding about the survivors lets nothing more go.

        Parameters
        ----------
        candidates
            As they were committed, the latest last, and at least one.
        """
        raise NotImplementedError

    def why(self, candidate: Candidate) -> str:
        """Return what is said of a candidate that this rule keeps."""
        return str(self)

    def lacking(self, candidates: Sequence[Candidate]) -> str | None:
        """Return what the candidates lack, if this rule can name none for lack of data."""
        return None

    def unjudged(self, candidates: Sequence[Candidate]) -> set[str]:
        """Return the nodes that this rule cannot name for lack of data."""
        return set()


@dataclass(frozen=True, slots=True, repr=False)
class Union(Retention):
    """Several rules; made by ``|``."""

    members: tuple[Retention, ...]

    @property
    def parts(self) -> tuple[Retention, ...]:
        """The rules that this one unites."""
        return self.members

    def __str__(self) -> str:
        return " | ".join(map(str, self.members))


def keeps_of(rule: Retention) -> tuple[Keep, ...]:
    """Return the parts of a rule that name states to keep."""
    return tuple(part for part in rule.parts if isinstance(part, Keep))


def check_keeps(owner: str, rule: object) -> Retention:
    """Return `rule`, or raise `InvalidInputError` unless all of it names states to keep."""
    if not isinstance(rule, Retention) or len(keeps_of(rule)) != len(rule.parts):
        raise InvalidInputError(
            f"{owner} takes rules that name states to keep, such as LatestN(1), not {rule!r:.200}"
        )
    return rule


def check_count(owner: str, what: str, value: object, least: int = 1) -> int:
    """Return `value`, or raise `InvalidInputError` unless it is an integer of `least` or more."""
    if type(value) is not int or not least <= value <= MAX_STEP:
        raise InvalidInputError(
            f"{what} of {owner} is a whole number of {least} or more (63 bits), not {value!r:.100}"
        )
    return value


def check_number(owner: str, what: str, value: object, above: float, below: float) -> float:
    """Return `value`, or raise `InvalidInputError` unless it is a number between the two."""
    if not (isinstance(value, int | float) and type(value) is not bool and above < value < below):
        raise InvalidInputError(
            f"{what} of {owner} is a number between {above:g} and {below:g}, not {value!r:.100}"
        )
    return value


def check_text(owner: str, what: str, value: object) -> str:
    """Return `value`, or raise `InvalidInputError` unless it is a text that is not empty."""
    if type(value) is not str or not value:
        raise InvalidInputError(f"{what} of {owner} is a text, not {value!r:.100}")
    return value


def is_better_greater(metric: str) -> bool:
    """Return whether more of a metric is better, by its name, as of an accuracy."""
    return bool(_MORE_IS_BETTER.search(metric.lower()))


def mode_of(metric: str, said: Mode | None, written: str | None = None) -> Mode:
    """Return whether the least or the greatest value of a metric is the best: the least, if nothing is said.

    Parameters
    ----------
    metric, said
        Its name, and what is said.
    written
        What that was written as, where it is not ``best:METRIC``.

    Raises
    ------
    InvalidInputError
        Nothing is said, and its name is one of which more is better: the least would be the worst state. Or
        what is said is neither.
    """
    if said not in (None, "min", "max"):
        raise InvalidInputError(f"mode is 'min' or 'max', not {said!r:.100}")
    if said is None and is_better_greater(metric):
        text = written or f"best:{metric}"
        raise InvalidInputError(
            f"say whether the greatest or the least {metric!r} is the best: '{text}:max' or '{text}:min'; in "
            "Python also mode='max' or 'min'"
        )
    return said or "min"
