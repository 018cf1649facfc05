"""Rules as text: the same rule comes back, and nothing in a text is ever run."""

from __future__ import annotations

import contextlib
import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from retained import rules, words

from lcstore.errors import InvalidInputError
from lcstore.retention.keep import (
    BestN,
    Budget,
    EachRun,
    EveryNSeconds,
    EveryNSteps,
    LatestN,
    Pinned,
    Tagged,
)
from lcstore.retention.modify import ExactOnly, Strip
from lcstore.retention.parse import parse_retention
from lcstore.retention.spaced import LogSpaced
from lcstore.units import format_bytes, format_seconds, parse_bytes, parse_seconds

named_by_text = (
    st.builds(BestN, st.integers(1, 9), words, st.sampled_from(["min", "max"]))
    | st.lists(words, max_size=3).map(lambda globs: Tagged(*globs))
    | words.map(lambda glob: Strip(glob, after=LatestN(1) | Tagged(glob)))
)


@given(rules | named_by_text)
def test_the_text_of_a_rule_gives_it_back(rule):
    assert parse_retention(str(rule)) == rule
    assert str(parse_retention(str(rule))) == str(rule) == repr(rule)
    assert hash(parse_retention(str(rule))) == hash(rule)
    assert pickle.loads(pickle.dumps(rule)) == copy.copy(rule) == rule


def test_texts():
    rule = LatestN(3) | EveryNSteps(1000) | BestN(2, "loss") | Strip("optim/**", after=LatestN(2))
    assert str(rule) == (
        "LatestN(3) | EveryNSteps(1000) | BestN(2, 'loss') | Strip('optim/**', after=LatestN(2))"
    )
    assert str(EveryNSeconds(21600)) == "EveryNSeconds('6h')"
    assert str(EveryNSeconds(0.5)) == "EveryNSeconds(0.5)"
    assert str(EveryNSeconds("1h", last=24)) == "EveryNSeconds('1h', 24)"
    assert str(Budget(10**10)) == "Budget('10GB')"
    assert str(LogSpaced() | LogSpaced(1.5)) == "LogSpaced() | LogSpaced(base=1.5)"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("latest:3", LatestN(3)),
        ("every:1000", EveryNSteps(1000)),
        ("every:1000:5", EveryNSteps(1000, 5)),
        ("every:6h", EveryNSeconds("6h")),
        ("every:1h:24 | every:1d:30", EveryNSeconds("1h", 24) | EveryNSeconds("1d", 30)),
        ("best:2:loss", BestN(2, "loss")),
        ("best:loss", BestN(1, "loss")),
        ("best:val/1.50:max", BestN(1, "val/1.50", "max")),
        ("best:2:val/1.50:max", BestN(2, "val/1.50", "max")),
        ("log", LogSpaced()),
        ("log:1.5", LogSpaced(1.5)),
        ("budget:10GB", Budget(10**10)),
        ("budget:512", Budget(512)),
        ("pinned", Pinned()),
        ("tagged", Tagged()),
        ("tagged:v*:1.50:007", Tagged("v*", "1.50", "007")),
        ("strip:optim/**:latest:2", Strip("optim/**", LatestN(2))),
        ("exact-only:best:1:loss:max", ExactOnly(BestN(1, "loss", "max"))),
        ("each-run:every:100", EachRun(EveryNSteps(100))),
        ("each-run:best:2:loss:min | tagged", EachRun(BestN(2, "loss")) | Tagged()),
        ("exact-only:each-run:latest:1", ExactOnly(EachRun(LatestN(1)))),
        ("strip:optim/**:each-run:latest:2", Strip("optim/**", EachRun(LatestN(2)))),
        ("EachRun(LatestN(2) | BestN(1, 'loss'))", EachRun(LatestN(2) | BestN(1, "loss"))),
        ("latest:3 | every:1000|pinned", LatestN(3) | EveryNSteps(1000) | Pinned()),
        (" latest:3\n | BestN(2,\n 'a|b') ", LatestN(3) | BestN(2, "a|b")),
        ("ExactOnly(LatestN(1) | (Pinned() | Tagged('(')))", ExactOnly(LatestN(1) | Pinned() | Tagged("("))),
        ('Strip(glob="it\'s|/*", after=LatestN(n=2))', Strip("it's|/*", LatestN(2))),
    ],
)
def test_both_spellings(text, rule):
    assert parse_retention(text) == rule


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "such as 'latest:3'"), ("  ", "such as"), (None, "such as"), ("x" * 20_000, "20000 characters"),
        ("LatetsN(3)", r"unknown .* 'LatetsN' \(is LatestN meant\?\); known are LatestN\(n\), EveryNS"),
        ("newest:3", "known are .* in short latest:3"), ("latest", "in short latest:3"),
        ("last:3", r"\(is latest:3 meant\?\)"), ("latest:1 | every=20", r"\(is every:20 meant\?\)"),
        ("every(20)", r"\(is every:20 meant\?\)"),
        ("every:24h:30d", "every:24h takes a count, not '30d': .* and every:24h:7 of each of"),
        ("every:1h:0", "last of EveryNSeconds is a whole number of 1 or more"),
        ("latest:1:2", "in short"), ("latest:x", "'x' is no whole number"), ("latest:٣", "no whole number"),
        ("strip:optim/**", "in short"), ("exact", "in short"), ("pinned:", "in short"),
        ("exact:latest:1", "exact-only:latest:1"),
        ("log:x", "no number"), ("exact-only:" * 800 + "latest:1", "in short"),
        ("best:3", "best:3 names no metric: best:3:loss keeps 3"), ("exact-only:best:3", "no metric"),
        ("best:2:loss:least", "'min' or 'max'"), ("every:6parsecs", "no duration|unknown unit"),
        ("LatestN(3) |", "cannot read"), ("| LatestN(3)", "cannot read"), ("LatestN(3", "cannot read"),
        ("LatestN(3)) | x", "cannot read"), ("LatestN('3)", "cannot read"), ("LatestN(\0)", "cannot read"),
        ("LatestN()", r"LatestN\(n\): missing"), ("LatestN(3, 4)", "too many"),
        ("LatestN(m=3)", r"LatestN\(n\)"),
        ("LatestN(**{'n': 3})", r"without \*\*"), ("LatestN(*[3])", "neither"), ("LatestN(-1)", "1 or more"),
        ("LatestN", "is no retention rule"), ("3", "is no retention rule"),
        ("LatestN(3) & Pinned()", "is no"),
        ("LatestN(3) or Pinned()", "is no retention rule"), ("LatestN(n)", "neither a number"),
        ("LatestN(1 + 2)", "is no retention rule"), ("BestN(1, f'{exit()}')", "neither"),
        ("__import__('os').system('true')", "is no retention rule"), ("(lambda: LatestN(1))()", "is no"),
        ("each-run", "in short"), ("each-run:", "in short"), ("each-run:100", "in short"),
        ("each-run:" * 1000 + "latest:1", "in short"), ("each-run:exact-only:latest:1", "in short"),
        ("EachRun(" * 1000 + "LatestN(1)" + ")" * 1000, "cannot read"),
        ("EachRun(ExactOnly(LatestN(1)))", "EachRun takes rules that name states to keep"),
        ("ExactOnly(ExactOnly(LatestN(1)))", "name states to keep"), ("ExactOnly(3)", "name states to keep"),
        ("BestN(1, LatestN(1))", "is a text"), ("LatestN(" + "(" * 500 + "1", "cannot read"),
        ("LatestN(" + "-" * 9000 + "1)", "cannot read|neither"),
        ("LatestN(" + "9" * 5000 + ")", "cannot read"),
    ],
)  # fmt: skip
def test_what_is_no_rule(text, message):
    with pytest.raises(InvalidInputError, match=message):
        parse_retention(text)


@given(st.text(alphabet="LatestN(3)|BestN ,'\"=*[]{}.:-\\optimexact12\n", max_size=40) | st.text(max_size=20))
def test_any_text_is_a_rule_or_a_clear_error(text):
    with contextlib.suppress(InvalidInputError):
        assert parse_retention(str(parse_retention(text))) == parse_retention(text)


def test_long_unions():
    text = " | ".join(f"LatestN({n})" for n in range(1, 600))
    assert str(parse_retention(text)) == text
    assert len(parse_retention(f"ExactOnly({text})").inner.parts) == 599


@given(st.integers(1, (1 << 63) - 1) | st.integers(1, 10**6).map(lambda n: n * 1000))
def test_sizes(nbytes):
    assert parse_bytes(format_bytes(nbytes)) == nbytes


@given(st.integers(1, 10**11) | st.integers(1, 1000).map(lambda n: n * 3600))
def test_durations(seconds):
    assert parse_seconds(format_seconds(seconds)) == seconds


def test_rules_in_a_list_are_told_what_joins_them():
    with pytest.raises(InvalidInputError, match=r"joined with \|"):
        parse_retention(["latest:3", "every:1000"])


def test_units():
    assert parse_bytes("1.5 TiB") == 3 << 39
    assert parse_bytes("10gb") == 10**10
    assert parse_seconds("1.5d") == 129_600
    assert parse_seconds("15 min") == parse_seconds("15m") == parse_seconds("900") == 900
    with pytest.raises(InvalidInputError, match="known are B, kB, MB"):
        parse_bytes("3 XB")
    with pytest.raises(InvalidInputError, match="known are s, min, h, d, w"):
        parse_seconds("3 ly")
