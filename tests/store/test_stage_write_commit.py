"""The steps of a save: staging copies, a written edge is unseen, a commit checks its base."""

import numpy as np
import pytest

import lcstore
from lcstore.errors import ConflictError
from lcstore.graph.refs import ROOT
from lcstore.jobs.jobs import Workers
from lcstore.staging.stage import Buffers, stage
from lcstore.storage.memory import MemoryBackend
from lcstore.write.commit import prepare
from lcstore.write.edgewrite import EdgeWrite, Quality


def state(seed: int) -> dict:
    rng = np.random.default_rng(seed)
    return {"model": {"w": rng.normal(size=(64, 512)).astype(np.float32), "n": np.arange(5)}, "epoch": seed}


@pytest.fixture
def store():
    with lcstore.open(MemoryBackend.fresh()) as store:
        store.save(0, state(0))
        yield store


def edge_to(store, staged, *, anchor=False) -> EdgeWrite:
    writer = store._writer
    quality = Quality(writer.policy, frozenset(), {})
    base = None if anchor else writer.head
    return EdgeWrite(staged, base, writer.track, quality, writer.backend, writer.executor)


def test_a_staged_copy_shares_nothing_with_the_state():
    given = state(1)
    kept, borrowed = stage(1, given), stage(1, given, copy=False)
    given["model"]["w"][:] = 0
    weights = state(1)["model"]["w"]
    assert np.array_equal(kept.arrays[0].reshape(weights.shape), weights)
    assert np.array_equal(kept.flat.tensors[0][1].array, weights)
    assert not borrowed.arrays[0].any()


def test_copies_of_transposed_and_empty_tensors_keep_their_shape():
    given = {"a": np.arange(12.0).reshape(3, 4).T, "b": np.zeros((0, 3)), "c": np.float32(2)}
    kept = stage(0, given)
    for (_, host), flat, value in zip(kept.flat.tensors, kept.arrays, given.values(), strict=True):
        assert np.array_equal(host.array, value)
        assert np.array_equal(flat, np.ravel(value))


@pytest.mark.parametrize("threads", [0, 2])
def test_what_is_copied_in_shares_is_the_state(threads):
    rng = np.random.default_rng(0)
    given = {
        "large": rng.integers(0, 1 << 62, (3, 700_001)),
        "small": [rng.random(7) for _ in range(5)],
        "empty": np.zeros((0, 3)),
        "complex": np.full(600_000, 1 + 2j),
    }
    with Workers(threads or 1) as executor:
        buffers = Buffers(executor if threads else None)
        for _ in range(2):  # the second time to memory that is there
            given["large"] += 1
            kept = stage(0, given, buffers=buffers)
            for (name, _), flat in zip(kept.flat.tensors, kept.arrays, strict=True):
                wanted = given[name[0]][name[1]] if len(name) == 2 else given[name[0]]
                assert np.array_equal(flat, np.ravel(wanted))
                assert not np.shares_memory(flat, wanted)


def test_tensors_of_torch_are_copied_bit_for_bit():
    torch = pytest.importorskip("torch")
    given = {
        "large": torch.arange(600_000, dtype=torch.int32).view(torch.float32),  # some are NaN of many bits
        "transposed": torch.rand(7, 5).T,
        "half": torch.rand(3).bfloat16(),
        "flags": torch.tensor([True, False]),
        "complex": torch.full((2, 2), 1 + 2j).conj(),
        "empty": torch.zeros(0, 3),
        "step": torch.tensor(3.0),
        "trained": torch.nn.Parameter(torch.rand(4)),
        "of numpy": np.arange(4),
    }
    buffers = Buffers()
    for _ in range(2):  # the second time to memory that is there
        kept = stage(0, given, buffers=buffers)
        for (name, host), borrowed in zip(
            kept.flat.tensors, stage(0, given, copy=False).flat.tensors, strict=True
        ):
            assert host.framework == borrowed[1].framework
            assert host.array.tobytes() == borrowed[1].array.tobytes(), name
            assert not np.shares_memory(host.array, borrowed[1].array)
        given["large"].view(torch.int32).add_(1 << 29)


def test_small_tensors_of_torch_are_copied_at_once_and_keep_every_bit(monkeypatch):
    torch = pytest.importorskip("torch")
    handed = []
    monkeypatch.setattr("lcstore.staging.stage._copy_by_torch", handed.extend)
    buffers = Buffers()
    # One name after another kind of tensor: what was held for the one before is not what the next gets.
    for tensor in (
        torch.arange(6.0).reshape(2, 3).T,
        torch.tensor([float("nan"), -0.0], dtype=torch.bfloat16),
        torch.tensor([1, -2], dtype=torch.int16),
        np.array([1.5, -0.0], np.float16),
        torch.tensor(True),
        torch.zeros(0, 3),
    ):
        wanted = np.array(stage(0, {"a": tensor}, copy=False).arrays[0])
        staged = stage(0, {"a": tensor}, buffers=buffers)
        tensor[...] = 0
        (got,) = staged.arrays
        assert got.dtype == wanted.dtype
        assert got.tobytes() == wanted.tobytes()
        assert staged.flat.tensors[0][1].array.shape == tuple(tensor.shape)
    assert not handed


def test_an_edge_that_is_written_and_not_committed_is_unseen_and_undone(store):
    writer = store._writer
    before = {name: pool.copy() for name, pool in writer.track.pools.items()}
    write = edge_to(store, stage(1, state(1)))
    write.write()
    assert any((writer.track.pools[name] != pool).any() for name, pool in before.items())
    with lcstore.open(store.backend, "r") as reader:
        assert reader.steps() == [0]
    assert write.undo()
    assert all(np.array_equal(writer.track.pools[name], pool) for name, pool in before.items())
    info = store.save(2, state(2))
    assert info.kind == "delta"
    with lcstore.open(store.backend, "r") as reader:
        assert reader.restore(2)["epoch"] == 2
        assert reader.verify(level="decode").ok


def test_a_commit_refuses_another_head_than_its_base(store):
    first = store._writer.head
    write = edge_to(store, stage(1, state(1)))
    write.write()
    assert write.undo()
    store.save(1, state(1))
    with pytest.raises(ConflictError, match=first.node):
        prepare(write, "0" * 64, run=1, run_id="0" * 8, seq=7, parent=store._writer.head)
    assert prepare(write, "0" * 64, run=1, run_id="0" * 8, seq=7, parent=first).record.edge.base == first.node


def test_an_anchor_leads_from_the_root_whatever_the_handle_stands_on(store):
    writer = store._writer
    write = edge_to(store, stage(1, state(1)), anchor=True)
    write.write()
    made = prepare(write, "0" * 64, run=1, run_id=writer.run_id, seq=7, parent=writer.head)
    assert made.record.edge.base == ROOT
    assert made.record.parent == writer.head.node
    assert write.undo()
    assert store.save(2, state(2)).kind == "delta"
