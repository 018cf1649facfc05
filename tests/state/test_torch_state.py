"""Tensors, modules and optimizers of PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from lcstore.errors import InvalidInputError
from lcstore.state.frameworks import convert_like, from_host, to_host
from lcstore.state.roles import guess_role
from lcstore.state.tree import flatten, unflatten

torch = pytest.importorskip("torch")
nn = torch.nn

DTYPES = [
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128),
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.bool),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
]


def same(one, other):
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and torch.equal(
            one.contiguous().reshape(-1).view(torch.uint8), other.contiguous().reshape(-1).view(torch.uint8)
        )
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (2, 3)])
def test_round_trip(dtype, shape):
    tensor = (torch.arange(6)[: max(1, int(np.prod(shape)))] % 2).to(dtype)
    tensor = tensor[:0].reshape(shape) if 0 in shape else tensor.reshape(shape)
    host = to_host(tensor)
    assert host.framework == "torch"
    assert host.array.shape == shape
    assert same(from_host(host.array, "torch"), tensor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
def test_memory_is_shared_both_ways(dtype):
    tensor = torch.zeros(4).to(dtype)
    host = to_host(tensor)
    tensor.fill_(1.0)
    assert float(host.array[0]) == 1.0
    writable = np.array(host.array)
    back = from_host(writable, "torch")
    back.fill_(0.0)
    assert float(writable[0]) == 0.0


def test_special_layouts():
    base = torch.arange(12.0, dtype=torch.bfloat16).reshape(3, 4)
    for tensor in (base.t(), base[:, ::2], base.expand(2, 3, 4), base[1, 1], nn.Parameter(base.float())):
        assert same(from_host(to_host(tensor).array, "torch"), tensor.detach())
    lazy = torch.view_as_complex(torch.ones(2, 2)).conj()
    assert to_host(lazy).array.tolist() == [1 - 1j, 1 - 1j]
    assert to_host(lazy.imag).array.tolist() == [-1.0, -1.0]


def test_numpy_layouts_that_torch_refuses():
    for array in (np.arange(4.0)[::-1], np.arange(4, dtype=">i4"), np.broadcast_to(np.float32(1), (2, 2))):
        assert np.array_equal(from_host(array, "torch").numpy(), array)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(2, device="meta"),
        lambda: torch.eye(2).to_sparse(),
        lambda: nn.LazyLinear(2).weight,
        lambda: torch.zeros(2, dtype=torch.complex32),
        lambda: torch.zeros(2, dtype=torch.bits8),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_tensors_without_plain_values(make):
    with pytest.raises(InvalidInputError, match="'model/w'"):
        flatten({"model": {"w": make()}})


def test_dtypes_that_torch_lacks():
    import ml_dtypes

    for dtype in (ml_dtypes.float8_e4m3, ml_dtypes.int4):
        with pytest.raises(InvalidInputError, match="numpy"):
            from_host(np.zeros(2, dtype), "torch")


def test_convert_like():
    values = np.array([[1.0, 2.0]], np.float32)
    back = convert_like(values, torch.zeros(1, 2, dtype=torch.bfloat16))
    assert back.dtype == torch.bfloat16
    assert back.tolist() == [[1.0, 2.0]]
    meta = convert_like(values, torch.empty(1, 2, dtype=torch.float64, device="meta"))
    assert meta.device.type == "cpu"
    assert meta.dtype == torch.float64
    assert not convert_like(values, nn.Parameter(torch.zeros(1, 2))).requires_grad
    with pytest.raises(InvalidInputError, match="shape"):
        convert_like(values, torch.zeros(2))
    with pytest.raises(InvalidInputError):
        convert_like(values, torch.zeros(1, 2, dtype=torch.int32))


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Embedding(7, 4),
        nn.Linear(4, 4),
        nn.LayerNorm(4),
        nn.LSTM(4, 4),
        nn.MultiheadAttention(4, 2),
        nn.BatchNorm1d(4),
    )


def test_module_and_optimizer_round_trip():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    optim = torch.optim.AdamW(model.parameters(), amsgrad=True)
    model(torch.randn(5, 4)).sum().backward()
    optim.step()
    flat = flatten({"model": model, "optim": optim})
    back = unflatten(flat.structure, [from_host(h.array, h.framework) for _, h in flat.tensors], flat.leaves)

    other = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    other.load_state_dict(back["model"])
    for key, value in model.state_dict().items():
        assert same(other.state_dict()[key], value)
    fresh = torch.optim.AdamW(other.parameters(), amsgrad=True)
    fresh.load_state_dict(back["optim"])
    assert fresh.state_dict()["param_groups"] == optim.state_dict()["param_groups"]
    for place, moments in optim.state_dict()["state"].items():
        for name, value in moments.items():
            assert same(fresh.state_dict()["state"][place][name], value)


def roles_of(state):
    return {
        path: guess_role(path, host.array.dtype, host.array.shape) for path, host in flatten(state).tensors
    }


def test_every_matrix_of_a_module_is_weights_and_no_buffer_is():
    model = make_model()
    parameters = {name for name, value in model.named_parameters() if value.ndim >= 2}
    roles = roles_of({"model": model})
    assert {path[1] for path, role in roles.items() if role == "weights"} == parameters


@pytest.mark.parametrize(
    ("make", "first", "second"),
    [
        (lambda p: torch.optim.AdamW(p, amsgrad=True), {"exp_avg"}, {"exp_avg_sq", "max_exp_avg_sq"}),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), {"momentum_buffer"}, set()),
        (lambda p: torch.optim.RMSprop(p, momentum=0.9), {"momentum_buffer"}, {"square_avg"}),
        (lambda p: torch.optim.Adagrad(p), set(), set()),
        (lambda p: torch.optim.Adamax(p), {"exp_avg"}, set()),
    ],
)
@pytest.mark.parametrize("key", ["optimizer", "whatever"])
def test_moments_of_torch_optimizers(make, first, second, key):
    model = nn.Linear(3, 2)
    optim = make(list(model.parameters()))
    model(torch.ones(1, 3)).sum().backward()
    optim.step()
    roles = roles_of({key: optim})
    assert {path[-1] for path, role in roles.items() if role == "first_moment"} == first
    assert {path[-1] for path, role in roles.items() if role == "second_moment"} == second
    assert "weights" not in roles.values()
