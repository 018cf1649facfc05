"""The place in the data comes back: each sample is seen once an epoch, in the order that it had."""

from __future__ import annotations

import pytest

import lcstore

torch = pytest.importorskip("torch")
data = pytest.importorskip("torchdata.stateful_dataloader")

EPOCHS = 2


def begun(workers: int):
    torch.manual_seed(0)
    return data.StatefulDataLoader(range(20), batch_size=3, shuffle=True, num_workers=workers)


def order(loader, batches: int | None = None) -> list[list[int]]:
    """What is drawn from here to the end of the epoch, or so many batches of it."""
    found = []
    for batch in loader:
        found.append(batch.tolist())
        if len(found) == batches:
            break
    return found


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("seen", [3, 7])  # in the midst of an epoch, and at its end
def test_an_epoch_goes_on_where_it_was(workers, seen, tmp_path):
    loader = begun(workers)
    whole = [batch for _ in range(EPOCHS) for batch in order(loader)]

    loader = begun(workers)
    with lcstore.CheckpointManager(tmp_path / "run", every=1) as manager:
        first = []
        for step, batch in enumerate(loader):
            first.append(batch.tolist())
            manager.save(step, {"loader": loader, "random": lcstore.RandomState()})
            if len(first) == seen:
                break

    loader = begun(workers)
    torch.manual_seed(5)  # a process that is begun anew has other numbers
    with lcstore.CheckpointManager(tmp_path / "run", every=1) as manager:
        resumed = manager.resume_into({"loader": loader, "random": lcstore.RandomState()})
    assert resumed.step == seen - 1
    rest = order(loader)
    if len(first) == 7:  # an epoch that was over has nothing left
        assert rest == []
    assert first + rest + order(loader) == whole
    assert sorted(sample for batch in first + rest for sample in batch) == list(range(20))
