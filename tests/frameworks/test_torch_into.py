"""Loading into models and optimizers: all of it, or an error and nothing of it."""

from __future__ import annotations

import copy
import re

import numpy as np
import pytest

import lcstore
from lcstore.storage.memory import MemoryBackend

torch = pytest.importorskip("torch")


def _model(width: int = 8, seed: int = 0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(4, width), torch.nn.BatchNorm1d(width), torch.nn.Linear(width, 2)
    )


def _trained(model, kind=torch.optim.AdamW):
    optimizer = kind(model.parameters(), lr=0.01)
    model(torch.randn(5, 4)).sum().backward()
    optimizer.step()
    return optimizer


@pytest.fixture
def saved():
    """A store with a model, its optimizer, and an array."""
    model = _model()
    store = lcstore.open(MemoryBackend.fresh(), policy="lossless")
    state = {"model": model, "optim": _trained(model), "w": np.ones(3), "epoch": 4}
    store.save(0, state)
    return store, state


def _bits(model):
    return copy.deepcopy(model.state_dict())


def _same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def _frozen_bn(width):
    model = _model(width)
    model[1].register_buffer("extra", torch.zeros(1))
    return model


@pytest.mark.parametrize("load", ["restore_into", "resume_into"])
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: (_model(9), None),
            r"'model' cannot be loaded: .*'0.weight' is \(8, 4\) in the store and \(9, 4\)",
        ),
        (
            lambda: (torch.nn.Linear(4, 8), None),
            r"nothing is saved for 'weight', 'bias'; it has no '0.weight'",
        ),
        (lambda: (_frozen_bn(8), None), "nothing is saved for '1.extra'"),
        (lambda: (_model()[:2], None), "it has no '2.weight', '2.bias', which is saved"),
        (
            lambda: (_model(), torch.optim.AdamW(_model(9).parameters())),
            r"'exp_avg' of parameter 0 is \(8, 4\)",
        ),
        (
            lambda: (_model(), torch.optim.AdamW(_model()[:1].parameters())),
            r"\[6\] parameters in the store, and \[2\]",
        ),
        (
            lambda: (_model(), torch.optim.SGD(_model().parameters())),
            "another optimizer: there are .*'betas'.*: leave it out of what is loaded",
        ),
        (
            lambda: (_model().to("meta"), None),
            "'model' cannot be loaded: it is on the meta device.*assign=True",
        ),
        (
            lambda: (_model(), torch.optim.AdamW(_model().to("meta").parameters())),
            "'optim' .*on the meta device",
        ),
    ],
)
def test_nothing_is_changed_where_something_does_not_fit(saved, load, make, said):
    store, _ = saved
    model, optimizer = make()
    if optimizer is None:
        optimizer = torch.optim.AdamW(_model().parameters())
    array, before = np.zeros(3), _bits(model)
    kept = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(lcstore.InvalidInputError, match=said):
        getattr(store, load)(0, {"w": array, "model": model, "optim": optimizer})
    assert not array.any()
    assert optimizer.state_dict()["state"].keys() == kept["state"].keys() == set()
    assert before.keys() == model.state_dict().keys()
    if not next(model.parameters()).is_meta:
        assert _same(before, model.state_dict())


@pytest.mark.parametrize("arrays", ["torch", "numpy"])
@pytest.mark.parametrize("layers", [1, 3])
def test_a_model_of_other_layers_is_loaded_in_part_by_the_line_that_the_refusal_gives(arrays, layers):
    saved = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(2)))
    tensors = {
        name: value.numpy() if arrays == "numpy" else value for name, value in saved.state_dict().items()
    }
    store, step = lcstore.open(MemoryBackend.fresh(), policy="lossless"), 10
    store.save(step, {"nets": {"a": tensors}})
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(layers)))
    new = _bits(model[2]) if layers == 3 else None
    with pytest.raises(lcstore.InvalidInputError, match=r"load_state_dict") as caught:
        store.resume_into(step, {"nets": {"a": model}})
    (line,) = re.findall(r"model\.load_state_dict\(.*strict=False\)", str(caught.value))
    eval(line)
    for one, other in zip(model, saved, strict=False):
        assert _same(one.state_dict(), other.state_dict())
    assert new is None or _same(new, model[2].state_dict())
    assert store.step == 10
    (other_way,) = re.findall(r"store\.resume\(.*\)", str(caught.value))
    eval(re.sub(r"store\.restore\([^)]*\)", other_way, line))
    assert store.save(20, {"nets": {"a": model}}).base == store.info(10).node


def test_the_optimizer_of_a_model_of_more_layers_begins_anew_where_it_is_left_out():
    def made(layers):
        model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(layers)))
        return {"optim": torch.optim.AdamW(model.parameters()), "model": model}

    store = lcstore.open(MemoryBackend.fresh(), policy="lossless")
    store.save(10, made(2))
    parts = made(3)
    with pytest.raises(
        lcstore.InvalidInputError, match="leave it out of what is loaded, and its moments"
    ) as caught:
        store.resume_into(10, {"optim": parts["optim"]})
    assert "?." not in str(caught.value)


def test_what_no_line_loads_in_part_is_given_none(saved):
    with pytest.raises(lcstore.InvalidInputError) as caught:
        saved[0].restore_into(0, {"model": torch.nn.Linear(4, 8)})
    assert "strict" not in str(caught.value)


@pytest.mark.parametrize(
    ("kept", "given"),
    [
        (torch.nn.DataParallel, torch.nn.Sequential),
        (torch.nn.Sequential, torch.nn.DataParallel),
        (torch.nn.DataParallel, torch.nn.DataParallel),
    ],
)
@pytest.mark.parametrize("rows", [15, 7])
def test_the_line_that_the_refusal_gives_goes_by_the_names_here(kept, given, rows):
    # Names of a wrapped model have a prefix: none was found, so the line ran and loaded nothing.

    def made(wrapper, rows):
        inner = torch.nn.Sequential(torch.nn.Embedding(rows, 4), torch.nn.Linear(4, 2))
        return inner if wrapper is torch.nn.Sequential else wrapper(inner)

    store, step = lcstore.open(MemoryBackend.fresh(), policy="lossless"), 1
    first, model = made(kept, 10), made(given, rows)
    store.save(step, {"model": first})
    with pytest.raises(lcstore.InvalidInputError, match="saved, here = ") as caught:
        store.restore_into(step, {"model": model})
    (line,) = re.search(r"(saved, here = .*), or of store.resume", str(caught.value)).groups()
    exec(line, {"store": store, "step": step, "model": model})
    old, new = first.state_dict().values(), model.state_dict().values()
    for number, (was, now) in enumerate(zip(old, new, strict=True)):
        if number or rows > 10:
            assert torch.equal(now[: len(was)], was)


def test_a_wider_model_is_loaded_in_part_by_the_line_that_the_refusal_gives(saved):
    store, state = saved
    model, step = _model(9), 0
    new = _bits(model)
    with pytest.raises(lcstore.InvalidInputError, match=r"load_state_dict") as caught:
        store.resume_into(step, {"model": model})
    (first, line) = re.search(r"(saved, here = .*); (model\..*strict=False\))", str(caught.value)).groups()
    names = {"store": store, "step": step, "model": model}
    exec(f"{first}; {line}", names)
    old = state["model"].state_dict()
    fits = {name for name, value in new.items() if value.shape == old[name].shape}
    assert 0 < len(fits) < len(new)
    for name, value in model.state_dict().items():
        assert torch.equal(value, (old if name in fits else new)[name])


@pytest.mark.parametrize("alone", [True, False])
def test_a_table_of_more_rows_keeps_those_that_are_saved_by_the_line_that_the_refusal_gives(alone):
    def made(users):
        parts = [torch.nn.Embedding(users, 4), torch.nn.Linear(4, users), torch.nn.BatchNorm1d(users)]
        return torch.nn.Sequential(*parts[: 1 if alone else 3])

    store, step = lcstore.open(MemoryBackend.fresh(), policy="lossless"), 3
    first, model = made(6), made(8)
    new = _bits(model)
    store.save(step, {"model": first})
    with pytest.raises(lcstore.InvalidInputError, match="to keep the rows that are saved") as caught:
        store.resume_into(step, {"model": model})
    assert "strict" not in str(caught.value)
    (line,) = re.search(r"(saved, here = .* in here\])", str(caught.value)).groups()
    exec(line, {"store": store, "step": step, "model": model})
    for name, value in first.state_dict().items():
        loaded = model.state_dict()[name]
        many = len(value) if value.dim() else None
        assert torch.equal(loaded[:many] if many else loaded, value)
        assert not many or torch.equal(loaded[many:], new[name][many:])


@pytest.mark.parametrize("shape", [(4, 4), (8, 5)])
def test_rows_that_went_or_are_wider_are_no_rows_that_came(shape):
    def made(*shape):
        return torch.nn.Sequential(torch.nn.Embedding(*shape), torch.nn.Linear(2, 2))

    store = lcstore.open(MemoryBackend.fresh(), policy="lossless")
    store.save(0, {"model": made(6, 4)})
    with pytest.raises(lcstore.InvalidInputError, match=r"no more: .*strict=False") as caught:
        store.restore_into(0, {"model": made(*shape)})
    assert "rows" not in str(caught.value)


def test_a_model_whose_layers_have_other_names_is_loaded_by_the_line_that_the_refusal_gives():
    def made(*names):
        layers = [torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 2)]
        return torch.nn.ModuleDict(dict(zip(names, layers, strict=True)))

    store, step = lcstore.open(MemoryBackend.fresh(), policy="lossless"), 3
    first, model = made("a", "b", "c"), made("one", "two", "three")
    store.save(step, {"nets": {"gen": first}})
    with pytest.raises(lcstore.InvalidInputError, match="all shapes agree") as caught:
        store.restore_into(step, {"nets": {"gen": model}})
    (line,) = re.search(r"(saved = .*saved\.values\(\)\)\)\))", str(caught.value)).groups()
    exec(line, {"store": store, "step": step, "model": model})
    for saved, loaded in zip(first.state_dict().values(), model.state_dict().values(), strict=True):
        assert torch.equal(saved, loaded)
    with pytest.raises(lcstore.InvalidInputError) as caught:
        store.restore_into(step, {"nets": {"gen": made("one", "b", "three")}})
    assert "all shapes agree" not in str(caught.value)


def test_a_model_of_which_some_layers_have_another_name_is_loaded_by_the_line_that_the_refusal_gives():
    def made(blocks):
        layers = {"embed": torch.nn.Linear(4, 6), blocks: torch.nn.Sequential(torch.nn.BatchNorm1d(6))}
        return torch.nn.ModuleDict({**layers, "head": torch.nn.Linear(6, 2)})

    store, step = lcstore.open(MemoryBackend.fresh(), policy="lossless"), 3
    first, model = made("blocks"), made("blks")
    store.save(step, {"nets": {"gen": first}})
    with pytest.raises(lcstore.InvalidInputError, match=r"'blocks.0.bias' may be 'blks.0.bias'") as caught:
        store.resume_into(step, {"nets": {"gen": model}})
    assert "strict" not in str(caught.value)
    (line,) = re.search(r"(saved = .*saved\.values\(\)\)\)\))", str(caught.value)).groups()
    exec(line, {"store": store, "step": step, "model": model})
    for saved, loaded in zip(first.state_dict().values(), model.state_dict().values(), strict=True):
        assert torch.equal(saved, loaded)


def _layers(*names):
    return torch.nn.ModuleDict({name: torch.nn.Linear(4, 8 if name == "wide" else 4) for name in names})


def test_names_that_are_here_too_are_not_taken_for_others_beside_a_wrapper():
    store = lcstore.open(MemoryBackend.fresh(), policy="lossless")
    store.save(0, {"model": torch.nn.DataParallel(_layers("a", "b", "c"))})
    with pytest.raises(lcstore.InvalidInputError, match="nothing is saved for") as caught:
        store.restore_into(0, {"model": _layers("d", "c", "b")})
    assert "may be" not in str(caught.value)
    with pytest.raises(lcstore.InvalidInputError, match=r"'module.a.weight' may be 'd.weight'"):
        store.restore_into(0, {"model": _layers("d", "b", "c")})


def test_what_may_be_of_another_name_is_counted_and_printed_before_it_is_loaded(capsys):
    store = lcstore.open(MemoryBackend.fresh(), policy="lossless")
    store.save(0, {"model": _layers("q", "k", "v")})
    model = _layers("k_proj", "q_proj", "v_proj")
    with pytest.raises(lcstore.InvalidInputError, match=r"'q.weight' may be .* and 3 more\.") as caught:
        store.restore_into(0, {"model": model})
    (line,) = re.search(r"(saved = .*saved\.values\(\)\)\)\))", str(caught.value)).groups()
    exec(line, {"store": store, "step": 0, "model": model})
    assert "'v.bias': 'v_proj.bias'" in capsys.readouterr().out


@pytest.mark.parametrize("layers", [("a", "c", "d"), ("wide", "b")])
def test_layers_that_came_or_went_are_no_layers_of_another_name(layers):
    store = lcstore.open(MemoryBackend.fresh(), policy="lossless")
    store.save(0, {"model": _layers("a", "b")})
    with pytest.raises(lcstore.InvalidInputError, match=r"no more: .*strict=False") as caught:
        store.restore_into(0, {"model": _layers(*layers)})
    assert "may be" not in str(caught.value)


def test_an_average_of_layers_of_another_name_is_given_no_line_that_would_shift_them():
    store = lcstore.open(MemoryBackend.fresh(), policy="lossless")
    store.save(0, {"ema": torch.optim.swa_utils.AveragedModel(_layers("a", "b"))})
    with pytest.raises(lcstore.InvalidInputError, match="nothing is saved for") as caught:
        store.restore_into(0, {"ema": _layers("a", "c")})
    assert "values()" not in str(caught.value)


def test_moments_of_what_is_no_parameter_are_refused(saved):
    store, state = saved
    optim = state["optim"].state_dict()
    optim["state"] = {str(number): moments for number, moments in optim["state"].items()}
    store.save(1, {"optim": optim})
    fresh = torch.optim.AdamW(_model().parameters())
    with pytest.raises(
        lcstore.InvalidInputError, match="of a parameter '0', and there is none in its groups"
    ):
        store.restore_into(1, {"optim": fresh})
    assert not fresh.state


def test_strict_is_answered_with_what_loads_a_part(saved):
    with pytest.raises(TypeError, match=r"'strict'; .*load_state_dict\(.*strict=False"):
        saved[0].restore_into(0, {"model": _model()}, strict=False)


def test_a_schedule_of_another_kind_is_refused():
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kinds = torch.optim.lr_scheduler
    store, saved = lcstore.open(MemoryBackend.fresh()), kinds.CosineAnnealingLR(optimizer, 10)
    store.save(0, {"schedule": saved})
    other, same = kinds.StepLR(optimizer, 3), kinds.CosineAnnealingLR(optimizer, 99)
    before = other.state_dict()
    with pytest.raises(lcstore.InvalidInputError, match=r"'schedule' .*another schedule: .*'T_max'"):
        store.restore_into(0, {"schedule": other})
    assert other.state_dict() == before
    store.restore_into(0, {"schedule": same})
    assert same.T_max == 10


@pytest.mark.parametrize("into", [True, False])
def test_a_schedule_that_counts_its_milestones_goes_on(into):
    kinds = torch.optim.lr_scheduler

    def made():
        model = _model()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        parts = [kinds.LinearLR(optimizer, 0.1, total_iters=5), kinds.MultiStepLR(optimizer, [3, 6])]
        return optimizer, kinds.SequentialLR(optimizer, parts, milestones=[5])

    def rates(optimizer, schedule, steps):
        for _ in range(steps):
            optimizer.step()
            schedule.step()
            yield optimizer.param_groups[0]["lr"]

    wanted = list(rates(*made(), 12))
    optimizer, schedule = made()
    assert list(rates(optimizer, schedule, 3)) == wanted[:3]
    store = lcstore.open(MemoryBackend.fresh())
    store.save(3, {"optim": optimizer, "schedule": schedule})
    optimizer, schedule = made()
    if into:
        store.resume_into(3, {"optim": optimizer, "schedule": schedule})
    else:
        state = store.resume(3)
        optimizer.load_state_dict(state["optim"])
        schedule.load_state_dict(state["schedule"])
    assert list(rates(optimizer, schedule, 9)) == wanted[3:]


def test_an_array_that_does_not_fit_leaves_the_model_alone(saved):
    store, state = saved
    model = _model(seed=1)
    before = _bits(model)
    for wrong in (np.zeros(4), torch.zeros(3, device="meta")):
        with pytest.raises(lcstore.InvalidInputError, match=r"'w'"):
            store.resume_into(0, {"model": model, "w": wrong})
    assert _same(before, model.state_dict())
    assert store.save(1, state).kind == "delta"  # the handle goes on from its own save


def test_all_that_fits_is_loaded(saved):
    store, state = saved
    model = _model(seed=1)
    optimizer, array = torch.optim.AdamW(model.parameters()), np.zeros(3)
    rest = store.resume_into(0, {"model": model, "optim": optimizer, "w": array})
    assert rest == {"epoch": 4}
    assert _same(model.state_dict(), state["model"].state_dict())
    assert array.all()
    kept = state["optim"].state_dict()["state"][0]["exp_avg"]
    assert torch.equal(optimizer.state_dict()["state"][0]["exp_avg"], kept)


def test_a_module_on_meta_is_given_tensors(saved):
    store, state = saved
    model = _model().to("meta")
    model[0].weight.requires_grad_(False)
    store.restore_into(0, {"model": model}, assign=True)
    assert _same(model.state_dict(), state["model"].state_dict())
    assert not model[0].weight.requires_grad
    assert model[2].weight.requires_grad
    optimizer = torch.optim.AdamW(model.parameters())
    store.resume_into(0, {"model": model, "optim": optimizer})
    assert len(optimizer.state_dict()["state"]) == 6


def test_parameters_that_are_tied_are_so_once_assigned():
    def tied(device):
        model = torch.nn.ModuleDict(
            {"embed": torch.nn.Embedding(9, 4, device=device), "head": torch.nn.Linear(4, 9, device=device)}
        )
        model["head"].weight = model["embed"].weight
        return model

    store, model, other = lcstore.open(MemoryBackend.fresh()), tied("cpu"), tied("meta")
    store.save(0, {"model": model})
    store.restore_into(0, {"model": other}, assign=True)
    assert other["head"].weight is other["embed"].weight
    assert torch.equal(other["head"].weight, model["head"].weight)


def test_an_optimizer_of_parameters_that_are_replaced_is_refused(saved):
    store, _ = saved
    model = _model(seed=1)
    before = _bits(model)
    with pytest.raises(
        lcstore.InvalidInputError, match="'optim' updates parameters that assign=True replaces"
    ):
        store.restore_into(0, {"model": model, "optim": torch.optim.AdamW(model.parameters())}, assign=True)
    assert _same(before, model.state_dict())


class LowRank(torch.optim.Optimizer):
    """Keeps moments of another shape than the parameter's, as some optimizers do."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["exp_avg"] = torch.ones(2)


def test_optimizers_of_others_may_keep_other_shapes():
    model = _model()
    optimizer = LowRank(model.parameters())
    optimizer.step()
    store, other = lcstore.open(MemoryBackend.fresh()), LowRank(_model().parameters())
    store.save(0, {"optim": optimizer})
    store.restore_into(0, {"optim": other})
    assert other.state_dict()["state"][0]["exp_avg"].shape == (2,)


@pytest.mark.parametrize(
    "state", [{"state": {}}, {"param_groups": [], "state": 0}, [1], {"param_groups": 3, "state": {}}]
)
def test_what_is_no_state_of_an_optimizer_is_refused(state):
    store = lcstore.open(MemoryBackend.fresh())
    store.save(0, {"optim": state})
    with pytest.raises(lcstore.InvalidInputError, match="not the state of an optimizer"):
        store.restore_into(0, {"optim": torch.optim.AdamW(_model().parameters())})


class Wrapped(torch.nn.Module):
    """As DDP and torch.compile name what they wrap."""

    def __init__(self, name, model):
        super().__init__()
        self.add_module(name, model)


@pytest.mark.parametrize("name", ["module", "_orig_mod"])
def test_how_a_module_is_wrapped_does_not_matter(saved, name):
    store, state = saved
    other = _model(seed=1)
    store.restore_into(0, {"model": Wrapped(name, other)})
    assert _same(other.state_dict(), state["model"].state_dict())
    wrapped = lcstore.open(MemoryBackend.fresh(), policy="lossless")
    wrapped.save(0, {"model": Wrapped(name, Wrapped("module", state["model"]))})
    for target in (_model(seed=2), Wrapped("module", _model(seed=2)), Wrapped("_orig_mod", _model(seed=2))):
        wrapped.restore_into(0, {"model": target})
        values = list(target.state_dict().values())
        assert all(
            torch.equal(a, b) for a, b in zip(values, state["model"].state_dict().values(), strict=True)
        )


def test_an_average_is_not_taken_for_a_wrapped_model(saved):
    store, _ = saved
    with pytest.raises(lcstore.InvalidInputError, match="nothing is saved for 'n_averaged'"):
        store.restore_into(0, {"model": torch.optim.swa_utils.AveragedModel(_model())})


def test_an_average_is_loaded_into_the_model_that_it_is_of():
    average, plain = torch.optim.swa_utils.AveragedModel(_model()), _model(seed=1)
    with lcstore.open(MemoryBackend.fresh(), policy="lossless") as store:
        store.save(0, {"ema": average})
        store.restore_into(0, {"ema": plain})
        again = torch.optim.swa_utils.AveragedModel(_model(seed=2))
        store.restore_into(0, {"ema": again})
    assert _same(plain.state_dict(), average.module.state_dict())
    assert _same(again.state_dict(), average.state_dict())


class Picky:
    """Has a `load_state_dict` of its own, of which nobody can say what it takes."""

    def __init__(self):
        self.state = None

    def load_state_dict(self, state):
        if "x" not in state:
            raise RuntimeError("no x")
        self.state = state


def test_what_loads_in_its_own_way_is_loaded_first(saved):
    store, state = saved
    store.save(1, {**state, "one": {"x": 1}, "two": {"y": 1}})
    model, array, one, two = _model(seed=1), np.zeros(3), Picky(), Picky()
    before = _bits(model)
    with pytest.raises(RuntimeError, match="no x") as caught:
        store.restore_into(1, {"w": array, "model": model, "one": one, "two": two})
    assert "'two' refused" in caught.value.__notes__[0]
    assert "'one' had been loaded before" in caught.value.__notes__[0]
    assert _same(before, model.state_dict())
    assert not array.any()
    with pytest.raises(RuntimeError, match="no x") as caught:
        store.restore_into(1, {"model": model, "two": two})
    assert "nothing else was changed" in caught.value.__notes__[0]


def test_hooks_of_a_module_may_take_other_names(saved):
    store, state = saved

    class Renamed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = _model(seed=1)
            self._register_load_state_dict_pre_hook(self.rename)

        def rename(self, found, prefix, *args):
            for name in [*found]:
                found[f"net.{name}"] = found.pop(name)

    target = Renamed()
    store.restore_into(0, {"model": target})
    assert _same(target.net.state_dict(), state["model"].state_dict())


def test_tensors_go_into_numpy_arrays():
    store, array = lcstore.open(MemoryBackend.fresh()), np.zeros(3, np.float32)
    store.save(0, {"w": torch.arange(3.0).to(torch.bfloat16)})
    store.restore_into(0, {"w": array})
    assert array.tolist() == [0, 1, 2]


def test_numpy_arrays_go_into_a_module():
    store, model = lcstore.open(MemoryBackend.fresh(), policy="lossless"), torch.nn.Linear(3, 2)
    store.save(0, {"model": {"weight": np.ones((2, 3), np.float32), "bias": np.zeros(2, np.float32)}})
    store.restore_into(0, {"model": model})
    assert (model.weight == 1).all()


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (lambda: torch.zeros(3, 1).expand(3, 2), "share memory"),
        (lambda: torch.eye(3, 2).to_sparse(), "sparse"),
    ],
)
def test_a_tensor_that_cannot_be_filled_is_refused_before_a_model_is_loaded(target, why):
    store, model = lcstore.open(MemoryBackend.fresh(), policy="lossless"), torch.nn.Linear(3, 2)
    store.save(0, {"model": model, "average": torch.ones(3, 2)})
    with torch.no_grad():
        model.weight.fill_(7)
    with pytest.raises(lcstore.InvalidInputError, match=why):
        store.restore_into(0, {"model": model, "average": target()})
    assert (model.weight == 7).all()
