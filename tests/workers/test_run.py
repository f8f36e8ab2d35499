"""What a job's process makes of an error."""

from __future__ import annotations

import threading
import uuid

import pytest
from sqlalchemy import text

from app.config import settings
from app.db import transaction
from app.jobs import service as jobs
from app.tables import Job, JobKind, JobState
from workers import run


def _lose_the_database(_desk: run.Desk) -> None:
    with transaction() as session:
        session.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))


@pytest.mark.usefixtures("live_database")
def test_a_lost_database_does_not_fail_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the database is back at once: the worker beside the process returns the job to the queue."""
    monkeypatch.setattr(run, "KINDS", {JobKind.INGEST: _lose_the_database})
    with transaction() as session:
        job = jobs.queue(session, Job(kind=JobKind.INGEST, parameters={}, seed=0, created_by="test"))
        job_id: uuid.UUID = job.id
    with transaction() as session:
        lease = jobs.claim(session, job_id, worker="test", lease_seconds=60)
    assert lease is not None
    assert run.execute(lease, settings(), threading.Event()) == run.DATABASE_LOST_EXIT
    with transaction() as session:
        assert session.get_one(Job, job_id).state is JobState.RUNNING
