"""Every command: what it prints, its JSON, its exit status."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import warnings
from datetime import date
from itertools import chain, pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from blake3 import blake3
from fsspec.implementations.memory import MemoryFileSystem
from kit.commands import call, document

import lcstore
from lcstore.cli.commands.look import show
from lcstore.cli.commands.trouble import verify as trouble
from lcstore.compiling import jit
from lcstore.format import keys
from lcstore.format.records import StoreRecord
from lcstore.places import below, whole
from lcstore.storage import targets
from lcstore.storage.memory import MemoryBackend
from lcstore.storage.remote import FsspecBackend
from lcstore.store import opening
from lcstore.terminal import packages, printing
from lcstore.terminal.table import Table, brief_ids

EVERY = ("ls", "show", "verify", "stats", "doctor")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("cli") / "a run")
    with lcstore.open(url) as store:
        for step in (0, 10, 20):
            weights = np.full((8, 8), step, np.float32)
            store.save(
                step, {"model": {"w": weights, "[b]": weights[0]}, "epoch": step},
                metrics={"loss": 1 / (step + 1)}, tags=["good"] if step == 10 else (),
            )  # fmt: skip
    return url


@pytest.fixture
def broken(saved: str, tmp_path: Path) -> str:
    """A copy of the store with one damaged record, and nothing that says the same."""
    url = tmp_path / "broken"
    shutil.copytree(saved, url)
    shutil.rmtree(url / "copies")
    record = next((url / "nodes").glob(f"{10:019d}*"))
    record.write_bytes(record.read_bytes()[:-1])
    return str(url)


def test_ls(saved):
    result = call("ls", saved)
    assert result.exit_code == 0
    assert "latest" in result.stdout
    assert "good" in result.stdout
    states = document("ls", saved)["states"]
    assert [state["step"] for state in states] == [0, 10, 20]
    assert [state["kind"] for state in states] == ["anchor", "delta", "delta"]
    assert [state["tags"] for state in states] == [[], ["good"], []]
    assert [state["latest"] for state in states] == [False, False, True]
    assert states[0]["metrics"] == {"loss": 1.0}
    assert all(0 < state["bytes_parity"] < state["bytes_stored"] for state in states[1:])


def test_ls_reads_no_record_when_fast(broken):
    states = document("ls", broken, "--fast", "--limit", "2")["states"]
    assert [state["step"] for state in states] == [10, 20]
    assert "metrics" not in states[0]


def test_ls_shows_a_record_that_cannot_be_read(broken):
    result = call("ls", broken)
    assert result.exit_code == 1
    assert "record cannot be read" in result.stdout
    assert "lcstore verify" in result.stderr
    states = document("ls", broken, status=1)["states"]
    assert ["problem" in state for state in states] == [False, True, False]


def test_ls_has_one_line_for_each_state(saved):
    lines = call("ls", saved).stdout.splitlines()
    assert len(lines) == 4
    assert lines[0].split()[0] == "step"


def test_ls_tells_states_of_one_step_apart(saved, tmp_path, monkeypatch):
    assert "node" not in call("ls", saved).stdout
    url = shutil.copytree(saved, str(tmp_path / "twice"))
    with lcstore.open(url) as store:
        store.save(20, {"other": np.zeros(3)})
    states = document("ls", url)["states"]
    monkeypatch.setattr(printing, "width_of", lambda _: 80)
    for options in ([], ["--fast"], ["--retired"]):
        header, *lines = call("ls", url, *options).stdout.splitlines()
        assert header.split()[:2] == ["step", "node"]
        for state, line in zip(states, lines, strict=False):
            assert len(line) <= 80
            brief = line.split()[1]
            assert state["node"].startswith(brief)
            assert document("show", f"{url}@{brief}")["node"] == state["node"]


def test_the_beginning_of_an_id_is_no_number():
    digits, other, alike = "1" * 12 + "a" + "0" * 19, "1" * 12 + "b" + "0" * 19, "f" * 32
    number = "2" * 32
    brief = {digits: digits[:13], other: other[:13], alike: "f" * 8, number: number}
    assert brief_ids([*brief]) == brief


def test_ls_breaks_no_word_in_a_narrow_terminal(saved, monkeypatch):
    monkeypatch.setattr(printing, "width_of", lambda _: 80)
    lines = call("ls", saved).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    words = " ".join(lines).split()
    assert words.count("delta") == 2
    for word in ("anchor", "latest", "good", "stored", "metrics", "0.04762"):
        assert word in words


def test_long_tables_are_quick(monkeypatch):
    table = Table("step", "", "kind", "stored", "tags", right=("step", "stored"))
    for step in range(20_000):
        table.row(step, "", "delta", "1.0 KiB", "")
    began = time.perf_counter()
    assert sum(1 for _ in table.lines(80)) == 20_001
    assert time.perf_counter() - began < 5


def test_ls_of_an_empty_store(tmp_path):
    store = lcstore.open(tmp_path / "empty")
    store.backend.put(keys.STORE_KEY, StoreRecord().to_bytes())
    result = call("ls", str(tmp_path / "empty"))
    assert result.exit_code == 0
    assert "without a state" in result.stdout
    assert document("ls", str(tmp_path / "empty"))["states"] == []


def test_the_worst_row_is_shown(tmp_path):
    url, rng = str(tmp_path / "rows"), np.random.default_rng(0)
    weights = rng.standard_normal((200, 64)).astype(np.float32)
    with lcstore.open(url) as store:
        for step in range(3):
            weights = weights + rng.standard_normal((200, 64)).astype(np.float32) * np.float32(0.01)
            worst = store.save(step, {"model": {"w.weight": weights}}).row_error
    assert f"off by {worst:.1%} of its size" in call("show", url).stdout
    assert [state["row_error"] for state in document("ls", url)["states"]][::2] == [None, worst]


def test_ls_of_a_store_of_which_all_was_let_go(saved, tmp_path):
    gone = tmp_path / "gone"
    shutil.copytree(saved, gone)
    for folder in ("layouts", "copies"):
        shutil.rmtree(gone / folder)
    with lcstore.open(gone) as store:
        store.repair(dry_run=False)
    result = call("ls", str(gone))
    assert "3 states are not deleted yet" in result.stdout
    assert "--retired" in result.stdout
    assert len(document("ls", str(gone), "--retired")["states"]) == 3


def test_stores_in_the_folder_are_named(saved):
    folder = str(Path(saved).parent)
    result = call("compact", folder)
    assert result.exit_code == 1
    every = "(`ls`, `stats`, `verify`, `cp`, `maintain`, `collect` and `unretire` take all that are below)"
    said = f"there is no store here, but below: {saved} {every}. Next: lcstore ls {folder}"
    assert said in result.stderr


def test_show_says_which_tensors_the_numbers_of_an_optimizer_stand_for(tmp_path):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(8, 8)
    optim = torch.optim.SGD([{"params": [model.bias]}, {"params": [model.weight]}], lr=0.1, momentum=0.9)
    model(torch.ones(2, 8)).sum().backward()
    optim.step()
    with lcstore.open(tmp_path / "run") as store:
        store.save(0, {"model": model, "optim": optim})
    assert "by its numbers: 0 model/bias, 1 model/weight" in call("show", str(tmp_path / "run")).stdout
    updated = document("show", str(tmp_path / "run"))["updated"]
    assert updated == {"optim": ["model/bias", "model/weight"]}


def test_show(saved):
    result = call("show", f"{saved}@10")
    assert result.exit_code == 0
    for word in ("model/w", "model/[b]", "8x8", "float32", "epoch", "good"):
        assert word in result.stdout
    about = document("show", f"{saved}@good", "model/*")
    assert about["step"] == 10
    assert set(about["tensors"]) == {"model/w", "model/[b]"}
    assert about["values"] == {}
    assert document("show", saved)["values"] == {"epoch": 20}
    assert document("show", saved, "--at", "0")["step"] == 0


def test_of_many_tensors_and_values_some_are_shown_at_a_terminal(tmp_path, monkeypatch):
    url = str(tmp_path / "many")
    with lcstore.open(url, threads=1) as store:
        store.save(0, {f"part{number:03d}": np.ones(1) for number in range(103)} | {"epoch": 3})
    to_a_pipe = call("show", url).stdout
    assert all(f"part{number:03d}" in to_a_pipe for number in range(103))
    assert "more tensors" not in to_a_pipe
    monkeypatch.setattr(show, "width_of", lambda _: 80)
    shown = call("show", url).stdout
    assert "part099" in shown
    assert "part100" not in shown
    assert "... and 3 more tensors" in shown
    assert len(document("show", url)["tensors"]) == 103


def test_show_says_what_is_there_instead(saved):
    result = call("show", f"{saved}@11")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "3 steps from 0 to 20" in result.stderr
    result = call("show", saved, "nothing/**")
    assert result.exit_code == 1
    assert f"lcstore show '{saved}@20'" in result.stderr
    assert "it has 'model', 'epoch'" in result.stderr
    assert result.stderr.count("\n") == 1


def test_verify(saved, broken):
    assert call("verify", saved).exit_code == 0
    assert document("verify", saved, "--level", "checksum")["bytes_read"] > 0
    result = call("verify", broken)
    assert result.exit_code == 1
    assert "Damaged" in result.stdout
    report = document("verify", broken, status=1)
    assert not report["ok"]
    assert report["findings"][0]["step"] == 10
    assert report["lost"] == [10, 20]  # the last one is a delta to it
    assert report["good"] == 0


def test_stats(saved, broken):
    assert call("stats", saved).exit_code == 0
    stats = document("stats", saved)
    assert (stats["states"], stats["anchors"], stats["orphans"]) == (3, 1, 0)
    assert len(document("stats", broken, status=1)["unreadable"]) == 1


def test_stats_tell_what_whole_blocks_take_of_the_disk(saved, tmp_path):
    files = [
        saved,
        *(os.path.join(folder, one) for folder, *names in os.walk(saved) for one in chain(*names)),
    ]
    taken = sum(512 * os.lstat(file).st_blocks for file in files)
    assert document("stats", saved)["bytes_on_disk"] == taken
    shutil.copytree(saved, tmp_path / "run")
    before = document("stats", str(tmp_path / "run"))["bytes_on_disk"]
    shutil.copytree(saved, tmp_path / "run" / "wandb" / "inner")  # another store is counted by itself
    assert abs(document("stats", str(tmp_path / "run"))["bytes_on_disk"] - before) <= 4096
    assert "as each file takes whole blocks" in call("stats", saved).stdout
    with lcstore.open("memory://no-blocks") as store:
        store.save(0, {"model": {"w": np.zeros((8, 8), np.float32)}})
        assert store.stats().bytes_on_disk is None


def test_stats_of_one_are_no_several(tmp_path):
    with lcstore.open(tmp_path) as store:
        for step in range(2):
            store.save(step, {"model": {"w": np.full((8, 8), step, np.float32)}})
        store.retire(0)
    told = " ".join(call("stats", str(tmp_path)).stdout.split())
    assert "1, of 1 step, by 1 run" in told
    assert "retired 1 state: lcstore collect" in told


def test_doctor(saved):
    result = call("doctor")
    assert result.exit_code == 0
    assert np.__version__ in result.stdout
    before = sorted(Path(saved).rglob("*"))
    about = document("doctor", saved)
    assert about["machine"]["codec"]["ok"]
    assert about["target"]["store"] == "3 steps"
    assert len(about["target"]["checks"]) > 10
    assert sorted(Path(saved).rglob("*")) == before


@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_a_store_without_its_own_record_is_led_to_what_mends_it(tmp_path, how):
    url, file = str(tmp_path / "a run"), tmp_path / "a run" / "lcstore.json"
    with lcstore.open(url, durability="none") as store:
        store.save(3, {"step": 3})
    file.write_bytes(file.read_bytes()[:50])
    if how == "missing":
        file.unlink()
    for command in ("ls", "show") if how == "damaged" else ():
        assert f"`lcstore verify '{url}'`" in call(command, url).stderr.replace("file://", "")
    result = call("doctor", url)
    assert result.exit_code == 1
    assert "Good: this target keeps every promise" in result.stdout
    said = result.stdout.rpartition("Next: lcstore ")[2]
    assert said.strip() == f"verify '{url}'"
    result = call(*shlex.split(said))
    assert result.exit_code == 1
    repair = result.stdout.rpartition("lcstore repair")[2]
    assert call("repair", *shlex.split(repair), "--apply").exit_code == 0
    assert document("ls", url)["states"][0]["step"] == 3


class Bucketless(MemoryFileSystem):
    """What a server without the bucket answers."""

    protocol = "s3"

    def cat_file(self, path, start=None, end=None, **options):
        raise FileNotFoundError("The specified bucket does not exist")

    pipe_file = cat_file


def opens(monkeypatch, backend):
    """Have every URL lead to a backend."""
    for module in (targets, opening, whole, below):  # a module that is imported meanwhile would keep it
        monkeypatch.setattr(module, "open_backend", lambda url, options=None: backend)


def test_doctor_says_once_that_there_is_no_bucket(monkeypatch):
    backend = FsspecBackend(Bucketless(), "missing/run", "s3://missing/run")
    opens(monkeypatch, backend)
    result = call("doctor", "s3://missing/run")
    assert result.exit_code == 1
    assert result.stdout.count("there is no bucket 'missing': create it first") == 1
    assert "promise" not in result.stdout
    assert document("doctor", "s3://missing/run", status=1)["target"]["checks"] == []
    assert "there is no bucket 'missing'" in call("ls", "s3://missing/run").stderr


@pytest.mark.parametrize("command", ["verify", "repair", "rm", "cp", "stats"])
def test_commands_say_that_there_is_no_bucket(monkeypatch, command):
    opens(monkeypatch, FsspecBackend(Bucketless(), "missing/run", "s3://missing/run"))
    result = call(command, "s3://missing/run", *["elsewhere"] * (command == "cp"))
    assert result.exit_code == 1
    assert "there is no bucket 'missing': create it first" in result.stderr


class NoCredentialsError(Exception):
    """What clients raise whom nobody told who they are."""


class Nameless(MemoryFileSystem):
    """A bucket, asked without credentials."""

    protocol = "s3"

    def cat_file(self, path, start=None, end=None, **options):
        raise NoCredentialsError("Unable to locate credentials")

    pipe_file = ls = find = cat_file


def test_doctor_says_once_that_there_are_no_credentials(monkeypatch):
    backend = FsspecBackend(Nameless(), "bucket/run", "s3://bucket/run")
    opens(monkeypatch, backend)
    result = call("doctor", "s3://bucket/run")
    assert result.exit_code == 1
    assert result.stdout.count("Unable to locate credentials: give them by -o") == 1
    assert "promise" not in result.stdout
    assert "do not keep a store there" not in result.stdout


@pytest.mark.parametrize("command", ["show", "ls", "verify"])
@pytest.mark.parametrize("path", ["", "/zarr", "/tensors/model/w.npy"])
def test_the_url_of_a_file_of_a_state_is_told_as_commands_take_it(saved, command, path):
    result = call(command, f"lcstore://1{path}::file://{saved}")
    assert result.exit_code == 1
    assert f"a state as {shlex.quote(f'file://{saved}@1')}." in result.stderr


def test_doctor_knows_what_breaks_numcodecs(monkeypatch):
    def broken(name):
        if name == "numcodecs":
            raise ValueError("invalid literal for int() with base 10: 'post0'")
        return honest(name)

    honest = packages.importlib.import_module
    # Not in importlib itself: what else is imported first just now would keep it.
    monkeypatch.setattr(packages, "importlib", SimpleNamespace(import_module=broken))
    result = call("doctor")
    assert result.exit_code == 1
    assert "pip uninstall zfpy" in " ".join(result.stdout.split())
    assert "zfpy" in document("doctor", status=1)["machine"]["codec"]["problem"]


def test_warm_compiles_what_a_run_needs(monkeypatch):
    """What is compiled already is counted; nothing is left to compile then."""
    about = document("warm")
    assert about["kernels"] > 50
    assert about["writable"]
    assert about["kept"]
    missed = []
    monkeypatch.setattr(jit._log, "warning", missed.append)
    monkeypatch.setattr(jit._TolerantCache, "told", False)
    with lcstore.open(MemoryBackend.fresh(), grace=0) as store:
        for step in range(4):
            weight = np.random.default_rng(step).standard_normal((64, 64)).astype(np.float32)
            store.save(step, {"model": {"a.weight": weight}, "n": step})
        store.compact()
        assert store.restore(2)["n"] == 2
    assert not missed


@pytest.mark.parametrize(("command", "status"), [("doctor", 0), ("warm", 1)])
def test_where_kernels_cannot_be_kept_the_way_out_is_told(command, status, monkeypatch):
    monkeypatch.setattr("lcstore.terminal.warming.warm", lambda _: None)
    monkeypatch.setattr(jit._TolerantCache, "lost", True)
    result = call(command)
    assert result.exit_code == status
    told = " ".join(result.stdout.split())
    assert "so each start compiles anew: `lcstore warm`, run once by who may write to " in told
    assert "or set NUMBA_CACHE_DIR to a folder" in told


def test_whoever_waits_for_kernels_is_told_once_that_they_are_compiled(caplog, monkeypatch):
    class Empty:
        _cache_file = type("File", (), {})()
        _py_func = len

        def load_overload(self, *_):
            return None

    monkeypatch.setattr(jit._TolerantCache, "told", False)
    for _ in range(2):
        assert jit._TolerantCache(Empty()).load_overload((), None) is None
    assert [record.message for record in caplog.records if "lcstore warm" in record.message] == [
        "kernels that nothing has needed here before are compiled, which takes up to a minute, or more "
        "where others are at work, and is kept for later processes: `lcstore warm` does it beforehand"
    ]


def test_doctor_leaves_nothing(tmp_path):
    assert call("doctor", str(tmp_path / "new" / "run")).exit_code == 0
    assert list(tmp_path.iterdir()) == []


def test_doctor_says_of_a_full_disk_that_it_is_full(tmp_path, monkeypatch):
    from lcstore.testing.conformance import Finding

    full = (
        "StorageError: there is no room left on x (No space left on device). Delete other files there, or ..."
    )
    found = [Finding("round_trip", full, 0.0), Finding("missing", None, 0.0)]
    monkeypatch.setattr("lcstore.testing.run", lambda *_: found)
    result = call("doctor", str(tmp_path / "run"))
    assert result.exit_code == 1
    assert "round_trip  there is no room left" in result.stdout
    assert result.stdout.rstrip().endswith("Not good: there is no room left. What takes none works.")
    found[0] = Finding("round_trip", "StorageError: could not write: PermissionError: [Errno 13] ...", 0.0)
    assert "Not good: you may not write there. A store" in call("doctor", str(tmp_path / "run")).stdout
    found[0] = Finding("list", "it lists what was deleted", 0.0)
    assert "Not good: do not keep a store there" in call("doctor", str(tmp_path / "run")).stdout


@pytest.mark.parametrize("command", ["ls", "verify", "repair", "stats", "doctor"])
def test_a_store_of_a_newer_version_is_not_called_damaged(command, tmp_path):
    url = tmp_path / "run"
    with lcstore.open(url) as store:
        store.save(0, {"n": 1})
    rest = b'"features":[],"format":9,"grace_seconds":86400,"kind":"store"}'
    newer = b'{"_hash":"%s",%s' % (blake3(rest).hexdigest().encode(), rest)
    for place in ("lcstore.json", "copies/lcstore.json"):
        (url / place).write_bytes(newer)
    result = call(command, str(url))
    assert result.exit_code == 1
    assert "upgrade lcstore" in result.stdout + result.stderr
    told = " ".join((result.stdout + result.stderr).split())
    assert "Next: git pull && pip install . # in the checkout that lcstore was installed from" in told
    assert "amaged" not in result.stdout + result.stderr


@pytest.mark.parametrize("command", ["ls", "show", "verify", "stats"])
def test_no_store(command, tmp_path):
    result = call(command, str(tmp_path / "none"))
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "lcstore doctor" in result.stderr
    told = document(command, str(tmp_path / "none"), status=1)
    assert told["ok"] is False
    error = told["error"]
    assert error["kind"] == "not-found"
    assert error["next"].startswith("lcstore doctor")


@pytest.mark.parametrize(
    "arguments",
    [["nothing"], ["ls"], ["ls", "x", "--limit", "0"], ["verify", "x", "--level", "all"], ["show", "x@"],
     ["ls", "x", "-o", "y"], ["ls", "x", "--storage-options", "{"]],
)  # fmt: skip
def test_wrong_usage(arguments):
    result = call(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""


@pytest.mark.parametrize(
    "command",
    ["ls", "show", "stats", "verify", "repair", "collect", "retain --keep latest:1", "compact --dry-run",
     "maintain --keep latest:1", "tag", "pin", "report", "rm"],
)  # fmt: skip
def test_the_url_of_a_document_is_what_was_typed(saved, monkeypatch, command):
    monkeypatch.chdir(Path(saved).parent)
    name, *options = command.split()
    for url in (Path(saved).name, saved, f"file://{saved}"):
        assert document(name, url, *options)["url"] == url


def test_the_sample_of_today_is_another_one_each_day_and_all_in_turn(saved, monkeypatch):
    days = iter(range(100))
    monkeypatch.setattr(
        trouble, "date", SimpleNamespace(today=lambda: date.fromordinal(738_000 + next(days)))
    )
    whole = document("verify", saved, "--level", "checksum")["objects"]
    parts = [document("verify", saved, "--level", "checksum", "--sample", "today/4") for _ in range(4)]
    again = [document("verify", saved, "--level", "checksum", "--sample", "today/4") for _ in range(4)]
    seen = [part["objects"] for part in parts]
    assert sum(seen) == whole
    assert [part["objects"] for part in again] == seen


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["ls"], "Missing"), (["ls", "x", "--limit", "0"], "--limit"), (["ls", "x", "--lim"], "No such"),
     (["retain", "x", "--keep", "lates:3"], "latest:3"), (["verify", "x", "--sample", "31/30"], "N/T"),
     (["verify", "x", "--sample", "today/0"], "today/10")],
)  # fmt: skip
def test_wrong_usage_is_told_as_json_too(arguments, said):
    result = call(*arguments, "--json")
    assert result.exit_code == 2
    told = json.loads(result.stdout)
    error = told["error"]
    assert (told["ok"], error["kind"]) == (False, "usage")
    assert said in error["message"]
    assert call(*shlex.split(error["next"])[1:]).exit_code == 0


def test_what_a_store_says_does_not_steer_the_terminal(tmp_path):
    with lcstore.open(tmp_path) as store:
        state = {"\x1b[31mred\n[bold]": np.zeros(2), "text": "\x1b]0;title\x07"}
        store.save(1, state, metadata={"a": "\x1b[2J"})
    for command in ("ls", "show"):
        result = call(command, str(tmp_path))
        assert result.exit_code == 0
        assert "\x1b" not in result.output
        assert "\x07" not in result.output
    assert "[bold]" in call("show", str(tmp_path)).stdout


@pytest.mark.parametrize("command", EVERY)
def test_help(command):
    result = call(command, "--help")
    assert result.exit_code == 0
    assert "--json" in result.stdout


@pytest.mark.parametrize(
    "command",
    [
        *EVERY,
        "compact",
        "collect",
        "maintain",
        "cp",
        "rm",
        "retain",
        "retire",
        "pin",
        "unpin",
        "tag",
        "untag",
        "tune",
        "demo",
        "warm",
    ],
)
def test_help_flows_to_the_width_of_the_terminal(command, monkeypatch):
    """A line of help that ends early ends a paragraph: the next word would not have fitted in."""
    monkeypatch.setenv("COLUMNS", "80")
    text = call(command, "--help").stdout.partition("╭")[0]
    for paragraph in re.split(r"\n\s*\n", text):
        lines = [line.split() for line in paragraph.strip().splitlines()]
        for line, after in pairwise(lines):
            assert len(" ".join([*line, after[0]])) > 78


def _python(*arguments: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    root = str(Path(lcstore.__file__).parents[1])
    return subprocess.run(
        [sys.executable, *arguments],
        stdout=stdout, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": root}, timeout=120,
    )  # fmt: skip


def test_exit_status_of_a_process(saved, broken):
    assert _python("-m", "lcstore", "--version").stdout.strip() == lcstore.__version__
    good = _python("-m", "lcstore.cli", "verify", saved, "--json")
    assert (good.returncode, good.stderr) == (0, "")
    assert json.loads(good.stdout)["ok"]
    assert _python("-m", "lcstore.cli", "verify", broken).returncode == 1


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_reader_that_has_read_enough_changes_no_status(saved, broken, more):
    read, write = os.pipe()
    os.close(read)
    for command, url, status in (("ls", saved, 0), ("verify", saved, 0), ("verify", broken, 1)):
        done = _python("-m", "lcstore.cli", command, url, *more, stdout=write)
        assert (done.returncode, done.stderr) == (status, "")
    os.close(write)
    assert _python("-m", "lcstore.cli", "verify").returncode == 2


@pytest.mark.filterwarnings("always::lcstore.errors.FallbackWarning")
def test_a_warning_is_one_line_without_a_place_in_this_program(saved, monkeypatch):
    def stats(self, on_progress):
        warnings.warn("took another path", lcstore.errors.FallbackWarning, stacklevel=1)
        return honest(self, on_progress)

    honest = lcstore.Store.stats
    monkeypatch.setattr(lcstore.Store, "stats", stats)
    result = call("stats", saved, "--json")
    assert result.exit_code == 0
    assert result.stderr == "Warning: took another path\n"
    assert json.loads(result.stdout)["states"] == 3


@pytest.mark.filterwarnings("always::lcstore.errors.FallbackWarning")
def test_of_many_warnings_of_one_kind_the_first_ones_are_shown(saved, tmp_path):
    """A folder of records that was renamed gave a warning for each of thousands of states."""
    store = tmp_path / "run"
    shutil.copytree(saved, store)
    with lcstore.open(store) as opened:
        for step in range(100, 107):
            opened.save(step, {"step": step})
    shutil.rmtree(store / "nodes")
    result = call("stats", str(store), "--json")
    assert result.exit_code == 0
    told = result.stderr.splitlines()
    assert len(told) == 4
    assert all("its second copy was read" in line for line in told[:3])
    assert re.fullmatch(
        r"Warning: there were \d+ more warnings like these: `lcstore verify .+` names each object", told[3]
    )


def test_help_imports_nothing_heavy():
    code = """if True:
        import sys
        from lcstore.cli import main
        sys.argv = ["lcstore", "--help"]
        try:
            main()
        except SystemExit:
            print(sorted({"numpy", "numba", "fsspec", "zarr", "sklearn"} & set(sys.modules)))
    """
    assert _python("-c", code).stdout.splitlines()[-1] == "[]"


def test_commands_that_people_look_for_are_answered():
    hints = {
        "restore": "open('runs/gpt').restore(STEP)", "delete": "lcstore rm runs/gpt",
        "history": "history(NAME)",
        "gc": "lcstore collect", "prune": "lcstore retain", "info": "lcstore show", "mv": "lcstore cp",
        "undo": "lcstore retire", "log": "lcstore ls", "cat": "lcstore export", "du": "lcstore stats",
    }  # fmt: skip
    for wanted, said in hints.items():
        result = call(wanted, "runs/gpt")
        assert result.exit_code == 2
        told = " ".join(result.stderr.replace("│", " ").split())
        assert f"No such command '{wanted}'" in told
        assert said in told


def test_a_state_in_the_place_of_a_store_is_told(saved):
    result = call("ls", f"{saved}@20")
    assert result.exit_code == 1
    assert "it names a state" in result.stderr
    assert f"Next: lcstore show '{saved}@20'" in result.stderr


def test_records_without_what_makes_a_store_are_told(saved, tmp_path):
    url = tmp_path / "half"
    shutil.copytree(saved, url)
    for path in (url / "lcstore.json", url / "copies" / "lcstore.json"):
        path.unlink(missing_ok=True)
    result = call("ls", str(url))
    assert result.exit_code == 1
    assert "lcstore.json is missing here" in result.stderr
    # No command that opens the store is named: none could.
    result = call("verify", str(url))
    assert result.exit_code == 1
    assert re.findall("lcstore [a-z]+ .*", result.stdout) == [f"lcstore repair {url}"]


@pytest.mark.parametrize(
    "words",
    [
        ["show", "{url}@" + "1" * 5000], ["show", "{url}", "--run", "1" * 5000],
        ["ls", "{url}", "--run", "1" * 20], ["retire", "{url}", "--run", "1" * 5000],
        ["diff", "{url}@0", "1" * 5000], ["verify", "{url}", "--sample", "1/" + "1" * 5000],
    ],
    ids=["step", "run", "run of ls", "run of retire", "step of diff", "sample"],
)  # fmt: skip
def test_numbers_without_end_are_told_in_a_line(saved, words):
    result = call(*(word.format(url=saved) for word in words))
    assert isinstance(result.exception, SystemExit)
    assert result.exit_code in (1, 2)
    assert "Traceback" not in result.output
    assert len(result.stderr) < 1500


@pytest.mark.parametrize("command", ["import", "export", "report", "bench"])
def test_json_that_is_none_is_told_with_the_option_that_it_is_of(saved, command, tmp_path):
    words = {"import": ["x", str(tmp_path / "new")], "export": [str(saved), "x.npz"], "bench": ["x"]}
    result = call(command, *words.get(command, [str(saved)]), "--file-options", "{")
    assert result.exit_code == 2
    assert "--file-options is no JSON" in " ".join(result.stderr.replace("│", " ").split())


def test_states_of_one_run(tmp_path):
    url = str(tmp_path / "run")
    for number in (1, 2):
        with lcstore.open(url) as store:
            store.save(0, {"model": {"w": np.full((8, 8), number, np.float32)}})
            store.save(10 * number, {"model": {"w": np.full((8, 8), -number, np.float32)}})
    assert [state["step"] for state in document("ls", url, "--run", "1")["states"]] == [0, 10]
    shown = call("show", f"{url}@0")
    other = document("show", f"{url}@0", "--run", "1")
    assert "step 0 was saved 2 times; this is node" in shown.stderr
    assert f"{other['node']} (run 1)" in shown.stderr
    assert "saved 2 times" not in call("show", f"{url}@{other['node']}").stderr
    assert document("diff", f"{url}@0", "@10", "--run", "1")["a"]["node"] == other["node"]
    for command in (("ls", url), ("show", f"{url}@0"), ("retire", url)):
        error = document(*command, "--run", "7", status=1)["error"]
        assert error["next"] == f"lcstore ls {url} --runs"
        assert f"`{error['next']}`" in error["message"]
    file = tmp_path / "one.npz"
    assert call("export", f"{url}@0", str(file), "--run", "1").exit_code == 0
    with np.load(file) as data:
        assert data["model.w"][0, 0] == 1


def test_lost_states_are_told_as_ranges_of_steps(tmp_path):
    url = tmp_path / "run"
    rng = np.random.default_rng(0)
    with lcstore.open(url) as store:
        for step in range(0, 100, 10):
            moments = rng.standard_normal((8, 8)).astype(np.float32)
            state = {
                "model": {"w.weight": rng.standard_normal((8, 8))},
                "optim": {"state": {0: {"exp_avg": moments}}},
            }
            store.save(step, state)
        edges = {step: store._index.record(store.info(step).node).edge.id for step in (20, 30, 40, 50, 70)}
    for edge in edges.values():
        for file in (url / "data" / edge).rglob("first-*/c*"):
            file.unlink()
    result = call("verify", str(url))
    assert result.exit_code == 1
    assert "Cannot be restored whole: 5 states, of steps 20 to 50, 70." in result.stdout
    assert "Of steps 20 to 50, 70 the rest is there" in result.stdout
    assert re.search(r"error +20-70  it is missing \(5 times\)", result.stdout)
    report = document("verify", str(url), status=1)
    assert report["lost_ranges"] == report["kept_in_part"] == [[20, 50], [70, 70]]
    assert len(report["findings"]) == 5


@pytest.mark.parametrize("command", ["verify", "repair"])
def test_the_whole_of_a_store_is_looked_at(saved, command):
    result = call(command, f"{saved}@10")
    assert result.exit_code == 1
    assert "it names a state" in result.stderr
    assert f"Next: lcstore {command} '{saved}'" in " ".join(result.stderr.split())


def test_lists_of_plain_values_are_one_line(tmp_path):
    url = str(tmp_path / "run")
    groups = [{"lr": 0.1, "betas": (0.9, 0.99), "params": list(range(40))}]
    with lcstore.open(url) as store:
        store.save(3, {"model": {"w": np.ones((8, 8))}, "optim": {"param_groups": groups}})
    shown = call("show", url).stdout
    assert re.search(r"params +list +\[0, 1, 2, .*\.\.\.", shown)
    assert "params/#" not in shown
    assert "betas/#1" in shown
    assert len(document("show", url)["values"]) == 43
    assert "A state is named so" in call("show", url, "3").stderr
