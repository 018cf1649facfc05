"""Arrays of JAX that several processes have: what each has whole is saved, what they share is not."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from kit.servers import free_port

import lcstore

jax = pytest.importorskip("jax")

PROGRAM = """
import sys
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import lcstore

url, port, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
jax.distributed.initialize(f"127.0.0.1:{port}", 2, number)
mesh = Mesh(np.array(jax.devices()), ("d",))
whole = np.arange(256, dtype=np.float32).reshape(4, 64)

def spread(*axes):
    placed = NamedSharding(mesh, PartitionSpec(*axes))
    return jax.make_array_from_callback(whole.shape, placed, lambda at: whole[at])

if number == 0:
    with lcstore.open(url, policy="lossless") as store:
        store.save(0, {"params": {"kernel": spread()}})
        try:
            store.save(1, {"params": {"kernel": spread("d")}})
        except lcstore.InvalidInputError as error:
            assert "gather it first" in str(error), error
        else:
            raise AssertionError("half of it was saved")
"""


def test_what_each_process_has_whole_is_saved_by_one(tmp_path):
    """It was refused as lying partly elsewhere."""
    port, environment = str(free_port()), os.environ | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "run"), port]
    started = [
        subprocess.Popen([*command, str(number)], env=environment, stderr=subprocess.PIPE, text=True)
        for number in range(2)
    ]
    said = [one.communicate(timeout=240)[1] for one in started]
    assert [one.returncode for one in started] == [0, 0], said
    with lcstore.open(tmp_path / "run", "r") as store:
        assert store.steps() == [0]
        kernel = store.restore(to="numpy")["params"]["kernel"]
    assert kernel.tobytes() == np.arange(256, dtype=np.float32).tobytes()
