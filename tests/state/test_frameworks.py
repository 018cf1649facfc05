"""Arrays of numpy, and of anything that speaks one of the array protocols."""

from __future__ import annotations

import subprocess
import sys
import types

import ml_dtypes
import numpy as np
import pytest

from lcstore.dtypes import DTYPE_NAMES, dtype_from_name, dtype_name, storage_dtype
from lcstore.errors import InvalidInputError, UnsupportedFormatError
from lcstore.state.frameworks import cast_array, convert_like, from_host, is_array, to_host


@pytest.mark.parametrize("name", DTYPE_NAMES)
def test_names_of_dtypes_round_trip(name):
    dtype = dtype_from_name(name)
    assert dtype_name(dtype) == name
    assert dtype_name(dtype.newbyteorder(">")) == name
    assert storage_dtype(name).itemsize == dtype.itemsize
    # Zarr sees only what numpy itself has.
    assert storage_dtype(name).kind in "biufc"


def test_storage_dtypes():
    assert storage_dtype("bfloat16") == np.uint16
    assert storage_dtype("float8_e4m3fn") == np.uint8
    assert storage_dtype("float32") == np.float32


@pytest.mark.parametrize("name", ["object", "float128", "<f4", "f4", "", None, 3, [], "datetime64", "pickle"])
def test_unknown_names_are_an_unsupported_format(name):
    with pytest.raises(UnsupportedFormatError):
        dtype_from_name(name)


@pytest.mark.parametrize("dtype", ["O", "U3", "S3", "M8[s]", "m8[s]", "V4", [("a", "f4")]])
def test_dtypes_without_an_exact_form(dtype):
    with pytest.raises(InvalidInputError):
        to_host(np.zeros(2, dtype))


def test_numpy_arrays_are_shared_not_copied():
    array = np.arange(6.0).reshape(2, 3)
    host = to_host(array.T)
    assert host.framework == "numpy"
    assert np.shares_memory(host.array, array)
    assert from_host(host.array, "numpy") is host.array


def test_foreign_byte_order_becomes_the_machines():
    host = to_host(np.array([1.5, 2.5], ">f4"))
    assert host.array.dtype == np.dtype("=f4")
    assert host.array.tolist() == [1.5, 2.5]


def test_numpy_scalars_come_back_as_scalars():
    for value in (np.float32(1.5), np.int8(-1), np.bool_(True), ml_dtypes.bfloat16(0.5), np.complex64(1j)):
        host = to_host(value)
        assert host.framework == "numpy-scalar"
        back = from_host(host.array, host.framework)
        assert type(back) is type(value)
        assert back == value


def test_subclasses_lose_only_their_class():
    matrix = np.ones((2, 2)).view(np.matrix)
    assert type(to_host(matrix).array) is np.ndarray
    with pytest.raises(InvalidInputError, match="mask"):
        to_host(np.ma.masked_array([1, 2], [0, 1]))


class OnlyArray:
    def __array__(self, dtype=None, copy=None):
        return np.arange(3, dtype=np.int16)


class OnlyDlpack:
    def __init__(self):
        self.array = np.arange(3.0)

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class BrokenArray(OnlyDlpack):
    def __array__(self, dtype=None, copy=None):
        raise TypeError("implicit conversion is not allowed")


class Nothing:
    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("the buffer was donated")


def test_protocols():
    assert to_host(OnlyArray()).framework == "numpy"
    assert to_host(OnlyArray()).array.tolist() == [0, 1, 2]
    for obj in (OnlyDlpack(), BrokenArray()):
        host = to_host(obj)
        assert host.framework == "dlpack"
        assert from_host(host.array, host.framework).tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(InvalidInputError, match="donated"):
        to_host(Nothing())


def test_is_array():
    assert all(map(is_array, (np.zeros(1), np.float32(1), OnlyArray(), OnlyDlpack())))
    assert not any(map(is_array, (1, "a", [1], None, OnlyArray, {}, np.float32, b"a", np.dtype("f4"))))


def test_from_host_checks_its_arguments():
    with pytest.raises(InvalidInputError):
        from_host(np.zeros(2), "numpy-scalar")
    with pytest.raises(InvalidInputError, match="tensorflow"):
        from_host(np.zeros(2), "tensorflow")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("have", "want"),
    [
        ("float64", "bfloat16"),
        ("bfloat16", "float32"),
        ("int64", "int8"),
        ("uint8", "int16"),
        ("int32", "float32"),
        ("float32", "complex64"),
        ("float32", "float8_e4m3fn"),
        ("int4", "int8"),
        ("int8", "int4"),
        ("bool", "bool"),
    ],
)
def test_casts_that_lose_only_precision(have, want):
    values = np.array([0, 1]).astype(dtype_from_name(have))
    like = np.zeros(2, dtype_from_name(want))
    back = convert_like(values, like)
    assert back.dtype == like.dtype
    assert np.array_equal(back.astype(np.complex128), values.astype(np.complex128))


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ([1.0], "int32"),
        ([1j], "float32"),
        ([300], "uint8"),
        ([-1], "uint64"),
        ([1], "bool"),
        ([True], "float32"),
        ([1.0], "bool"),
        ([8], "int4"),
        ([-9], "int4"),
        ([0.0], "float8_e8m0fnu"),
        ([-1.0], "float8_e8m0fnu"),
    ],
)
def test_casts_that_lose_more(values, want):
    with pytest.raises(InvalidInputError):
        cast_array(np.array(values), dtype_from_name(want))


@pytest.mark.parametrize(
    ("have", "want"),
    [("float8_e8m0fnu", "float8_e4m3fn"), ("float8_e8m0fnu", "float8_e5m2"), ("int4", "uint4")],
)
def test_a_cast_that_numpy_does_not_know_goes_by_float32(have, want):
    like = np.ones(2, dtype_from_name(want))
    back = convert_like(np.array([1, 4]).astype(dtype_from_name(have)), like)
    assert back.dtype == like.dtype
    assert back.astype(np.float32).tolist() == [1, 4]


def test_a_cast_past_the_range_is_infinite():
    assert cast_array(np.array([1e30]), np.dtype("float16"))[0] == np.inf


def test_convert_like_checks_the_shape():
    with pytest.raises(InvalidInputError, match="shape"):
        convert_like(np.zeros((2, 1)), np.zeros(2))
    with pytest.raises(InvalidInputError, match="no shape"):
        convert_like(np.zeros(()), 1.0)


def test_convert_like_gives_scalars_for_scalars():
    back = convert_like(np.array(1.5), np.float32(0))
    assert type(back) is np.float32


def test_looking_at_objects_imports_no_library():
    code = (
        "import sys, numpy as np\n"
        "from lcstore.state.tree import flatten\n"
        "flatten({'a': np.ones(3), 'b': [1, 'x']})\n"
        "assert not {'torch', 'jax', 'tensorflow'} & set(sys.modules), 'imported'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("module", "name"), [("pandas", "DataFrame"), ("xarray", "DataArray")])
def test_what_would_lose_its_labels_is_refused(module, name, monkeypatch):
    labelled = type(name, (), {"__module__": module, "__array__": lambda self, *_, **__: np.ones(3)})
    made = types.ModuleType(module)
    setattr(made, name, labelled)
    monkeypatch.setitem(sys.modules, module, made)
    with pytest.raises(
        InvalidInputError, match=rf"a {module}.{name} would lose its labels: store x.to_numpy"
    ):
        to_host(labelled())
