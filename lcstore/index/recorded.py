"""A policy as numbers of a record: what the next handle goes on with where nobody says otherwise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from lcstore.track.policy import PRESETS, Policy


def numbers_of(policy: Policy) -> dict[str, float]:
    """Return what a record says of a policy. What is kept plain has error 0, infinite bits, or steps of 0."""
    error, first, second = policy.error, policy.first_moment, policy.second_moment
    return {
        "policy_error": 0.0 if error is None else float(error),
        "policy_first_moment": math.inf if first is None else float(first),
        "policy_second_moment": 0.0 if second is None else float(second),
        "policy_more": int(policy != _of(error, first, second, policy.name)),
    }


def policy_of_numbers(stats: Mapping[str, float]) -> tuple[Policy, bool] | None:
    """Return the policy that a record tells of, and whether it had more to it, such as rules.

    None: the record does not tell, or what it tells is no policy.
    """
    try:
        error, first, second = (
            stats[f"policy_{name}"] for name in ("error", "first_moment", "second_moment")
        )
        found = _of(error or None, None if math.isinf(first) else first, second or None, "custom")
    except (KeyError, ValueError):
        return None
    same = (replace(found, name=name) for name in PRESETS)
    named = next((policy for policy in same if policy == PRESETS[policy.name]), found)
    return named, bool(stats.get("policy_more", 0))


def told_of(stats: Mapping[str, float]) -> str | None:
    """Return what a record tells of its policy, for people."""
    found = policy_of_numbers(stats)
    if found is None:
        return None
    policy, more = found
    name = policy.name
    if name not in PRESETS:
        first, second = policy.first_moment, policy.second_moment
        name = ", ".join(
            (
                "every bit" if policy.error is None else f"error {policy.error:g}",
                "first moments exact" if first is None else f"first moments {first:g} bits",
                "second moments exact" if second is None else f"second moments {second:g} octaves",
            )
        )
    return f"{name}, with rules or bounds of its own" if more else name


def _of(error: float | None, first: float | None, second: float | None, name: str) -> Policy:
    return Policy(error, first, second, name=name)
