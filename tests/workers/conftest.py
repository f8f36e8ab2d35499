"""Small pieces that the tests of the workers share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from app.jobs.params import SklearnDigits
from models_store.rows import RowSet
from workers.data.batches import Rows
from workers.data.digits import DigitsReader
from workers.data.loading import load
from workers.monitor import Cancelled, Silent


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Small tensors are faster on one thread, and their bits depend on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _global_randomness_is_untouched() -> Iterator[None]:
    """Nothing under test may draw from, or seed, a global generator."""
    before, numpy_before = torch.get_rng_state(), np.random.get_state(legacy=False)
    yield
    assert torch.equal(before, torch.get_rng_state())
    assert repr(numpy_before) == repr(np.random.get_state(legacy=False))


class StopsAfter(Silent):
    """A monitor that cancels the job before a given step, and keeps the newest checkpoint."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.left = steps

    def check_cancelled(self) -> None:
        if self.left == 0:
            raise Cancelled
        self.left -= 1


@pytest.fixture
def stops_after() -> type[StopsAfter]:
    """Monitors that break a job off after so many steps."""
    return StopsAfter


@pytest.fixture(scope="session")
def digits() -> Rows:
    """160 real digits on the CPU."""
    return Rows.of(*load(DigitsReader("", SklearnDigits()), RowSet.of(range(160)), (8, 8, 1)))
