"""Tables: no word that fits is broken, however narrow the terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcstore.terminal.table import Table, folded, prose, size

WORDS = st.text("ab ", max_size=12)


def lines(table: Table, width: int | None = None) -> list[str]:
    return [text for text, _ in table.lines(width)]


def states() -> Table:
    names = ("step", "", "kind", "stored", "metrics", "tags", "created")
    table = Table(*names, right=("step", "stored"), spare=("created",))
    table.row(0, "", "anchor", "12.5 MiB", "loss 2.0316", "", "2026-01-02 03:04:05")
    table.row(
        1000,
        "latest, pinned",
        "delta",
        "456.7 KiB",
        "loss 0.4325, accuracy 0.9312",
        "",
        "2026-01-02 04:05:06",
    )
    return table


def test_as_wide_as_it_likes_where_there_is_no_terminal():
    shown = lines(states())
    assert len(shown) == 3
    assert shown[2].split("  ")[-1] == "2026-01-02 04:05:06"
    assert shown[1].index("anchor") == shown[2].index("delta")
    assert shown[1].index("12.5 MiB") + len("12.5 MiB") == shown[2].index("456.7 KiB") + len("456.7 KiB")


@pytest.mark.parametrize("width", range(40, 100, 3))
def test_no_word_is_broken(width):
    shown = lines(states(), width)
    assert max(map(len, shown)) <= width
    text = " ".join(shown).split()
    for word in ("anchor", "delta", "12.5", "456.7", "latest,", "pinned", "accuracy", "0.9312", "metrics"):
        assert word in text


def test_what_is_left_out_is_named():
    shown = lines(states(), 50)
    assert "created" not in shown[0]
    assert "tags" not in shown[0]
    assert shown[-1] == "Not shown: created. --json has all."
    assert "created" in lines(states(), 80)[0]


def test_a_nodes_id_stays_whole_and_a_long_name_is_broken():
    table = Table("tensor", "node", "size", right=("size",))
    table.row("model/" + "x" * 60, "0123456789abcdef" * 2, "1.0 KiB")
    shown = lines(table, 80)
    assert max(map(len, shown)) <= 80
    assert "0123456789abcdef" * 2 in shown[1]
    assert "".join(line.split()[0] for line in shown[1:]) == "model/" + "x" * 60


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), max_size=5), st.integers(7, 40))
def test_nothing_is_lost_and_no_line_is_too_long(rows, width):
    table = Table("a", "b", "c", right=("c",))
    for cells in rows:
        table.row(*cells)
    shown = lines(table, width)
    assert max(map(len, shown)) <= width
    written = sum(len(cell.replace(" ", "")) for cells in rows for cell in cells)
    found = sum(len(line.replace(" ", "")) for line in shown)
    assert found in {written + count for count in range(4)}


def test_cells_in_several_lines_and_empty_tables():
    table = Table("a", "b", header=False)
    assert lines(table, 10) == []
    table.row("one\ntwo", None)
    assert lines(table) == ["one", "two"]
    assert folded("a-b-c d", 5) == ["a-b-c", "d"]


def test_sizes():
    assert [size(n) for n in (0, 1023, 1024, 3 << 30)] == ["0 B", "1023 B", "1.0 KiB", "3.0 GiB"]


def test_text_is_folded_between_words_and_commands_stay_whole():
    command = "lcstore retain runs/a --keep 'latest:3 | every:100' --apply"
    text = f"Nothing was changed, and nothing will be. To do it: {command}"
    assert prose(text, None) == [text]
    assert prose(text, 70) == ["Nothing was changed, and nothing will be. To do it:", command]
    assert prose(text, 20)[-1] == command, "it is copied in one piece, though the terminal has no room"
    assert prose("it holds 30 steps: `lcstore ls x`.", 22) == ["it holds 30 steps:", "`lcstore ls x`."]
    assert prose("a " * 40, 20) == ["a a a a a a a a a a"] * 4


def test_ids_are_cut_where_a_row_has_no_room():
    key = f"data/{'0123456789abcdef' * 2}/0/weights-float32.add/c.0"
    table = Table("step", "what", "object", right=("step",), brief=True)
    table.row(10, "it is missing", key)
    assert key in lines(table)[1]
    assert key in lines(table, 120)[1]
    assert lines(table, 70)[1] == "  10  it is missing  data/01234567.../0/weights-float32.add/c.0"
