"""The division of a tolerance between groups: within it, and near the best there is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcstore.tune.sweep import LEAST_SHARE, Model, Rates, make_model


def gaussian(bits: int, elements: int) -> Rates:
    errors = np.geomspace(0.2, 2, bits)
    nbytes = elements / 16 * np.log2(1 + errors**-2.0)
    return Rates(tuple(errors), tuple(errors), tuple(nbytes))


def model(costs: list[float], elements: list[int]) -> Model:
    rates = [gaussian(8, count) for count in elements]
    return make_model(rates, costs, elements, 2.0, 2.0, (0.2, 2.0))


COSTS = st.lists(st.floats(1e-6, 10), min_size=1, max_size=6)


@given(COSTS, st.floats(0.011, 2))
def test_a_division_keeps_to_its_tolerance(costs, share):
    made = model(costs, [1000] * len(costs))
    tolerance = share * made.cost(np.full(len(costs), made.errors.size - 1))
    places = made.within(tolerance)
    assert made.cost(places) <= tolerance * (1 + 1e-9)
    uniform = next(
        p for p in range(made.errors.size - 1, -1, -1) if made.cost(np.full(len(costs), p)) <= tolerance
    )
    assert made.size(places) <= made.size(np.full(len(costs), uniform)) * 1.02


@given(st.lists(st.floats(0.01, 10), min_size=2, max_size=2), st.floats(0.02, 1))
def test_it_is_near_the_best_of_all(costs, share):
    made = model(costs, [1000, 3000])
    tolerance = share * made.cost(np.full(2, made.errors.size - 1))
    every = itertools.product(range(made.errors.size), repeat=2)
    best = min(made.size(np.array(p)) for p in every if made.cost(np.array(p)) <= tolerance)
    assert made.size(made.within(tolerance)) <= best * 1.06


def test_a_steep_group_is_kept_finer():
    made = model([1.0, 0.01], [1000, 1000])
    steep, flat = made.errors[made.within(0.3)]
    assert steep < flat
    assert flat == pytest.approx(2.0)


def test_a_group_that_seems_free_is_charged_something():
    made = model([1.0, -0.5], [1000, 1000])
    assert made.costs[1, -1] == pytest.approx(LEAST_SHARE / 2)


def test_the_curve_falls():
    made = model([1.0, 0.1, 0.01], [1000, 1000, 1000])
    divisions = made.sweep(12)
    sizes, costs = [made.size(d) for d in divisions], [made.cost(d) for d in divisions]
    assert len(divisions) == 12
    assert all(a < b for a, b in itertools.pairwise(sizes))
    assert all(a > b for a, b in itertools.pairwise(costs))


def test_rates_in_between_and_of_what_rests():
    rates = Rates((0.5, 1.0, 2.0), (0.5, 1.0, 1.9), (400.0, 410.0, 100.0))
    found, nbytes = rates.at(np.array([0.5, 1.0, 2.0]))
    assert found == pytest.approx([0.5, 1.0, 1.9])
    assert nbytes == pytest.approx([400, 400, 100])  # noise does not make coarser dearer
    _, none = Rates((0.5, 1.0), (0.5, 1.0), (0.0, 0.0)).at(np.array([0.7]))
    assert none == pytest.approx([0])
