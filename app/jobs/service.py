"""The life of a job row: queue, claim, heartbeat, outcome. Every worker's write carries its lease token."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, case, delete, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.callers.service import Caller
from app.config import settings
from app.errors import Conflict, NotFound
from app.events import service as events
from app.tables import Artefact, Job, JobKind, JobProgress, JobState, JobWait
from app.tables.jobs import LIVE, PATIENT

SCHEDULER = "scheduler"
LIGHT_QUEUE = "jobs"
_LIGHT = (JobKind.INGEST, JobKind.VALIDATE)  # what needs no accelerator
_PATIENCE = 30  # so many times as long as others they wait before their message counts as lost
_BACKOFF_SECONDS = (0, 2, 10, 60, 300)


class LeaseLost(Exception):
    """Somebody else holds this job now; whatever this process computed is not wanted."""


@dataclass(frozen=True)
class Lease:
    """A worker's right to one job until it expires or is taken over."""

    job_id: uuid.UUID
    token: int


def queue(session: Session, job: Job, *, delay_seconds: float = 0) -> Job:
    """Add a job, in the queue for its kind, and have a worker woken for it after the commit."""
    job.queue = LIGHT_QUEUE if job.kind in _LIGHT else settings().compute_queue
    session.add(job)
    session.flush()
    events.record(
        session, actor=job.created_by, action="queued", entity="Job", entity_id=job.id, kind=job.kind
    )
    _wake(session, job, delay_seconds)
    return job


def seed_of(*facts: str) -> int:
    """The same for the same work, so that a job computed again elsewhere gives the same bits."""
    return int.from_bytes(hashlib.sha256("\n".join(facts).encode()).digest()[:7], "big")


def get(session: Session, job_id: uuid.UUID) -> Job:
    """The job. Raises NotFound."""
    job = session.get(Job, job_id)
    if job is None:
        raise NotFound
    return job


def list_jobs(session: Session, *, after: int, limit: int, state: JobState | None = None) -> Sequence[Job]:
    """Jobs in the order they were made."""
    query = select(Job).where(Job.ordinal > after).order_by(Job.ordinal).limit(limit)
    return session.scalars(query if state is None else query.where(Job.state == state)).all()


def is_unlearning(session: Session, model_id: uuid.UUID) -> bool:
    """Whether the model has an unlearn job that is live, or that its next rung may yet follow."""
    query = select(Job.id).where(
        Job.model_id == model_id, Job.kind == JobKind.UNLEARN, Job.settled_at.is_(None)
    )
    return session.scalar(query.limit(1)) is not None


def progress_of(session: Session, job_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, JobProgress]:
    """Where these jobs stand, as far as they have said."""
    rows = session.scalars(select(JobProgress).where(JobProgress.job_id.in_(job_ids)))
    return {row.job_id: row for row in rows}


def waits_of(session: Session, job_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, list[uuid.UUID]]:
    """The jobs that each of these waits for, or has waited for, in the order they were made."""
    found: dict[uuid.UUID, list[uuid.UUID]] = {job_id: [] for job_id in job_ids}
    query = select(JobWait.job_id, JobWait.other_id).join(Job, Job.id == JobWait.other_id)
    for job_id, other_id in session.execute(query.where(JobWait.job_id.in_(job_ids)).order_by(Job.ordinal)):
        found[job_id].append(other_id)
    return found


def usual_seconds(
    session: Session, model_id: uuid.UUID, method: str, *, training: bool
) -> tuple[float | None, int]:
    """The median duration of the model's finished jobs of this method, and how many there were.

    `training`: jobs that trained the model from scratch count as well.
    """
    by_method = and_(Job.kind == JobKind.UNLEARN, Job.parameters["method"].astext == method)
    kinds = or_(by_method, Job.kind.in_((JobKind.TRAIN, JobKind.REFERENCE))) if training else by_method
    seconds = func.extract("epoch", Job.finished_at - Job.started_at)
    query = select(func.percentile_cont(0.5).within_group(seconds), func.count()).where(
        Job.model_id == model_id, kinds, Job.state.in_((JobState.DONE, JobState.SUPERSEDED))
    )
    median, number = session.execute(query).one()
    return (float(median) if median is not None else None), number


# --- the worker's side -------------------------------------------------------------------------------


def claim(session: Session, job_id: uuid.UUID, *, worker: str, lease_seconds: float) -> Lease | None:
    """Take a queued job; None if it is not there to be taken (claimed, ended or not yet due)."""
    now = datetime.now(UTC)
    due = or_(Job.not_before.is_(None), Job.not_before <= now)
    query = select(Job).where(Job.id == job_id, Job.state == JobState.QUEUED, due)
    # A weaker lock than FOR UPDATE, since another job may just begin to wait for this one, and refer to it.
    job = session.scalar(query.with_for_update(skip_locked=True, key_share=True))
    if job is None:
        return None
    job.start(actor=worker)
    job.lease_token += 1
    job.attempt += 1
    job.lease_owner = worker
    job.lease_expires_at = now + timedelta(seconds=lease_seconds)
    job.started_at = job.started_at or now
    return Lease(job.id, job.lease_token)


def _holds(lease: Lease) -> ColumnElement[bool]:
    """That a job runs under this lease; a token of a former claim holds nothing any more."""
    return and_(Job.id == lease.job_id, Job.lease_token == lease.token, Job.state == JobState.RUNNING)


def heartbeat(session: Session, lease: Lease, *, lease_seconds: float) -> bool:
    """Prolong the lease; True if the job is to be cancelled. Raises LeaseLost."""
    expires = datetime.now(UTC) + timedelta(seconds=lease_seconds)
    cancel_requested = session.execute(
        update(Job)
        .where(_holds(lease))
        .values(lease_expires_at=expires)
        .returning(Job.cancel_requested_at.is_not(None))
    ).scalar_one_or_none()
    if cancel_requested is None:
        raise LeaseLost
    return bool(cancel_requested)


def held(session: Session, lease: Lease) -> Job:
    """The job, locked, if this lease still holds it. Raises LeaseLost."""
    query = select(Job).where(_holds(lease))
    # A weaker lock than FOR UPDATE: the job's own progress row, which refers to it, must get through.
    query = query.with_for_update(key_share=True).execution_options(populate_existing=True)
    job = session.scalar(query)
    if job is None:
        raise LeaseLost
    return job


def report_progress(
    session: Session, lease: Lease, *, phase: str, done: int, total: int, figures: Mapping[str, float]
) -> None:
    """Overwrite the job's progress row. Raises LeaseLost."""
    if session.scalar(select(Job.id).where(_holds(lease))) is None:
        raise LeaseLost
    row = {"phase": phase, "done": done, "total": total, "figures": dict(figures), "updated_at": func.now()}
    statement = insert(JobProgress).values(job_id=lease.job_id, **row)
    session.execute(statement.on_conflict_do_update(index_elements=[JobProgress.job_id], set_=row))


def keep_checkpoint(session: Session, lease: Lease, *, digest: str, fingerprint: str) -> str | None:
    """Remember the newest checkpoint of the spec with this fingerprint; return the one it replaces."""
    job = held(session, lease)
    former = (job.checkpoint or {}).get("digest")
    job.checkpoint = {"digest": digest, "fingerprint": fingerprint}
    return former


def note_artefact(session: Session, job: Job, *, name: str, digest: str, rows_digest: str | None) -> None:
    """Record a blob the job made, and the rows it derives from."""
    row = {"digest": digest, "job_id": job.id, "name": name, "rows_digest": rows_digest}
    row["dataset_version_id"] = job.dataset_version_id
    session.execute(insert(Artefact).values(row).on_conflict_do_nothing())


def finish_computing(session: Session, lease: Lease, outcome: Mapping[str, Any]) -> Job:
    """Hand in the outcome; the publisher takes it from here. Raises LeaseLost."""
    job = held(session, lease)
    job.outcome = {**(job.outcome or {}), **outcome}
    job.checkpoint = None
    _release(job)
    job.finish_computing(actor=f"job {job.id}")
    return job


def wait_for(
    session: Session, lease: Lease, others: Collection[uuid.UUID], outcome: Mapping[str, Any], reason: str
) -> None:
    """Let go of the worker until all the others have ended, well or not. Raises LeaseLost.

    To refer to a job means to wait for whoever draws the consequences of its end at this moment: either they
    find this job waiting, or it finds theirs ended.
    """
    job = held(session, lease)
    job.outcome = {**(job.outcome or {}), **outcome}
    job.checkpoint = None
    job.has_waited = True
    _release(job)
    job.attempt = 0
    job.wait(reason, actor=f"job {job.id}")
    rows = [{"job_id": job.id, "other_id": other} for other in sorted(others)]
    session.execute(insert(JobWait).on_conflict_do_nothing(), rows)
    _wake_if_all_have_ended(session, job)


def fail(session: Session, lease: Lease, reason: str, *, outcome: Mapping[str, Any] | None = None) -> None:
    """End the job for a reason that another attempt would meet again. Raises LeaseLost."""
    job = held(session, lease)
    if outcome is not None:
        job.outcome = dict(outcome)
    _release(job)
    job.fail(reason, actor=f"job {job.id}")


def give_back(session: Session, lease: Lease, reason: str, *, counts: bool = True) -> None:
    """Return the job to the queue, or fail it when its attempts are used up. Raises LeaseLost."""
    job = held(session, lease)
    if not counts:
        job.attempt -= 1
    _retry_or_fail(session, job, reason)


def acknowledge_cancel(session: Session, lease: Lease) -> None:
    """The computation has stopped because somebody asked for it. Raises LeaseLost."""
    job = held(session, lease)
    _release(job)
    job.cancel("cancelled while running", actor=job.cancel_actor or SCHEDULER)


# --- everybody else's side ---------------------------------------------------------------------------


def request_cancel(session: Session, job_id: uuid.UUID, caller: Caller, reason: str) -> Job:
    """Cancel a job: at once if nothing runs, else at its next step. Raises NotFound or Conflict."""
    job = locked(session, job_id)
    if job.is_final or job.state is JobState.AUDITED:
        raise Conflict(f"The job is {job.state}; it can no longer be cancelled.")
    _cancel(session, job, actor=caller.actor, reason=reason)
    return job


def cancel_of_model(session: Session, model_id: uuid.UUID, *, actor: str, reason: str) -> None:
    """Cancel everything that is computed for a model: at once where nothing runs, else at its next step."""
    query = select(Job).where(Job.model_id == model_id, Job.state.in_(LIVE)).with_for_update(key_share=True)
    for job in session.scalars(query.order_by(Job.id).execution_options(populate_existing=True)):
        _cancel(session, job, actor=actor, reason=reason)


def _cancel(session: Session, job: Job, *, actor: str, reason: str) -> None:
    if job.state is not JobState.RUNNING:
        _release(job)
        job.cancel(reason, actor=actor)
        return
    job.cancel_requested_at = job.cancel_requested_at or datetime.now(UTC)
    job.cancel_actor = actor
    events.record(
        session, actor=actor, action="cancel requested", entity="Job", entity_id=job.id, reason=reason
    )


def wake_waiting(session: Session, other: Job) -> None:
    """Requeue the jobs that waited for `other`, however it ended, and for nothing else that is still live.

    They are locked first: of two last ones that end at once, the second sees that both have ended.
    """
    query = (
        select(Job)
        .join(JobWait, JobWait.job_id == Job.id)
        .where(JobWait.other_id == other.id, Job.state == JobState.WAITING)
        .order_by(Job.id)
        .with_for_update(of=Job)
    )
    for job in session.scalars(query.execution_options(populate_existing=True)).all():
        _wake_if_all_have_ended(session, job)


def _wake_if_all_have_ended(session: Session, job: Job) -> None:
    others = select(Job.id).join(JobWait, JobWait.other_id == Job.id).where(JobWait.job_id == job.id)
    if session.scalar(others.where(Job.state.in_(LIVE)).limit(1)) is None:
        job.requeue(None, actor=SCHEDULER)
        _wake(session, job)


def forget_waits(session: Session, job: Job) -> None:
    """The job waited for what is of no use to it any more, and may wait for something else."""
    session.execute(delete(JobWait).where(JobWait.job_id == job.id))
    job.has_waited = False


def take_back_expired(session: Session, limit: int) -> int:
    """Requeue (or fail) running jobs whose lease has run out; their workers are dead or cut off."""
    query = (
        select(Job)
        .where(Job.state == JobState.RUNNING, Job.lease_expires_at < func.now())
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    expired = session.scalars(query).all()
    for job in expired:
        _retry_or_fail(session, job, "its worker was lost")
    return len(expired)


def wake_forgotten(session: Session, *, after_seconds: float, limit: int) -> int:
    """Wake workers for jobs whose pause is over, or whose message the broker may have lost."""
    now = datetime.now(UTC)
    is_lost = case(
        (Job.kind.in_(PATIENT), Job.published_at < now - timedelta(seconds=_PATIENCE * after_seconds)),
        else_=Job.published_at < now - timedelta(seconds=after_seconds),
    )
    query = (
        select(Job)
        .where(
            Job.state == JobState.QUEUED,
            or_(Job.not_before.is_(None) & is_lost, Job.not_before <= func.now()),
        )
        .order_by(Job.ordinal)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    forgotten = session.scalars(query).all()
    for job in forgotten:
        _wake(session, job)
    return len(forgotten)


def locked(session: Session, job_id: uuid.UUID) -> Job:
    """The job, locked against any other change. Raises NotFound."""
    job = session.get(Job, job_id, with_for_update=True, populate_existing=True)
    if job is None:
        raise NotFound
    return job


def unsettled(session: Session, states: Sequence[JobState], skip: Collection[uuid.UUID]) -> uuid.UUID | None:
    """The oldest job in one of these states, not in `skip`, whose consequences were not drawn yet."""
    query = select(Job.id).where(Job.state.in_(states), Job.settled_at.is_(None), Job.id.not_in(skip))
    return session.scalar(query.order_by(Job.ordinal).limit(1))


def settle(job: Job) -> None:
    """The consequences of the job's end are drawn, in this transaction."""
    job.settled_at = datetime.now(UTC)


def start_over(session: Session, job: Job, reason: str) -> None:
    """Compute an audited job again from the start, because its rows have changed meanwhile."""
    job.outcome = job.checkpoint = None
    job.forget_digest = job.rows_digest = None
    _retry_or_fail(session, job, reason)


def _retry_or_fail(session: Session, job: Job, reason: str) -> None:
    _release(job)
    if job.cancel_requested_at is not None:
        job.cancel(f"cancelled; {reason}", actor=job.cancel_actor or SCHEDULER)
        return
    if job.attempt >= job.max_attempts:
        job.fail(f"{reason}; {job.attempt} attempts were made", actor=SCHEDULER)
        return
    job.requeue(reason, actor=SCHEDULER)
    _wake(session, job, _BACKOFF_SECONDS[min(max(job.attempt - 1, 0), len(_BACKOFF_SECONDS) - 1)])


def _release(job: Job) -> None:
    job.lease_owner = job.lease_expires_at = None


def _wake(session: Session, job: Job, delay_seconds: float = 0) -> None:
    now = datetime.now(UTC)
    job.not_before = now + timedelta(seconds=delay_seconds) if delay_seconds else None
    job.published_at = job.not_before or now
    if not delay_seconds:
        events.wake_worker(session, job.id, job.queue, urgent=job.kind not in PATIENT)
