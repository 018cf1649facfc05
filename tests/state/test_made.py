"""Tensors of torch that are made of others: their parts are stored, and they come back as what they were."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest

import lcstore
from lcstore.errors import CorruptionError, InvalidInputError, LcstoreError
from lcstore.layout.join import join
from lcstore.layout.layout import Layout, make_layout
from lcstore.state.frameworks import from_host
from lcstore.state.torchobjects import checked_context
from lcstore.state.tree import flatten
from lcstore.storage.memory import MemoryBackend
from lcstore.write.entries import layout_entries

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore::lcstore.UnrecognisedWarning")


class Pair(torch.Tensor):
    """A high and a low half, told something besides."""

    @staticmethod
    def __new__(cls, high, low, told=None):
        return torch.Tensor._make_wrapper_subclass(cls, high.shape, strides=high.stride(), dtype=high.dtype)

    def __init__(self, high, low, told=None) -> None:
        self.high, self.low, self.told = high, low, told

    def __tensor_flatten__(self):
        return ["high", "low"], self.told

    @classmethod
    def __tensor_unflatten__(cls, parts, told, size, stride):
        made = cls(parts["high"], parts["low"], told)
        if (made.shape, made.stride()) != (size, stride):
            raise ValueError("of another shape")
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return cls(args[0].high, args[0].low, args[0].told)
        raise NotImplementedError(str(func))

    def __repr__(self) -> str:
        return "Pair()"


class Undeclared(Pair):
    pass


torch.serialization.add_safe_globals([Pair])
#: What classes are told: all that a store holds of it.
TOLD = [
    True,
    3,
    1 << 80,
    0.5,
    float("inf"),
    "text",
    torch.bfloat16,
    torch.Size([2]),
    (1, [2, ()]),
    {"a": [None]},
]


def pair(seed=0, told=None, shape=(64, 64)):
    generator = torch.Generator().manual_seed(seed)
    return Pair(*(torch.randn(shape, generator=generator) for _ in range(2)), told)


def same(one, other) -> bool:
    return type(one) is type(other) is Pair and all(
        torch.equal(getattr(one, part), getattr(other, part)) for part in ("high", "low")
    )


def saved(state, **how):
    store = lcstore.open(MemoryBackend.fresh(), **how)
    store.save(0, state)
    return store


@pytest.mark.parametrize("policy", ["small", "lossless"])
def test_they_come_back_in_every_container(policy):
    state = {
        "model": {"weight": pair(1), "list": [1, pair(2)], "tuple": ((pair(3),), 2)},
        "optim": {"state": {0: {"exp_avg": pair(4), "exp_avg_sq": pair(5)}}},
    }
    store = saved(state, policy=policy)
    assert {role for _, _, role in store.paths().values()} == {"plain"}
    assert {"model/weight/high", "model/list/#1/low"} <= set(store.paths())
    for back in (store.restore(), store.restore(to="torch"), dict(store.walk())[0], store.resume()):
        assert same(back["model"]["weight"], state["model"]["weight"])
        assert same(back["model"]["list"][1], state["model"]["list"][1])
        assert same(back["model"]["tuple"][0][0], state["model"]["tuple"][0][0])
        if "optim" in back:  # a walk leaves optimizers out
            assert same(back["optim"]["state"][0]["exp_avg"], state["optim"]["state"][0]["exp_avg"])


@pytest.mark.parametrize("kind", ["inner", "top"])
def test_they_may_be_made_of_each_other_and_be_all(kind):
    both = Pair(pair(1), torch.ones(64, 64)) if kind == "inner" else pair(1)
    back = saved(both).restore()
    assert same(back.high, both.high) if kind == "inner" else same(back, both)


def test_numpy_gives_their_parts():
    one = pair()
    store = saved({"w": one})
    back = store.restore(to="numpy")["w"]
    assert type(back) is dict
    assert np.array_equal(back["high"], one.high.numpy())
    assert np.array_equal(store.read(0, "w/low", to="numpy"), one.low.numpy())
    part = store.restore(names="w/low")["w"]
    assert [*part] == ["low"]
    assert same(store.restore(names="w")["w"], one)
    assert same(store.restore(dtype="float16")["w"], one)  # a part has the dtype that it has


def test_as_another_tree_has_them():
    store = saved({"w": pair(1)})
    back = store.restore(like={"w": pair(2)})["w"]
    assert same(back, pair(1))
    with pytest.raises(InvalidInputError, match=r"'w/high'.*shape"):
        store.restore(like={"w": pair(2, shape=(4, 64))})
    target = pair(3)
    store.restore_into(0, {"w": target})
    assert same(target, pair(1))


@pytest.mark.parametrize("told", TOLD, ids=str)
def test_what_a_class_is_told(told):
    back = saved({"w": pair(told=told)}).restore()["w"]
    assert back.told == told
    assert isinstance(back.told, tuple) == isinstance(told, tuple)


@pytest.mark.parametrize(
    "told", [object(), torch.device("cpu"), {1: 2}, [{2}]], ids=["object", "device", "numbered", "set"]
)
def test_what_no_store_holds_is_refused(told):
    with pytest.raises(
        InvalidInputError,
        match=r"the tensor at 'w' cannot be stored: a .*Pair is made of .* and of a .*store",
    ):
        saved({"w": pair(told=told)})


def test_a_class_that_is_not_declared_is_refused():
    one = Undeclared(torch.ones(2), torch.ones(2))
    said = (
        r"'w' cannot be stored: a .*Undeclared .*call torch.serialization.add_safe_globals\(\[Undeclared\]\)"
    )
    with pytest.raises(InvalidInputError, match=said):
        saved({"w": one})


def test_a_class_that_is_not_declared_here_is_not_made(monkeypatch):
    store = saved({"w": pair(), "x": torch.ones(2)})
    monkeypatch.setattr(torch.serialization, "get_safe_globals", list)
    with pytest.raises(
        InvalidInputError, match=r"tensor at 'w': it was a .*Pair, which nothing .*to='numpy'"
    ):
        store.restore()
    assert [*store.restore(names="x")] == ["x"]
    assert [*store.restore(to="numpy")["w"]] == ["high", "low"]


def test_what_its_class_refuses_is_told():
    class Other(Pair):
        pass

    store = saved({"w": pair()})
    listed = Other
    listed.__module__, listed.__qualname__ = Pair.__module__, Pair.__qualname__
    listed.__tensor_unflatten__ = None  # of another version, say
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.serialization, "get_safe_globals", lambda: [listed])
        with pytest.raises(InvalidInputError, match=r"'w': no .*Pair can be made of what is stored"):
            store.restore()


def test_two_names_of_one():
    one = pair()
    back = saved({"a": one, "b": one}).restore()
    assert same(back["a"], back["b"])
    assert back["a"].high is back["b"].high


def test_a_run_goes_on():
    backend = MemoryBackend.fresh()
    store = lcstore.open(backend)
    store.save(0, {"w": pair(0)})
    first = store.save(1, {"w": pair(1)})
    future = store.save_async(2, {"w": (changed := pair(2))})
    changed.high.zero_() if future.done() else future.result()
    assert same(store.restore(2)["w"], pair(2))
    other = lcstore.open(backend)
    other.resume()
    assert other.save(3, {"w": pair(3)}).kind == first.kind == "delta"
    assert same(lcstore.open(backend).restore()["w"], pair(3))
    assert store.verify().ok


def stored():
    parameter = torch.nn.Parameter(torch.ones(4, 4))
    flat = flatten({"w": parameter, "p": pair(told=(1, torch.float32)), "o": torch.optim.SGD([parameter])})
    layout = make_layout(
        flat.structure,
        layout_entries(flat, lcstore.Policy(), set()),
        notes=flat.notes,
    )
    assert Layout.from_json(json.loads(json.dumps(layout.to_json()))) == layout
    assert layout.updated == {("o",): [[("w",)]]}
    return layout.to_json()


@pytest.mark.parametrize(
    "apply",
    [
        list.clear,
        list.reverse,
        lambda notes: notes.append(notes[0]),
        lambda notes: notes.append(3),
        lambda notes: notes.append(["made"]),
        lambda notes: notes.append(["else", ["w"], 1]),
        lambda notes: notes.append(["updates", ["w"], [99]]),
        lambda notes: notes.append(["updates", ["w"], ["w"]]),
        lambda notes: notes.append(["updates", ["w"], 0]),
        lambda notes: notes.append(["updates", [None], []]),
        lambda notes: notes[0].append(1),
        lambda notes: notes[0].__setitem__(2, 3),
        lambda notes: notes[0].__setitem__(3, [1]),
        lambda notes: notes[0].__setitem__(3, [1, [1], ["a"]]),
        lambda notes: notes[0].__setitem__(3, [{"tuple": 1}, [], []]),
        lambda notes: notes[0].__setitem__(3, [{"code": "x"}, [], []]),
    ],
)
def test_notes_that_lie(apply):
    value = copy.deepcopy(stored())
    apply(value["notes"])
    with pytest.raises(LcstoreError):
        Layout.from_json(value)


def test_notes_of_several_writers_are_joined():
    parts = [flatten({"a": pair()}), flatten({"b": pair()})]
    layouts = [
        make_layout(f.structure, layout_entries(f, lcstore.Policy(), set()), notes=f.notes) for f in parts
    ]
    joined = join([(str(number), layout) for number, layout in enumerate(layouts)])
    assert [*joined.notes.made] == [("a",), ("b",)]


def test_a_context_of_many_levels():
    deep = None
    for _ in range(100):
        deep = [deep]
    with pytest.raises(LcstoreError):
        checked_context([deep, [], []])
    with pytest.raises(CorruptionError):
        checked_context([None, [], [True]])


def test_no_module_of_torch_is_imported_for_a_dtype(monkeypatch):
    """torch imports a module of its own where an attribute is asked for that has its name."""

    def asked(name):
        raise AssertionError(f"torch was asked for {name}")

    monkeypatch.setattr(torch, "__getattr__", asked)
    for name in ("_dynamo", "of no module", "float32"):
        assert checked_context([{"dtype": name}, [], []])


def test_notes_of_places_that_are_not_there():
    value = copy.deepcopy(stored())
    value["notes"].insert(0, ["made", ["nowhere"], "no.Class", [None, [], []]])
    assert Layout.from_json(value).notes.made["nowhere",].kind == "no.Class"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: torch.eye(2).to_sparse(), "x.to_dense()"),
        (lambda: torch.eye(2).to_sparse_csr(), "x.to_dense()"),
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "x.unbind()"),
        (lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "x.int_repr()"),
        (lambda: torch.masked.masked_tensor(torch.ones(2), torch.ones(2).bool()), "x.get_data()"),
        (lambda: torch.zeros(2, dtype=torch.complex32), "torch.view_as_real(x)"),
        (lambda: torch.zeros(2, dtype=torch.bits8), "x.view(torch.uint8)"),
        (lambda: torch.empty(2, device="meta"), None),
        (lambda: torch.nn.LazyLinear(2).weight, None),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_other_tensors_without_values_are_refused_with_the_cure(make, said):
    x = make()
    cure = {None: "model.to_empty" if x.is_meta else "run one batch"}.get(said, said)
    with pytest.raises(InvalidInputError, match="the tensor at 'model/w' cannot be stored: ") as caught:
        flatten({"model": {"w": x}})
    assert cure in caught.value.message
    if said is not None:
        flatten([eval(said, {"x": x, "torch": torch})])


@pytest.fixture
def alone():
    """One process that is all of a group."""
    distributed = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    distributed.destroy_process_group()


def test_shards_of_a_process_are_refused_with_the_cure(alone):
    placed = pytest.importorskip("torch.distributed.tensor")
    for placement in (placed.Shard(0), placed.Replicate()):
        x = placed.distribute_tensor(torch.ones(4, 4), alone, [placement])
        with pytest.raises(InvalidInputError, match=r"'w' .*DTensor.*store x\.full_tensor\(\)"):
            flatten({"w": x})
        flatten({"w": x.full_tensor()})


def test_what_is_sharded_is_not_filled_and_the_way_is_told(alone):
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    whole = torch.nn.Linear(4, 4)
    model = torch.nn.Linear(4, 4)
    fsdp.fully_shard(model, mesh=alone)
    optimizer = torch.optim.AdamW(model.parameters())
    with lcstore.open("memory://sharded", policy="lossless") as store:
        store.save(0, {"model": whole, "optim": torch.optim.AdamW(whole.parameters())})
        for target in ({"model": model}, {"optim": optimizer}, {"model": model, "optim": optimizer},
                       {"model": model.state_dict()}):  # fmt: skip
            with pytest.raises(
                InvalidInputError, match=r"sharded.*`store.restore` returns to set_state_dict"
            ):
                store.restore_into(0, target)
        said, back = pytest.importorskip("torch.distributed.checkpoint.state_dict"), store.restore(0)
        full = said.StateDictOptions(full_state_dict=True)
        said.set_model_state_dict(model, back["model"], options=full)
        assert torch.equal(model.weight.full_tensor(), whole.weight)
        store.save(1, {"model": said.get_model_state_dict(model, options=full)})
        assert torch.equal(store.restore(1)["model"]["bias"], whole.bias)


@pytest.mark.parametrize("name", ["weight_norm", "orthogonal", "spectral_norm"])
def test_parametrized_modules_come_back(name):
    wrap = getattr(torch.nn.utils.parametrizations, name)
    one, other = (wrap(torch.nn.Linear(8, 8)) for _ in range(2))
    store = saved({"model": one}, policy="lossless")
    store.restore_into(0, {"model": other})
    x = torch.ones(1, 8)
    assert torch.equal(one.eval()(x), other.eval()(x))


def test_numbers_of_torch_and_arrays_are_none():
    assert not flatten(
        {"w": torch.ones(2), "p": torch.nn.Parameter(torch.ones(2)), "n": np.ones(2)}
    ).notes.made
    assert torch.equal(from_host(np.ones(2), "torch"), torch.ones(2).double())
