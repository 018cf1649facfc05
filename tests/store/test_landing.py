"""Tensors on GPUs: in which order streams copy and wait, and that saves have the values of their moment.

Without a GPU tensors of the CPU stand for those on one, and streams write down what they are told.
"""

import logging
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

import lcstore
from lcstore.errors import InvalidInputError
from lcstore.staging.landing import Landing
from lcstore.state import frameworks
from lcstore.state.frameworks import HostArray
from lcstore.state.torchtensors import without_values
from lcstore.storage.memory import MemoryBackend

torch = pytest.importorskip("torch")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


class Stream:
    """Writes down what is asked of it."""

    def __init__(self, name: str, said: list[str]) -> None:
        self.name, self.said = name, said

    def wait_stream(self, other: "Stream") -> None:
        self.said.append(f"{self.name} waits for {other.name}")

    def wait_event(self, event: "Stream") -> None:
        self.said.append(f"{self.name} waits for {event.name}")

    def record_event(self) -> "Stream":
        return Stream(f"mark {sum('mark set' in one for one in self.said)}", self._set())

    def _set(self) -> list[str]:
        self.said.append("mark set")
        return self.said

    def synchronize(self) -> None:
        self.said.append(f"host waits for {self.name}")


@pytest.fixture
def said(monkeypatch):
    """What streams of a GPU are told, which is memory of the host here."""
    said: list[str] = []
    current, used = Stream("current", said), []
    registered: list[int] = []

    @contextmanager
    def stream(which):
        used.append(which)
        yield
        used.pop()

    @contextmanager
    def device(which):
        yield

    copy, foreach = torch.Tensor.copy_, torch._foreach_copy_

    def copy_(self, source, non_blocking=False):
        if non_blocking:
            said.append(f"{used[-1].name} copies {source.numel()}")
        return copy(self, source)

    def foreach_copy(to, sources):
        said.append(f"current copies {[source.numel() for source in sources]}")
        return foreach(to, sources)

    runtime = SimpleNamespace(
        cudaHostRegister=lambda at, size, flags: registered.append(size) or 0,
        cudaHostUnregister=lambda at: registered.pop(),
    )
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream("beside", said))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: current)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    monkeypatch.setattr(torch.Tensor, "copy_", copy_)
    monkeypatch.setattr(torch, "_foreach_copy_", foreach_copy)
    return said


def hosts(*tensors):
    return {(str(i),): HostArray(without_values(t), "torch", t) for i, t in enumerate(tensors)}


def test_what_has_no_room_on_the_gpu_is_read_before_the_current_stream_goes_on(said):
    large, small = torch.rand(1000), torch.arange(10, dtype=torch.int16)
    landing = Landing(spare=1024)
    arrays = landing.begin(hosts(large, small))
    assert said == [
        "beside waits for current",
        "beside copies 1000",
        "mark set",
        "current copies [10]",
        "beside waits for current",
        "beside copies 256",
        "mark set",
        "current waits for mark 0",
    ]
    landing.wait()
    landing.wait()
    assert said[8:] == ["host waits for mark 1"]
    assert np.array_equal(arrays["0",], large.numpy())
    assert np.array_equal(arrays["1",], small.numpy())


def test_memory_is_kept_while_tensors_have_their_shapes(said):
    landing = Landing()
    first = landing.begin(hosts(torch.rand(300), torch.rand(3, 4).T))
    again = landing.begin(hosts(torch.ones(300), torch.rand(3, 4).T))
    assert np.shares_memory(first["0",], again["0",])
    assert first["0",].min() == 1
    assert [strip.host.size for strip in landing._strips] == [1280 + 256]
    other = landing.begin(hosts(torch.ones(301)))
    assert not np.shares_memory(first["0",], other["0",])
    assert landing.begin({}) == {}
    assert landing._strips == []


@pytest.mark.parametrize("spare", [0, 700, 1 << 20])
def test_values_of_all_kinds_are_there_bit_for_bit(said, spare):
    tensors = [
        torch.rand(7, 5).T,
        torch.rand(33).bfloat16(),
        torch.tensor(2.5),
        torch.empty(0, 3),
        torch.tensor([True, False]),
        torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.full((3,), 1 + 2j),
    ]
    found = Landing(spare).begin(hosts(*tensors))
    for i, tensor in enumerate(tensors):
        wanted = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
        assert found[str(i),].tobytes() == wanted.tobytes(), i


@pytest.mark.parametrize("save", [lcstore.Store.save, lambda *what: lcstore.Store.save_async(*what).result()])
def test_states_that_are_partly_on_a_gpu_are_saved_and_compared(said, monkeypatch, save):
    monkeypatch.setattr(frameworks, "is_on_gpu", lambda tensor: tensor.numel() > 100)
    state = {"w": torch.rand(40, 50), "b": torch.rand(3), "n": np.arange(500), "epoch": 1}
    with lcstore.open(MemoryBackend.fresh(), policy="lossless", gpu_memory=0) as store:
        for step in range(2):
            state["w"] += 1
            save(store, step, state)
            assert said[-1].startswith("host waits")
            again = store.restore(step, to="numpy")
            for name, value in state.items():
                assert np.array_equal(again[name], value), name
        assert store.moved(state) == 0
    assert [one for one in said if "copies" in one] == ["beside copies 2000"] * 3


def test_memory_that_cannot_be_pinned_is_used_all_the_same(said, monkeypatch, caplog):
    monkeypatch.setattr(torch.cuda.cudart(), "cudaHostRegister", lambda at, size, flags: 2)
    tensor = torch.rand(50)
    with caplog.at_level(logging.WARNING, "lcstore"):
        found = Landing().begin(hosts(tensor))
    assert np.array_equal(found["0",], tensor.numpy())
    assert "cannot be pinned" in caplog.text


def test_a_gpu_that_has_no_room_to_spare_is_read_at_once(said, monkeypatch, caplog):
    def full(*args, **how):
        raise torch.OutOfMemoryError

    tensor = torch.rand(50)
    monkeypatch.setattr(torch, "empty", full)
    with caplog.at_level(logging.WARNING, "lcstore"):
        found = Landing(1 << 20).begin(hosts(tensor))
    assert np.array_equal(found["0",], tensor.numpy())
    assert "to spare" in caplog.text


@pytest.mark.parametrize("given", [-1, 1.5, "much", True, None])
def test_what_is_no_amount_of_memory_is_refused(given):
    with pytest.raises(InvalidInputError):
        lcstore.open(MemoryBackend.fresh(), gpu_memory=given)


@on_gpu
@pytest.mark.parametrize("spare", [0, "100kB", "1GB"])
def test_a_state_on_a_gpu_is_saved_as_it_was(spare):
    with lcstore.open(MemoryBackend.fresh(), policy="lossless", gpu_memory=spare) as store:
        for step in range(3):
            state = {
                "w": torch.randn(2000, 1000, device="cuda"),
                "t": torch.randn(40, 50, device="cuda").T,
                "c": torch.randn(9, device="cuda", dtype=torch.complex64).conj(),
                "f8": torch.randn(64, device="cuda").to(torch.float8_e4m3fn),
                "on the host": torch.randn(5),
            }
            wanted = {name: tensor.clone() for name, tensor in state.items()}
            torch.cuda._sleep(100_000_000)  # what the GPU does before it comes to the copy
            store.moved(state)
            future = store.save_async(step, state) if step else store.save(step, state)
            for tensor in state.values():
                tensor.copy_(torch.ones_like(tensor))
            del state, tensor
            others = [torch.full((2000, 1000), 7.0, device="cuda") for _ in range(5)]
            store.wait()
            assert future is not None
            assert len(others) == 5
            for name, tensor in store.restore(step).items():
                one, other = (t.cpu().resolve_conj().contiguous() for t in (tensor, wanted[name]))
                assert torch.equal(one.view(torch.uint8), other.view(torch.uint8)), name


@on_gpu
def test_a_failure_to_pin_is_not_raised_later(monkeypatch):
    runtime = torch.cuda.cudart()

    def twice(at, size, flags):
        assert int(runtime.cudaHostRegister(at, size, flags)) == 0
        return runtime.cudaHostRegister(at, size, flags)

    monkeypatch.setattr(torch.cuda, "cudart", lambda: SimpleNamespace(cudaHostRegister=twice))
    tensor = torch.rand(50, device="cuda")
    landing = Landing()
    found = landing.begin(hosts(tensor))
    landing.wait()
    assert np.array_equal(found["0",], tensor.cpu().numpy())
    assert (torch.zeros(3, device="cuda") + 1).sum().item() == 3
