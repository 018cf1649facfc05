"""Which state a name means where several runs save to one store."""

from __future__ import annotations

import math

import numpy as np
import pytest

import lcstore
from lcstore import InvalidInputError, NotFoundError
from lcstore.storage.memory import MemoryBackend


def state(number: int) -> dict[str, object]:
    return {"x": np.full(3, number), "n": number}


def test_the_latest_of_a_handle_that_saves_is_its_own():
    backend = MemoryBackend.fresh()
    one, two = lcstore.open(backend), lcstore.open(backend)
    one.save(10, state(1))
    assert two.restore()["n"] == 1  # it has saved nothing yet
    two.save(20, state(2))
    one_again = lcstore.open(backend)
    for store, own in ((one, 1), (two, 2)):
        assert store.restore()["n"] == store.restore("latest")["n"] == own
        assert store.latest_step() == store.info().step == 10 * own
        assert store.at()["n"] == own
        assert store.read("latest", "n") == own
    assert one_again.restore()["n"] == 2
    assert one_again.restore(run=1)["n"] == 1
    assert one_again.latest_step() == 20


def test_a_run_is_named_by_number_or_id():
    backend = MemoryBackend.fresh()
    first, second = lcstore.open(backend), lcstore.open(backend)
    first.save(10, state(1), metrics={"loss": 1.0})
    first.save(20, state(2), metrics={"loss": 3.0})
    second.save(10, state(3), metrics={"loss": 2.0})
    run_id = first.info(20).run_id
    with lcstore.open(backend) as store:
        assert store.restore(10)["n"] == 3  # the newest revision, whichever run saved it
        assert store.restore(10, run=1)["n"] == store.restore(10, run=run_id)["n"] == 1
        assert store.steps(run=1) == [10, 20]
        assert store.steps(run=2) == [10]
        assert store.latest_step(run=1) == 20
        assert store.at(run=run_id).step == 20
        assert store.restore("best:loss", run=2)["n"] == 3
        assert store.resume(10, run=1)["n"] == 1
        assert store.save(30, state(4)).base == first.at(10, run=1).node
        with pytest.raises(NotFoundError, match=r"no run 9.*its runs are 1, 2, 3"):
            store.restore(run=9)
        with pytest.raises(NotFoundError, match=r"no state 20 "):
            store.restore(20, run=2)
        with pytest.raises(InvalidInputError, match="names one state"):
            store.restore(store.info(10).node, run=2)


def test_the_best_state_by_name():
    with lcstore.open(MemoryBackend.fresh()) as store:
        for step, loss in ((0, 3.0), (1, 1.0), (2, math.nan), (3, 2.0)):
            store.save(step, state(step), metrics={"loss": loss, "eval:acc": -loss, "val/loss": loss})
        assert store.restore("best:loss")["n"] == store.at("best:loss").step == 1
        assert store.restore("best:loss:max")["n"] == 0
        assert store.restore("best:eval:acc:max")["n"] == store.restore("best:val/loss")["n"] == 1
        assert [step for step, _ in store.walk(["best:loss", 3], names="n")] == [1, 3]
        store.tag("gold", "best:loss")
        assert store.restore("gold")["n"] == 1
        with pytest.raises(InvalidInputError, match="by which metric"):
            store.restore("best")
        with pytest.raises(NotFoundError, match=r"no step has a metric 'los'; there are 'eval:acc', 'loss'"):
            store.restore("best:los")
        for name in ("best", "best:loss"):
            with pytest.raises(InvalidInputError, match="cannot be a tag"):
                store.tag(name, 1)
