"""Models of which the wrapper comes and goes: told once, with the cure."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import lcstore
from lcstore.state.wrappers import bare, renamed
from lcstore.storage.memory import MemoryBackend


def _state(prefix="", step=0):
    rng = np.random.default_rng(0)
    return {
        "model": {
            f"{prefix}{name}.weight": rng.standard_normal((64, 64)) + step * 1e-3 for name in ("a", "b.c")
        }
    }


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "_orig_mod.module."])
@pytest.mark.parametrize("comes", [True, False])
def test_a_wrapper_that_changes_between_saves_is_told_once(prefix, comes):
    first, second = ("", prefix) if comes else (prefix, "")
    store = lcstore.open(MemoryBackend.fresh())
    store.save(0, _state(first))
    old, new = f"model/{first}a.weight", f"model/{second}a.weight"
    with pytest.warns(
        lcstore.UnrecognisedWarning, match=r"2 tensors are stored anew.*model\.module"
    ) as caught:
        store.save(1, _state(second, 1))
    assert len(caught) == 1
    assert f"{new!r} was {old!r}" in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.save(2, _state(second, 2))
        store.save(3, _state(first, 3))
    assert store.read(1, new).shape == (64, 64)


def test_a_model_that_peft_adapts_between_saves_is_told_of():
    base = {
        f"h.0.{name}.weight": np.random.default_rng(0).standard_normal((64, 64)) for name in ("attn", "ln")
    }
    store = lcstore.open(MemoryBackend.fresh())
    store.save(0, {"model": base})
    adapted = {
        "base_model.model.h.0.attn.base_layer.weight": base["h.0.attn.weight"],
        "base_model.model.h.0.attn.lora_A.default.weight": np.ones((4, 64)),
        "base_model.model.h.0.ln.weight": base["h.0.ln.weight"],
    }
    with pytest.warns(
        lcstore.UnrecognisedWarning, match=r"2 tensors are stored anew.*peft\.get_peft_model"
    ) as caught:
        store.save(1, {"model": adapted})
    assert len(caught) == 1
    with pytest.raises(lcstore.NotFoundError):
        store.read(1, "model/h.0.attn.weight")


def test_it_is_told_of_a_run_that_is_resumed():
    backend = MemoryBackend.fresh()
    lcstore.open(backend).save(0, _state())
    store = lcstore.open(backend)
    store.resume()
    with pytest.warns(lcstore.UnrecognisedWarning, match="model._orig_mod of torch.compile"):
        store.save(1, _state("_orig_mod.", 1))


def test_other_names_that_come_and_go_are_not_told_of():
    store = lcstore.open(MemoryBackend.fresh())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.save(0, _state())
        store.save(1, _state("body.", 1))
        state = _state("body.", 2)
        state["model"]["module.other.weight"] = np.ones((64, 64))
        store.save(2, state)
        store.save(3, {"model": {**state["model"], "other.weight": np.zeros((64, 64))}})


def test_prefixes_of_wrappers():
    assert bare("_orig_mod.module.net.module.fc.weight") == "net.fc.weight"
    assert bare("my_module.fc.weight") == "my_module.fc.weight"
    assert bare("fc.module") == "fc.module"
    assert renamed({"module.a": 1, "b": 2}, {"a", "module.b"}) == {"a": 1, "module.b": 2}
    assert renamed({"module.a": 1, "a": 2}, {"a", "b"}) is None
    assert renamed({"module.a": 1}, {"a", "b"}) is None
    assert renamed({"module.a": 1, "a": 2}, {"module.a", "a"}) is None
