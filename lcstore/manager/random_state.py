"""The random number generators of a process, as one thing to save and load."""

from __future__ import annotations

import random
import sys
from importlib.util import find_spec
from typing import Any

import numpy as np

from lcstore.errors import InvalidInputError


class RandomState:
    """The global generators of Python, numpy and torch (on the CPU, and on GPUs of CUDA that are used).

    Save it beside the model, and give it to ``resume_into``: then a resumed run draws the same numbers as one
    that was never interrupted. Generators of your own (``numpy.random.Generator``, ``torch.Generator``, JAX
    keys) are values of the state.

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
        _, keys, place, has_gauss, cached = np.random.get_state()  # noqa: NPY002  (that is what is to be kept)
        found: dict[str, Any] = {
            "python": {"version": version, "words": np.array(words, np.uint32), "gauss": gauss},
            "numpy": {
                "keys": np.array(keys, np.uint32),
                "place": int(place),
                "has_gauss": int(has_gauss),
                "gauss": float(cached),
            },
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
            Where torch is not installed nothing can draw from it, and it is left out.
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
        random.setstate((python["version"], tuple(np.asarray(python["words"]).tolist()), python["gauss"]))
        keys = np.asarray(legacy["keys"], np.uint32)
        np.random.set_state(  # noqa: NPY002
            ("MT19937", keys, legacy["place"], legacy["has_gauss"], legacy["gauss"])
        )
        if torch is not None and "torch" in state:
            torch.set_rng_state(torch.as_tensor(np.array(state["torch"], np.uint8)))
        for device, found in enumerate(gpus):
            torch.cuda.set_rng_state(torch.as_tensor(np.array(found, np.uint8)), device)
