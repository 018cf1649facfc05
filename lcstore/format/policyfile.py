"""Policies as files, and as what else `open` takes. The file is specified in ``docs/tune.md``."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path as FilePath
from typing import Any, Final, TypeAlias

from lcstore.errors import InvalidInputError, LcstoreError, NotFoundError, UnsupportedFormatError
from lcstore.format.strictjson import loads
from lcstore.track.policy import PRESETS, SAID, Policy, policy_of

#: What `open` takes for a policy: a preset's name, a file, rules by name glob on `balanced`, or a `Policy`.
PolicyLike: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Policy

FORMAT: Final = 0
MAX_BYTES: Final = 4 << 20
_SUFFIX: Final = ".json"
_NUMBERS: Final = tuple(f.name for f in fields(Policy) if f.name not in ("rules", "name", "weighted"))
_KNOWN: Final = frozenset({"format", "kind", "name", "rules", "about", "weighted", *_NUMBERS})


def policy_from(policy: PolicyLike) -> Policy:
    """Return the policy that `policy` names, holds, or is.

    Raises
    ------
    NotFoundError
        There is no such file.
    InvalidInputError
        It is nothing of the kind, or the file is not as it should be; the message says where.
    UnsupportedFormatError
        The file was written by a newer lcstore.
    """
    if isinstance(policy, Mapping):
        return replace(PRESETS["balanced"], rules=dict(policy), name="custom")
    if isinstance(policy, os.PathLike) or (isinstance(policy, str) and policy.endswith(_SUFFIX)):
        return read_policy(policy)
    if isinstance(policy, str) and policy not in PRESETS:
        raise InvalidInputError(
            f"policy is {policy!r}; it is one of {', '.join(PRESETS)}, a policy file (*{_SUFFIX}), "
            "rules by path, or a Policy"
        )
    given: object = policy
    if isinstance(given, str | Policy):
        return policy_of(given)
    # A number is an error, as most other tools take one.
    hint = f": Policy(error={given})" if isinstance(given, int | float) else ""
    raise InvalidInputError(
        f"policy is {given!r:.100}; it is one of {', '.join(PRESETS)}, a file, rules, or a Policy{hint}"
    )


def read_policy(path: str | os.PathLike[str]) -> Policy:
    """Read a policy file, strictly; errors as for `policy_from`."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no policy file at {os.fspath(path)}") from error
    except OSError as error:
        raise InvalidInputError(f"{os.fspath(path)} cannot be read: {error.strerror}") from error
    try:
        return policy_from_json(loads(data, key=os.fspath(path), max_bytes=MAX_BYTES))
    except UnsupportedFormatError:
        raise
    except LcstoreError as error:
        raise InvalidInputError(f"{os.fspath(path)} is no policy file: {error.message}") from error


def write_policy(
    policy: Policy, path: str | os.PathLike[str], about: Mapping[str, Any] | None = None
) -> None:
    """Write a policy file, in the place of one that is there; `about` is for people and is not read."""
    text = json.dumps(policy_to_json(policy, about), indent=2, allow_nan=False) + "\n"
    target = FilePath(path)
    beside = target.with_name(f"{target.name}.part")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, target)


def policy_to_json(policy: Policy, about: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the document of a policy file."""
    rules = [
        {"paths": glob} | (dict(rule) if isinstance(rule, Mapping) else {"role": rule})
        for glob, rule in policy.rules.items()
    ]
    head: dict[str, Any] = {"format": FORMAT, "kind": "policy", "name": policy.name}
    numbers = {name: getattr(policy, name) for name in _NUMBERS}
    return (
        head
        | numbers
        | {"weighted": policy.weighted}
        | {"rules": rules}
        | ({"about": dict(about)} if about else {})
    )


def policy_from_json(document: object) -> Policy:
    """Return the policy that a document of `policy_to_json` holds, checked completely."""
    if not isinstance(document, dict):
        raise InvalidInputError("it is not a JSON object")
    if document.get("kind") != "policy" or type(document.get("format")) is not int:
        least = '{"format": 0, "kind": "policy", "rules": [{"paths": "model/**", "role": "weights"}]}'
        raise InvalidInputError(f'it lacks "kind": "policy" or a "format"; a whole one: {least}')
    if document["format"] != FORMAT:
        raise UnsupportedFormatError(
            f"a policy file of format {document['format']}; this lcstore reads {FORMAT}: upgrade lcstore"
        )
    unknown = sorted(set(document) - _KNOWN)
    if unknown:
        raise InvalidInputError(f"it has {unknown[0]!r}; it can have {', '.join(sorted(_KNOWN))}")
    name = document.get("name", "custom")
    if not isinstance(name, str):
        raise InvalidInputError('"name" is no text')
    if not isinstance(document.get("about", {}), dict):
        raise InvalidInputError('"about" is no JSON object')
    numbers = {key: _number(key, document[key]) for key in _NUMBERS if key in document}
    weighted = document.get("weighted", False)
    if not isinstance(weighted, bool):
        raise InvalidInputError('"weighted" is neither true nor false')
    return Policy(**numbers, rules=_rules(document.get("rules", [])), name=name, weighted=weighted)


def _number(name: str, value: object) -> Any:
    if name == "row_error" and value == "auto":
        return value
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise InvalidInputError(f'"{name}" is {value!r}; it is a number, or null')
    return value


def _rules(value: object) -> dict[str, Any]:
    if not isinstance(value, list):
        raise InvalidInputError('"rules" is no list')
    rules: dict[str, Any] = {}
    for place, rule in enumerate(value):
        said = set(rule) - {"paths"} if isinstance(rule, dict) and "paths" in rule else set()
        if not said or not (said == {"role"} or said <= SAID):
            raise InvalidInputError(
                f'rule {place} is not an object of "paths" with "error", "row_error" or both, or with "role"'
            )
        glob = rule["paths"]
        if not isinstance(glob, str) or not glob:
            raise InvalidInputError(f'the "paths" of rule {place} are no glob of names')
        if glob in rules:
            raise InvalidInputError(f"rule {place} is the second one for {glob!r}")
        if "role" in rule:
            if not isinstance(rule["role"], str):
                raise InvalidInputError(f'the "role" of rule {place} is no text')
            rules[glob] = rule["role"]
        else:
            rules[glob] = {name: _number(name, rule[name]) for name in sorted(said)}
    return rules
