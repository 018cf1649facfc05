"""Files and folders that are half written when something fails are gone, whoever writes to them yet."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from lcstore.exchange.newfile import new_folder


def test_a_thread_that_writes_on_for_a_moment_leaves_no_folder(tmp_path):
    """As threads of Zarr do, whose folders are made anew for each chunk."""
    ends = time.monotonic() + 0.15

    def write_on(at: Path) -> None:
        number = 0
        while time.monotonic() < ends:
            number += 1
            with suppress(OSError):  # what it lies in was taken away a moment ago
                (at / f"array{number}").mkdir(parents=True, exist_ok=True)
            time.sleep(0.005)

    threads = []

    def begin() -> None:
        with new_folder(f"file://{tmp_path}/export.zarr", last="zarr.json") as at:
            threads.append(Thread(target=write_on, args=(Path(at),)))
            threads[0].start()
            while not Path(at).exists():
                time.sleep(0.001)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begin()
    threads[0].join()
    assert not [*tmp_path.iterdir()]
