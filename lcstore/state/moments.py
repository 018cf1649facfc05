"""Which statistics of optimizers may be lossy: those that none sets against another.

What is set against another statistic may not be a little off by itself: a centered RMSprop takes the square
root of ``square_avg - grad_avg**2``, and a `square_avg` that is low makes it NaN. So statistics are looked at
as the *group* that an optimizer keeps of a parameter, and are lossy only in groups that are known. All others
stay plain, whatever they are called.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from lcstore.state.names import Component, Name
from lcstore.state.roles import (
    Role,
    guess_role,
    is_flat,
    is_optimizer,
    may_be_flat_weight,
    may_be_lossy,
    may_be_moment,
    moment_field,
)

#: The groups that are known, by their fields, those with a "!" being plain: a lone momentum, a lone scale and
#: the two of Adam; AMSGrad, Adamax, Adadelta, Adagrad, Rprop and ASGD, in torch and in Optax; of torch alone
#: AdaBelief, Sophia, AdaHessian, Adafactor with momentum, schedule-free AdamW, the Adam of a Muon, AdEMAMix,
#: Prodigy, Adan and MARS; of Optax alone Muon, AdEMAMix, and schedule-free around an optimizer; and those of
#: Keras.
_GROUPS: Final = (
    *("exp_avg exp_avg_sq", "exp_avg", "exp_avg_sq", "momentum_buffer", "square_avg"),
    "square_avg momentum_buffer",
    *("mu nu", "mu", "nu", "trace"),
    *("m v", "m", "momentum"),
    *("exp_avg exp_avg_sq max_exp_avg_sq", "mu nu nu_max"),
    *("exp_avg exp_inf", "square_avg acc_delta", "e_g e_x", "sum", "sum_of_squares"),
    *("prev step_size", "prev_updates step_sizes", "ax"),
    *("exp_avg exp_avg_var", "exp_avg exp_avg_var max_exp_avg_var"),
    *("exp_avg hessian", "exp_avg exp_hessian_diag_sq", "exp_avg exp_avg_sq_row! exp_avg_sq_col!"),
    *("z exp_avg_sq", "moment1 moment2", "exp_avg_slow! exp_avg_sq"),
    *("exp_avg exp_avg_slow! exp_avg_sq", "exp_avg_fast exp_avg_slow! exp_avg_sq"),
    *("exp_avg! exp_avg_sq s!", "exp_avg! exp_avg_sq s! p0!"),
    *("exp_avg! exp_avg_sq exp_avg_diff neg_pre_grad!", "exp_avg exp_avg_sq last_grad!"),
    *("mu ns_coeffs!", "z base_optimizer_state!", "m1 m2! nu"),
    *("_momentum", "_momentum _velocity", "_momentum _velocity _velocity_hat"),
)
#: What is lossy in each, by all of its fields.
_KNOWN: Final[Mapping[frozenset[Component], frozenset[Component]]] = {
    frozenset(group.replace("!", "").split()): frozenset(group.split()) for group in _GROUPS
}
#: What fields are that mean nothing outside of these groups. Whatever an update is divided by, or by the root
#: of it, is coded as second moments are: relative to itself. Of `prev`, Rprop looks at the signs alone. `ax`
#: is the average of the parameter over its steps, `z` what it is drawn to.
_ONLY_IN_GROUPS: Final[Mapping[Component, Role]] = {
    **dict.fromkeys(("exp_inf", "acc_delta", "sum", "step_size"), "second_moment"),
    **dict.fromkeys(("nu_max", "e_g", "e_x", "sum_of_squares", "step_sizes"), "second_moment"),
    **dict.fromkeys(("exp_avg_var", "max_exp_avg_var", "hessian", "exp_hessian_diag_sq"), "second_moment"),
    **dict.fromkeys(("moment2", "_velocity", "_velocity_hat"), "second_moment"),
    **dict.fromkeys(("prev", "prev_updates", "exp_avg_fast", "exp_avg_diff"), "first_moment"),
    **dict.fromkeys(("moment1", "m1", "_momentum"), "first_moment"),
    **dict.fromkeys(("ax", "z"), "weights"),
}
#: Second moments whose root an update is divided by, and that forget; and those that never fall, are used
#: themselves, or are what an update is multiplied with.
_FADING: Final = {
    *("exp_avg_sq", "square_avg", "nu", "v", "moment2", "_velocity"),
    *("exp_avg_var", "hessian", "exp_hessian_diag_sq"),
}
_LASTING: Final = {
    *("max_exp_avg_sq", "nu_max", "max_exp_avg_var", "_velocity_hat", "sum", "sum_of_squares"),
    *("exp_inf", "step_size", "step_sizes", "acc_delta", "e_x"),
}
#: Keras has the name of the parameter and the field in one: "dense_kernel_momentum".
_KERAS: Final = ("_momentum", "_velocity", "_velocity_hat")
#: Codebooks that averages make, as some of VQ-VAE are, by the names of the sums and counts beside them.
_AVERAGED: Final = frozenset({"embed", "embeds", "embedding", "embeddings", "codebook", "weight"})
_BESIDE_AVERAGES: Final = frozenset(
    {"embed_avg", "embed_sum", "embed_ema", "cluster_size", "ema_cluster_size"}
)
#: Copies of the parameter itself, which mixed precision keeps beside its moments.
_COPIES: Final = frozenset({"param", "master_param"})
#: Steps that were taken.
_COUNTS: Final = frozenset({"count", "step"})
#: What optimizers keep that is like the weights themselves.
LIKE_WEIGHTS: Final = _COPIES | {field for field, role in _ONLY_IN_GROUPS.items() if role == "weights"}
#: Fields of Adam in Optax, and of other optimizers too (a centered RMSprop): more has to say that it is Adam.
_ADAM_OR_NOT: Final = frozenset({"mu", "nu"})
_ADAM: Final = re.compile("adam|belief", re.IGNORECASE)


class Tensor(NamedTuple):
    """What a role is guessed from."""

    name: Name
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def guess_roles(
    tensors: Sequence[Tensor],
    types: Mapping[Name, str],
    said: Mapping[Name, Role],
    counted: Set[Name] = frozenset(),
) -> list[Role]:
    """Return the role of each tensor of a state: as `guess_role` says, but for what optimizers keep.

    Parameters
    ----------
    tensors
        All of the state.
    types
        Of `FlatState`: what named tuples and other objects with fields are called.
    said
        Of `FlatState`: what modules say of tensors, which goes before their names.
    counted
        Of `FlatState`: the places that have a plain number called ``count``.
    """
    roles = [
        said[tensor.name]
        if tensor.name in said and may_be_lossy(tensor.dtype, tensor.shape)
        else guess_role(*tensor)
        for tensor in tensors
    ]
    for number in _averages(tensors):
        roles[number] = "plain" if tensors[number].name not in said else roles[number]
    kept = {
        number: found
        for number, role in enumerate(roles)
        if role != "weights" and (found := _kept(tensors[number], role)) is not None
    }
    if not kept:
        return roles
    fields = _fields(tensors, {group for group, _ in kept.values()})
    for group in counted & fields.keys():
        fields[group].setdefault("count", 1)
    lossy = {group: _lossy(group, its, types) for group, its in fields.items()}
    for number, (group, role) in kept.items():
        field = _apart(tensors[number].name)[len(group)]
        roles[number] = role if field in lossy[group] else "plain"
    for number in _updated(tensors, roles):
        roles[number] = "weights" if tensors[number].name not in said else roles[number]
    return roles


@lru_cache(maxsize=1 << 14)
def is_fading(name: Name) -> bool:
    """Return whether the second moment of a name may come back much too large.

    That only slows its element down, by the root of it, until the moment has forgotten.
    """
    parts = {*_apart(name)}
    return not parts.isdisjoint(_FADING) and parts.isdisjoint(_LASTING)


def _updated(tensors: Sequence[Tensor], roles: Sequence[Role]) -> list[int]:
    """Return which flat tensors an optimizer updates, as it has moments of the very same length.

    Lengths of 2^16 elements and more are not the same by chance.
    """
    flat = [number for number, tensor in enumerate(tensors) if is_flat(tensor.shape)]
    moments = {tensors[number].shape for number in flat if roles[number].endswith("_moment")}
    return [
        number
        for number in flat
        if roles[number] == "plain"
        and tensors[number].shape in moments
        and may_be_lossy(tensors[number].dtype, tensors[number].shape)
        and may_be_flat_weight(tensors[number].name)
    ]


def _averages(tensors: Sequence[Tensor]) -> list[int]:
    """Return which tensors are codebooks that are no parameters, as what makes their averages lies beside."""
    words = [str(tensor.name[-1]).rpartition(".")[2] if tensor.name else "" for tensor in tensors]
    beside = [number for number, word in enumerate(words) if word in _BESIDE_AVERAGES]
    owners = {_apart(tensors[number].name)[:-1] for number in beside}
    asked = [number for number, word in enumerate(words) if owners and word in _AVERAGED]
    return [number for number in asked if _apart(tensors[number].name)[:-1] in owners]


def _kept(tensor: Tensor, role: Role) -> tuple[Name, Role] | None:
    """Return the group that a tensor belongs to, and its role if that is known; None for other tensors.

    The group is the part of the name that it shares with what is kept besides it.
    """
    path = _apart(tensor.name)
    if role != "plain":
        found = moment_field(path)
        return None if found is None else (path[: found[0]], role)
    if not may_be_moment(tensor.dtype, tensor.shape) or not is_optimizer(path):
        return None
    for place, part in enumerate(path[1:], 1):
        if part in _ONLY_IN_GROUPS:
            found_role = _ONLY_IN_GROUPS[part]
            weights = found_role == "weights" and not may_be_lossy(tensor.dtype, tensor.shape)
            return None if weights else (path[:place], found_role)
    return None


def _apart(path: Name) -> Name:
    """Return a name of which the last word is a part: "layers.0.weight.exp_avg" is two."""
    last = str(path[-1]) if path else ""
    owner, _, field = last.rpartition(".")
    if owner:
        return (*path[:-1], owner, field)
    if not last.endswith(_KERAS):
        return path
    end = next(end for end in _KERAS if last.endswith(end))
    return (*path[:-1], last.removesuffix(end), end)


def _fields(tensors: Sequence[Tensor], groups: set[Name]) -> dict[Name, dict[Component, int]]:
    """Return the fields of each group, and of how many elements their largest tensor is."""
    found: dict[Name, dict[Component, int]] = {group: {} for group in groups}
    lengths, parents = sorted({len(group) for group in groups}), {group[:-1] for group in groups}
    for tensor in tensors:
        path, above = _apart(tensor.name), tensor.name[:-1]
        within = [(path[:length], path[length]) for length in lengths if length < len(path)]
        if tensor.name and above in parents and "." not in (last := str(tensor.name[-1])):
            # Of Keras, whose names have no dots, any ending may be a field.
            ends = [place for place, letter in enumerate(last) if letter == "_"]
            within += [((*above, last[:place]), last[place:]) for place in ends]
        for group, field in within:
            if group in found:
                found[group][field] = max(found[group].get(field, 0), math.prod(tensor.shape))
    return found


def _lossy(group: Name, fields: Mapping[Component, int], types: Mapping[Name, str]) -> Set[Component]:
    """Return which fields of a group may be lossy: none where it is not known as a whole."""
    # Numbers (a step, a rate) are exact anyway, and every optimizer has some: an ensemble has one a member.
    statistics = frozenset(field for field, size in fields.items() if size > 1) - _COPIES - _COUNTS
    if statistics == _ADAM_OR_NOT and not _is_adam(group, fields, types):
        return frozenset()
    return _KNOWN.get(statistics, frozenset())


def _is_adam(group: Name, fields: Mapping[Component, int], types: Mapping[Name, str]) -> bool:
    if group in types:
        return _ADAM.search(types[group]) is not None
    return "count" in fields or any(_ADAM.search(str(part)) is not None for part in group)
