"""Files of ``numpy.savez``. What numpy has no dtype for is written as its bits, and said to be what it is."""

from __future__ import annotations

import zipfile
from typing import IO, Final

import numpy as np

from lcstore.arrays import Array
from lcstore.dtypes import storage_dtype
from lcstore.errors import CorruptionError, InvalidInputError
from lcstore.exchange.checkpoint import Checkpoint
from lcstore.exchange.manifest import Manifest
from lcstore.exchange.outgoing import Outgoing

#: The array of text that says what the others are.
_ENTRY: Final = "__lcstore__"


def write_npz(file: IO[bytes], out: Outgoing) -> None:
    """Write a state, one tensor after another."""
    if _ENTRY in out.places:
        raise InvalidInputError(f"the tensor {_ENTRY!r} cannot be exported to npz: its name is taken")
    cut = next((key for key in out.places if "\0" in key), None)
    if cut is not None:
        raise InvalidInputError(
            f"the tensor {cut!r:.200} cannot be exported to npz: names in an archive end at the first NUL"
        )
    alike = next((key for key in out.places if f"{key}.npy" in out.places), None)
    if alike is not None:
        raise InvalidInputError(
            f"the tensors {alike!r:.200} and {alike + '.npy'!r:.200} cannot be exported to one npz: numpy "
            "reads the first by both names. Export another format, or one of them by `names`"
        )
    with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        for key, array in out.tensors():
            _write(archive, key, array.view(storage_dtype(out.places[key].dtype)))
        _write(archive, _ENTRY, np.array(out.manifest.to_bytes().decode()))


def _write(archive: zipfile.ZipFile, key: str, array: Array) -> None:
    with archive.open(f"{key}.npy", "w", force_zip64=True) as entry:
        np.lib.format.write_array(entry, array, allow_pickle=False)


def read_npz(path: str, where: str) -> Checkpoint:
    """Return what a file holds.

    Raises
    ------
    InvalidInputError
        It holds Python objects.
    CorruptionError
        It is no such file, or damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as held:
            # By the names in the archive: numpy takes "x.npy" for "x" where there are both.
            arrays = {key: held[name] for key, name in zip(held.files, held.zip.namelist(), strict=True)}
    except Exception as error:
        if "allow_pickle" in str(error) and zipfile.is_zipfile(path):
            raise InvalidInputError(
                f"{where} holds arrays of Python objects, which only running code of the file could make, "
                "and an import never does: write arrays of numbers"
            ) from error
        raise CorruptionError(f"{where} is no whole file of numpy.savez: {error!s:.200}") from error
    said = arrays.pop(_ENTRY, None)
    if said is None:
        return Checkpoint(arrays)
    return Checkpoint(Manifest.from_bytes(str(said).encode(), where).tree(arrays, where))
