"""A state to a file of another tool."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Final

from lcstore.dtypes import is_stored_as_bits
from lcstore.errors import InvalidInputError, NotFiniteWarning
from lcstore.exchange.newfile import new_file, new_folder
from lcstore.exchange.npzfile import write_npz
from lcstore.exchange.outgoing import Outgoing, outgoing
from lcstore.exchange.tensorfile import write_safetensors
from lcstore.exchange.torchfile import write_torch
from lcstore.exchange.zarrfolder import write_zarr
from lcstore.jobs.survey import OnProgress
from lcstore.read.snapshot import Snapshot
from lcstore.units import counted
from lcstore.warned import warn

_FILES: Final[dict[str, Callable[[IO[bytes], Outgoing], None]]] = {
    "safetensors": write_safetensors,
    "torch": write_torch,
    "npz": write_npz,
}
_ZARR: Final = "zarr"
#: Formats that have the dtypes of numpy alone.
_OF_NUMPY: Final = frozenset({"npz", _ZARR})
#: What a state can be exported to.
FORMATS: Final = (*_FILES, _ZARR)
_ENDINGS: Final = {
    ".safetensors": "safetensors",
    ".npz": "npz",
    ".zarr": _ZARR,
    **dict.fromkeys((".pt", ".pth", ".bin", ".ckpt"), "torch"),
}


@dataclass(frozen=True)
class ExportReport:
    """What was written.

    Attributes
    ----------
    url, format
        Where to, and how.
    step, node
        The state.
    tensors, values
        How many tensors, and how many plain values beside them.
    nbytes
        Bytes of the tensors.
    ties
        Further keys of tensors that have several, each with the key under which the tensor is written.
    exact, error
        Of the state, as in `StepInfo`: whether it has every bit that was saved, and how far it is off.
    as_bits
        Dtypes of which the format has none, such as bfloat16: these tensors are there as their bits, in
        integers.
    """

    url: str
    format: str
    step: int
    node: str
    tensors: int
    values: int
    nbytes: int
    ties: dict[str, str]
    exact: bool
    error: float | None
    as_bits: list[str] = field(default_factory=list)


def export(
    snapshot: Snapshot,
    url: str | os.PathLike[str],
    *,
    names: str | Sequence[str] | None = None,
    format: str | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> ExportReport:
    """Write a state to a file that other tools read: safetensors, torch, npz, or a folder of Zarr.

    The file has its name once it is whole. Tensors are called by the parts of their names, joined with dots,
    without what all that `names` asks for begins with: ``names="model/**"`` writes the keys that
    ``model.load_state_dict`` takes. Plain values, nesting and the libraries of tensors are written as well
    (in the metadata), so that importing the file gives the same state. A file of torch is nested as the state
    is, without what all that `names` asks for begins with: ``under="model"`` of `import_files` puts it back.

    Parameters
    ----------
    snapshot
        ``store[step]``, or ``store.at("best:loss")``.
    url
        A local path, or any URL that fsspec opens.
    names
        What to write, as for `Store.restore`; everything if not given.
    format
        ``"safetensors"``, ``"torch"``, ``"npz"`` or ``"zarr"``; told by the ending of `url` if not given.
    overwrite
        Take the place of a file that is there.
    storage_options
        Passed on to the target.
    on_progress
        Called with "export", how many tensors are written, and how many there are.

    Raises
    ------
    InvalidInputError
        Nothing tells the format, or it has no place for something in the state.
    NotFoundError
        One of `names` matches nothing.
    ConflictError
        There is something at `url` already.
    StorageError
        The target failed.

    Warns
    -----
    NotFiniteWarning
        Weights of the state are NaN or infinite.

    Examples
    --------
    >>> report = lcstore.export(store[10], "step10.npz", names="model")
    >>> report.tensors
    1
    >>> np.load("step10.npz")["weight"].shape
    (64, 64)
    """
    given: object = snapshot
    if not isinstance(given, Snapshot):
        raise InvalidInputError(f"export(store[step], file) writes a state, not a {type(given).__qualname__}")
    text = os.fspath(url)
    named = format_of(text) if format is None else format
    if named not in FORMATS:
        told = f"the ending of {text} tells no format" if format is None else f"format is {format!r:.40}"
        ways = f"; endings are {', '.join(_ENDINGS)}, or give format= (--format)"
        if text.lower().endswith(".npy"):
            ways += (
                "; .npz is a file of such arrays by name, and one tensor as .npy is a file of fsspec's "
                f"lcstore://{snapshot.step}/tensors/NAME.npy::URL (docs/filesystem.md)"
            )
        raise InvalidInputError(f"{told}: it is one of {', '.join(FORMATS)}{ways * (format is None)}")
    wanted = names if names is None or isinstance(names, str) else [*names]
    out = outgoing(snapshot, wanted, dotted=named != _ZARR, on_progress=on_progress)
    if named == _ZARR:
        with new_folder(text, storage_options, last="zarr.json", overwrite=overwrite) as folder:
            write_zarr(folder, out)
    else:
        with new_file(text, storage_options, overwrite=overwrite) as file:
            _FILES[named](file, out)
    manifest, info = out.manifest, snapshot.info
    if bad := info.not_finite:
        warn(
            f"{text} has a state of which {counted(bad, 'tensor')} of weights {'is' if bad == 1 else 'are'} "
            "not finite (NaN or infinite): `lcstore report` says since when",
            NotFiniteWarning,
        )
    dtypes = {place.dtype for place in out.places.values()}
    return ExportReport(
        url=text,
        format=named,
        step=snapshot.step,
        node=snapshot.node,
        tensors=len(out.places),
        values=len(manifest.leaves),
        nbytes=out.nbytes,
        ties=out.ties,
        exact=info.exact,
        error=info.error,
        as_bits=sorted(filter(is_stored_as_bits, dtypes)) if named in _OF_NUMPY else [],
    )


def format_of(url: str) -> str | None:
    """Return the format that the ending of a URL tells; None where it tells none."""
    found = re.search(r"\.\w+$", url.rstrip("/"))
    return _ENDINGS.get(found[0].lower()) if found else None
