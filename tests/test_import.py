"""What importing the package costs and drags in."""

from __future__ import annotations

import subprocess
import sys

import pytest

import lcstore


def fresh(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_loads_nothing_heavy():
    loaded = fresh("import lcstore, sys; print(*sys.modules)").split()
    assert not {"torch", "jax", "numba", "zarr", "numpy", "fsspec", "sklearn", "typer"} & set(loaded)


def test_opening_needs_no_training_library():
    loaded = fresh("import lcstore, sys; lcstore.open('memory://x'); print(*sys.modules)").split()
    assert not {"torch", "jax", "zarr", "sklearn", "typer", "rich"} & set(loaded)


def test_public_names():
    for name in lcstore.__all__:
        assert getattr(lcstore, name) is not None
    assert set(dir(lcstore)) == set(lcstore.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = lcstore.nothing
