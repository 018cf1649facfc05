"""`lcstore report` and `lcstore plot`: files, stdout, JSON, options, exit status, and widths."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from kit.commands import call
from reported import Layers, save_resumed, save_run

import lcstore
from lcstore.report import extra
from lcstore.report.gather import saved_states
from lcstore.report.plots import Plots
from lcstore.report.thin import bins, evenly, peaks

pytest.importorskip("matplotlib")
pytest.importorskip("plotille")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("report") / "a run")
    save_run(url)
    return url


@pytest.fixture
def broken(run: str, tmp_path: Path) -> str:
    url = tmp_path / "broken"
    shutil.copytree(run, url)
    shutil.rmtree(url / "copies")
    next((url / "nodes").glob(f"{50:019d}*")).write_bytes(b"{}")
    return str(url)


def test_report_writes_a_file(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = call("report", run)
    assert result.exit_code == 0, result.output
    assert "12 states of 12 steps" in result.stdout
    assert "lcstore compact" in result.stdout
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert call("report", run, "-o", "sub/other.html").exit_code == 0
    assert (tmp_path / "sub" / "other.html").is_file()


def test_report_to_stdout(run):
    result = call("report", run, "-o", "-")
    assert result.exit_code == 0
    assert result.stdout.startswith("<!doctype html>")
    assert result.stdout.rstrip().endswith("</html>")


def test_report_as_json_has_what_the_page_shows(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = call("report", run, "--json")
    assert result.exit_code == 0
    facts = json.loads(result.stdout)
    assert [state["step"] for state in facts["states"]] == list(range(0, 120, 10))
    assert facts["stats"]["states"] == 12
    assert facts["verified"]["findings"] == []
    assert {"name", "movement", "error", "note"} <= facts["tensors"]["tensors"][0].keys()
    assert facts["costs"]["states"][-1]["edges"] == 12
    assert not list(tmp_path.iterdir())


def test_options_for_the_target_and_a_file_are_told_apart(tmp_path, monkeypatch):
    save_run("memory://told-apart/run", 2)
    monkeypatch.chdir(tmp_path)
    seen = {}
    opened = lcstore.open

    def note(url, *args, storage_options=None, **how):
        seen.update(storage_options)
        return opened(url, *args, **how)

    monkeypatch.setattr(lcstore, "open", note)
    arguments = ("memory://told-apart/run", "-o", "a.html", "-o", "skip_instance_cache=true")
    assert call("report", *arguments).exit_code == 0
    assert seen == {"skip_instance_cache": True}
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]
    assert call("report", *arguments, "-o", "b.html").exit_code == 2


def test_damage_is_told_and_shown(broken, tmp_path):
    result = call("report", broken, "-o", str(tmp_path / "report.html"))
    assert result.exit_code == 1
    assert result.stdout.startswith("The store is damaged")
    assert "lcstore repair" in result.stdout
    assert (tmp_path / "report.html").is_file()
    result = call("plot", broken)
    assert result.exit_code == 1
    assert "Bytes of each save" in result.stdout
    assert "lcstore verify" in result.stderr


@pytest.mark.filterwarnings("ignore::lcstore.FallbackWarning")
def test_damage_that_can_be_mended_is_damage(run, tmp_path):
    url = tmp_path / "mendable"
    shutil.copytree(run, url)
    next((url / "data").rglob("c.0")).unlink()
    page = tmp_path / "page.html"
    assert call("verify", str(url)).exit_code == call("report", str(url), "-o", str(page)).exit_code == 1
    assert "lcstore repair" in page.read_text()


def test_a_store_below_a_name_that_is_no_text_has_a_page(run, tmp_path):
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/r\xff")
    try:
        shutil.copytree(run, folder)
    except OSError:
        pytest.skip("this file system takes no such name")
    with lcstore.open(folder, "r") as store:
        lcstore.write_report(store, tmp_path / "page.html")
    assert "r\\udcff" in (tmp_path / "page.html").read_text()
    assert "r\\udcff" in call("report", folder, "-o", "-").stdout


def test_what_cannot_be_written_or_is_no_store(run, tmp_path):
    result = call("report", run, "-o", str(tmp_path))
    assert result.exit_code == 1
    assert "not overwritten" in result.stderr
    for command in ("report", "plot"):
        result = call(command, str(tmp_path / "none"))
        assert result.exit_code == 1
        assert "there is no store here" in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_library_that_is_missing(run, tmp_path, monkeypatch):
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(extra, "import_module", missing)
    for arguments in (("report", run, "-o", str(tmp_path / "a.html")), ("plot", run)):
        result = call(*arguments)
        assert result.exit_code == 1
        assert f"`lcstore {arguments[0]}` needs" in result.stderr
        assert "pip install 'lcstore[report]'" in result.stderr
    assert not list(tmp_path.iterdir())


def test_plot_draws_bytes_errors_and_metrics(run):
    result = call("plot", run)
    assert result.exit_code == 0
    for title in ("Bytes of each save", "Bytes of all saves together", "Error of saves", "Metric: loss"):
        assert title in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "\x1b" not in result.stdout
    assert call("plot", run, "--metric", "loss").exit_code == 0
    result = call("plot", run, "--metric", "accuracy")
    assert result.exit_code == 1
    assert "there are: loss" in result.stderr
    assert len(json.loads(call("plot", run, "--json").stdout)["states"]) == 12


@pytest.mark.parametrize("width", [40, 80, 120])
def test_plots_are_as_wide_as_the_terminal(run, width, monkeypatch):
    with lcstore.open(run, "r") as store:
        states, _ = saved_states(store)
    drawn = list(Plots(states, width).all())
    assert len(drawn) == 4
    assert all(len(line) <= width for text in drawn for line in text.splitlines()[1:])
    assert any("\u2800" <= c <= "\u28ff" for c in drawn[0])
    monkeypatch.setenv("FORCE_COLOR", "1")  # this is no terminal
    assert "\x1b[" in list(Plots(states, width, colour=True).all())[1]


@pytest.mark.parametrize("colour", [False, True])
def test_what_no_plot_holds_is_told_below_its_title(run, colour, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with lcstore.open(run, "r") as store:
        states, _ = saved_states(store)
    lost = {place: {"loss": float("nan"), "worse": float("-inf")} for place in range(7, 12)}
    states = [replace(one, metrics=lost.get(at, one.metrics | {"seen": at})) for at, one in enumerate(states)]
    loss, seen, worse = list(Plots(states, 80, colour=colour).all())[-3:]
    red = ("\x1b[31m{}\x1b[0m" if colour else "{}").format
    assert loss.splitlines()[:2] == ["Metric: loss, by step", red("NaN from step 70 on")]
    assert float(loss.splitlines()[-1].split()[-1]) > 90  # the axis goes on where the line ends
    assert seen.splitlines()[1] == "last given with step 60: 6"
    assert worse.splitlines() == ["Metric: worse", red("infinite from step 70 on")]


def test_a_loss_that_exploded_leaves_the_others_to_be_seen(run):
    with lcstore.open(run, "r") as store:
        states, _ = saved_states(store)
    losses = [5.0, 4.0, 3.5, 3.0, 2.8, 1735.0, 2.6, 2.5, 2.4, 2.3, 2.2, 2.1]
    states = [replace(one, metrics={"loss": loss}) for one, loss in zip(states, losses, strict=True)]
    (plot,) = Plots(states, 80).all(["loss"])
    assert plot.splitlines()[1] == "Above what is drawn: 1735 at step 50"
    assert plot.splitlines()[2] == "Least 2.1 at step 110, most 1735 at step 50"
    assert float(plot.splitlines()[3].split()[0]) < 6
    assert float(plot.splitlines()[-3].split()[0]) == 2.1  # no room is left down to zero
    states = [
        replace(one, metrics={"loss": loss}) for one, loss in zip(states, sorted(losses)[:3] * 4, strict=True)
    ]
    assert "Above" not in next(Plots(states, 80).all(["loss"]))


def test_plots_in_letters_for_terminals_that_have_no_others(run):
    with lcstore.open(run, "r") as store:
        states, _ = saved_states(store)
    for text in Plots(states, 80, letters=True).all():
        assert text.isascii()
        assert "*" in text or "1" in text


def test_plots_of_none_and_one_state(run):
    with lcstore.open(run, "r") as store:
        states, _ = saved_states(store)
    assert list(Plots([], 80).all()) == []
    assert next(Plots(states[:1], 80).all()).startswith("Bytes of each save: ")


def test_runs_are_told_apart_without_colours(run, tmp_path):
    url = str(tmp_path / "run")
    shutil.copytree(run, url)
    with lcstore.open(url) as store:
        state = store.resume(50)
        for step in (60, 70):
            store.save(step, state, metrics={"loss": 9.0})
    shown = call("plot", url, "--metric", "loss").stdout.split("Metric: loss")[1]
    assert "a: run 1" in shown
    assert "b: run 2" in shown


def test_runs_that_went_on_from_one_another_are_one_line(tmp_path):
    url = str(tmp_path / "run")
    save_resumed(url, fork=False)
    states = json.loads(call("plot", url, "--json").stdout)["states"]
    assert len({state["run_id"] for state in states}) == 9
    assert {state["line"] for state in states} == {states[0]["run_id"]}
    shown = call("plot", url, "--metric", "recall").stdout
    assert shown.startswith("Metric: recall, by step")
    assert "run" not in shown
    *_, least, _, steps = (line.split() for line in shown.splitlines())
    assert least[0] == "0.5"  # of the third run
    assert steps[1] == "0"


def test_a_fork_of_a_line_of_several_runs_is_a_line_of_its_own(tmp_path):
    url = str(tmp_path / "run")
    save_resumed(url)
    shown = call("plot", url, "--metric", "recall").stdout
    assert "a: runs 1 to 9 (" in shown
    assert "b: run 10 (" in shown


def test_lines_that_were_saved_to_last_are_drawn(tmp_path):
    url = str(tmp_path / "run")
    save_resumed(url, 2, fork=False)
    for rate in range(5):
        with lcstore.open(url) as store:
            store.resume(0)
            store.save(1, {"hour": rate}, metrics={"recall": 0.1 * rate})
    with lcstore.open(url) as store:
        store.resume(1, run=2)
        store.save(2, {"hour": 2}, metrics={"recall": 0.9})
    shown = call("plot", url, "--metric", "recall").stdout
    assert shown.startswith("Metric: recall, of the last 5 of 6 lines, by step")
    assert "e: runs 1 to 8, 3 of them (" in shown


def test_thinning_keeps_ends_and_peaks():
    assert evenly(range(100), 4) == [0, 33, 66, 99]
    assert evenly(range(3), 4) == [0, 1, 2]
    assert evenly([], 4) == []
    values = [0.0] * 1000
    values[777] = 5.0
    thinned = peaks(list(enumerate(values)), lambda point: point[1], 50)
    assert len(thinned) <= 50
    assert (777, 5.0) in thinned
    assert thinned == sorted(thinned)
    assert peaks([float("nan")] * 10, float, 4) == pytest.approx([float("nan")] * 2, nan_ok=True)
    assert [list(part) for part in bins(range(5), 2)] == [[0, 1], [2, 3, 4]]
    assert bins([], 3) == []


def test_of_forks_the_layers_of_the_run_that_is_named_are_looked_at(tmp_path):
    url = str(tmp_path / "sweep")
    save_run(url)
    for dead in (False, True, False):
        layers = Layers()
        with lcstore.open(url) as store:
            layers.weights |= store.resume(50)["model"]
            for step in range(60, 160, 10):
                layers.factor["layers.1.weight"] = 0.0 if dead and step > 90 else 1.0
                store.save(step, layers.step())
    first = call("report", url, "--json", "-o", str(tmp_path / "all.html"))
    found = json.loads(first.stdout)["tensors"]
    assert (found["run"], found["beside"]) == (4, 3)
    assert not found["noted"]
    assert "3 others end elsewhere" in (tmp_path / "all.html").read_text()
    third = json.loads(call("report", url, "--run", "3", "--json").stdout)["tensors"]
    assert third["steps"] == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 130, 140, 150]
    (noted,) = (third["tensors"][place] for place in third["noted"])
    assert noted["name"] == "model/layers.1.weight"
    assert "step 90" in noted["note"]
    wrong = call("report", url, "--run", "9", "-o", str(tmp_path / "none.html"))
    assert wrong.exit_code == 1
    assert "there is no run 9" in wrong.output
    assert not (tmp_path / "none.html").exists()
