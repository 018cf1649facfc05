"""Two writers and a reader in every order: no acknowledged save is lost, and nobody sees half of one."""

from __future__ import annotations

import pytest
from kit import Scene, check_store, explore, replay
from runs import Base, base, opened, state

pytestmark = pytest.mark.once

#: Seconds, on a machine that does much else. Actors who wait for each other are noticed soon, by the kit.
LONGEST = 7200

BASES = {"empty": base(0), "deep": base(2)}


def writer(number: int, resume: bool, **options):
    def play(actor):
        with opened(actor, **options) as store:
            if resume:
                store.resume()
            nodes = []
            for step in (number, number + 1)[: 1 if resume else 2]:
                nodes.append(store.save(step, state(step)).node)
                actor.say(nodes[-1])
        return nodes

    return play


def reader(actor):
    heard = actor.heard()
    if not heard:
        return heard, {}
    with opened(actor, "r") as store:
        return heard, {node: store.restore(node)["epoch"] for node in heard} | {
            None: store.restore()["epoch"]
        }


def scene(start: Base, resume: bool, **options):
    def make():
        backend = start.backend()

        def look(outcomes):
            assert not any(outcome.error for outcome in outcomes.values()), outcomes
            model = start.model.__class__(dict(start.model.known))
            with opened(backend, "r") as store:
                for number, name in ((10, "one"), (20, "two")):
                    for step, node in enumerate(outcomes[name].value, number):
                        assert model.acknowledge(store, node).step == step
                        assert store.restore(node)["epoch"] == step
            check_store(backend, model)
            heard, seen = outcomes["reader"].value
            assert all(seen[node] == model.known[node].step for node in heard)

        actors = {name: writer(number, resume, **options) for name, number in (("one", 10), ("two", 20))}
        return Scene(backend, {**actors, "reader": reader}, look)

    return make


def test_two_writers_go_on_from_one_state_while_one_reads():
    found = explore(scene(BASES["deep"], resume=True, durability="none"), limit=600, samples=20)
    assert found.complete
    assert found.schedules > 20


@pytest.mark.soak
@pytest.mark.timeout(LONGEST)
def test_two_writers_go_on_from_one_state_with_all_that_is_stored_besides():
    found = explore(scene(BASES["deep"], resume=True), limit=5000, samples=500)
    assert found.schedules > 20


@pytest.mark.parametrize("order", ["two one*4 two", "one two*4 one"])
def test_a_store_that_is_made_while_it_is_opened_is_not_said_to_be_damaged(order):
    """Its record is not there yet, then it and its copy are stored, then the copy is asked for."""
    replay(scene(BASES["empty"], resume=False), order)


@pytest.mark.soak
@pytest.mark.timeout(LONGEST)
def test_two_writers_who_both_begin_a_store_while_one_reads():
    found = explore(scene(BASES["empty"], resume=False), limit=5000, samples=500)
    assert found.schedules > 1000
