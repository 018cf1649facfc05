"""Arrays of other libraries, to numpy and back: where it is decided which library each is of.

A library is never imported to look at an object: what came from it has imported it already. Nor is it because
a store says so (`given_as`). Only a caller who names a library, or gives an object of it, has it imported.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import numpy as np

from lcstore.arrays import Array
from lcstore.dtypes import DTYPE_NAMES, dtype_from_name, dtype_name
from lcstore.errors import InvalidInputError
from lcstore.state.jaxkeys import WIDTHS, is_key_dtype, key_data, kind_of, wrapped
from lcstore.state.standins import StandIns
from lcstore.state.torchtensors import from_torch, is_on_gpu, plain, to_torch, without_values

Framework: TypeAlias = Literal[
    "numpy",
    "numpy-scalar",
    "torch",
    "jax",
    "jax-key-threefry2x32",
    "jax-key-rbg",
    "jax-key-unsafe_rbg",
    "dlpack",
]
FRAMEWORKS: Final[tuple[Framework, ...]] = get_args(Framework)
#: What a caller may have tensors given as: "saved" is the library that each was saved from.
TARGETS: Final = ("saved", "numpy", "torch", "jax")
#: A class that a library has once it is imported as a whole.
_TENSORS: Final = {"torch": "Tensor", "jax": "Array"}

_STAND_INS: Final = StandIns[Framework]()
_PROTOCOLS: Final = ("__array__", "__array_interface__", "__dlpack__")


@dataclass(frozen=True, slots=True)
class HostArray:
    """An array in this machine's memory, and the library that it came from.

    Attributes
    ----------
    array
        The values, in the machine's byte order; strides are as they came. It may share memory with the
        user's object, so it is to be read at once or copied, and never written to.
    framework
        What `from_host` needs to give back the same kind of object.
    on_gpu
        The tensor, where its values are yet to be fetched from a GPU: `array` has its shape and dtype alone.
    """

    array: Array
    framework: Framework
    on_gpu: Any = None


def defined(module: str, name: str) -> Any:
    """Return what a module defines under a name; None where it is not imported, or only in part."""
    found = sys.modules.get(module)
    # Not by getattr: a module may import or warn when it is asked for what it has not.
    return None if found is None else getattr(found, "__dict__", {}).get(name)


#: Classes whose values are not all that they hold, by module.
_LABELLED: Final = (
    ("pandas", ("DataFrame", "Series", "Index")),
    ("pandas.api.extensions", ("ExtensionArray",)),
    ("polars", ("DataFrame", "Series")),
    ("xarray", ("DataArray",)),
)


def is_instance(obj: object, module: str, name: str) -> bool:
    """Return whether `obj` is of a class of a module, which is not imported to find out."""
    cls = defined(module, name)
    return isinstance(cls, type) and isinstance(obj, cls)


def is_array(obj: object) -> bool:
    """Return whether `obj` is an array, or an array scalar, of any library."""
    if isinstance(obj, (np.ndarray, np.generic, HostArray)) or is_instance(obj, "torch", "Tensor"):
        return True
    cls = type(obj)
    return not isinstance(obj, type) and any(hasattr(cls, name) for name in _PROTOCOLS)


def is_variable(obj: object) -> bool:
    """Return whether `obj` is a variable of Flax NNX, which only says what kind of thing its value is."""
    return "flax.nnx" in sys.modules and (
        is_instance(obj, "flax.nnx", "Variable") or is_instance(obj, "flax.nnx", "VariableState")
    )


def value_of(variable: Any) -> Any:
    """Return what a variable holds."""
    # Newer ones warn of `value`, older ones have nothing else.
    return variable.get_value() if hasattr(variable, "get_value") else variable.value


def to_host(obj: object, *, fetch: bool = True) -> HostArray:
    """Return the values of the array `obj` in this machine's memory, shared with it where that is possible.

    Without `fetch`, those of a tensor of torch that lies on a GPU are left there.

    Raises
    ------
    InvalidInputError
        There are no plain values to have (sparse, meta, sharded, traced, masked, deleted) or their dtype
        has no lossless form in a store. The caller adds its name to the message.
    """
    if isinstance(obj, HostArray):
        return obj
    if isinstance(obj, np.ndarray):
        if isinstance(obj, np.ma.MaskedArray):
            raise InvalidInputError("a masked array would lose its mask: store its .data and .mask")
        return HostArray(_checked(np.asarray(obj)), _STAND_INS.kind_of(obj) or "numpy")
    if isinstance(obj, np.generic):
        return HostArray(_checked(np.asarray(obj)), "numpy-scalar")
    try:
        if is_instance(obj, "torch", "Tensor"):
            tensor = plain(obj)
            if not fetch and is_on_gpu(tensor):
                return HostArray(without_values(tensor), "torch", tensor)
            return HostArray(_checked(from_torch(tensor)), "torch")
        if is_instance(obj, "jax", "Array"):
            return _from_jax(obj)
        return _from_protocol(obj)
    except InvalidInputError:
        raise
    except Exception as exc:
        # Libraries raise many types here (TypeError, RuntimeError, NotImplementedError, ...): all of them
        # mean that this object has no values to store, and their texts say why.
        raise InvalidInputError(f"no values can be read from this {_class_name(obj)}: {exc}") from exc


def memory_of(obj: Any) -> Hashable:
    """Return what two tensors have in common that are one: the same elements of the same memory.

    None where that says nothing: arrays of JAX and single numbers are values, and nothing has no place.
    It holds as long as `obj` does.
    """
    if isinstance(obj, np.ndarray):
        at = obj.__array_interface__["data"][0] if obj.size else 0
        return (at, obj.shape, obj.strides, obj.dtype) if at else None
    if not is_instance(obj, "torch", "Tensor"):
        is_value = isinstance(obj, np.generic) or is_instance(obj, "jax", "Array")
        return None if is_value else id(obj)
    try:
        at = obj.data_ptr() if obj.numel() else 0
    except Exception:  # kinds of tensors that have no memory of their own say so in many ways
        return None
    bits = (obj.dtype, obj.device, obj.is_conj(), obj.is_neg())
    return (at, obj.shape, obj.stride(), *bits) if at else None


def _class_name(obj: object) -> str:
    cls = type(obj)
    return f"{cls.__module__}.{cls.__qualname__}"


def _checked(array: Array) -> Array:
    dtype_name(array.dtype)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _from_jax(array: Any) -> HostArray:
    if not getattr(array, "is_fully_addressable", True):
        if not array.is_fully_replicated:
            raise InvalidInputError("this array lies partly on other hosts: gather it first")
        array = array.addressable_data(0)  # each host has all of it
    if is_key_dtype(array.dtype):
        return HostArray(np.asarray(key_data(array)), cast(Framework, kind_of(array.dtype)))
    return HostArray(_checked(np.asarray(array)), "jax")


def _from_protocol(obj: Any) -> HostArray:
    if any(is_instance(obj, module, name) for module, names in _LABELLED for name in names):
        raise InvalidInputError(f"a {_class_name(obj)} would lose its labels: store x.to_numpy(), and these")
    if hasattr(type(obj), "__array__") or hasattr(type(obj), "__array_interface__"):
        try:
            return HostArray(_checked(np.asarray(obj)), "numpy")
        except Exception:
            # Some libraries refuse __array__ for what DLPack can still hand over.
            if not hasattr(type(obj), "__dlpack__"):
                raise
    return HostArray(_checked(np.from_dlpack(obj)), "dlpack")


def from_host(array: Array, framework: Framework) -> Any:
    """Return `array` as an object of `framework`, importing it if needed.

    ``"numpy"`` and ``"dlpack"`` give the array itself, ``"numpy-scalar"`` its only element as a numpy scalar,
    ``"torch"`` a CPU tensor that shares memory where it can, ``"jax"`` a copy on the default device, and
    ``"jax-key-..."`` typed keys of it.

    Raises
    ------
    InvalidInputError
        The library is not installed, or cannot hold these values exactly.
    """
    if framework in ("numpy", "dlpack"):
        return array
    if framework == "numpy-scalar":
        if array.ndim:
            raise InvalidInputError(f"an array of shape {array.shape} is not a scalar")
        return array[()]
    try:
        if framework == "torch":
            return to_torch(array)
        if framework == "jax":
            return _to_jax(array)
        if framework in WIDTHS:
            return wrapped(_to_jax(array), framework)
    except ImportError as exc:
        raise InvalidInputError(f"{_library(framework)} is not installed: restore with to='numpy'") from exc
    raise InvalidInputError(f"unknown framework {framework!r}: one of {', '.join(FRAMEWORKS)}")


def is_loaded(framework: Framework) -> bool:
    """Return whether objects of `framework` can be made without importing anything."""
    library = _library(framework)
    return library not in _TENSORS or defined(library, _TENSORS[library]) is not None


def _library(framework: Framework) -> str:
    return "jax" if framework in WIDTHS else framework


def of_a_part(framework: Framework) -> Framework:
    """Return what a part of a tensor is: of keys, some of their integers."""
    return "jax" if framework in WIDTHS else framework


def given_as(array: Array, framework: Framework, to: str) -> Any:
    """Return a stored tensor as a caller wants it.

    Parameters
    ----------
    array
        Its values, or some of them.
    framework
        What the store says it was. A library that this process has not imported is not imported for that:
        then it is a numpy array, which is saved as the tensor that it stands for.
    to
        One of `TARGETS`. Single numbers of numpy stay numpy's where they are not asked for otherwise.
    """
    if to == "torch" or (to == "jax" and framework not in WIDTHS):
        return from_host(array, "torch" if to == "torch" else "jax")
    if framework == "numpy-scalar":
        return array if array.ndim else array[()]
    if to == "numpy":
        return array
    wanted = to == "jax" or is_loaded(framework)
    return from_host(array, framework) if wanted else _STAND_INS.given(array, framework)


def _to_jax(array: Array) -> Any:
    import jax

    if array.dtype.itemsize >= 8 and jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
        raise InvalidInputError(
            f"JAX would cut {array.dtype} to 32 bits: set jax_enable_x64, or restore with to='numpy'"
        )
    # A copy, because JAX arrays are immutable and numpy's memory is not.
    return jax.numpy.array(array)


def convert_like(array: Array, like_leaf: Any) -> Any:
    """Return `array` as the library, device and dtype of `like_leaf` have it.

    Parameters
    ----------
    array
        The restored values.
    like_leaf
        A tensor of any library, or something abstract with ``shape`` and ``dtype``: a
        ``jax.ShapeDtypeStruct`` (its sharding is followed), or a torch tensor on the meta device (which
        gives a CPU tensor). Whatever else has these two attributes gives a numpy array.

    Returns
    -------
    object
        A new tensor; torch tensors come without grad.

    Raises
    ------
    InvalidInputError
        Shapes differ, or the cast would lose more than precision: a float to an integer, an integer out of
        range, complex to real, anything but a boolean to a boolean, zeros to a dtype that has none.
    """
    shape, dtype = getattr(like_leaf, "shape", None), getattr(like_leaf, "dtype", None)
    if shape is None or dtype is None:
        raise InvalidInputError(f"{_class_name(like_leaf)} has no shape and dtype to follow")
    if is_key_dtype(dtype):
        return _placed(_keys_like(array, shape, kind_of(dtype)), like_leaf)
    if tuple(shape) != array.shape:
        raise InvalidInputError(f"shape {array.shape} is stored, but {tuple(shape)} is asked for")
    if is_instance(like_leaf, "torch", "Tensor"):
        tensor = to_torch(cast_array(array, _numpy_dtype(str(dtype))))
        return tensor if like_leaf.is_meta else tensor.to(like_leaf.device)
    wanted = cast_array(array, _numpy_dtype(dtype))
    if is_instance(like_leaf, "jax", "Array") or is_instance(like_leaf, "jax", "ShapeDtypeStruct"):
        made = _to_jax(wanted)
        return _placed(_weak(made) if getattr(like_leaf, "weak_type", False) else made, like_leaf)
    return wanted[()] if isinstance(like_leaf, np.generic) else wanted


def _weak(array: Any) -> Any:
    """Return an array of JAX whose dtype gives way to those of others, as a number of Python does."""
    numpy = sys.modules["jax"].numpy
    zero = numpy.asarray(array.dtype.type(0).item())
    return numpy.broadcast_to(zero, array.shape).at[...].set(array) if zero.dtype == array.dtype else array


def _keys_like(array: Array, shape: tuple[int, ...], kind: str) -> Any:
    if array.shape[:-1] != tuple(shape):
        raise InvalidInputError(
            f"keys of shape {array.shape[:-1]} are stored, but {tuple(shape)} is asked for"
        )
    return wrapped(_to_jax(array), kind)


def _placed(array: Any, like_leaf: Any) -> Any:
    """Return an array of JAX where `like_leaf` lies, if it says where.

    What was never put anywhere goes along with arrays on any devices, and does so after a restart.
    """
    sharding = getattr(like_leaf, "sharding", None) if getattr(like_leaf, "committed", True) else None
    try:
        return array if sharding is None else sys.modules["jax"].device_put(array, sharding)
    except ValueError as error:
        raise InvalidInputError(f"it cannot lie where `like` says: {error}") from error


def _numpy_dtype(dtype: Any) -> np.dtype[Any]:
    name = dtype.removeprefix("torch.") if isinstance(dtype, str) else ""
    if name in DTYPE_NAMES:
        return dtype_from_name(name)
    try:
        return dtype_from_name(dtype_name(np.dtype(dtype)))
    except TypeError as exc:
        raise InvalidInputError(f"dtype {dtype} has no counterpart among stored dtypes") from exc


def cast_array(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return `array` with `dtype`, itself if it has it already.

    Precision may be lost (float64 to bfloat16, integers to floats), meaning may not: see `convert_like`.
    A float past the range of a narrower float becomes infinite, as everywhere.
    """
    if array.dtype == dtype:
        return array
    have, want = family_of(array.dtype), family_of(dtype)
    unlike = "bool" in (have, want) or want == "integer"
    unlike |= dtype_name(dtype) == "float8_e8m0fnu"  # neither zero nor a sign: both would become NaN
    if want == "integer" and have == "integer":
        info_min, info_max = _integer_range(dtype)
        if array.size and (int(array.min()) < info_min or int(array.max()) > info_max):
            raise InvalidInputError(f"values of dtype {array.dtype} do not fit {dtype}")
    elif _ORDER[have] > _ORDER[want] or unlike:
        raise InvalidInputError(f"casting stored {array.dtype} to {dtype} would lose more than precision")
    with np.errstate(over="ignore", invalid="ignore"):
        # Between some narrow ones numpy knows no way; float32 holds all that they hold.
        known = np.can_cast(array.dtype, dtype, "unsafe")
        return (array if known else array.astype(np.float32)).astype(dtype)


_ORDER: Final = {"bool": 0, "integer": 1, "float": 2, "complex": 3}


def family_of(dtype: np.dtype[Any]) -> Literal["bool", "integer", "float", "complex"]:
    """Return what kind of numbers a dtype holds; numpy has no letter for bfloat16, int4 and their like."""
    name = dtype_name(dtype)
    if name == "bool":
        return "bool"
    if name.startswith("complex"):
        return "complex"
    return "integer" if name.startswith(("int", "uint")) else "float"


def _integer_range(dtype: np.dtype[Any]) -> tuple[int, int]:
    name = dtype_name(dtype)
    bits = int(name.lstrip("uint"))
    return (0, (1 << bits) - 1) if name.startswith("u") else (-(1 << bits - 1), (1 << bits - 1) - 1)
