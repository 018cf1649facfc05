"""What importing the package costs and drags in."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import numpy as np
import pytest

import lcstore
from lcstore import errors, retention
from lcstore.store.store import Store


def fresh(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_loads_nothing_heavy():
    loaded = fresh("import lcstore, sys; print(*sys.modules)").split()
    assert not {"torch", "jax", "numba", "zarr", "numpy", "fsspec", "sklearn", "typer"} & set(loaded)


def test_opening_needs_no_training_library_and_compiles_nothing():
    loaded = fresh("import lcstore, sys; lcstore.open('memory://x'); print(*sys.modules)").split()
    assert not {"torch", "jax", "numba", "zarr", "sklearn", "typer", "rich"} & set(loaded)


def test_looking_and_naming_compile_nothing(tmp_path):
    """Half of the time of such a command would be numba's import."""
    url = str(tmp_path / "run")
    with lcstore.open(url) as store:
        store.save(1, {"model": {"fc.weight": np.ones((64, 64), np.float32)}})
    commands = [["ls", url], ["show", url], ["tag", f"{url}@1", "good"], ["pin", f"{url}@1"], ["stats", url]]
    run = "from lcstore.cli.app import app; import sys"
    calls = "".join(f"; app({arguments}, standalone_mode=False)" for arguments in commands)
    assert "numba" not in fresh(f"{run}{calls}; print(*sys.modules)").split()


def test_public_names():
    for name in lcstore.__all__:
        assert getattr(lcstore, name) is not None
    assert set(dir(lcstore)) == set(lcstore.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = lcstore.nothing


def test_every_error_is_public():
    ours = {name for name, found in vars(errors).items() if isinstance(found, type) and name[0].isupper()}
    assert ours <= set(lcstore.__all__)


def test_every_rule_of_retention_is_public():
    assert set(retention.__all__) - {"parse_retention"} <= set(lcstore.__all__)


def test_what_a_store_returns_is_public():
    returned = set()
    for name, method in inspect.getmembers(Store):
        given = getattr(method, "fget", method)
        if not name.startswith("_") and hasattr(given, "__annotations__"):
            returned |= set(re.findall(r"\b[A-Z]\w+", str(given.__annotations__.get("return", ""))))
    assert {"SaveInfo", "Walk", "Diff", "CompactReport", "VerifyReport"} <= returned
    elsewhere = {"Any", "Self", "None", "Iterator", "Component", "Backend"} | {"Array", "Group"}  # of zarr
    assert returned - elsewhere <= set(lcstore.__all__)
