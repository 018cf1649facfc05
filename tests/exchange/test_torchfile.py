"""Files of ``torch.save`` that others wrote: data is read, and nothing is run."""

from __future__ import annotations

import os
import pickle
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from states import same

import lcstore
from lcstore.exchange.opaque import read_data
from lcstore.exchange.torchfile import _brief, read_torch

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.unprotected


class Runs:
    """What runs a command when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def touch(path: str) -> None:
    Path(path).touch()


class Made(Runs):
    """What makes a file when it is unpickled, by a function of a module that torch does not know."""

    def __reduce__(self):
        return touch, (str(self.path),)


def load(path, tmp_path, **how):
    lcstore.import_files(path, tmp_path / "store", step=1, policy="lossless", **how)
    with lcstore.open(tmp_path / "store", "r") as store:
        return store.restore()


@pytest.mark.parametrize("zipped", [True, False])
def test_a_checkpoint_of_a_loop_by_hand(tmp_path, zipped):
    model = torch.nn.Linear(8, 8)
    model.head = torch.nn.Linear(8, 8)
    model.head.weight = model.weight
    state = {
        "model": model.state_dict(),
        "losses": [np.float64(1.5), 0.5],
        "history": np.arange(6.0).reshape(2, 3),
        "numpy": np.random.default_rng(0).integers(0, 9, 5),
        "size": torch.Size([2, 3]),
        "epoch": 3,
    }
    torch.save(state, tmp_path / "last.pt", _use_new_zipfile_serialization=zipped)
    found = load(tmp_path / "last.pt", tmp_path)
    assert same(found, {**state, "size": (2, 3)})
    assert found["model"]["head.weight"] is found["model"]["weight"]
    assert isinstance(found["history"], np.ndarray)


@pytest.mark.parametrize("kind", [list, tuple])
def test_containers_that_lie_in_many_others_are_gone_over_once(tmp_path, kind):
    value = [Namespace(lr=1)]
    for _ in range(60):
        value = kind([value, value])
    torch.save(value, tmp_path / "twice.pt")
    with pytest.raises(lcstore.LcstoreError, match=r"twice.pt"):  # at once, as too much for any store
        load(tmp_path / "twice.pt", tmp_path)


@pytest.mark.parametrize("zipped", [True, False])
def test_nothing_in_a_file_is_run(tmp_path, zipped):
    torch.save({"a": Runs(tmp_path / "ran")}, tmp_path / "bad.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(lcstore.InvalidInputError, match=r"bad.pt holds a \w+.system, which only"):
        load(tmp_path / "bad.pt", tmp_path)
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("state", "named"),
    [({"args": SimpleNamespace(lr=1)}, "types.Simple"), (torch.nn.Linear(2, 2), "torch.nn.modules.lin")],
)
def test_objects_are_refused_with_what_to_do(tmp_path, state, named):
    torch.save(state, tmp_path / "bad.pt")
    with pytest.raises(lcstore.InvalidInputError, match=f"holds a {named}.*lcstore.open.URL..save"):
        load(tmp_path / "bad.pt", tmp_path)


def test_objects_beside_tensors_are_left_out_where_that_is_asked_for(tmp_path):
    weight = torch.arange(4.0)
    for step in (1, 2):
        args = Namespace(lr=1, out=Path("x"))
        state = {"weight": weight + step, "args": args, "hook": Made(tmp_path / "ran"), "seen": [{1}, step]}
        torch.save(state if step == 1 else {"weight": weight + step}, tmp_path / f"step{step}.pt")
    named = r"\('args/out', 'hook', 'seen/#0'\)"
    said = rf"the objects that are no data {named}.*--skip-objects.*skip_objects=True.*0 of 2 files"
    with pytest.raises(lcstore.InvalidInputError, match=said):
        lcstore.import_files(tmp_path, tmp_path / "store", policy="lossless")
    report = lcstore.import_files(tmp_path, tmp_path / "store", policy="lossless", skip_objects=True)
    assert [one.left_out for one in report.files] == [("args/out", "hook", "seen/#0"), ()]
    assert report.ok
    with lcstore.open(tmp_path / "store", "r") as store:
        expected = {"weight": weight + 1, "args": {"lr": 1, "out": None}, "hook": None, "seen": [None, 1]}
        assert same(store.restore(1), expected)
        assert torch.equal(store.restore(2)["weight"], weight + 2)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("whole", [True, False])
def test_what_cannot_be_had_without_objects_is_refused_as_ever(tmp_path, whole):
    state = {"model": torch.nn.Linear(2, 2)} if whole else {"w": torch.ones(2), "a": Runs(tmp_path / "ran")}
    torch.save(state, tmp_path / "bad.pt")
    with pytest.raises(lcstore.InvalidInputError, match="which only running code") as refused:
        load(tmp_path / "bad.pt", tmp_path)
    assert "skip_objects" not in str(refused.value)
    with pytest.raises(lcstore.InvalidInputError, match=r"bad.pt holds .*which only running code"):
        load(tmp_path / "bad.pt", tmp_path, skip_objects=True)
    assert not (tmp_path / "ran").exists()


def test_the_arguments_of_a_script_become_a_dict(tmp_path):
    inner = Namespace(betas=(0.9, Namespace(second=0.99)), tags=[Namespace(a=1)])
    state = {"model": torch.nn.Linear(2, 2).state_dict(), "args": Namespace(lr=1, inner=inner)}
    torch.save(state, tmp_path / "step3.pt")
    restored = load(tmp_path / "step3.pt", tmp_path)
    assert restored["args"] == {"lr": 1, "inner": {"betas": (0.9, {"second": 0.99}), "tags": [{"a": 1}]}}
    assert torch.equal(restored["model"]["weight"], state["model"]["weight"])


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize(("place", "done"), [(0, 0), (2, 2)])
def test_a_refused_file_among_others_is_moved_away_and_the_rest_goes_on(tmp_path, damaged, place, done):
    steps, folder = [10, 20, 30, 40], tmp_path / "files"
    folder.mkdir()
    for step in steps:
        torch.save({"w": torch.full((3,), step)}, folder / f"step{step}.pt")
    bad = folder / f"step{steps.pop(place)}.pt"
    torch.save({"args": SimpleNamespace(lr=1)}, bad)
    if damaged:
        bad.write_bytes(b"no file of torch")
    kind = lcstore.CorruptionError if damaged else lcstore.InvalidInputError
    with pytest.raises(kind, match=rf"{done} of 4 files are imported. For the others move this one away"):
        lcstore.import_files(folder, tmp_path / "store")
    bad.rename(tmp_path / bad.name)
    outcomes = [one.outcome for one in lcstore.import_files(folder, tmp_path / "store").files]
    assert outcomes.count("there") == done
    assert lcstore.open(tmp_path / "store").steps() == steps
    with pytest.raises(kind) as caught:
        lcstore.import_files(tmp_path / bad.name, tmp_path / "other")
    assert "move this one away" not in str(caught.value)


def test_what_no_store_holds_is_named(tmp_path):
    torch.save({"model": {"kinds": {1, 2}}}, tmp_path / "bad.pt")
    with pytest.raises(lcstore.InvalidInputError, match=r"bad.pt: a builtins.set at 'model/kinds'"):
        load(tmp_path / "bad.pt", tmp_path)


def test_other_files_are_none(tmp_path):
    whole = tmp_path / "whole.pt"
    torch.save({"w": torch.ones(9000)}, whole)
    plain = pickle.dumps({"w": 1}, protocol=4)
    for data in (b"", b"text, and nothing else\n", whole.read_bytes()[:9000], plain, b"PK\x03\x04"):
        (tmp_path / "bad.pt").write_bytes(data)
        with pytest.raises(lcstore.CorruptionError, match=r"bad.pt is no (whole )?file of torch") as caught:
            load(tmp_path / "bad.pt", tmp_path)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 600


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("protocol", [4, 5])
def test_a_sound_file_of_a_later_protocol_is_not_called_damaged(tmp_path, zipped, protocol):
    how = {"pickle_protocol": protocol, "_use_new_zipfile_serialization": zipped}
    torch.save({"w": torch.ones(3)}, tmp_path / "old.pt", **how)
    with pytest.raises(lcstore.InvalidInputError, match=r"old.pt .*pickle_protocol=4 .*weights_only=False"):
        load(tmp_path / "old.pt", tmp_path)
    with pytest.raises(lcstore.InvalidInputError, match=r"old.pt .*pickle_protocol=4 "):
        read_data(str(tmp_path / "old.pt"), "old.pt")


def test_an_ending_is_overruled_by_a_format(tmp_path):
    torch.save({"w": torch.ones(3)}, tmp_path / "state.tar")
    assert same(load(tmp_path / "state.tar", tmp_path, format="torch"), {"w": torch.ones(3)})


def test_what_torch_says_of_a_damaged_file_is_cut_between_words():
    said = _brief("it was transferred incorrectly, or something else " * 10 + "\nmore")
    assert len(said) <= 300
    assert said.rpartition(" ...")[0].split()[-1] in ("it", "was", "transferred", "incorrectly,", "something")
    assert _brief(" short\nmore") == "short"
    assert _brief("Weights only load failed.\nFile it: WeightsUnpickler error: \n\nwhy\n\nDocs") == "why"


def test_a_flipped_byte_anywhere_in_a_file_is_met(tmp_path):
    torch.save({"w": torch.arange(500.0), "b": torch.zeros(3)}, tmp_path / "good.pt")
    data = bytearray((tmp_path / "good.pt").read_bytes())
    wanted = load(tmp_path / "good.pt", tmp_path)
    for at in range(0, len(data), 7):
        data[at] ^= 0xFF
        (tmp_path / "bad.pt").write_bytes(data)
        data[at] ^= 0xFF
        try:
            found = read_torch(str(tmp_path / "bad.pt"), "bad.pt").state
        except lcstore.LcstoreError:
            continue
        assert same({name: value.numpy() for name, value in found.items()}, wanted), at  # between entries


def test_a_file_without_checksums_is_taken(tmp_path):
    told = getattr(torch.serialization, "set_crc32_options", None)
    if told is None:
        pytest.skip("this torch always writes them")
    told(False)
    try:
        torch.save({"w": torch.arange(500.0)}, tmp_path / "good.pt")
    finally:
        told(True)
    assert same(load(tmp_path / "good.pt", tmp_path), {"w": torch.arange(500.0)})
