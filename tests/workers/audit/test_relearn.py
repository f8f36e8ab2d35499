"""Relearning is plain momentum descent on F: by PyTorch's own optimiser, and it can be stopped."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch.nn import functional

from app.jobs.params import BuiltIn
from workers.audit.relearn import MEASURED, relearn
from workers.data.batches import Batches, Rows
from workers.monitor import Cancelled, Silent
from workers.nets.factory import build
from workers.nets.network import Network


@pytest.fixture
def network() -> Network:
    found = build(BuiltIn(name="small_cnn"), 3, (8, 8, 1), torch.Generator().manual_seed(1))
    found.normalise_by([torch.arange(1280).reshape(20, 1, 8, 8).remainder(256).to(torch.uint8)])
    return found


@pytest.fixture
def forget() -> Rows:
    rng = np.random.default_rng(2)
    return Rows.of(rng.integers(0, 256, (90, 8, 8, 1), dtype=np.uint8), rng.integers(0, 3, 90))


def test_is_pytorchs_own_descent(network: Network, forget: Rows) -> None:
    """The same batches, SGD of torch.optim with momentum at a tenth of the rate: the same accuracies."""
    twin = copy.deepcopy(network).eval()
    descent = torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9)
    batches = Batches(forget, batch_size=64, seed=3)

    def accuracy() -> float:
        with torch.no_grad():
            return float((twin(forget.images).argmax(1) == forget.labels).double().mean())

    expected = [accuracy()]
    for step in range(MEASURED[-1]):
        batch = batches.at(step)
        descent.zero_grad()
        functional.cross_entropy(twin(batch.images), batch.labels).backward()  # type: ignore[no-untyped-call]
        descent.step()
        if step + 1 in MEASURED:
            expected.append(accuracy())
    curve = relearn(network, forget, learning_rate=0.5, seed=3, monitor=Silent())
    assert curve.steps.tolist() == list(MEASURED)
    assert curve.accuracies == pytest.approx(expected, abs=1.5 / 90)
    assert curve.accuracies[-1] > curve.accuracies[0] + 0.1


def test_one_row_is_enough_and_statistics_stay(network: Network, forget: Rows) -> None:
    """A single row has no variance to normalise by; running statistics are not touched."""
    before = {name: buffer.clone() for name, buffer in network.named_buffers()}
    curve = relearn(network, forget.take(slice(0, 1)), learning_rate=0.1, seed=3, monitor=Silent())
    assert set(curve.accuracies) <= {0.0, 1.0}
    for name, buffer in network.named_buffers():
        torch.testing.assert_close(buffer, before[name], rtol=0, atol=0)


def test_stops_between_two_steps(network: Network, forget: Rows) -> None:
    """Whoever asks for the job to stop does not wait for all the steps."""

    class Impatient(Silent):
        asked = 0

        def check_cancelled(self) -> None:
            self.asked += 1
            if self.asked > 3:
                raise Cancelled

    monitor = Impatient()
    with pytest.raises(Cancelled):
        relearn(network, forget, learning_rate=0.1, seed=3, monitor=monitor)
    assert monitor.asked == 4
