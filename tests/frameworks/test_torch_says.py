"""A module of torch says which of its tensors are trained: that decides, not what they are called."""

from __future__ import annotations

import pytest

import lcstore
from lcstore.storage.memory import MemoryBackend

torch = pytest.importorskip("torch")


class Odd(torch.nn.Module):
    """Trained tensors and buffers, each under a name that would say the other."""

    def __init__(self) -> None:
        super().__init__()
        self.mixing = torch.nn.Parameter(torch.randn(64, 64))
        self.positions = torch.nn.Parameter(torch.randn(64, 64), requires_grad=False)
        self.inner = torch.nn.Linear(64, 64)
        self.register_buffer("weight", torch.randn(64, 64))


def roles(state, **how) -> dict[str, str]:
    store = lcstore.open(MemoryBackend.fresh(), **how)
    store.save(0, state)
    return {name: role for name, (_, _, role) in store.paths().items()}


@pytest.mark.parametrize("wrapped", [lambda model: model, torch.nn.DataParallel])
def test_trained_parameters_are_weights_and_buffers_plain(wrapped):
    found = {name.replace("module.", ""): role for name, role in roles([wrapped(Odd())]).items()}
    assert found == {
        "#0/mixing": "weights",
        "#0/positions": "plain",
        "#0/inner.weight": "weights",
        "#0/inner.bias": "plain",
        "#0/weight": "plain",
    }


def test_without_the_module_names_decide():
    found = roles({"model": Odd().state_dict()})
    assert (found["model/mixing"], found["model/weight"]) == ("plain", "weights")


def test_rules_go_before_modules():
    found = roles({"model": Odd()}, policy={"model/mixing": "plain", "model/weight": "weights"})
    assert (found["model/mixing"], found["model/weight"]) == ("plain", "weights")


def test_a_frozen_parameter_with_a_clear_name_is_weights():
    model = torch.nn.Linear(64, 64).requires_grad_(False)
    assert roles({"model": model})["model/weight"] == "weights"


def test_a_buffer_comes_back_bit_for_bit():
    model = Odd()
    store = lcstore.open(MemoryBackend.fresh())
    for step in range(4):
        model.weight += 1e-3 * torch.randn(64, 64)
        with torch.no_grad():
            model.mixing += 1e-3 * torch.randn(64, 64)
        store.save(step, {"model": model})
    assert torch.equal(store.restore()["model"]["weight"], model.weight)


def test_keys_that_a_module_renames_are_judged_by_name():
    class Renaming(Odd):
        def state_dict(self, *args, **options):
            return {f"as.{name}": value for name, value in super().state_dict(*args, **options).items()}

    found = roles({"model": Renaming()})
    assert (found["model/as.mixing"], found["model/as.inner.weight"]) == ("plain", "weights")
