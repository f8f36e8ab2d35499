"""The process of one job: `python -m workers.run JOB TOKEN`. Loads the spec, computes, writes the outcome."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import structlog
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app.config import Settings, settings
from app.datasets import rows as row_sets
from app.db import transaction
from app.deletions import planner
from app.jobs import service as jobs
from app.jobs.params import METHODS
from app.jobs.service import Lease, LeaseLost
from app.logs import configure
from app.registry import comparisons, references
from app.tables import Job, JobKind
from models_store.blobs import BlobDamaged, BlobMissing, BlobStore, StoreUnavailable
from workers import assemble, auditing, compare, ingest, opening, pipeline, readiness, shadows, validate
from workers.answers import Answers
from workers.data.reader import DataFault
from workers.methods.curvature import NoStep
from workers.monitor import Cancelled
from workers.nets.factory import BadArchitecture
from workers.reporting import DatabaseMonitor
from workers.spec import TrainSpec, UnlearnSpec
from workers.tasks import CANCELLED_EXIT
from workers.training.loop import Diverged
from workers.training.train import NoValidation

log = structlog.get_logger(__name__)
DATABASE_LOST_EXIT = 75
_CONFIDENCES = "confidence.safetensors"  # of the rows that were trained on
_EXPECTED = (
    DataFault,
    Diverged,
    NoStep,
    BlobMissing,
    BlobDamaged,
    opening.WrongWeights,
    BadArchitecture,
    compare.NotComparable,
    shadows.PoolTooSmall,
    NoValidation,
)


class Desk:
    """What every kind of job needs at hand."""

    def __init__(self, lease: Lease, config: Settings, cancelled: threading.Event) -> None:
        self.lease = lease
        self.config = config
        self.store = BlobStore(config.store)
        self.monitor = DatabaseMonitor(lease, self.store, cancelled)

    @property
    def actor(self) -> str:
        """How the audit log names this job."""
        return f"job {self.lease.job_id}"


def train(desk: Desk) -> None:
    """A new network from scratch, on the rows that may train at this moment."""
    with transaction() as session:
        job = jobs.held(session, desk.lease)
        spec = assemble.training(session, job, desk.config)
    _train(desk, spec)


def reference(desk: Desk) -> None:
    """A network from scratch on exactly the rows that remain, unless these are others by now."""
    with transaction() as session:
        job = jobs.held(session, desk.lease)
        if row_sets.holds_deleted(session, job):
            jobs.fail(session, desk.lease, references.OUTDATED)
            return
        spec = assemble.reference(session, job, desk.config)
    _train(desk, spec)


def _train(desk: Desk, spec: TrainSpec) -> None:
    desk.monitor.bind(assemble.fingerprint(spec))
    outcome = pipeline.train(spec, desk.store, desk.monitor)
    with transaction() as session:
        result = {
            "weights": outcome.weights,
            "figures": dict(outcome.figures),
            "spec": assemble.described(spec),
        }
        job = jobs.finish_computing(session, desk.lease, result)
        for name, digest in {"weights": outcome.weights, **outcome.blobs}.items():
            jobs.note_artefact(session, job, name=name, digest=digest, rows_digest=spec.train.digest)


def unlearn(desk: Desk) -> None:
    """Forget, then audit; between the two, wait for the networks to compare with that are lacking."""
    with transaction() as session:
        job = jobs.held(session, desk.lease)
        work = planner.begin(session, job, actor=desk.actor)
        if work is None:
            jobs.fail(session, desk.lease, "nothing was left to forget")
            return
        if not len(work.retain):
            jobs.fail(session, desk.lease, "every training row is to be forgotten: retire the model instead")
            return
        spec = assemble.unlearning(session, job, work, desk.config)
    if spec.done is None:
        spec = _forget(desk, spec)
    if METHODS[spec.method].exact:
        _audit(desk, replace(spec, references=(), shadows=()))
        return
    if _wait(desk, partial(planner.ask_for_networks, work=work, actor=desk.actor)):
        return
    with transaction() as session:
        spec = assemble.with_networks(session, jobs.held(session, desk.lease), work, spec)
    _audit(desk, spec)


def _forget(desk: Desk, spec: UnlearnSpec) -> UnlearnSpec:
    """Run the method and note its result at once: a later attempt then only has the audit left."""
    desk.monitor.bind(assemble.fingerprint(spec))
    done = pipeline.unlearn(spec, desk.store, desk.monitor)
    with transaction() as session:
        job = jobs.held(session, desk.lease)
        job.outcome = {**(job.outcome or {}), "unlearned": asdict(done), "spec": assemble.described(spec)}
        job.checkpoint = None
        jobs.note_artefact(session, job, name="weights", digest=done.weights, rows_digest=spec.retain.digest)
        for name, digest in done.blobs.items():
            rows = spec.retain if name == _CONFIDENCES else spec.forget
            jobs.note_artefact(session, job, name=name, digest=digest, rows_digest=rows.digest)
    return replace(spec, done=done)


def _wait(desk: Desk, ask: Callable[[Session, Job], Sequence[Job]]) -> bool:
    """Have others compute what is lacking, and let go of the worker; False if nothing is, or not any more.

    A job waits once: what could not be computed then is done without.
    """
    with transaction() as session:
        job = jobs.held(session, desk.lease)
        others = [] if job.has_waited else [other.id for other in ask(session, job)]
    if not others:
        return False
    # In a transaction of its own: whoever ends one of the others may wait for the version that `ask` locks.
    with transaction() as session:
        jobs.wait_for(session, desk.lease, others, {}, "waiting for networks to compare with")
    return True


def _audit(desk: Desk, spec: UnlearnSpec) -> None:
    """Compute the figures; each network's answers are noted at once, and a later attempt has them."""
    with transaction() as session:
        kept = (jobs.held(session, desk.lease).outcome or {}).get("answers", {})

    def note(key: str, digest: str) -> None:
        with transaction() as session:
            job = jobs.held(session, desk.lease)
            answers = {**(job.outcome or {}).get("answers", {}), key: digest}
            job.outcome = {**(job.outcome or {}), "answers": answers}
            name = f"answers-{key[:16]}.safetensors"
            jobs.note_artefact(session, job, name=name, digest=digest, rows_digest=spec.forget.digest)

    known = Answers(desk.store, kept=kept, note=note)
    audited = auditing.audit(spec, desk.store, desk.monitor, known=known)
    with transaction() as session:
        outcome = {
            "figures": dict(audited.figures),
            "blobs": dict(audited.blobs),
            "spec": assemble.described(spec),  # names the reference, which may be younger than the result
        }
        job = jobs.finish_computing(session, desk.lease, outcome)
        for name, digest in audited.blobs.items():
            jobs.note_artefact(session, job, name=name, digest=digest, rows_digest=spec.forget.digest)


def _ingest(desk: Desk) -> None:
    allow_downloads = desk.config.allow_downloads
    ingest.ingest(desk.lease, desk.store, desk.monitor, actor=desk.actor, allow_downloads=allow_downloads)


def _compare(desk: Desk) -> None:
    attempt = partial(compare.compare, desk.lease, desk.config, desk.store, desk.monitor)
    if attempt() or _wait(desk, partial(comparisons.ask_for_reference, actor=desk.actor)):
        return
    if not attempt():  # the reference has come just now, or never will
        raise compare.NotComparable("no network could be retrained to compare with")


def _probe(desk: Desk) -> None:
    compare.probe(desk.lease, desk.config, desk.store, desk.monitor)


def _readiness(desk: Desk) -> None:
    readiness.measure(desk.lease, desk.config, desk.store, desk.monitor)


def _validate(desk: Desk) -> None:
    validate.validate(desk.lease, desk.config, desk.store, desk.monitor)


def _shadow(desk: Desk) -> None:
    shadows.train(desk.lease, desk.config, desk.store, desk.monitor)


def _estimate(desk: Desk) -> None:
    shadows.estimate(desk.lease, desk.store)


KINDS: Mapping[JobKind, Callable[[Desk], None]] = {
    JobKind.INGEST: _ingest,
    JobKind.VALIDATE: _validate,
    JobKind.TRAIN: train,
    JobKind.REFERENCE: reference,
    JobKind.SHADOW: _shadow,
    JobKind.ESTIMATE: _estimate,
    JobKind.UNLEARN: unlearn,
    JobKind.COMPARE: _compare,
    JobKind.PROBE: _probe,
    JobKind.READINESS: _readiness,
}


def execute(lease: Lease, config: Settings, cancelled: threading.Event) -> int:
    """Compute the job under this lease; the process's exit code."""
    try:
        with transaction() as session:
            kind = jobs.held(session, lease).kind
        KINDS[kind](Desk(lease, config, cancelled))
    except Cancelled:
        return CANCELLED_EXIT
    except LeaseLost:
        log.info("lease_lost", job_id=str(lease.job_id))
    except OperationalError as error:
        # Says nothing of the job: it goes back into the queue, as after a crash.
        log.warning("database_lost", job_id=str(lease.job_id), kind=type(error).__name__)
        return DATABASE_LOST_EXIT
    except StoreUnavailable as error:
        log.warning("store_unavailable", job_id=str(lease.job_id), detail=str(error))
        with transaction() as session:
            jobs.give_back(session, lease, "the artefact store cannot be used")
    except _EXPECTED as fault:
        _fail(lease, str(fault))
    except Exception as error:
        log.exception("job_failed", job_id=str(lease.job_id))
        _fail(lease, f"internal error: {type(error).__name__} {_place(error)}")
    return 0


def _fail(lease: Lease, reason: str) -> None:
    with transaction() as session:
        jobs.fail(session, lease, reason)


def _place(error: BaseException) -> str:
    """Where the error arose; its message may hold data and is left out."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""


def _die_with_parent() -> None:
    """End this process when the worker that started it is gone, whatever it is computing."""

    def watch() -> None:
        # Unbuffered: a thread inside a buffered read would abort the interpreter's own shutdown.
        while os.read(sys.stdin.fileno(), 1):
            pass
        os._exit(70)

    threading.Thread(target=watch, name="parent watch", daemon=True).start()


def main(arguments: list[str]) -> int:
    """The entry of the process."""
    job_id, token = arguments
    cancelled = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: cancelled.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_parent()
    config = settings()
    configure("job")
    structlog.contextvars.bind_contextvars(job_id=job_id)
    return execute(Lease(uuid.UUID(job_id), int(token)), config, cancelled)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
