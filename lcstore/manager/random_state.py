"""The random number generators of a process, as one thing to save and load."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from lcstore.errors import InvalidInputError

#: What numpy's global generator may be: `numpy.random.set_bit_generator` has it be another than the first.
_USUAL: Final = "MT19937"
_KINDS: Final = {
    kind.__name__: kind
    for kind in (
        np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64,
    )
}  # fmt: skip


class RandomState:
    """The global generators of Python, numpy and torch (on the CPU, and on GPUs of CUDA that are used).

    Save it beside the model, and give it to ``resume_into``: then a resumed run draws the same numbers as one
    that was never interrupted. Of generators of your own save what they are: ``x.bit_generator.state`` of a
    ``numpy.random.Generator``, ``x.get_state()`` of a ``torch.Generator``; keys of JAX as they are.

    Examples
    --------
    >>> import random
    >>> state = lcstore.RandomState().state_dict()
    >>> drawn = random.random()
    >>> lcstore.RandomState().load_state_dict(state)
    >>> random.random() == drawn
    True
    """

    def state_dict(self) -> dict[str, Any]:
        """Return what the generators are now, as arrays and plain values."""
        version, words, gauss = random.getstate()
        found: dict[str, Any] = {
            "python": {"version": version, "words": np.array(words, np.uint32), "gauss": gauss},
            "numpy": _of_numpy(),
        }
        torch = sys.modules.get("torch")
        if torch is not None:
            found["torch"] = torch.get_rng_state().numpy().copy()
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                found["cuda"] = [state.numpy().copy() for state in torch.cuda.get_rng_state_all()]
        return found

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the generators to what they were.

        Raises
        ------
        InvalidInputError
            The state holds a generator of torch, which this process has not imported; or of more GPUs.
            Where torch is not installed nothing can draw from it, and it is left out. Or the global generator
            of numpy was of a kind that is not numpy's own, and is of another here.
        """
        torch: Any = sys.modules.get("torch")
        drawn = "torch" in state or "cuda" in state
        if torch is None and drawn and find_spec("torch") is not None:
            raise InvalidInputError("the state holds the random numbers of torch: import torch before")
        gpus = [] if torch is None else [*state.get("cuda", ())]
        if torch is not None and len(gpus) > torch.cuda.device_count():
            raise InvalidInputError(
                f"the state holds the random numbers of {len(gpus)} GPUs, and {torch.cuda.device_count()} "
                "are here: load the rest of the state without it"
            )
        python, legacy = state["python"], state["numpy"]
        _have_numpy_be(legacy.get("bit_generator", _USUAL))
        random.setstate((python["version"], tuple(np.asarray(python["words"]).tolist()), python["gauss"]))
        np.random.set_state(state_for_numpy(legacy))  # noqa: NPY002
        if torch is not None and "torch" in state:
            torch.set_rng_state(torch.as_tensor(np.array(state["torch"], np.uint8)))
        for device, found in enumerate(gpus):
            torch.cuda.set_rng_state(torch.as_tensor(np.array(found, np.uint8)), device)


def _of_numpy() -> dict[str, Any]:
    """Return what the global generator of numpy is now; the usual one in few words, another in numpy's."""
    found: dict[str, Any] = np.random.get_state(legacy=False)  # noqa: NPY002  (that is what is to be kept)
    if found["bit_generator"] != _USUAL:
        return found
    return {
        "keys": np.array(found["state"]["key"], np.uint32),
        "place": int(found["state"]["pos"]),
        "has_gauss": int(found["has_gauss"]),
        "gauss": float(found["gauss"]),
    }


def state_for_numpy(saved: Mapping[str, Any]) -> Any:
    """Return what `numpy.random.set_state` takes for what was saved of the global generator."""
    if "bit_generator" in saved:
        return dict(saved)
    keys = np.asarray(saved["keys"], np.uint32)
    return _USUAL, keys, saved["place"], saved["has_gauss"], saved["gauss"]


def _have_numpy_be(kind: str) -> None:
    """Have the global generator be of a kind, as `numpy.random.set_state` changes none."""
    if np.random.get_state(legacy=False)["bit_generator"] == kind:  # noqa: NPY002
        return
    if kind not in _KINDS:
        raise InvalidInputError(
            f"the state holds random numbers of {kind!r:.100}, which is no kind of numpy's own: call "
            "numpy.random.set_bit_generator with one of it before"
        )
    np.random.set_bit_generator(_KINDS[kind]())  # type: ignore[attr-defined]
