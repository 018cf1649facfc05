"""Moments go to the parameters that they are of, or nowhere: never to another one of the same shape."""

from __future__ import annotations

import copy

import pytest

import lcstore
from lcstore.storage.memory import MemoryBackend

torch = pytest.importorskip("torch")
by_name = pytest.importorskip("torch.distributed.checkpoint.state_dict")

WIDTH = 48


class Wrapped(torch.nn.Module):
    """As DDP and torch.compile name what they wrap."""

    def __init__(self, model, name):
        super().__init__()
        self.add_module(name, model)


def model(seed: int = 0):
    """Layers of one shape: nothing but names tells them apart."""
    torch.manual_seed(seed)
    return torch.nn.ModuleDict({name: torch.nn.Linear(WIDTH, WIDTH) for name in "abc"})


def optimizer_of(model, order="abc", named=False, **how):
    layers = [(name, parameter) for layer in order for name, parameter in own(model, layer)]
    return torch.optim.AdamW(layers if named else [parameter for _, parameter in layers], lr=0.01, **how)


def own(model, layer):
    return [(f"{layer}.{name}", parameter) for name, parameter in model[layer].named_parameters()]


def train(model, optimizer, steps=range(3)):
    """Train each layer apart, with gradients of a size of its own."""
    for step in steps:
        x = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        sum(10**k * layer(x).square().sum() for k, layer in enumerate(model.values())).backward()
        optimizer.step()


def moments(model, optimizer) -> dict[str, torch.Tensor]:
    return {
        name: optimizer.state[parameter]["exp_avg_sq"]
        for layer in "abc"
        for name, parameter in own(model, layer)
    }


def same(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def wrapped(model, how: str):
    return Wrapped(model, how) if how else model


@pytest.fixture
def trained():
    one = model()
    optimizer = optimizer_of(one)
    train(one, optimizer)
    return one, optimizer


def opened(policy="lossless"):
    return lcstore.open(MemoryBackend.fresh(), policy=policy)


WRAPPERS = ["", "module", "_orig_mod"]
#: What is saved of an optimizer.
SAVED = {
    "by position": lambda model, optimizer: optimizer,
    "by name": by_name.get_optimizer_state_dict,
}


@pytest.mark.parametrize("saved_as", WRAPPERS)
@pytest.mark.parametrize("loaded_as", WRAPPERS)
@pytest.mark.parametrize("how", SAVED)
def test_another_order_and_another_wrapper_do_not_matter(trained, how, saved_as, loaded_as):
    one, optimizer = trained
    store = opened()
    outer = wrapped(one, saved_as)
    store.save(0, {"model": outer, "optim": SAVED[how](outer, optimizer)})
    other = model(1)
    again = optimizer_of(other, "cab")
    store.resume_into(0, {"model": wrapped(other, loaded_as), "optim": again})
    assert same(moments(other, again), moments(one, optimizer))
    train(one, optimizer, range(3, 6))
    train(other, again, range(3, 6))
    assert same(other.state_dict(), one.state_dict())


@pytest.mark.parametrize("prefix", WRAPPERS)
@pytest.mark.parametrize("how", SAVED)
def test_an_optimizer_of_named_parameters_needs_no_model(how, prefix):
    one, store = model(), opened()
    outer = wrapped(one, prefix)
    optimizer = torch.optim.AdamW(outer.named_parameters())
    if "param_names" not in optimizer.param_groups[0]:
        pytest.skip("this torch keeps no names of parameters")
    train(one, optimizer)
    store.save(0, {"optim": SAVED[how](outer, optimizer)})
    other = model()
    again = optimizer_of(other, "bca", named=True)
    store.restore_into(0, {"optim": again})
    assert same(moments(other, again), moments(one, optimizer))
    names = again.param_groups[0].get("param_names")
    assert names is None or [name.rpartition(".")[0][-1] for name in names] == [*"bbccaa"]


@pytest.mark.parametrize("how", SAVED)
@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ([["a", "b"], ["c"]], r"its groups have \[6\] parameters in the store, and \[4, 2\] here"),
        ([["a", "b"]], r"its groups have \[6\] parameters in the store, and \[4\] here"),
        ([["a", "b", "d"]], r"its group 0 has .*c\.weight.* in the store, and .*d\.weight.* here"),
    ],
)
def test_other_groups_and_other_parameters_are_refused(trained, how, groups, said):
    one, optimizer = trained
    store = opened()
    one["d"] = torch.nn.Linear(WIDTH, WIDTH)
    store.save(0, {"model": one, "optim": SAVED[how](one, optimizer)})
    other = copy.deepcopy(one)
    parameters = [[p for layer in group for _, p in own(other, layer)] for group in groups]
    again = torch.optim.AdamW([{"params": group} for group in parameters])
    with pytest.raises(lcstore.InvalidInputError, match=f"'optim' cannot be loaded: {said}"):
        store.restore_into(0, {"model": other, "optim": again})
    assert not again.state


def test_groups_that_changed_places_are_refused():
    one, store = model(), opened()
    train(one, optimizer := torch.optim.AdamW([{"params": one[layer].parameters()} for layer in "abc"]))
    store.save(0, {"model": one, "optim": optimizer})
    again = torch.optim.AdamW([{"params": one[layer].parameters()} for layer in "acb"])
    with pytest.raises(lcstore.InvalidInputError, match=r"its group 1 has 'model/b\.bias'"):
        store.restore_into(0, {"model": one, "optim": again})


class Own(torch.optim.AdamW):
    """Loads in its own way, as those of bitsandbytes do."""

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)


def test_optimizers_that_load_their_own_way_are_looked_at_too(trained):
    one, _ = trained
    optimizer = Own([p for layer in "abc" for _, p in own(one, layer)])
    train(one, optimizer)
    store = opened()
    store.save(0, {"model": one, "optim": optimizer})
    other = model(1)
    again = Own([p for layer in "bac" for _, p in own(other, layer)])
    store.restore_into(0, {"model": other, "optim": again})
    assert same(moments(other, again), moments(one, optimizer))


def test_moments_by_name_need_names_here(trained):
    one, optimizer = trained
    store = opened()
    store.save(0, {"optim": by_name.get_optimizer_state_dict(one, optimizer)})
    again = optimizer_of(one)
    with pytest.raises(lcstore.InvalidInputError, match=r"nothing says which .*give the model besides"):
        store.restore_into(0, {"optim": again})
    assert not again.state


def test_a_flattened_one_is_loaded_by_torch(trained):
    one, optimizer = trained
    flat = by_name.StateDictOptions(flatten_optimizer_state_dict=True)
    store = opened()
    store.save(0, {"optim": by_name.get_optimizer_state_dict(one, optimizer, options=flat)})
    other = model(1)
    again = optimizer_of(other, "bca")
    with pytest.raises(lcstore.InvalidInputError, match="a flattened one: torch's set_optimizer_state_dict"):
        store.restore_into(0, {"optim": again})
    by_name.set_optimizer_state_dict(other, again, store.restore(0)["optim"], options=flat)
    assert same(moments(other, again), moments(one, optimizer))


@pytest.mark.parametrize("named", [True, False])
def test_moments_of_layers_of_another_name_come_over_by_position(named):
    def called(name):
        return torch.nn.ModuleDict({"a": torch.nn.Linear(WIDTH, WIDTH), name: torch.nn.Linear(WIDTH, WIDTH)})

    def of(net):
        return torch.optim.AdamW(net.named_parameters() if named else net.parameters(), lr=0.01)

    former, store = called("b"), lcstore.open(MemoryBackend.fresh(), policy="lossless")
    trained = of(former)
    train(former, trained)
    store.save(0, {"model": former, "optim": trained})
    newer, saved = called("new"), store.resume(0)
    newer.load_state_dict({name.replace("b.", "new."): value for name, value in saved["model"].items()})
    for group in saved["optim"]["param_groups"] if named else []:
        group["param_names"] = [name.replace("b.", "new.") for name in group["param_names"]]
    goes_on = of(newer)
    goes_on.load_state_dict(saved["optim"])
    for steps in (range(3, 5), range(5, 7)):  # again, from a save under the new names
        train(former, trained, steps)
        train(newer, goes_on, steps)
        assert all(torch.equal(*some) for some in zip(former.parameters(), newer.parameters(), strict=True))
        store.save(steps.stop, {"model": newer.state_dict(), "optim": goes_on.state_dict()})
        newer = called("new")
        goes_on = of(newer)
        store.resume_into("latest", {"model": newer, "optim": goes_on})


def test_tied_parameters_have_either_name():
    def tied(seed):
        one = model(seed)
        one["c"].weight = one["a"].weight
        return one

    def optimizer_of(one):
        return torch.optim.AdamW(one.parameters())

    one, store = tied(0), opened()
    train(one, optimizer := optimizer_of(one))
    store.save(0, {"alias": {"x": one["c"].weight}, "model": one, "optim": optimizer})
    other = tied(1)
    store.restore_into(0, {"model": other, "optim": (again := optimizer_of(other))})
    assert same(moments(other, again), moments(one, optimizer))


def test_what_is_not_in_the_state_is_loaded_by_position(trained):
    one, optimizer = trained
    store = opened()
    store.save(0, {"model": {"a.weight": one["a"].weight}, "optim": optimizer})
    other = model(1)
    store.restore_into(0, {"optim": (again := optimizer_of(other))})
    assert same(moments(other, again), moments(one, optimizer))


def test_all_ways_are_moments_and_of_one_size():
    sizes, flat = {}, by_name.StateDictOptions(flatten_optimizer_state_dict=True)
    ways = {**SAVED, "flat": lambda *given: by_name.get_optimizer_state_dict(*given, options=flat)}
    for how, saved in ways.items():
        one, store = model(), opened("balanced")
        optimizer = optimizer_of(one)
        for step in range(3):
            train(one, optimizer, range(4 * step, 4 * step + 4))
            info = store.save(step, {"model": one, "optim": saved(one, optimizer)})
        found = [role for _, _, role in store.paths().values()]
        assert [found.count(role) for role in ("weights", "first_moment", "second_moment")] == [3, 6, 6]
        assert not any(role == "weights" for name, (_, _, role) in store.paths().items() if "optim" in name)
        sizes[how] = info.bytes_stored
    assert max(sizes.values()) < 1.1 * min(sizes.values())
