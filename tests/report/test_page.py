"""The page of a store: whole in itself, escaped, and right about every kind of store."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from reported import Layers, Parsed, save_resumed, save_run

import lcstore
from lcstore.errors import ConflictError, LcstoreError
from lcstore.format.records import StoreRecord
from lcstore.maintain.sizing import Forecast
from lcstore.report import extra
from lcstore.report.gather import _looks, gather, saved_states
from lcstore.report.layers import tensors_seen
from lcstore.report.page import page_of
from lcstore.report.words import next_commands, verdict
from lcstore.units import size

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("report") / "run")
    save_run(url)
    return url


@pytest.fixture(scope="module")
def drawn(run: str) -> str:
    """The page of the run."""
    return page(run)[1]


def page(url: str) -> tuple[lcstore.StoreReport, str]:
    with lcstore.open(url, "r") as store:
        report = gather(store)
    return report, page_of(report)


def charts_of(text: str) -> list[str]:
    return re.findall(r"<svg.*?</svg>", text, re.DOTALL)


def test_the_page_needs_nothing_but_itself(drawn):
    text, found = drawn, Parsed(drawn)
    assert not found.open
    assert {"html", "svg", "table", "main"} <= found.tags()
    assert not {"script", "link", "iframe", "object", "img"} & found.tags()
    for attribute in ("href", "src", "xlink:href"):
        assert all(value.startswith(("#", "data:image/png")) for value in found.values(attribute))
    assert "http:" not in text
    assert "https:" not in text
    assert "@import" not in text
    assert all(value.startswith("#") for value in re.findall(r"url\((.*?)\)", text))


def test_links_and_names_within_the_page_lead_somewhere(drawn):
    found = Parsed(drawn)
    ids = found.values("id")
    links = [value[1:] for value in found.values("href") + found.values("xlink:href") if value[0] == "#"]
    assert set(links) <= set(ids)
    assert set(found.values("aria-labelledby")) <= set(ids)
    assert len(ids) == len(set(ids))


def test_every_chart_is_told_in_words(drawn):
    found = Parsed(drawn)
    charts = [attrs for tag, attrs in found.found if tag == "svg"]
    assert len(charts) >= 8
    assert all(attrs["role"] == "img" and attrs["aria-labelledby"] for attrs in charts)


def test_charts_take_their_colours_from_the_page(drawn):
    charts = "".join(charts_of(drawn))
    assert "var(--ink)" in charts
    assert "prefers-color-scheme: dark" in drawn
    used = set(re.findall(r"var\(--(\w+)\)", drawn))
    assert used <= set(re.findall(r"--(\w+):", drawn))


def test_the_numbers_are_those_of_the_store(run):
    report, text = page(run)
    with lcstore.open(run, "r") as store:
        stats, infos = store.stats(), [store.info(step) for step in store.steps()]
    assert [(one.step, one.node, one.bytes_raw) for one in report.states] == [
        (one.step, one.node, one.bytes_raw) for one in infos
    ]
    assert [one.total for one in report.states] == [one.bytes_stored for one in infos]
    assert f"{stats.ratio:.1f}x" in Parsed(text).text
    assert "12 states of 12 steps" in Parsed(text).text
    for one in report.states:
        assert one.node[:8] in text
    assert all(one.name in text for one in report.tensors.tensors)


def test_what_a_store_says_is_never_markup(tmp_path):
    evil = "<script>alert(1)</script>"
    url = str(tmp_path / "run")
    names = [f"{evil}{place}" for place in range(2)] + [
        "$\\frac{1$",
        "a\"b'c&d",
        "\x1b[31m red \u202e",
        "ü" * 300,
    ]
    rng = np.random.default_rng(0)
    with lcstore.open(url, policy={"model/**": "weights"}) as store:
        for step in range(4):
            weights = {name: rng.standard_normal((64, 64), dtype=np.float32) for name in names}
            store.save(
                step,
                {"model": weights},
                metrics={evil: step, "$x_{": 1.0},
                tags=(evil,),
                metadata={"note": evil},
            )
    report, text = page(url)
    found = Parsed(text)
    assert not found.open
    assert "script" not in found.tags()
    assert evil in found.text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert len(report.tensors.tensors) == len(names)
    assert "default-src 'none'" in text


def test_secrets_in_the_url_are_not_shown(run, monkeypatch):
    with lcstore.open(run, "r") as store:
        monkeypatch.setattr(type(store), "url", property(lambda _: "sftp://me:geheim@host/run"))
        text = page_of(gather(store))
    assert "geheim" not in text
    assert "sftp://me:***@host/run" in text


def test_an_empty_store(tmp_path):
    (tmp_path / "lcstore.json").write_bytes(StoreRecord().to_bytes())
    report, text = page(str(tmp_path))
    assert report.states == ()
    found = Parsed(text)
    assert "no state yet" in found.text
    assert "svg" not in found.tags()


def test_one_state(tmp_path):
    save_run(str(tmp_path / "run"), 1)
    report, text = page(str(tmp_path / "run"))
    assert len(report.states) == 1
    assert report.states[0].is_anchor
    assert "1 state of 1 step" in Parsed(text).text


def test_a_damaged_record_is_a_finding(run, tmp_path):
    url = tmp_path / "run"
    shutil.copytree(run, url)
    shutil.rmtree(url / "copies")
    next((url / "nodes").glob(f"{50:019d}*")).write_bytes(b"{}")
    report, text = page(str(url))
    assert len(report.states) == 11
    assert not report.verified.ok
    found = Parsed(text)
    assert "The store is damaged" in found.text
    assert "lcstore repair" in found.text
    assert "its hash differs" in found.text


def test_forks_and_retired_states(run, tmp_path):
    url = str(tmp_path / "run")
    shutil.copytree(run, url)
    with lcstore.open(url) as store:
        state = store.resume(50)
        for step in (60, 70):
            state["model"]["layers.0.weight"] = state["model"]["layers.0.weight"] + np.float32(1e-3)
            store.save(step, state, metrics={"loss": 0.5})
        store.retire(20)
    report, text = page(url)
    assert [one.step for one in report.states if one.retired] == [20]
    assert report.tensors.steps == (0, 10, 20, 30, 40, 50, 60, 70)
    found = Parsed(text)
    assert "run 1" in found.text
    assert "run 2" in found.text
    assert "retired" in found.text
    assert report.forecast is not None


def test_a_line_of_several_runs_is_drawn_as_one(tmp_path):
    url = str(tmp_path / "run")
    save_resumed(url)
    _, text = page(url)
    said = Parsed(text).text
    assert "runs 1 to 9" in said
    assert "run 10" in said
    assert "The least at step 2 of runs 1 to 9, the most at step 8 of runs 1 to 9" in said
    assert "runs, the last ones" not in said


def test_what_went_wrong_is_told_of_the_line_of_the_run(tmp_path):
    url = str(tmp_path / "run")
    for hour, loss in enumerate((0.5, float("nan"), float("nan"))):
        with lcstore.open(url) as store:
            if hour:
                store.resume()
            store.save(hour, {"hour": hour}, metrics={"loss": loss})
    with lcstore.open(url) as store:
        store.resume(0)
        store.save(1, {"hour": 1}, metrics={"loss": 0.4})
    with lcstore.open(url, "r") as store:
        told = " ".join(verdict(gather(store, run=3)))
    assert "Metrics: loss is NaN from step 1 on." in told


def test_a_collect_is_advised_only_where_it_may_free_something(run):
    with lcstore.open(run, "r") as store:
        report = gather(store)
    for without, collected, advised in ((9, 9, True), (10, 9, True), (10, 11, False)):
        left = Forecast(10, 20, bytes_collected=collected, bytes_without=without)
        stats = replace(report.stats, retired=1)
        found = next_commands(replace(report, stats=stats, forecast=left))
        assert any("collect" in command for command, _ in found) is advised


def test_what_a_compaction_writes_is_told_as_it_comes(tmp_path):
    url, layers = str(tmp_path / "run"), Layers()
    save_run(url, 40, layers)
    report, text = page(url)
    assert [command for command, _ in next_commands(report) if "compact" in command]
    web = next_commands(replace(report, url="https://lab/run"))  # which nothing can be written to
    assert not any("lcstore compact" in command for command, _ in web)
    assert "lcstore cp https://lab/run TO" in [command for command, _ in web]
    with lcstore.open(url) as store:
        done = store.compact()
        assert gather(store).forecast is None  # nothing is left to add
    assert report.costs.planned == done.planned
    assert report.forecast.compaction_writes == pytest.approx(done.bytes_written, rel=0.2)
    said = f"would add {done.planned} edges and write about {size(report.forecast.compaction_writes)}"
    assert said in Parsed(text).text


def test_more_states_than_are_drawn(run, monkeypatch):
    from lcstore.report import charts
    from lcstore.report import page as pages

    monkeypatch.setattr(charts, "MOST_BARS", 4)
    monkeypatch.setattr(charts, "MOST_POINTS", 6)
    monkeypatch.setattr(pages, "MOST_SAVES", 5)
    _, text = page(run)
    said = Parsed(text).text
    assert "Each bar is the mean of about 3 saves in a row." in said
    assert "thinned out to" in said
    assert "5 of 12, evenly spread" in said


def test_saves_and_restores_are_told_of_all_of_them_where_bars_and_points_are_thinned(run, monkeypatch):
    from lcstore.report import charts

    monkeypatch.setattr(charts, "MOST_BARS", 22)
    monkeypatch.setattr(charts, "MOST_POINTS", 2)
    report, _ = page(run)
    sizes = [10_000, *[100] * 43, 50]
    of = zip(report.states + 3 * report.states[1:], sizes, strict=True)
    states = tuple(replace(state, bytes_stored={"weights": count}) for state, count in of)
    drawn = charts.bytes_per_save(replace(report, states=states))
    assert drawn.told == f"45 saves of {size(50)} to {size(10_000)}; anchors: 1."
    assert f"the largest save has {size(10_000)}. Each bar is the mean" in drawn.caption
    longest = replace(report.costs.states[5], edges=99)
    costs = replace(report.costs, states=(*report.costs.states[:5], longest, *report.costs.states[6:]))
    assert charts.restore_costs(replace(report, costs=costs))[1].told == "At the most 99 edges."


def test_a_file_is_replaced_whole_and_a_folder_never(run, tmp_path, monkeypatch):
    file = tmp_path / "report.html"
    file.write_text("old")
    with lcstore.open(run, "r") as store:
        with monkeypatch.context() as patch:
            patch.setattr("lcstore.report.writing.page_of", lambda _: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                lcstore.write_report(store, file)
        assert file.read_text() == "old"
        report = lcstore.write_report(store, file)
        assert len(report.states) == 12
        assert file.read_text().startswith("<!doctype html>")
        with pytest.raises(ConflictError):
            lcstore.write_report(store, tmp_path)
        lcstore.write_report(store, "memory://reports/one.html")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_what_is_missing_is_named_with_how_to_get_it(run, monkeypatch):
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(extra, "import_module", missing)
    with pytest.raises(LcstoreError, match=r"jinja2: pip install 'lcstore\[report\]'"):
        page(run)


def test_charts_are_the_same_each_time(run, drawn):
    assert charts_of(page(run)[1]) == charts_of(drawn)


def test_layers_that_stand_out_are_named_first(tmp_path):
    layers = Layers()
    url = str(tmp_path / "run")
    with lcstore.open(url) as store:
        for count in range(40):
            layers.factor["layers.1.weight"] = 1.0 if count < 15 else 0.0
            layers.factor["layers.2.weight"] = 1.0 if count < 20 else 30.0
            store.save(count, layers.step())
    report, text = page(url)
    notes = {one.name: one.note for one in report.tensors.notable}
    assert set(notes) == {"model/layers.1.weight", "model/layers.2.weight"}
    assert notes["model/layers.1.weight"] == "is not seen to move since step 14"
    assert re.match(r"moves [\d.]+ times as far", notes["model/layers.2.weight"])
    assert "Layers that stand out" in Parsed(text).text
    still = next(one for one in report.tensors.tensors if one.name == "model/layers.1.weight")
    assert still.movement[0] is None
    assert all(value and value > 0 for value in still.movement[1:15])
    assert set(still.movement[15:]) == {0}


def test_a_burst_leaves_the_colours_of_the_other_layers(tmp_path):
    layers, pages = Layers(), []
    for burst in (1e9, 1):
        with lcstore.open(str(tmp_path / f"{burst}")) as store:
            for count in range(20):
                state = layers.step()
                if count in (8, 9):  # the first is set, as the one after is: the second moves
                    state["model"]["layers.1.weight"] = np.float32(burst) * layers.weights["layers.1.weight"]
                store.save(count, state)
        pages.append(page(str(tmp_path / f"{burst}")))
    largest = [max(value or 0 for one in told.tensors.tensors for value in one.movement) for told, _ in pages]
    assert largest[0] > 1e5 > 1 > largest[1]
    assert ["More than all of it is drawn as all." in text for _, text in pages] == [True, False]
    assert all("1e+0" not in chart for chart in charts_of(pages[0][1]))  # on no scale of colours


def test_the_template_is_installed_with_the_library():
    assert (Path(lcstore.__file__).parent / "report" / "page.html").is_file()


def test_numbers_that_no_axis_holds(tmp_path):
    url = str(tmp_path / "run")
    odd = [1e308, -1e308, 5e-324, float("inf"), float("nan"), 0.5, 0.25]
    with lcstore.open(url) as store:
        for place, value in enumerate(odd):
            step = 2**63 - 1 if place == len(odd) - 1 else place
            store.save(step, {"name": "nothing but values"}, metrics={"odd": value, "endless": 1e308})
    report, text = page(url)
    found = Parsed(text)
    assert "From 4.941e-324 to 0.5; 0.25 in the end." in found.text
    assert "Too large to draw or infinite or NaN at 4 saves of steps 0 to 4." in found.text
    assert "Too large to draw from step 0 on." in found.text
    assert "Metrics: endless is too large to draw from step 0 on." in verdict(report)
    assert report.tensors.tensors == ()


def test_a_loss_that_is_nan_in_the_end_is_told_as_that(tmp_path):
    losses = [1.0, float("nan"), 0.5, 0.25, float("nan"), float("nan"), float("inf")]
    url = str(tmp_path / "run")
    with lcstore.open(url) as store:
        for step, loss in enumerate(losses):
            store.save(step, {"epoch": step}, metrics={"loss": loss} | ({"seen": 7.0} if step < 3 else {}))
    report, text = page(url)
    odd = "NaN at step 1; NaN or infinite from step 4 on"
    found = Parsed(text)
    assert f"From 0.25 to 1. {odd}. The least at step 3, the most at step 0." in found.text
    assert f"x: {odd}" in found.text
    assert "From 7 to 7; last given with step 2: 7." in found.text
    assert "Metrics: loss is NaN or infinite from step 4 on, after NaN at step 1." in verdict(report)
    assert sum("var(--bad)" in svg for svg in charts_of(text)) == 1


def test_a_loss_that_is_nan_in_an_earlier_run_is_told_of_that_run(tmp_path):
    url = str(tmp_path / "run")
    for loss in (float("nan"), 0.5):
        with lcstore.open(url) as store:
            if store.steps():
                store.resume(0)
            for step in (0, 1) if loss != 0.5 else (2, 3):
                store.save(step, {"epoch": step}, metrics={"loss": loss})
    report, text = page(url)
    assert "From 0.5 to 0.5; 0.5 in the end. Run 1: NaN from step 0 on." in Parsed(text).text
    assert not any("Metrics" in sentence for sentence in verdict(report))


def test_metrics_are_told_of_the_run_that_is_asked_for(tmp_path):
    url = str(tmp_path / "run")
    with lcstore.open(url) as store:
        store.save(0, {"epoch": 0}, metrics={"loss": 1.0})
    for loss in (0.5, float("nan")):  # two forks
        with lcstore.open(url) as store:
            store.resume(0)
            store.save(1, {"epoch": 1}, metrics={"loss": loss})
    with lcstore.open(url, "r") as store:
        of_run = {run: " ".join(verdict(gather(store, run=run))) for run in (2, 3)}
    assert "Metrics: loss is NaN from step 1 on." in of_run[3]
    assert "Metrics" not in of_run[2]


def test_records_may_say_anything_of_tensors(run):
    with lcstore.open(run, "r") as store:
        states, _ = saved_states(store)
        store._index.refresh()
        looks = list(_looks(store._index, states))
    count = len(looks[0].columns.op)
    for grid, scale, shift in ((1000, 3e38, 255), (-1000, 3e38, 63), (1000, 1e-45, 0), (-1000, np.nan, 7)):
        for look in looks[1:]:
            look.columns.grid[:], look.columns.shift[:] = grid, shift
            look.columns.scale[:] = np.float32(scale)
            look.columns.op[:] = np.arange(count) % 5
        seen = tensors_seen(looks, len(looks))
        known = [value for one in seen.tensors for value in (*one.movement, *one.error) if value is not None]
        assert np.isfinite(known).all()


def test_the_first_metrics_are_drawn_and_the_rest_is_told(tmp_path):
    url = str(tmp_path / "run")
    with lcstore.open(url) as store:
        for step in range(2):
            store.save(step, {"epoch": step}, metrics={f"m{place}": step for place in range(8)})
    _, text = page(url)
    assert "Metric: m5" in text
    assert "Metric: m6" not in text
    assert "Left out: 2 metrics" in Parsed(text).text


def test_a_store_of_which_no_record_can_be_read(run, tmp_path):
    url = tmp_path / "run"
    shutil.copytree(run, url)
    shutil.rmtree(url / "copies")
    for record in (url / "nodes").iterdir():
        record.write_bytes(b"{}")
    report, text = page(str(url))
    assert report.states == ()
    found = Parsed(text)
    assert "no state yet" not in found.text
    assert "12 states cannot be restored" in found.text
