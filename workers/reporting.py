"""A running job's way to the database: progress at most once a second, checkpoints, cancellation."""

from __future__ import annotations

import threading
import time

import structlog
from sqlalchemy.exc import OperationalError

from app.db import transaction
from app.jobs import service as jobs
from app.jobs.service import Lease
from models_store.blobs import BlobDamaged, BlobMissing, BlobStore, StoreUnavailable
from workers.monitor import Cancelled

log = structlog.get_logger(__name__)
_PROGRESS_SECONDS = 1.0
_CHECKPOINT_SECONDS = 1.0


class DatabaseMonitor:
    """The Monitor of a real job. `fingerprint` names the spec: another spec's checkpoint is not taken."""

    def __init__(self, lease: Lease, store: BlobStore, cancelled: threading.Event) -> None:
        self._lease = lease
        self._store = store
        self._cancelled = cancelled
        self._fingerprint = ""
        self._said = self._kept = float("-inf")

    def bind(self, fingerprint: str) -> None:
        """From here on checkpoints belong to the spec with this fingerprint."""
        self._fingerprint = fingerprint

    def progress(self, phase: str, done: int, total: int, **figures: float) -> None:
        """Write the progress row, unless that was done within the last second; a lost one does no harm."""
        now = time.monotonic()
        if now < self._said + _PROGRESS_SECONDS and done < total:
            return
        self._said = now
        try:
            with transaction() as session:
                jobs.report_progress(
                    session, self._lease, phase=phase, done=done, total=total, figures=figures
                )
        except OperationalError:
            log.info("progress_not_written", job_id=str(self._lease.job_id))

    def check_cancelled(self) -> None:
        """Raise Cancelled once the worker has passed the wish on."""
        if self._cancelled.is_set():
            raise Cancelled

    def load_checkpoint(self) -> bytes | None:
        """The newest checkpoint of this job under this very spec, if it can be read whole."""
        with transaction() as session:
            kept = jobs.held(session, self._lease).checkpoint
        if kept is None or kept["fingerprint"] != self._fingerprint:
            return None
        try:
            return self._store.get(kept["digest"])
        except (BlobMissing, BlobDamaged):
            log.warning("checkpoint_unreadable", job_id=str(self._lease.job_id))
            return None

    def save_checkpoint(self, content: bytes) -> None:
        """Keep a checkpoint and drop the one before it; at most one a second, which costs little to redo.

        One that the store does not take is no reason to stop: there will be others.
        """
        now = time.monotonic()
        if now < self._kept + _CHECKPOINT_SECONDS:
            return
        self._kept = now
        try:
            digest = self._store.put(content)
            with transaction() as session:
                former = jobs.keep_checkpoint(
                    session, self._lease, digest=digest, fingerprint=self._fingerprint
                )
            if former is not None and former != digest:
                self._store.delete(former)
        except StoreUnavailable as error:
            log.warning("store_unavailable", job_id=str(self._lease.job_id), detail=str(error))
