"""Arrays and trees of JAX."""

from __future__ import annotations

import collections

import numpy as np
import pytest

from lcstore.errors import InvalidInputError
from lcstore.state.frameworks import convert_like, from_host, is_array, to_host
from lcstore.state.like import fill_like
from lcstore.state.tree import flatten, structure_names, unflatten

jax = pytest.importorskip("jax")
jnp = jax.numpy

Adam = collections.namedtuple("Adam", ["count", "mu", "nu"])


@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        "float16",
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
        "int32",
        "uint8",
        "bool",
        "complex64",
        "int4",
    ],
)
@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (2, 3)])
def test_round_trip(dtype, shape):
    array = jnp.ones(shape, dtype)
    assert is_array(array)
    host = to_host(array)
    assert host.framework == "jax"
    back = from_host(host.array, "jax")
    assert isinstance(back, jax.Array)
    assert back.dtype == array.dtype
    assert back.shape == shape
    assert np.asarray(back).tobytes() == np.asarray(array).tobytes()


def test_what_comes_back_does_not_share_memory():
    values = np.ones(4096, np.float32)
    back = from_host(values, "jax")
    values[:] = 0
    assert float(back[0]) == 1.0


def test_64_bits_are_not_cut_silently():
    with pytest.raises(InvalidInputError, match="x64"):
        from_host(np.ones(2), "jax")
    with jax.enable_x64(True):
        assert from_host(np.ones(2), "jax").dtype == np.float64


def test_arrays_without_values():
    with pytest.raises(InvalidInputError, match="key_data"):
        flatten({"rng": jax.random.key(0)})
    array = jnp.ones(2)
    array.delete()
    with pytest.raises(InvalidInputError, match="deleted"):
        to_host(array)

    def traced(x):
        to_host(x)
        return x

    with pytest.raises(InvalidInputError):
        jax.jit(traced)(jnp.ones(2))


def test_old_style_keys_are_arrays():
    flat = flatten({"rng": jax.random.PRNGKey(0)})
    assert flat.tensors[0][1].array.dtype == np.uint32


def test_convert_like():
    values = np.array([1.0, 2.0], np.float32)
    for like in (jnp.zeros(2, jnp.bfloat16), jax.ShapeDtypeStruct((2,), jnp.bfloat16)):
        back = convert_like(values, like)
        assert isinstance(back, jax.Array)
        assert back.dtype == jnp.bfloat16
        assert back.tolist() == [1.0, 2.0]
    device = jax.devices()[0]
    placed = jax.ShapeDtypeStruct((2,), jnp.float32, sharding=jax.sharding.SingleDeviceSharding(device))
    assert convert_like(values, placed).devices() == {device}
    with pytest.raises(InvalidInputError, match="shape"):
        convert_like(values, jax.ShapeDtypeStruct((3,), jnp.float32))


def test_a_pytree_comes_back_with_its_types_through_like():
    params = {"dense": {"kernel": jnp.ones((2, 2)), "bias": jnp.zeros(2)}}
    state = {"params": params, "opt_state": (Adam(jnp.int32(0), params, params), ())}
    flat = flatten(state)
    tensors = [host.array for _, host in flat.tensors]
    assert ("opt_state", 0, "mu", "dense", "kernel") in structure_names(flat.structure)[0]
    plain = unflatten(flat.structure, tensors, flat.leaves)
    assert list(plain["opt_state"][0]) == ["count", "mu", "nu"]

    abstract = jax.eval_shape(lambda: state)
    values = dict(zip(structure_names(flat.structure)[0], tensors, strict=True))
    back = fill_like(abstract, lambda path, leaf: convert_like(values[path], leaf))
    assert jax.tree.structure(back) == jax.tree.structure(state)
    assert all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), back, state)))
