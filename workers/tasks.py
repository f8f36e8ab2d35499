"""Beside each job: claim it, run it in a fresh process, keep the lease, stop the process when told to.

A fresh process can be killed at any step, gives back all its GPU memory, and may have children of its own.
It watches its standard input and ends itself when this process is gone.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from enum import StrEnum

import structlog
from sqlalchemy.exc import OperationalError

from app.config import Settings, settings
from app.db import transaction
from app.jobs import service as jobs
from app.jobs.service import Lease, LeaseLost
from app.queue import TASK
from workers.celery_app import celery_app, stopping

log = structlog.get_logger(__name__)
_POLL_SECONDS = 0.25
_CANCEL_PATIENCE_SECONDS = 10.0
CANCELLED_EXIT = 77  # the job's process stopped because it was asked to


class Ending(StrEnum):
    """Why the job's process is no more."""

    BY_ITSELF = "by itself"
    CANCELLED = "it did not stop when it was asked to"
    HANDED_BACK = "the worker was stopped"
    LEASE_LOST = "lease lost"


@celery_app.task(name=TASK)  # type: ignore[untyped-decorator]
def run_job(job_id: str) -> None:
    """Run a job unless somebody else does; a second delivery finds it claimed and returns."""
    if not stopping.is_set():
        attend(uuid.UUID(job_id), settings())


def attend(job_id: uuid.UUID, config: Settings) -> None:
    """Claim the job and see it through to the end of its process."""
    worker = f"{socket.gethostname()}:{os.getpid()}"
    with transaction() as session:
        lease = jobs.claim(session, job_id, worker=worker, lease_seconds=config.lease_seconds)
    if lease is None:
        return
    log.info("job_started", job_id=str(job_id), token=lease.token)
    process = _start(lease)
    try:
        ending = _watch(process, lease, config)
    finally:
        process.kill()
        process.wait()
    log.info("job_process_ended", job_id=str(job_id), code=process.returncode, ending=ending)
    _close(lease, ending, process.returncode)


def _start(lease: Lease) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "workers.run", str(lease.job_id), str(lease.token)]
    return subprocess.Popen(command, stdin=subprocess.PIPE)  # noqa: S603  (our own module, our own arguments)


class _LeaseKeeper:
    """Prolongs a lease every so often and knows what the database last said of it."""

    def __init__(self, lease: Lease, config: Settings) -> None:
        self._lease, self._config = lease, config
        self._beat_at = time.monotonic()
        self._expires_at = self._beat_at + config.lease_seconds
        self.cancel = False

    def holds(self) -> bool:
        """Prolong the lease if it is time to; False once it is lost, or may be while the database is away."""
        now = time.monotonic()
        if now < self._beat_at + self._config.heartbeat_seconds:
            return True
        self._beat_at = now
        try:
            with transaction() as session:
                self.cancel = jobs.heartbeat(session, self._lease, lease_seconds=self._config.lease_seconds)
        except LeaseLost:
            return False
        except OperationalError:
            return now < self._expires_at
        self._expires_at = now + self._config.lease_seconds
        return True


def _watch(process: subprocess.Popen[bytes], lease: Lease, config: Settings) -> Ending:
    """Wait for the process, prolonging the lease; end it when cancelled, handed back or overtaken."""
    keeper = _LeaseKeeper(lease, config)
    kill_at: float | None = None
    while not _ended_within(process, _POLL_SECONDS):
        if stopping.is_set():
            return Ending.HANDED_BACK
        if not keeper.holds():
            # The process may just have handed in its outcome, which ends the lease too.
            return Ending.BY_ITSELF if _ended_within(process, 5) else Ending.LEASE_LOST
        if keeper.cancel and kill_at is None:
            process.send_signal(signal.SIGTERM)
            kill_at = time.monotonic() + _CANCEL_PATIENCE_SECONDS
        if kill_at is not None and time.monotonic() > kill_at:
            return Ending.CANCELLED
    return Ending.BY_ITSELF


def _ended_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _close(lease: Lease, ending: Ending, code: int) -> None:
    """Say what became of the job, unless its process has said so itself or the lease is gone."""
    if ending is Ending.LEASE_LOST or (ending is Ending.BY_ITSELF and code == 0):
        return
    try:
        with transaction() as session:
            if ending is Ending.CANCELLED or code == CANCELLED_EXIT:
                jobs.acknowledge_cancel(session, lease)
            elif ending is Ending.HANDED_BACK:
                jobs.give_back(session, lease, "its worker was stopped", counts=False)
            elif code < 0:
                name = signal.Signals(-code).name
                jobs.give_back(session, lease, f"its process was ended by {name} (out of memory, or killed)")
            else:
                jobs.give_back(session, lease, f"its process ended with code {code}")
    except (LeaseLost, OperationalError):
        log.info("job_not_closed", job_id=str(lease.job_id))
