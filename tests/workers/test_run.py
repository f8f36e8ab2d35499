"""What a job's process makes of an error."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from app.config import Settings, settings
from app.db import transaction
from app.jobs import service as jobs
from app.jobs.service import Lease
from app.tables import Job, JobKind, JobState
from workers import run


def _lose_the_database(_desk: run.Desk) -> None:
    with transaction() as session:
        session.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))


def _use_the_store(desk: run.Desk) -> None:
    desk.store.put(b"weights")


@pytest.fixture
def lease(live_database: str) -> Lease:
    """The lease of a claimed job."""
    with transaction() as session:
        job = jobs.queue(session, Job(kind=JobKind.INGEST, parameters={}, seed=0, created_by="test"))
        job_id: uuid.UUID = job.id
    with transaction() as session:
        claimed = jobs.claim(session, job_id, worker="test", lease_seconds=60)
    assert claimed is not None
    return claimed


def test_a_lost_database_does_not_fail_the_job(lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the database is back at once: the worker beside the process returns the job to the queue."""
    monkeypatch.setattr(run, "KINDS", {JobKind.INGEST: _lose_the_database})
    assert run.execute(lease, settings(), threading.Event()) == run.DATABASE_LOST_EXIT
    with transaction() as session:
        assert session.get_one(Job, lease.job_id).state is JobState.RUNNING


@pytest.mark.parametrize("place", ["a-file", "nothing-knows-this://bucket"])
def test_an_unusable_store_does_not_fail_the_job(
    lease: Lease,
    configure: Callable[..., Settings],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    place: str,
) -> None:
    """It says nothing of the job, which goes back into the queue with the reason."""
    monkeypatch.setattr(run, "KINDS", {JobKind.INGEST: _use_the_store})
    monkeypatch.chdir(tmp_path)
    Path("a-file").touch()
    assert run.execute(lease, configure(store_url=place), threading.Event()) == 0
    with transaction() as session:
        job = session.get_one(Job, lease.job_id)
        assert (job.state, job.reason) == (JobState.QUEUED, "the artefact store cannot be used")
