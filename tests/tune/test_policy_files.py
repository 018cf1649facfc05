"""Policy files, and what else `open` takes for a policy."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lcstore
from lcstore.errors import InvalidInputError, NotFoundError, UnsupportedFormatError
from lcstore.format.policyfile import policy_from, policy_from_json, policy_to_json, read_policy, write_policy
from lcstore.track.policy import PRESETS, Policy

ERRORS = st.none() | st.floats(0.01, 8)
RULES = st.dictionaries(
    st.text("abc*/[].#0", min_size=1, max_size=8),
    st.sampled_from(["plain", "weights", "first_moment"])
    | st.fixed_dictionaries({"error": ERRORS}, optional={"row_error": ERRORS})
    | st.fixed_dictionaries({"row_error": ERRORS}),
)
POLICIES = st.builds(
    Policy,
    error=ERRORS,
    first_moment=st.none() | st.just(0.0) | st.floats(0.3, 16),
    second_moment=st.none() | st.floats(1 / 16, 15),
    row_error=ERRORS | st.just("auto"),
    rules=RULES,
    weighted=st.booleans(),
    name=st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=20),
)


@given(POLICIES)
def test_what_is_written_is_read(policy):
    text = json.dumps(policy_to_json(policy, {"by": "hand"}))
    found = policy_from_json(json.loads(text))
    assert found == policy
    assert list(found.rules) == list(policy.rules)  # the first match wins


def test_all_that_open_takes(tmp_path):
    for name, preset in PRESETS.items():
        assert policy_from(name) is preset
    mine = Policy(0.5, name="mine")
    assert policy_from(mine) is mine
    write_policy(mine, tmp_path / "mine.json")
    assert policy_from(str(tmp_path / "mine.json")) == policy_from(tmp_path / "mine.json") == mine
    rules = {"**/embed*": {"error": 0.5}, "ema/**": "plain"}
    assert policy_from(rules) == replace(PRESETS["balanced"], rules=rules, name="custom")
    with lcstore.open("memory://policy-of-rules", policy=rules) as store:
        assert store.policy.rules == rules
        store.policy = "high"
        assert store.policy == PRESETS["high"]
        with pytest.raises(InvalidInputError):
            store.policy = "hihg"


def test_what_a_file_leaves_out_is_as_in_balanced():
    assert policy_from_json({"format": 0, "kind": "policy"}) == Policy()
    assert policy_from_json({"format": 0, "kind": "policy", "error": None, "about": {"x": 1}}) == Policy(None)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"errors": 1}, "'errors'"),
        ({"error": "1"}, "a number"),
        ({"error": True}, "a number"),
        ({"error": 100}, "0.01 to 8"),
        ({"weighted": 1}, "weighted"),
        ({"name": ""}, "name"),
        ({"about": []}, "about"),
        ({"rules": {}}, "no list"),
        ({"rules": [{"paths": "a"}]}, "rule 0"),
        ({"rules": [{"paths": "a", "role": "plain", "error": 1}]}, "rule 0"),
        ({"rules": [{"paths": "", "role": "plain"}]}, "rule 0"),
        ({"rules": [{"paths": "a", "role": ["plain"]}]}, "rule 0"),
        ({"rules": [{"paths": "a", "role": "lossy"}]}, "'lossy'"),
        ({"rules": [{"paths": "a", "error": False}]}, "a number"),
        ({"rules": [{"paths": "a", "error": 0}]}, "0.01 to 8"),
        ({"rules": [{"paths": "a", "row_error": 0}]}, "0.01 to 8"),
        ({"rules": [{"paths": "a", "role": "plain", "row_error": 1}]}, "rule 0"),
        ({"rules": [{"row_error": 1}]}, "rule 0"),
        ({"row_error": 100}, "0.01 to 8"),
        ({"row_error": "half"}, "row_error"),
        ({"error": "auto"}, "error"),
        ({"rules": [{"paths": "a", "error": 1}, {"paths": "a", "error": 2}]}, "second one for 'a'"),
        ({"kind": "plan"}, "kind"),
        ({"format": True}, "format"),
    ],
)
def test_files_that_are_wrong_say_where(tmp_path, more, message):
    file = tmp_path / "wrong.json"
    file.write_text(json.dumps({"format": 0, "kind": "policy"} | more))
    with pytest.raises(InvalidInputError, match=message) as caught:
        read_policy(file)
    assert "wrong.json" in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"format": 0, "kind": "policy", "error": 1, "error": 2}', "\xff"]
)
def test_files_that_are_no_policy(tmp_path, text):
    file = tmp_path / "no.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidInputError, match="no policy file"):
        policy_from(file)


def test_files_that_are_not_there_or_newer(tmp_path):
    with pytest.raises(NotFoundError, match=r"none\.json"):
        policy_from(tmp_path / "none.json")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        policy_from(tmp_path)
    file = tmp_path / "newer.json"
    file.write_text('{"format": 1, "kind": "policy"}')
    with pytest.raises(UnsupportedFormatError, match="format 1"):
        policy_from(file)
    with pytest.raises(InvalidInputError, match="a policy file"):
        policy_from("balancd")


@pytest.mark.parametrize("policy", [[], 3, None, {"**": {"error": "0.5"}}, {1: "plain"}])
def test_what_is_no_policy_is_refused(policy):
    with pytest.raises(InvalidInputError):
        policy_from(policy)
