"""Snapshots: one listing, then none; the same bytes beside maintenance or a clear error; sent elsewhere."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from conftest import Run
from kit.weighing import Weighing
from states import same

import lcstore
from lcstore import (
    ClosedError,
    CorruptionError,
    FallbackWarning,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from lcstore.format import keys
from lcstore.storage.backend import Backend
from lcstore.storage.local import LocalBackend
from lcstore.storage.memory import MemoryBackend
from lcstore.storage.remote import FsspecBackend
from lcstore.testing import FaultBackend

WEIGHT = "model/fc1.weight"


class Asked(Counter[str]):
    """Counts what is asked of a backend, by the method and the folder."""

    def of(self, name: str) -> int:
        return sum(count for what, count in self.items() if what.startswith(name))


def asking(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked()
    for name in ("get", "list", "size"):
        real = getattr(backend, name)

        def counted(key: str, *more: Any, _name: str = name, _real: Any = real) -> Any:
            asked[f"{_name} {key.partition('/')[0]}"] += 1
            return _real(key, *more)

        monkeypatch.setattr(backend, name, counted)
    return asked


def filled(backend: Backend, count: int = 8, *, exact: tuple[int, ...] = (), **options: Any) -> lcstore.Store:
    store, run = lcstore.open(backend, threads=1, **options), Run()
    for step in range(count):
        store.save(step, run.step(), exact=step in exact)
    return store


# Listings -------------------------------------------------------------------------------------------------


def test_twenty_tensors_take_one_listing(monkeypatch):
    backend = MemoryBackend.fresh()
    rng = np.random.default_rng(0)
    model = {f"{i}.weight": rng.standard_normal((32, 32)).astype(np.float32) for i in range(20)}
    with lcstore.open(backend) as store:
        for step in range(6):
            model = {name: w + np.float32(1e-3) for name, w in model.items()}
            store.save(step, {"model": model, "epoch": step}, tags=["last"] if step == 5 else ())
    wanted = store_of(backend).restore(5)
    for at in (5, "latest", "last"):
        with store_of(backend) as store:
            asked = asking(backend, monkeypatch)
            snapshot = store[at]
            assert 1 <= asked.of("list") <= 6
            asked.clear()
            for i in range(20):
                assert same(snapshot[f"model/{i}.weight"], wanted["model"][f"{i}.weight"])
            assert asked.of("list") == 0
            assert asked["get nodes"] == 5  # each record of the path once; that of the state was read before
            assert snapshot["epoch"] == 5
            assert asked.of("list") == 0


def store_of(backend: Backend) -> lcstore.Store:
    return lcstore.open(backend, "r", threads=1)


def test_names_are_looked_at_without_reading_any_tensor(monkeypatch):
    backend = MemoryBackend.fresh()
    filled(backend)
    with store_of(backend) as store:
        snapshot = store[3]
        asked = asking(backend, monkeypatch)
        assert WEIGHT in snapshot
        assert "epoch" in snapshot
        assert ("optim", "state", 0, "exp_avg") in snapshot
        for absent in ("model", "model/no", "", "#", "~9", 3, None, ("model", "no")):
            assert absent not in snapshot
        names = list(snapshot)
        assert names == list(snapshot.keys()) == snapshot.names()
        assert len(snapshot) == len(names) == len(set(names))
        assert all(name in snapshot for name in names)
        assert {*snapshot.tensors(), *snapshot.leaves()} == {*names}
        weights = [name for name in names if name.startswith("model") and "weight" in name]
        assert snapshot.names("model/*.weight") == weights
        assert (snapshot.step, snapshot.node) == (3, snapshot.info.node)
        assert "step 3" in repr(snapshot)
        assert not asked
        assert snapshot.get("model/no", 7) == 7
        tree = store.restore(3)
        for name, value in snapshot.items():
            assert same(value, store.read(3, name))
        assert same(snapshot[WEIGHT], tree["model"]["fc1.weight"])
        arrays = (snapshot[name] for name in snapshot.tensors())
        assert snapshot.nbytes == sum(array.nbytes for array in arrays)


def test_parts_by_index():
    store = filled(MemoryBackend.fresh(), 3)
    snapshot, whole = store[2], store.read(2, "model/embed.weight")
    np.testing.assert_array_equal(snapshot.sel["model/embed.weight", 3:9], whole[3:9])
    np.testing.assert_array_equal(snapshot.sel["model/embed.weight", 3:9, 2], whole[3:9, 2])
    np.testing.assert_array_equal(snapshot.sel["model/embed.weight"], whole)
    np.testing.assert_array_equal(snapshot.read("model/embed.weight", np.s_[:, 4]), whole[:, 4])
    with pytest.raises(InvalidInputError, match="name"):
        snapshot.sel[3:9]


def test_the_bytes_to_read_are_those_that_are_read():
    backend = Weighing.fresh()
    store = filled(backend, 6, exact=(3,))
    store.compact()
    for step in range(6):
        for names in (None, "model/**", WEIGHT, "optim/**", ["model/fc1.*", "epoch"]):
            snapshot = store[step]
            expected = snapshot.bytes_to_read(names)
            backend.nbytes = 0
            assert snapshot.bytes_to_read(names) == expected
            assert backend.nbytes == 0
            snapshot.tree(names=names)
            assert backend.nbytes == expected > 0


# Names that are not there -----------------------------------------------------------------------------------


def test_an_exact_name_that_is_not_there_is_an_error_with_the_nearest():
    store = filled(MemoryBackend.fresh(), 2)
    for use in (
        lambda name: store.restore(1, names=name),
        lambda name: store.restore(1, names=["model/**", name]),
        lambda name: store[1].names(name),
        lambda name: store[1].bytes_to_read(name),
        lambda name: store[1][name],
        lambda name: store.read(1, name),
        lambda name: list(store.walk(names=name)),
        lambda name: list(store.history(name, [1])),
        lambda name: store.diff(0, 1, name),
    ):
        with pytest.raises(NotFoundError, match=r"nearest is 'model/fc1\.weight'.*lcstore show"):
            use("model/fc1.wieght")
        with pytest.raises(NotFoundError, match=r"nearest is 'model/fc1\.weight'"):
            use("model.fc1.weight")


def test_names_that_can_be_gone_over_but_once_are_refused():
    """They were used up where a read was tried again, which then gave nothing."""
    store = filled(MemoryBackend.fresh(), 2)
    for use in (
        lambda names: store.restore(1, names=names),
        lambda names: store[1].names(names),
        lambda names: list(store.walk(names=names)),
    ):
        with pytest.raises(InvalidInputError, match="not an iterator"):
            use(name for name in ["model"])
        use({"model": 1}.keys())


def test_one_value_is_not_read_by_a_glob_that_matches_some():
    store = filled(MemoryBackend.fresh(), 1)
    with pytest.raises(NotFoundError, match=r"holds several values at 'model/\*\*'.*names='model/\*\*'"):
        store.read(0, "model/**")


def test_a_glob_that_matches_nothing_is_an_error_with_the_nearest():
    store = filled(MemoryBackend.fresh(), 2)
    for use in (
        lambda name: store.restore(1, names=name),
        lambda name: store.restore(1, names=["model/**", name]),
        lambda name: store[1].names(name),
        lambda name: list(store.walk(names=name)),
        lambda name: store.diff(0, 1, name),
    ):
        with pytest.raises(NotFoundError, match=r"nothing that matches 'modl/\*\*'; the nearest is 'model'"):
            use("modl/**")
        with pytest.raises(NotFoundError, match=r"matches '\?\?/zzz'; it has 'model', 'optim', 'epoch'"):
            use("??/zzz")
        with pytest.raises(NotFoundError, match=r"matches 'fc1\.\*'; the nearest is '\*\*/fc1\.\*'"):
            use("fc1.*")


def test_a_name_means_all_below_it():
    store = filled(MemoryBackend.fresh(), 2)
    assert store[1].names("model") == store[1].names("model/**")
    assert set(store.restore(1, names="model")) == {"model"}
    assert set(store.restore(1, names=["optim", "epoch"])) == {"optim", "epoch"}
    assert store[1].names("") == store[1].names()
    with pytest.raises(NotFoundError, match=r"several values at 'model'.*names='model'"):
        store.read(1, "model")
    with pytest.raises(NotFoundError, match=r"several values at 'model'"):
        list(store.history("model", [1]))


def test_keys_that_look_like_globs_are_found_as_they_stand():
    with lcstore.open("memory://", "a") as store:
        store.save(0, {"a*": {"[0]": 1, "b": 2}, "empty": {}, "ab": 3})
        assert store.restore(names="a*/[0]") == {"a*": {"[0]": 1}}
        assert store.restore(names="a*") == {"a*": {"[0]": 1, "b": 2}, "ab": 3}
        assert store.restore(names="empty") == store.restore(names="empty/**") == {"empty": {}}
        assert store.restore(names="em*") == {"empty": {}}


def test_a_part_of_a_plain_value_is_an_error():
    store = filled(MemoryBackend.fresh(), 1)
    assert store.read(0, "epoch") == store.read(0, "epoch", ())
    with pytest.raises(InvalidInputError, match="'epoch' is a plain value"):
        store.read(0, "epoch", np.s_[:3])
    with pytest.raises(InvalidInputError, match="plain value"):
        store[0].sel["epoch", 0]


# Beside maintenance -----------------------------------------------------------------------------------------


def upkeep(backend: Backend, keep: str | None = None, retire: tuple[int, ...] = ()) -> None:
    with lcstore.open(backend, threads=1) as other:
        for step in retire:
            other.retire(step)
        if keep is not None:
            other.retain(keep)
        other.compact()
        other.collect()


@pytest.mark.parametrize("after", range(3))
def test_the_path_is_taken_away_between_reads(after, monkeypatch):
    """The same bytes over new edges, and one look around more."""
    backend = MemoryBackend.fresh()
    filled(backend, 9, grace=0)
    with store_of(backend) as store:
        wanted = store.restore(8)
        snapshot = store[8]
        weights = snapshot.names("model/*.weight")
        assert len(weights) > after
        asked = asking(backend, monkeypatch)
        for number, name in enumerate(weights):
            if number == after:
                assert asked.of("list") == 0
                upkeep(backend, retire=(2, 3, 4, 6))
                asked.clear()
            assert same(snapshot[name], wanted["model"][name.removeprefix("model/")])
        assert same(snapshot.tree(), wanted)
        assert 0 < asked.of("list") <= 10
        asked.clear()
        assert same(snapshot.tree(), wanted)
        assert asked.of("list") == 0


def test_what_is_collected_between_reads_is_an_error_that_says_so():
    backend = MemoryBackend.fresh()
    filled(backend, 9, grace=0)
    with store_of(backend) as store:
        wanted, snapshot = store.restore(5), store[5]
        assert same(snapshot[WEIGHT], wanted["model"]["fc1.weight"])
        upkeep(backend, keep="latest:2")
        for _ in range(2):
            with pytest.raises(NotFoundError):
                snapshot["model/embed.weight"]
        with pytest.raises(NotFoundError):
            snapshot.tree()


@pytest.mark.parametrize("collected", [False, True])
def test_exact_values_and_the_track_are_never_mixed(collected):
    backend = MemoryBackend.fresh()
    filled(backend, 6, exact=(3,), grace=0)
    with store_of(backend) as store:
        exact, snapshot, elsewhere = store.restore(3), store[3], store[3]
        assert same(snapshot[WEIGHT], exact["model"]["fc1.weight"])
        with lcstore.open(backend, threads=1) as other:
            other.retain("exact-only:latest:1")
            if collected:
                other.collect()
        track = store.restore(3)
        assert not same(track["model"], exact["model"])
        if collected:
            for one in (snapshot, elsewhere):
                for _ in range(2):
                    with pytest.raises(NotFoundError, match="let go") as caught:
                        one["model/embed.weight"]
                    assert caught.value.step == 3
                with pytest.raises(NotFoundError, match="let go"):
                    one.tree()
        else:
            assert same(snapshot.tree(), exact)
        assert same(store[3].tree(), track)


def test_a_restore_beside_letting_go_gives_one_of_the_two(monkeypatch):
    """Before any of its reads the exact value goes: what comes back is all exact, or all track."""
    made = MemoryBackend.fresh()
    with filled(made, 5, exact=(3,), grace=0) as store:
        exact = store.restore(3)
    objects = made.snapshot()
    seen, at = set(), 0
    while True:
        backend = MemoryBackend.fresh(objects)
        count = iter(range(10**6))
        real = backend.get

        def get(key: str, *more: Any, real=real, count=count, backend=backend, at=at) -> bytes:
            if key.startswith(keys.DATA) and next(count) == at:
                with lcstore.open(backend, threads=1) as other:
                    other.retain("exact-only:latest:1")
                    other.collect()
            return real(key, *more)

        with store_of(backend) as store:
            backend.get = get  # type: ignore[method-assign]
            found = store.restore(3)
            backend.get = real  # type: ignore[method-assign]
            done = next(count) < at
            if done:
                break
            track = store.restore(3)
        assert same(found, exact) or same(found, track)
        seen.add(same(found, exact))
        at += 1
    assert seen == {True, False}


def test_a_held_state_is_kept_until_it_is_released():
    backend = MemoryBackend.fresh()
    store = filled(backend, 6, exact=(3,), grace=0)
    wanted = store.restore(3)
    with store.at(3, hold=True) as snapshot:
        upkeep(backend, keep="latest:1 | exact-only:latest:1")
        assert same(snapshot.tree(), wanted)
        (holder,) = next(one.pinned_by for one in store.states() if one.step == 3)
        assert holder.startswith("snapshot ")
    assert not any(one.pinned_by for one in store.states())
    snapshot.release()
    upkeep(backend, keep="latest:1")
    with pytest.raises(NotFoundError):
        snapshot.tree()
    with pytest.raises(NotFoundError):
        store.at(3, hold=True)
    with store_of(backend) as reader, pytest.raises(lcstore.ReadOnlyError, match="reading"):
        reader.at(5, hold=True)


def test_a_release_that_failed_can_be_asked_for_again():
    inner = MemoryBackend.fresh()
    filled(inner, 1)
    down: list[str] = []

    def is_down(asked):
        return asked.name in down

    with lcstore.open(FaultBackend(inner, {is_down: "eio"}), "r+", threads=1) as store:
        snapshot = store.at(0, hold=True)
        down += ["list", "put"]
        with pytest.raises(StorageError):
            snapshot.release()
        down.clear()
        assert all(one.pinned_by for one in store.states())
        snapshot.release()
        assert not any(one.pinned_by for one in store.states())


def test_damage_is_gone_around_once():
    backend = MemoryBackend.fresh()
    store = filled(backend, 9, durability="none")
    wanted = store.restore(8)
    before = set(backend.snapshot())
    store.compact()
    added = set(backend.snapshot()) - before
    snapshot = store_of(backend)[8]
    assert same(snapshot.tree(), wanted)
    for key in added:
        if "/c." in key:
            data = backend.get(key)
            backend.put(key, data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.warns(FallbackWarning, match="lcstore repair") as caught:
        assert same(snapshot.tree(), wanted)
    assert caught[0].filename == __file__
    for use in (
        lambda: store_of(backend)[8][WEIGHT],
        lambda: list(store_of(backend).walk([8])),
        lambda: store_of(backend).restore(8),
        lambda: lcstore.open(backend).resume(8),
    ):
        with pytest.warns(FallbackWarning) as caught:
            use()
        assert {warning.filename for warning in caught} == {__file__}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(snapshot.tree(), wanted)
    own = f"data/{edge_of(store, 8)}/0/weights"
    for key in backend.snapshot():
        if key.startswith(own):
            backend.delete(key)
    with pytest.raises(CorruptionError, match="step 8"):
        snapshot[WEIGHT]


def edge_of(store: lcstore.Store, step: int) -> str:
    return store._index.record(store.info(step).node).edge.id


# Elsewhere ------------------------------------------------------------------------------------------------

CHILD = """
import pickle, sys
import numpy as np
from lcstore.storage.local import LocalBackend
from lcstore.storage.remote import FsspecBackend

listed = []
for kind in (LocalBackend, FsspecBackend):
    def listing(self, prefix, foreign=None, real=kind.list):
        listed.append(prefix)
        return real(self, prefix, foreign)
    kind.list = listing
snapshot = pickle.load(sys.stdin.buffer)
tree = {name: snapshot[name] for name in snapshot}
assert len(tree) == len(snapshot) > 10
sys.stdout.buffer.write(pickle.dumps((tree, listed, snapshot.step, snapshot.url)))
"""


def in_another_process(snapshot: lcstore.Snapshot) -> tuple[dict[str, Any], list[str], int, str]:
    done = subprocess.run(
        [sys.executable, "-c", CHILD], input=pickle.dumps(snapshot), capture_output=True, check=False,
        cwd="/", env=os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    found = pickle.loads(done.stdout)
    assert isinstance(found, tuple)
    return found


@pytest.mark.parametrize("exact", [(), (4,)])
def test_it_is_read_in_another_process_without_a_listing(tmp_path, monkeypatch, exact):
    monkeypatch.chdir(tmp_path)
    store = filled(LocalBackend("s"), 6, exact=exact)
    snapshot = store[4]
    wanted = {name: snapshot[name] for name in snapshot}
    tree, listed, step, url = in_another_process(snapshot)
    assert same(tree, wanted)
    assert (listed, step, url) == ([], 4, store.url)


def test_over_shortcuts_and_behind_fsspec(tmp_path):
    store = filled(LocalBackend(str(tmp_path)), 12)
    store.compact()
    remote = FsspecBackend(fsspec.filesystem("file", auto_mkdir=True), str(tmp_path))
    with store_of(remote) as other:
        snapshot = other[11]
        assert any(ref.edge is not None for ref in snapshot.using(lambda state: state.path))
        tree, listed, _, _ = in_another_process(snapshot)
        back = pickle.loads(pickle.dumps(snapshot))
    assert same(tree, {name: store.read(11, name) for name in store[11]})
    assert listed == []
    assert back._reader.backend._fs.storage_options == {"auto_mkdir": True}


def test_elsewhere_it_finds_another_path_too(tmp_path):
    store = filled(LocalBackend(str(tmp_path)), 9, grace=0)
    sent = pickle.dumps(store[8])
    gone = pickle.dumps(store[5])
    wanted = store.restore(8)
    upkeep(store.backend, retire=(2, 3, 4, 5, 6))
    snapshot = pickle.loads(sent)
    assert same(snapshot.tree(), wanted)
    assert same(pickle.loads(pickle.dumps(snapshot)).tree(), wanted)
    with pytest.raises(NotFoundError):
        pickle.loads(gone).tree()


def test_what_was_settled_is_settled_elsewhere(tmp_path):
    store = filled(LocalBackend(str(tmp_path)), 6, exact=(3,), grace=0)
    exact, before = store.restore(3), pickle.dumps(store[3])
    assert same(pickle.loads(before).tree(), exact)
    store.retain("exact-only:latest:1")
    track, after = store.restore(3), pickle.dumps(store[3])
    assert same(pickle.loads(before).tree(), exact)  # not collected yet
    assert same(pickle.loads(after).tree(), track)
    store.collect()
    with pytest.raises(NotFoundError, match="let go"):
        pickle.loads(before).tree()
    assert same(pickle.loads(after).tree(), track)


def test_memory_is_nobody_elses():
    for backend in ("memory://snapshot-of-memory", MemoryBackend.fresh()):
        snapshot = filled(backend, 1)[0]  # type: ignore[arg-type]
        for send in (pickle.dumps, copy.copy):
            with pytest.raises(InvalidInputError, match="cannot be sent"):
                send(snapshot)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_after_a_fork_it_reads_by_itself(tmp_path):
    snapshot = filled(LocalBackend(str(tmp_path)), 3)[2]
    wanted = snapshot.tree()
    in_memory = filled(MemoryBackend.fresh(), 1)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fork where threads run
        child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if same(snapshot.tree(), wanted) else 2
            in_memory.tree()
            code = 3
        except ClosedError:
            pass
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert same(snapshot.tree(), wanted)


def test_a_closed_store_ends_its_snapshots(tmp_path):
    store = filled(LocalBackend(str(tmp_path)), 1)
    snapshot = store[0]
    sent = pickle.dumps(snapshot)
    wanted = snapshot.tree()
    store.close()
    for use in (snapshot.tree, snapshot.names, lambda: snapshot[WEIGHT], lambda: snapshot.info):
        with pytest.raises(ClosedError):
            use()
    assert same(pickle.loads(sent).tree(), wanted)


def test_many_threads_share_one_beside_a_collector(tmp_path):
    backend = MemoryBackend.fresh()
    filled(backend, 9, grace=0)
    with lcstore.open(backend, "r", threads=2) as store:
        wanted, snapshot = store.restore(8), store[8]
        failures: list[BaseException] = []
        go = threading.Barrier(4)

        def look() -> None:
            try:
                go.wait(30)
                for _ in range(6):
                    for name, weight in wanted["model"].items():
                        assert same(snapshot[f"model/{name}"], weight)
            except BaseException as error:
                failures.append(error)

        readers = [threading.Thread(target=look) for _ in range(3)]
        for reader in readers:
            reader.start()
        go.wait(30)
        upkeep(backend, retire=(2, 3, 4, 6))
        for reader in readers:
            reader.join()
        assert not failures, failures


# Warnings -------------------------------------------------------------------------------------------------


def test_warnings_point_at_the_line_that_called():
    damaged, damaged_by_id = MemoryBackend.fresh(), MemoryBackend.fresh()
    big = {"w": np.ones((700, 700), np.float32)}
    for backend in (damaged, damaged_by_id):
        with lcstore.open(backend, threads=1) as store:
            for step in range(2):
                store.save(step, {"model": {"a.weight": np.ones((40, 40)) * step}})
            for ref in store._index.record(store.info(1).node).edge.objects:
                backend.delete(ref.key)
    with lcstore.open(damaged, threads=1) as store, lcstore.open(MemoryBackend.fresh()) as fresh:
        for use in (
            lambda: fresh.save(0, big),
            lambda: store.restore(on_corrupt="previous"),
            lambda: store.restore_into("latest", {"model": {}}, on_corrupt="previous"),
            lambda: store.resume(on_corrupt="previous"),
            lambda: store.resume_into("latest", {"model": {}}, on_corrupt="previous"),
        ):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                use()
            (warning,) = caught
            line = Path(__file__).read_text(encoding="utf-8").splitlines()[warning.lineno - 1]
            assert warning.filename == __file__
            assert "lambda: " in line


def test_a_state_that_could_not_be_held_is_not_pinned():
    inner = MemoryBackend.fresh()
    with lcstore.open(inner) as store:
        store.save(0, {"model": np.zeros(8, np.float32)})

    class Down(FaultBackend):
        """Fails once, right after a pin was stored."""

        pinned = False

        def put(self, key, data):
            super().put(key, data)
            if self.pinned is False:
                self.pinned = key.startswith(f"{keys.NAMES}/")

        def list(self, prefix, foreign=None):
            if self.pinned is True:
                self.pinned = None
                raise StorageError("it is down", key=prefix)
            return super().list(prefix, foreign)

    with lcstore.open(Down(inner), "r+") as store:
        with pytest.raises(StorageError, match="down"):
            store.at(0, hold=True)
        assert [one.pinned_by for one in store.states()] == [()]
