"""What a file says of a state besides its tensors: with that the whole state comes back as it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lcstore.arrays import Array
from lcstore.dtypes import DTYPE_NAMES, dtype_from_name, storage_dtype
from lcstore.errors import CorruptionError, UnsupportedFormatError
from lcstore.format.strictjson import dumps, loads
from lcstore.limits import MAX_LAYOUT_BYTES
from lcstore.state.containers import Structure
from lcstore.state.frameworks import FRAMEWORKS, HostArray
from lcstore.state.jaxkeys import WIDTHS
from lcstore.state.leaves import Leaf, decode_leaf, encode_leaf
from lcstore.state.names import format_name
from lcstore.state.tree import structure_names, unflatten

#: Under which a file keeps it, beside what is of others.
ENTRY: Final = "lcstore"
_FORMAT: Final = 0


class Row(NamedTuple):
    """A tensor of a file: what it is called there, its dtype, and the library that it came from."""

    key: str
    dtype: str
    framework: str


@dataclass(frozen=True)
class Manifest:
    """A state without the values of its tensors.

    Attributes
    ----------
    step
        Its training step.
    structure
        The tree, as `lcstore.state.tree.flatten` makes it.
    leaves
        The plain values, in the order of the structure.
    rows
        The tensors, in the order of the structure.
    """

    step: int
    structure: Structure
    leaves: list[Leaf]
    rows: list[Row]

    def to_bytes(self) -> bytes:
        """Return it as JSON. Its ``values``, by name, are the plain ones, for whoever has no lcstore."""
        leaves = [encode_leaf(leaf) for leaf in self.leaves]
        names = map(format_name, structure_names(self.structure)[1])
        return dumps(
            {
                "format": _FORMAT,
                "step": self.step,
                "structure": self.structure,
                "leaves": leaves,
                "tensors": [list(row) for row in self.rows],
                "values": dict(zip(names, leaves, strict=True)),
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Manifest:
        """Return what `to_bytes` wrote, which is not trusted; `where` it stands, for messages.

        Raises
        ------
        CorruptionError
            It is none.
        UnsupportedFormatError
            A newer lcstore wrote it.
        """
        value: Any = loads(data, key=where, max_bytes=MAX_LAYOUT_BYTES)
        if type(value) is not dict or type(value.get("format")) is not int:
            raise CorruptionError(f"{where}: what lcstore wrote of the state is none of its own")
        if value["format"] != _FORMAT:
            raise UnsupportedFormatError(f"{where} was written by a newer lcstore: upgrade lcstore")
        fields = {"step": int, "structure": object, "leaves": list, "tensors": list}
        right = all(name in value and isinstance(value[name], kind) for name, kind in fields.items())
        if not right or not all(map(_is_row, value["tensors"])):
            raise CorruptionError(f"{where}: what lcstore wrote of the state is none of its own")
        try:
            leaves = [*map(decode_leaf, value["leaves"])]
        except CorruptionError as error:
            raise CorruptionError(f"{where}: {error.message}") from error
        return cls(value["step"], value["structure"], leaves, [Row(*row) for row in value["tensors"]])

    def tree(self, tensors: Mapping[str, Array], where: str) -> Any:
        """Return the state, given the tensors of the file by what they are called there.

        Raises
        ------
        CorruptionError
            Tensors are missing, of other dtypes or more than were written, or the structure is none.
        """
        hosts = [_host(row, tensors.get(row.key), where) for row in self.rows]
        try:
            tree = unflatten(self.structure, hosts, self.leaves)
        except CorruptionError as error:
            raise CorruptionError(f"{where}: {error.message}") from error
        more = tensors.keys() - {row.key for row in self.rows}
        if more:
            raise CorruptionError(
                f"{where} has the tensor {min(more)!r:.200}, which lcstore did not write: it was changed. "
                f"Without {ENTRY!r} in its metadata (__lcstore__ in an npz) it is read as any other file is"
            )
        return tree


def _is_row(row: object) -> bool:
    return type(row) is list and len(row) == 3 and all(type(text) is str for text in row)


def _host(row: Row, array: Array | None, where: str) -> HostArray:
    if array is None:
        raise CorruptionError(f"{where} lacks the tensor {row.key!r:.200}: it was changed, or is another's")
    if row.dtype not in DTYPE_NAMES:
        raise UnsupportedFormatError(f"{where} has a tensor of dtype {row.dtype!r:.80}: upgrade lcstore")
    dtype = dtype_from_name(row.dtype)
    if array.dtype not in (dtype, storage_dtype(row.dtype)):
        raise CorruptionError(f"{where} holds the tensor {row.key!r:.200} as {array.dtype}, not {row.dtype}")
    return hosted(array.view(dtype), row.framework)


def hosted(array: Array, framework: str) -> HostArray:
    """Return an array as one of a library, if it can be one; else as numpy's."""
    fits = framework in FRAMEWORKS and (framework != "numpy-scalar" or not array.ndim)
    if framework in WIDTHS:
        fits = array.dtype == "uint32" and array.shape[-1:] == (WIDTHS[framework],)
    return HostArray(array, framework if fits else "numpy")  # type: ignore[arg-type]
