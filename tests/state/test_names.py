"""Text and JSON forms of paths, and globs over them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lcstore.errors import InvalidInputError
from lcstore.state.names import format_name, match, matcher, parse_name

texts = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("~/#0123"), max_size=8)
parts = texts | st.integers(-(2**63), 2**63 - 1)
paths = st.lists(parts, max_size=6).map(tuple)


@given(paths)
@example(())
@example(("",))
@example(("", ""))
@example(("#0", 0, "~", "/", "~1", "#", "~2", "~3"))
def test_text_form_is_exact(path):
    text = format_name(path)
    assert parse_name(text) == path
    assert [type(part) for part in parse_name(text)] == [type(part) for part in path]


@given(paths, paths)
def test_different_paths_have_different_texts(one, other):
    assert (format_name(one) == format_name(other)) == (one == other)


@given(st.text(st.sampled_from("~/#0123a-\n"), max_size=8))
def test_what_parses_formats_to_itself(text):
    try:
        path = parse_name(text)
    except InvalidInputError:
        return
    assert format_name(path) == text


@pytest.mark.parametrize(
    "text",
    [
        "~",
        "a~",
        "~4",
        "a/~x",
        "#",
        "#a",
        "#01",
        "#-0",
        "#+1",
        "#1_0",
        "# 1",
        "#٣",
        "a//b",
        "/",
        "a/",
        "/a",
        "~3a",
        "a~2",
        "a~3",
        "#--1",
        "#" + "9" * 5000,
        "#9223372036854775808",
        "~~",
    ],
)
def test_second_spellings_are_refused(text):
    with pytest.raises(InvalidInputError):
        parse_name(text)


def test_examples():
    assert format_name(("model", "a/b", 0)) == "model/a~1b/#0"
    assert format_name(()) == ""
    assert parse_name("opt/state/#-3/exp_avg") == ("opt", "state", -3, "exp_avg")


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("model/**", ("model",), True),
        ("model/**", ("model", "a", 0), True),
        ("model/**", ("models",), False),
        ("**", (), True),
        ("**", ("a", "b"), True),
        ("", (), True),
        ("", ("a",), True),
        ("model", ("model", "a", 0), True),
        ("model/a", ("model", "ab"), False),
        ("*", (), False),
        ("*", ("a",), True),
        ("*", ("a", "b"), False),
        ("**/weight", ("weight",), True),
        ("**/weight", ("model", "l", "weight"), True),
        ("**/*.weight", ("model", "layers.0.weight"), True),
        ("a/**/b/**/c", ("a", "b", "x", "b", "c"), True),
        ("a/**/b/**/c", ("a", "x", "c"), False),
        ("a/**/**", ("a",), True),
        ("Model", ("model",), False),
        ("l/#0", ("l", 0), True),
        ("l/#0", ("l", "0"), False),
        ("l/#[0-9]", ("l", 3), True),
        ("a~1*", ("a/b",), True),
        ("a/b", ("a/b",), False),
        ("layers.?.w", ("layers.3.w",), True),
    ],
)
def test_match(pattern, path, expected):
    assert match(pattern, path) is expected
    assert matcher(pattern)(path) is expected


def test_many_stars_stay_fast():
    assert not match("/".join(["**", "a"] * 30 + ["b"]), ("a",) * 60)


def test_matcher_takes_several_patterns():
    matches = matcher(["model/**", "epoch"])
    assert matches(("epoch",))
    assert matches(("model", "w"))
    assert not matches(("optim", "w"))
    assert not matcher([])(("a",))


@given(paths)
def test_every_path_matches_stars(path):
    assert match("**", path)
    assert match("/".join(["*"] * len(path)), path)
