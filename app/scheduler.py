"""One loop: sweep, plan, publish, relay, keep the journal. Of several, one works, the others wait."""

from __future__ import annotations

import signal
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import structlog
from sqlalchemy import Connection, func, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app import queue
from app.config import Settings, settings
from app.db import engine, transaction
from app.deletions import journal, planner
from app.events import service as events
from app.jobs import service as jobs
from app.reports import publisher
from models_store.blobs import StoreUnavailable
from models_store.journal import Journal

log = structlog.get_logger(__name__)
_LOCK = 0x73636865  # the advisory lock of the one scheduler at work
_JOURNAL_BATCH = 20  # files written in one transaction
_BATCH = 100  # the most rows a step handles in one turn
_RETRY_FAULTY_SECONDS = 60.0
_LIFE_SECONDS = 60.0


@dataclass
class Scheduler:
    """The steps of a turn; each is its own transaction, bounded, and harmless to repeat."""

    config: Settings
    _faulty: dict[uuid.UUID, float] = field(default_factory=dict)

    @cached_property
    def _journal(self) -> Journal:
        return Journal(self.config.store)

    def turn(self) -> None:
        """One round of all steps. A step that fails is logged and does not keep the others from working."""
        patience = time.monotonic() - _RETRY_FAULTY_SECONDS
        self._faulty = {row: at for row, at in self._faulty.items() if at > patience}
        for step in (self.sweep, self.plan, self.publish, self.relay, self.write_journal):
            self._guarded(step)

    def sweep(self) -> None:
        """Take back jobs of lost workers, and wake workers for jobs that the broker forgot."""
        with transaction() as session:
            lost = jobs.take_back_expired(session, _BATCH)
            forgotten = jobs.wake_forgotten(
                session, after_seconds=self.config.republish_seconds, limit=_BATCH
            )
        if lost or forgotten:
            log.info("swept", lost_workers=lost, woken_again=forgotten)

    def plan(self) -> None:
        """Make jobs of open targets, each model in its own transaction."""
        with transaction() as session:
            due = planner.due(session)
        for model_id in due:
            self._handle(planner.plan, model_id)

    def publish(self) -> None:
        """Settle jobs that have ended, each in its own transaction."""
        for _ in range(_BATCH):
            with transaction() as session:
                job_id = publisher.next_to_settle(session, skip=self._faulty)
            if job_id is None:
                return
            self._handle(publisher.settle, job_id)

    def _handle(self, step: Callable[[Session, uuid.UUID], object], row_id: uuid.UUID) -> None:
        """Do `step` for one row; if that fails, leave the row alone for a while and go on with others."""
        if row_id in self._faulty:
            return
        try:
            with transaction() as session:
                step(session, row_id)
        except OperationalError:
            raise
        except Exception:
            log.exception("not_handled", step=step.__qualname__, id=str(row_id))
            self._faulty[row_id] = time.monotonic()
        else:
            log.info("handled", step=step.__qualname__, id=str(row_id))

    def relay(self) -> None:
        """Hand the outbox to the broker, in order; what cannot be handed over stays for the next turn."""
        with transaction() as session:
            for message in events.unpublished(session, _BATCH):
                if message.topic == events.WAKE:
                    try:
                        queue.wake(**message.payload)
                    except queue.BrokerUnreachable:
                        log.warning("broker_unreachable")
                        return
                events.mark_published(message)

    def write_journal(self) -> None:
        """Show in the store which requests stand, for a database that has to be restored."""
        try:
            with transaction() as session:
                journal.catch_up(session, self._journal, limit=_JOURNAL_BATCH)
        except StoreUnavailable as error:
            log.warning("store_unavailable", detail=str(error))  # it follows later

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except OperationalError:
            raise
        except Exception:
            log.exception("step_failed", step=step.__name__)


def main() -> None:
    """Run until SIGTERM or SIGINT; stand by while another scheduler is at work."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    scheduler = Scheduler(settings())
    while not stop.is_set():
        try:
            with engine().connect() as connection:
                _work(scheduler, connection, stop)
        except OperationalError:
            log.warning("database_unreachable")
            stop.wait(1)


def _work(scheduler: Scheduler, connection: Connection, stop: threading.Event) -> None:
    """Turn while this connection holds the lock, which the database releases if this process dies."""
    pause = scheduler.config.scheduler_seconds
    while not stop.is_set():
        _show_life(scheduler.config)
        held = connection.scalar(select(func.pg_try_advisory_lock(_LOCK)))
        connection.rollback()
        if not held:
            stop.wait(pause)
            continue
        try:
            while not stop.is_set():
                connection.scalar(select(1))  # fails when the lock's connection is gone
                connection.rollback()
                scheduler.turn()
                _show_life(scheduler.config)
                stop.wait(pause)
        finally:
            if not connection.closed and not connection.invalidated:
                connection.scalar(select(func.pg_advisory_unlock(_LOCK)))


def is_alive(config: Settings) -> bool:
    """Whether a scheduler of this machine has taken a turn, or stood by, within the last minute."""
    mark = _mark(config)
    return mark.exists() and time.time() - mark.stat().st_mtime < _LIFE_SECONDS


def _show_life(config: Settings) -> None:
    mark = _mark(config)
    mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mark.touch()


def _mark(config: Settings) -> Path:
    return config.var / "scheduler.alive"
