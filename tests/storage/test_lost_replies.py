"""A network that loses replies: what was stored is known to be, and nothing is stored twice."""

from __future__ import annotations

import pytest
from kit import servers
from kit.servers import small_state

import lcstore
from lcstore.storage import patient

pytestmark = [
    pytest.mark.once,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.parametrize("saves", [12, pytest.param(60, marks=pytest.mark.soak)])
def test_saves_of_which_a_third_of_the_replies_is_lost(moto, saves, monkeypatch):
    monkeypatch.setattr(patient, "_PAUSES", (0.01, 0.1))
    url = f"s3://bucket/lossy{saves}"
    with servers.network(servers.port_of(moto), lost=0.3) as between:
        far = servers.behind(moto, between)
        # The client would try again by itself, without telling: here lcstore does.
        options = far.options | {"config_kwargs": {"retries": {"total_max_attempts": 1}}}
        with lcstore.open(url, storage_options=options, retries=20, timeout=60) as store:
            for number in range(saves):
                info = store.save(number, small_state(number))
                assert info.step == number
        assert between.cut > saves
        between.lost = 0.0
    with lcstore.open(url, "r", storage_options=moto.options) as store:
        assert [state.step for state in store.states()] == [*range(saves)]
        for number in (0, saves // 2, saves - 1):
            assert store.restore(number)["n"] == number
        report = store.verify(level="checksum")
        assert report.ok
