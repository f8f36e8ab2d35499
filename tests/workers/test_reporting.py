"""A running job's checkpoints, in a store that may fail."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from app.config import Settings
from app.db import transaction
from app.jobs import service as jobs
from app.jobs.service import Lease
from app.tables import Job, JobKind
from models_store.blobs import BlobStore
from workers.reporting import DatabaseMonitor


@pytest.fixture
def lease(live_database: str) -> Lease:
    """The lease of a claimed job."""
    with transaction() as session:
        job = jobs.queue(session, Job(kind=JobKind.TRAIN, parameters={}, seed=0, created_by="test"))
        job_id = job.id
    with transaction() as session:
        claimed = jobs.claim(session, job_id, worker="test", lease_seconds=60)
    assert claimed is not None
    return claimed


def _monitor(lease: Lease, store: BlobStore) -> DatabaseMonitor:
    monitor = DatabaseMonitor(lease, store, threading.Event())
    monitor.bind("the spec")
    return monitor


def test_the_newest_checkpoint_replaces_the_one_before(lease: Lease, config: Settings) -> None:
    """The store holds one checkpoint of a job, and another attempt finds it."""
    store = BlobStore(config.store)
    for content in (b"first", b"second"):
        _monitor(lease, store).save_checkpoint(content)  # one monitor keeps at most one a second
    assert _monitor(lease, store).load_checkpoint() == b"second"
    assert [blob.size for blob in store.blobs()] == [len(b"second")]


def test_a_checkpoint_that_cannot_be_stored_is_done_without(lease: Lease, tmp_path: Path) -> None:
    """The job goes on, and the older checkpoint stands."""
    store = BlobStore(str(tmp_path / "store"))
    _monitor(lease, store).save_checkpoint(b"older")
    (tmp_path / "a-file").touch()
    _monitor(lease, BlobStore(str(tmp_path / "a-file"))).save_checkpoint(b"newer")
    assert _monitor(lease, store).load_checkpoint() == b"older"
