"""A PyTorch run: modules and optimizers go in as they are, and new ones go on from the store."""

from __future__ import annotations

import numpy as np
import pytest

import lcstore

torch = pytest.importorskip("torch")


def make(seed: int = 0):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.BatchNorm1d(256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
    )
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def train(model, optimizer, steps: int, seed: int) -> float:
    generator = torch.Generator().manual_seed(seed)
    target = torch.randn(64, 10, generator=torch.Generator().manual_seed(99))
    for _ in range(steps):
        x = torch.randn(128, 64, generator=generator)
        loss = torch.nn.functional.mse_loss(model(x), x @ target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def test_a_run_goes_on_in_new_objects(tmp_path):
    store = lcstore.open(tmp_path / "s")
    model, optimizer = make()
    for step in range(6):
        loss = train(model, optimizer, 20, step)
        info = store.save(
            step, {"model": model, "optim": optimizer, "rng": torch.get_rng_state(), "loss": loss}
        )
    assert info.ratio > 4
    roles = {path: role for path, (_, _, role) in store.paths().items()}
    assert roles["model/0.weight"] == "weights"
    assert roles["model/1.running_mean"] == "plain"
    assert roles["model/1.num_batches_tracked"] == "plain"
    assert roles["optim/state/#0/exp_avg"] == "first_moment"
    assert roles["optim/state/#0/exp_avg_sq"] == "second_moment"
    assert roles["optim/state/#0/step"] == "plain"

    other_model, other_optimizer = make(seed=5)
    other = lcstore.open(tmp_path / "s")
    other.resume_into("latest", {"model": other_model, "optim": other_optimizer})
    for name, value in other_model.state_dict().items():
        if "weight" not in name:
            assert torch.equal(value, model.state_dict()[name]), name
    state = other_optimizer.state_dict()["state"][0]
    assert isinstance(state["exp_avg"], torch.Tensor)
    assert bool((state["exp_avg_sq"] > 0).all())
    expected = train(model, optimizer, 20, 7)
    again = train(other_model, other_optimizer, 20, 7)
    assert expected <= again < loss  # an interval of rework at most, here where the loss still falls fast
    assert other.save(6, {"model": other_model, "optim": other_optimizer}).kind == "delta"


def test_tensors_come_back_as_asked(tmp_path):
    store = lcstore.open(tmp_path / "s")
    state = {
        "model": {
            "half.weight": torch.randn(64, 64).to(torch.bfloat16),
            "tied.weight": torch.randn(64, 64)[:, ::2],
            "scalar": torch.tensor(3),
        }
    }
    store.save(0, state)
    plain = store.restore(to="numpy")
    assert plain["model"]["half.weight"].dtype.name == "bfloat16"
    saved = store.restore()
    for name, value in state["model"].items():
        assert saved["model"][name].dtype == value.dtype
        assert torch.equal(saved["model"][name], value)
    like = {"model": {"half.weight": torch.empty(64, 64, dtype=torch.float32)}}
    cast = store.restore(like=like)["model"]["half.weight"]
    assert cast.dtype == torch.float32
    assert torch.equal(cast, state["model"]["half.weight"].float())
    for _ in range(3):
        state["model"]["half.weight"] = state["model"]["half.weight"] + 0.01
        store.save(1, state)
    back = store.restore()["model"]["half.weight"].float().numpy()
    assert np.abs(back - state["model"]["half.weight"].float().numpy()).max() < 0.1


def test_tensors_are_filled(tmp_path):
    store = lcstore.open(tmp_path / "s")
    kept = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    store.save(0, {"w": [kept, torch.ones(3)]})
    parameter, view = torch.nn.Parameter(torch.zeros(2, 3)), torch.zeros(6)
    assert store.restore_into(0, {"w": [parameter, view[::2]]}) == {}
    assert torch.equal(parameter.detach(), kept.float())
    assert view.tolist() == [1, 0, 1, 0, 1, 0]
    with pytest.raises(lcstore.InvalidInputError, match=r"w/#1.*shape"):
        store.restore_into(0, {"w": [parameter, torch.zeros(4)]})


def test_a_loss_may_be_given_with_its_graph(tmp_path):
    store = lcstore.open(tmp_path / "s")
    loss = (torch.ones(2, requires_grad=True) * 0.25).sum()
    store.save(0, {"epoch": 0}, metrics={"loss": loss})
    assert store.info(0).metrics == {"loss": 0.5}
