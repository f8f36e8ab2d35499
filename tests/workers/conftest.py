"""Small pieces that the tests of the workers share."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from sqlalchemy import select

from app.config import Settings
from app.db import transaction
from app.jobs.params import SklearnDigits, TrainingRecipe
from app.jobs.service import Lease
from app.registry import service as registry
from app.registry.schemas import Training
from app.reports import publisher
from app.tables import Job, JobKind, JobState, ModelVersion
from models_store.rows import RowSet
from tests.fixtures.world import World
from workers import run
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


def take(kind: JobKind) -> Lease:
    """A worker's claim on the oldest queued job of this kind."""
    with transaction() as session:
        query = select(Job).filter_by(kind=kind, state=JobState.QUEUED).order_by(Job.ordinal).limit(1)
        return World(session).claim(session.scalars(query).one())


@pytest.fixture
def one_thread(live_database: str, configure: Callable[..., Settings]) -> Settings:
    """Settings of a worker with one thread, on a database of the test's own."""
    return configure(worker_threads=1, device="cpu")


@pytest.fixture
def work(one_thread: Settings) -> Callable[[JobKind], uuid.UUID]:
    """A function that does what a worker and the publisher do with the oldest queued job of a kind."""

    def compute(kind: JobKind) -> uuid.UUID:
        lease = take(kind)
        assert run.execute(lease, one_thread, threading.Event()) == 0
        with transaction() as session:
            publisher.settle(session, lease.job_id)
        return lease.job_id

    return compute


@pytest.fixture
def trained(work: Callable[[JobKind], uuid.UUID]) -> uuid.UUID:
    """A version that a real training made."""
    with transaction() as session:
        World(session).register("digits")
    work(JobKind.INGEST)
    with transaction() as session:
        training = Training(dataset="digits", recipe=TrainingRecipe(epochs=2))
        registry.train(session, World(session).model(), training, actor="test")
    job_id = work(JobKind.TRAIN)
    with transaction() as session:
        return session.query(ModelVersion).filter_by(job_id=job_id).one().id
