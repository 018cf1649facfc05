"""Whether the steps that an optimizer counts began anew, as where a resume did not restore it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from lcstore.arrays import Array
from lcstore.layout.layout import Layout
from lcstore.staging.stage import Staged
from lcstore.state.names import Name, format_name
from lcstore.state.roles import is_optimizer

_log: Final = logging.getLogger("lcstore")

#: What optimizers of torch, Optax and Keras call their count of steps.
_COUNTERS: Final = frozenset({"step", "count", "iterations"})


def counters_anew(staged: Staged, before: Layout | None, pools: Mapping[str, Array]) -> dict[str, float]:
    """Return the count of an optimizer's steps and the one before, if it is less now; and say so.

    Of all counters the first that both states have is looked at: those of an optimizer go together.

    Parameters
    ----------
    staged
        The state that is saved.
    before, pools
        Layout of the state that it goes on from, and what readers of that have.
    """
    for (name, _), array in zip(staged.flat.tensors, staged.arrays, strict=True):
        if array.size != 1 or array.dtype.kind not in "iuf" or not _is_counter(name):
            continue
        spec = before.wholes[before.index[name]] if before is not None and name in before.index else None
        if spec is None or (spec.role, spec.dtype, spec.size) != ("plain", array.dtype.name, 1):
            continue
        if spec.pool not in pools:
            continue
        now, was = float(array[0]), float(pools[spec.pool][spec.offset])
        if now >= was:
            return {}
        _log.warning(
            "step %d: the optimizer has counted %g steps (%r), and %g in the state that this one goes on "
            "from: it began anew. Where that is not meant, restore it at the resume: resume_into(..., "
            "{'model': model, 'optim': optimizer})",
            *(staged.step, now, format_name(name), was),
        )
        return {"optimizer_steps": now, "optimizer_steps_before": was}
    return {}


def _is_counter(name: Name) -> bool:
    return bool(name) and str(name[-1]).rpartition(".")[2] in _COUNTERS and is_optimizer(name)
