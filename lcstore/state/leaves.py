"""Plain values as JSON and exactly back: the type, every bit of a float, integers of any size.

=============================================  =================================
value                                          JSON
=============================================  =================================
``None``, ``bool``, ``str``                    itself
``str`` with half a surrogate pair             ``{"str": base64 of its UTF-8}``
``int`` within 2**53                           a number without point
any other ``int``                              ``{"int": "-0x..."}``
finite ``float``                               the shortest number that reads back
``nan``, ``inf``, ``-inf``                     ``{"float": "nan"}`` and so on
a ``nan`` with other bits                      ``{"float": its 16 hex digits}``
``complex``                                    ``{"complex": [real, imaginary]}``
``bytes``                                      ``{"bytes": base64}``
=============================================  =================================
"""

from __future__ import annotations

import math
import re
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from lcstore.errors import CorruptionError, InvalidInputError
from lcstore.state.names import has_surrogates

Leaf: TypeAlias = int | float | complex | str | bytes | bool | None

#: Integers within this bound are exact in every JSON reader.
_SAFE_INT: Final = 1 << 53
_HEX_INT: Final = re.compile(r"-?0x[1-9a-f][0-9a-f]*")
_HEX_BITS: Final = re.compile(r"[0-9a-f]{16}")
_NAN_BITS: Final = struct.pack(">d", math.nan).hex()
_LEAF_TYPES: Final = frozenset({int, float, complex, str, bytes, bool, type(None)})


def is_leaf(value: object) -> bool:
    """Return whether `value` is of a plain type itself; an enum or another subclass is not."""
    return type(value) in _LEAF_TYPES


def encode_leaf(value: Leaf) -> Any:
    """Return the plain `value` as a JSON value; `InvalidInputError` if it is of another type."""
    kind = type(value)
    if value is None or kind is bool:
        return value
    if isinstance(value, str) and kind is str:
        if not has_surrogates(value):
            return value
        return {"str": _to_base64(value.encode("utf-8", "surrogatepass"))}
    if isinstance(value, int) and kind is int:
        # Hexadecimal, because Python bounds the digits of decimal integers, and for good reason.
        return value if -_SAFE_INT <= value <= _SAFE_INT else {"int": hex(value)}
    if isinstance(value, float) and kind is float:
        return value if math.isfinite(value) else {"float": _special(value)}
    if isinstance(value, bytes) and kind is bytes:
        return {"bytes": _to_base64(value)}
    if isinstance(value, complex) and kind is complex:
        return {"complex": [encode_leaf(value.real), encode_leaf(value.imag)]}
    raise InvalidInputError(f"{kind.__module__}.{kind.__qualname__} is not a plain value")


def decode_leaf(value: Any) -> Leaf:
    """Return the plain value that `encode_leaf` made a JSON value of; `CorruptionError` if it made none."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) <= _SAFE_INT:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, str) and not has_surrogates(value):
        return value
    if isinstance(value, dict) and len(value) == 1:
        ((tag, body),) = value.items()
        decoder = _DECODERS.get(tag) if isinstance(tag, str) else None
        if decoder is not None:
            try:
                leaf = decoder(body)
            except (ValueError, TypeError, struct.error) as exc:
                raise CorruptionError(f"a stored {tag} value cannot be read") from exc
            # One spelling for each value, so that equal states have equal records.
            if encode_leaf(leaf) == value:
                return leaf
    raise CorruptionError("a stored plain value has none of the known forms")


def _special(value: float) -> str:
    bits = struct.pack(">d", value).hex()
    return bits if math.isnan(value) and bits != _NAN_BITS else repr(value)


def _to_base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _decode_int(body: Any) -> int:
    if not _HEX_INT.fullmatch(body):
        raise ValueError("not its one spelling")
    return int(body, 16)


def _decode_float(body: Any) -> float:
    if body in ("nan", "inf", "-inf"):
        return float(body)
    if not _HEX_BITS.fullmatch(body):
        raise ValueError("not its one spelling")
    (value,) = struct.unpack(">d", bytes.fromhex(body))
    return float(value)


def _decode_complex(body: Any) -> complex:
    parts = [decode_leaf(part) for part in body]
    if len(parts) != 2 or type(parts[0]) is not float or type(parts[1]) is not float:
        raise ValueError("a complex value needs two floats")
    return complex(parts[0], parts[1])


_DECODERS: Final[dict[str, Callable[[Any], Leaf]]] = {
    "bytes": lambda body: b64decode(body, validate=True),
    "complex": _decode_complex,
    "float": _decode_float,
    "int": _decode_int,
    "str": lambda body: b64decode(body, validate=True).decode("utf-8", "surrogatepass"),
}
