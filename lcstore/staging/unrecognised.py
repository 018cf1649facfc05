"""Names in a state and in a policy that do not meet: a user is to know what is plain, or ruled in vain."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from lcstore.dtypes import dtype_from_name
from lcstore.layout.layout import Layout
from lcstore.state.moments import LIKE_WEIGHTS
from lcstore.state.names import Name, format_name, matcher, parse_name
from lcstore.state.roles import is_flattened_moment, is_optimizer, may_be_lossy, stray_pairs
from lcstore.state.wrappers import changed_prefixes
from lcstore.track.policy import Policy

#: What is smaller is not worth a word.
_LEAST_BYTES: Final = 1 << 16
_SHOWN: Final = 3


@dataclass(frozen=True)
class Unrecognised:
    """Floating tensors of two dimensions or more that are plain, and flat ones.

    Attributes
    ----------
    paths
        Their names, the largest first.
    nbytes, share
        Their bytes, and these as a share of the bytes of all tensors.
    others
        Bytes of all tensors but moments.
    pairs
        Those of `paths` that look like moments, of which nothing says whose they are.
    flattened
        Those that lead to moments by a way through a tree in one key.
    """

    paths: tuple[str, ...]
    nbytes: int
    share: float
    others: int
    pairs: tuple[str, ...]
    flattened: tuple[str, ...]

    @property
    def matters(self) -> bool:
        """Whether most of what is no moment is kept so, in a state that is not small."""
        return self.nbytes > self.others / 2 and self.nbytes >= _LEAST_BYTES

    @property
    def rules(self) -> dict[str, str]:
        """The rules that make the largest of them weights, in every layer; never what an optimizer keeps."""
        largest = [path for path in self._rest()[:_SHOWN] if not is_optimizer(parse_name(path))]
        globs = (re.sub(r"[*?\[]", r"[\g<0>]", path) for path in largest)
        return dict.fromkeys((re.sub(r"\d+", "[0-9]*", glob) for glob in globs), "weights")

    def __str__(self) -> str:
        shown = ", ".join(map(repr, self.paths[:_SHOWN])) + (", ..." if len(self.paths) > _SHOWN else "")
        said = (
            f"{self.nbytes / 1e6:,.1f} MB of this state ({self.share:.0%}) are kept bit for bit, and so "
            f"hardly shrink, since nothing says that these are weights or moments: {shown}. "
        )
        if self.pairs:
            fields = "{'optimizer': {'m': ..., 'v': ...}}"
            said += f"Save moments as {fields}: {self.pairs[0]!r} and its like lie below no optimizer. "
        if self.flattened:
            said += f"Save the tree itself, in which moments are known, not keys as {self.flattened[0]!r}. "
        if not self._rest():
            return said + "A rule 'plain' says that this is meant"
        if not self.rules:
            return said + (
                "What that optimizer keeps is not known to be safe otherwise (docs/states.md, Optimizers): "
                "a rule 'plain' says that this is meant"
            )
        what = "weights" if self.pairs or self.flattened else "them"
        return said + (
            f"Save {what} under names like 'params' or 'weight', or give a rule: "
            f"open(url, policy={self.rules}), or 'plain' if that is meant (commands "
            "take rules in a policy file: docs/tune.md)"
        )

    def _rest(self) -> list[str]:
        moments = {*self.pairs, *self.flattened}
        return [path for path in self.paths if path not in moments]


def unrecognised(tensors: Mapping[str, tuple[tuple[int, ...], str, str]]) -> Unrecognised:
    """Return what is plain and of the dtypes and dimensions of weights.

    Parameters
    ----------
    tensors
        Shape, dtype and role by name, as `Store.paths` gives them.
    """
    sizes = {
        path: math.prod(shape) * dtype_from_name(dtype).itemsize
        for path, (shape, dtype, _) in tensors.items()
    }
    found = [
        path
        for path, (shape, dtype, role) in tensors.items()
        if role == "plain" and may_be_lossy(dtype_from_name(dtype), shape) and sizes[path]
    ]
    found.sort(key=lambda path: (-sizes[path], path))
    nbytes, total = sum(sizes[path] for path in found), sum(sizes.values())
    moments = sum(sizes[path] for path, (_, _, role) in tensors.items() if role.endswith("_moment"))
    stray = stray_pairs(map(parse_name, tensors))
    pairs = tuple(path for path in found if parse_name(path) in stray)
    flattened = tuple(path for path in found if is_flattened_moment(parse_name(path)))
    return Unrecognised(tuple(found), nbytes, nbytes / max(total, 1), total - moments, pairs, flattened)


def changed_wrapping(before: Layout | None, after: Layout | None) -> str | None:
    """Return what is to be said where names changed by what wraps a model alone; None where they did not.

    Such tensors are new ones, stored as a whole, and a reader finds other names from that step on.
    """
    if before is None or after is None or before is after:
        return None
    changed = changed_prefixes(before.index, after.index)
    if not changed:
        return None
    old, new = map(format_name, changed[0])
    return (
        f"{len(changed)} tensors are stored anew, as how the model is wrapped changed their names: {new!r} "
        f"was {old!r}. Save what is wrapped, under the same names each time: model.module of DataParallel "
        "and DDP, model._orig_mod of torch.compile; of PEFT what is trained alone, "
        "peft.get_peft_model_state_dict(model), in a store of its own"
    )


def _is_risky(policy: Policy, name: Name) -> bool:
    return policy.ruled(name) == "weights" and is_optimizer(name) and name[-1] not in LIKE_WEIGHTS


def unmet_names(policy: Policy, layout: Layout, unfit: Collection[Name] = ()) -> list[str]:
    """Return what is to be said of a policy and a state whose names do not meet.

    That is: rules that match no tensor; and most of a state plain, where nobody asked for that, and not for
    values that no grid holds, as `unfit` tensors have.
    """
    said = []
    matched = {glob: [*filter(matcher(glob), layout.named)] for glob in policy.rules}
    idle = [glob for glob, names in matched.items() if not names]
    for glob, names in matched.items():
        ties = [(name, layout.names.ties[name]) for name in names if name in layout.names.ties]
        if ties and len(ties) == len(names) and not isinstance(policy.rules[glob], str):
            one, first = map(format_name, ties[0])
            said.append(f"the policy's {glob!r} is for nothing: {one!r} is tied to {first!r}, rule on that")
    if idle:
        said.append(f"no tensor of this state is matched by the policy's {', '.join(map(repr, idle))}")
    risky = [spec.name for spec in layout.tensors if spec.role == "weights" and _is_risky(policy, spec.name)]
    if risky:
        said.append(
            f"a rule of the policy has {len(risky)} tensors that an optimizer keeps be weights, "
            f"{format_name(risky[0])!r} among them. Each comes back a little off by itself: where the "
            "optimizer sets one against another, as a centered RMSprop does, its next step may be NaN. "
            "'plain' keeps them bit for bit (docs/states.md, Optimizers)"
        )
    if not policy.rules and policy.error is not None:
        looked = [spec for spec in layout.tensors if spec.name not in unfit]
        found = unrecognised({format_name(s.name): (s.shape, s.dtype, s.role) for s in looked})
        said += [str(found)] if found.matters else []
    return said
