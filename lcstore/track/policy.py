"""How much error a user will have, per role, and exceptions by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from lcstore.errors import InvalidInputError
from lcstore.state.names import Name, matching
from lcstore.state.roles import Role

#: Characters of a policy's name.
MAX_NAME: Final = 100
#: What a rule says of the tensors that it matches: their role, or the errors of the weights among them.
Rule: TypeAlias = Role | Mapping[str, float | None]
#: What rows may be off by where a policy does not say: this part of the tensor's error, within bounds. What
#: is off by its own size is worth no more than zeros.
OF_ERROR, LEAST_OF_ROWS, MOST_OF_ROWS = 0.5, 0.25, 1.0
#: So that a save is off by about a third of the way that its run has come at the most, a run's first delta is
#: off by this at most, in intervals, and later ones by this times a power of their number: between 1/2, as of
#: steps by chance, and 1, as of a straight way.
OF_FIRST, GROWTH = 0.35, 0.7
#: The errors that a rule can say.
SAID: Final = frozenset({"error", "row_error"})


@dataclass(frozen=True)
class Policy:
    """The quality of a store's saves.

    Parameters
    ----------
    error
        Tracking error aimed at for weights, in checkpoint intervals: ``|u - u~| / |u_t - u_(t-1)|``. The
        first deltas of a run are nearer: 0.35, 0.57, 0.75, 0.92, ... intervals, up to what is asked for. None
        keeps weights plain.
    first_moment
        Bits per element of first moments, 0.3 to 16; 0 drops them (they are restored as zero). At few bits
        most come back as zero and the others larger than they were, so that a direction keeps its length.
        None keeps them plain.
    second_moment
        Step size of second moments in octaves, 1/16 to 15. They are coded on a logarithmic scale, relative to
        a factor for each row times one for each column; those of one dimension are rows of 1,024. Normal ones
        come back within 0.6 step sizes and 1/16 octave; with 2 octaves and more, up to 1.5 step sizes larger,
        but no more than 6 octaves, in matrices of 8 rows and columns or more. Those that an update is not
        divided by the root of, or that never fall (of Adadelta, Adagrad, Adamax, AMSGrad, Rprop), or whose
        field is not known, have step sizes half as large, of 2 octaves at most, and come back within 0.6 of
        these. They are zero only where they were. None keeps them plain.
    rules
        What holds for some tensors, by globs of their names. The first glob that matches wins. A rule is a
        role, ``{"ema/**": "plain"}``, which goes before what the name suggests. Or it gives the weights there
        an `error`, a `row_error`, or both: ``{"**/embed*": {"error": 0.5}}``; None keeps them plain. Where
        the first match gives only one of the two, the next match that gives the other counts for that.
    bytes_per_save
        A budget for the coded bytes of a delta. All errors of weights are multiplied by one factor, which is
        set anew after each save, within 0.05 to 8 intervals; first deltas are no nearer. Anchors and records
        do not count. None: the errors are kept, whatever they cost.
    row_error
        What each row of weights may be off by at most, relative to its size, ``|u - u~| / |u|`` of the
        2-norms, 0.01 to 8. Rows are what the first axis counts. A tensor of one dimension, or of rows of one
        element, is one row. See ``docs/rows.md``. "auto": half of the tensor's `error` (as rules, second
        moments and a budget leave it), but at least 0.25 and at most 1; and where that would add a quarter
        to a tensor's bytes, twice as much, and so on, or anything. None: rows are not looked at.
    name
        What the policy is called in records.
    weighted
        Whether second moments in the state say where errors matter. Weights with large ones get less than
        `error`, down to a fifth of it. Others get more, up to twice. `error` is then the mean, weighted by
        the roots of the second moments. Rules that give an error hold as they are.

    Examples
    --------
    >>> store.policy = lcstore.Policy(error=0.5, rules={"ema/**": "plain"})
    >>> store.policy.error
    0.5
    """

    error: float | None = 1.0
    first_moment: float | None = 0.7
    second_moment: float | None = 4.0
    rules: Mapping[str, Rule] = field(default_factory=dict)
    name: str = "custom"
    bytes_per_save: int | None = None
    row_error: float | Literal["auto"] | None = "auto"
    weighted: bool = False

    def __post_init__(self) -> None:
        _check_error("error", self.error)
        if self.row_error != "auto":
            _check_error("row_error", self.row_error)
        if not isinstance(self.name, str) or not 0 < len(self.name) <= MAX_NAME:
            raise InvalidInputError(f"a policy's name is a text of 1 to {MAX_NAME} characters")
        budget = self.bytes_per_save
        if budget is not None and not (type(budget) is int and budget > 0 and self.error is not None):
            raise InvalidInputError(
                f"a policy's bytes_per_save is a whole number above 0, and needs an error, not {budget!r}"
            )
        if not isinstance(self.weighted, bool):
            raise InvalidInputError(f"a policy's weighted is true or false, not {self.weighted!r}")
        first, second = self.first_moment, self.second_moment
        if first is not None and first != 0 and not 0.3 <= first <= 16:
            raise InvalidInputError(f"a policy's first_moment is 0, or 0.3 to 16 bits, not {first}")
        if second is not None and not 1 / 16 <= second <= 15:
            raise InvalidInputError(f"a policy's second_moment is 1/16 to 15 octaves, not {second}")
        for glob, rule in self.rules.items():
            _check_rule(glob, rule)

    def ruled(self, path: Name) -> Role | None:
        """Return the role that a rule gives the tensor of the name `path`; None where none does."""
        rule = self._rule(path, "error")
        return rule if isinstance(rule, str) else None

    def role(self, path: Name, guessed: Role) -> Role:
        """Return the role of the tensor of the name `path`, given what that suggests."""
        rule = self._rule(path, "error")
        role = rule if isinstance(rule, str) else guessed
        if role == "plain":
            return role
        if role == "weights":
            said = self.error_of(path)
        else:
            said = self.first_moment if role == "first_moment" else self.second_moment
        return "plain" if said is None else role

    def error_of(self, path: Name) -> float | None:
        """Return the tracking error aimed at for the weights named `path`; None keeps them plain."""
        rule = self._rule(path, "error")
        return self.error if rule is None or isinstance(rule, str) else rule["error"]

    def most_error(self, deltas: int) -> float:
        """Return the tracking error that weights may have at most in a delta of a run, its number given."""
        return math.inf if self.bytes_per_save is not None else OF_FIRST * math.pow(max(deltas, 1), GROWTH)

    def row_error_of(self, path: Name, error: float) -> float | None:
        """Return the relative error that each row of the weights named `path` may have; None: any.

        Parameters
        ----------
        path
            The name of the tensor.
        error
            Tracking error aimed at for it.
        """
        rule = self._rule(path, "row_error")
        if rule is not None and not isinstance(rule, str):
            return rule["row_error"]
        if self.row_error == "auto":
            return max(LEAST_OF_ROWS, min(MOST_OF_ROWS, OF_ERROR * error))
        return self.row_error

    def gives_row_error(self, path: Name) -> bool:
        """Return whether what rows of the weights named `path` may be off by was given."""
        rule = self._rule(path, "row_error")
        return self.row_error != "auto" or (rule is not None and not isinstance(rule, str))

    def gives_error(self, path: Name) -> bool:
        """Return whether a rule gives the error of the weights named `path`."""
        rule = self._rule(path, "error")
        return rule is not None and not isinstance(rule, str)

    def _rule(self, path: Name, what: str) -> Rule | None:
        """Return the first rule for `path` that says `what`, or gives a role."""
        if not self.rules:  # it is asked several times for each tensor of each save
            return None
        said = (self.rules[glob] for glob in matching(tuple(self.rules), path))
        return next((rule for rule in said if isinstance(rule, str) or what in rule), None)


def _check_error(name: str, error: object) -> None:
    if error is None:
        return
    if isinstance(error, bool) or not isinstance(error, int | float) or not 0.01 <= error <= 8:
        unit = "intervals" if name == "error" else 'times a row\'s size, or "auto" for all rows'
        raise InvalidInputError(f"a policy's {name} is 0.01 to 8 {unit}, not {error}")


def _check_rule(glob: object, rule: object) -> None:
    if not isinstance(glob, str) or not glob:
        raise InvalidInputError(f"a rule is for a glob of names, not for {glob!r}")
    if isinstance(rule, Mapping):
        if not rule or not set(rule) <= SAID:
            raise InvalidInputError(
                f"rule {glob!r} gives {sorted(rule)}; it gives an 'error', in intervals between saves, or a "
                f"'row_error', or is a role, as in {{{glob!r}: 'plain'}}. An absolute bound is for the codec "
                "alone, LCCodec(max_error=0.01): no store has one"
            )
        for name, error in rule.items():
            _check_error(name, error)
    elif rule not in get_args(Role):
        number = isinstance(rule, int | float)
        instead = f"an error is given so: {{'error': {rule}}}" if number else "every bit is kept as 'plain'"
        raise InvalidInputError(
            f"rule {glob!r} gives {rule!r:.100}; a role is one of {', '.join(get_args(Role))}; {instead}"
        )


class _Settled(Policy):
    """A policy under which the first deltas of a run are as near as later ones."""

    def most_error(self, deltas: int) -> float:
        return math.inf


def settled(policy: Policy) -> Policy:
    """Return a policy as it is once the first deltas of a run, which are nearer, are behind it."""
    return _Settled(**vars(policy))


PRESETS: Final[dict[str, Policy]] = {
    "lossless": Policy(None, None, None, name="lossless"),
    "high": Policy(0.35, 2.0, 2.0, name="high"),
    "balanced": Policy(1.0, 0.7, 4.0, name="balanced"),
    "small": Policy(2.0, 0.0, 7.0, name="small"),
}


def policy_of(policy: str | Policy) -> Policy:
    """Return a preset by name, or the policy itself."""
    if isinstance(policy, Policy):
        return policy
    if policy not in PRESETS:
        raise InvalidInputError(f"policy is {policy!r}; it is a Policy or one of {', '.join(PRESETS)}")
    return PRESETS[policy]
