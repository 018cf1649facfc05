"""Arrays and trees of JAX."""

from __future__ import annotations

import collections

import numpy as np
import pytest

import lcstore
from lcstore.errors import InvalidInputError
from lcstore.state.frameworks import convert_like, from_host, given_as, is_array, to_host
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


KEYS = {
    **{
        impl: lambda impl=impl: jax.random.key(3, impl=impl) for impl in ("threefry2x32", "rbg", "unsafe_rbg")
    },
    "several": lambda: jax.random.split(jax.random.key(3), (2, 2)),
    "none": lambda: jax.random.split(jax.random.key(3), 0),
}


@pytest.mark.parametrize("name", KEYS)
def test_typed_keys_are_stored_as_their_integers(name):
    key = KEYS[name]()
    host = to_host(key)
    data = np.asarray(jax.random.key_data(key))
    assert np.array_equal(host.array, data)
    assert host.framework == f"jax-key-{jax.random.key_impl(key)}"
    assert given_as(host.array, host.framework, "numpy") is host.array
    abstract = jax.eval_shape(lambda: key)
    for back in (
        from_host(host.array, host.framework),
        given_as(host.array, host.framework, "saved"),
        given_as(host.array, host.framework, "jax"),
        convert_like(host.array, key),
        convert_like(host.array, abstract),
    ):
        assert back.dtype == key.dtype
        assert back.shape == key.shape
        assert np.array_equal(jax.random.key_data(back), data)


def test_integers_and_keys_are_given_like_each_other_where_they_fit():
    data = to_host(jax.random.key(3)).array
    assert convert_like(data, jax.random.PRNGKey(0)).tolist() == data.tolist()
    assert jax.random.key_data(convert_like(np.array([1, 2], np.uint32), jax.random.key(0))).tolist() == [
        1,
        2,
    ]
    for wrong in (np.zeros(4, np.uint32), np.zeros(2, np.int32)):
        with pytest.raises(InvalidInputError, match="keys of 'threefry2x32' are"):
            convert_like(wrong, jax.random.key(0))
    with pytest.raises(InvalidInputError, match="keys of shape"):
        convert_like(np.zeros((3, 2), np.uint32), jax.random.key(0))


def test_keys_of_another_implementation_are_told_from_those_that_were_saved():
    with lcstore.open("memory://other-keys") as store:
        store.save(0, {"key": jax.random.key(0)})
        said = r"uint32\[2\] is stored, and keys of 'rbg' are uint32\[..., 4\]"
        with pytest.raises(InvalidInputError, match=said):
            store.restore(0, like={"key": jax.random.key(0, impl="rbg")})


def test_keys_of_somebody_elses_are_refused_with_the_cure():
    from jax.extend.random import define_prng_impl, threefry_prng_impl

    theirs = define_prng_impl(
        **{
            name: getattr(threefry_prng_impl, name)
            for name in ("key_shape", "seed", "split", "random_bits", "fold_in")
        },
        name="theirs",
        tag="theirs",
    )
    with pytest.raises(InvalidInputError, match="key_data"):
        flatten({"rng": jax.random.key(0, impl=theirs)})


def test_arrays_without_values():
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


@pytest.mark.parametrize("number", [0.25, 3, 2j])
@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_what_gives_way_to_other_dtypes_does_so_again(number, shape):
    """As a learning rate that was a number of Python: with a strong dtype it would widen bfloat16 weights."""
    weak = jnp.broadcast_to(jnp.asarray(number), shape)
    values = np.asarray(weak * 2)
    for like in (weak, jax.eval_shape(lambda: weak)):
        back = convert_like(values, like)
        assert (back.weak_type, back.dtype, back.tolist()) == (True, weak.dtype, values.tolist())
    strong = jnp.asarray(values)
    assert not convert_like(values, strong).weak_type
    assert (
        jnp.ones(shape, jnp.bfloat16) * convert_like(np.asarray(jnp.asarray(0.5)), jnp.asarray(1.0))
    ).dtype == jnp.bfloat16


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


def test_a_class_that_jax_knows_as_a_tree_is_refused_with_its_leaves():
    @jax.tree_util.register_pytree_node_class
    class Eq:
        def __init__(self, parts):
            self.parts = parts

        def tree_flatten(self):
            return self.parts, None

        @classmethod
        def tree_unflatten(cls, _, parts):
            return cls(list(parts))

    with pytest.raises(InvalidInputError, match=r"store jax\.tree\.leaves\(x\), and jax\.tree\.unflatten"):
        flatten({"eq": Eq([jnp.ones(3)])})
