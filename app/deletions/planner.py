"""From open targets to unlearn jobs, and from a job's end back to its targets."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.datasets import rows as row_sets
from app.deletions import repository
from app.deletions import service as deletions
from app.jobs import service as jobs
from app.jobs.budget import bought
from app.jobs.params import METHODS
from app.jobs.policies import POLICY, Policy
from app.registry import policies, references, shadows
from app.registry import service as registry
from app.tables import (
    DeletionRequest,
    Job,
    JobKind,
    JobState,
    Model,
    ModelVersion,
    RequestState,
    Target,
    TargetState,
)
from models_store.rows import RowSet

PLANNER = "planner"
_NO_RUNG = (
    "the version has no training recipe, and its policy knows no method that does without: add an approximate"
    " method to the ladder, or register a version with its recipe"
)


def due(session: Session) -> list[uuid.UUID]:
    """The models whose open targets have waited long enough, are many enough, or are due too soon."""
    busy = select(Job.model_id).where(Job.kind == JobKind.UNLEARN, Job.settled_at.is_(None))
    query = (
        select(Target.model_id, func.min(Target.opened_at), func.count(), func.min(DeletionRequest.due_at))
        .join(DeletionRequest, DeletionRequest.id == Target.request_id)
        .where(
            Target.state == TargetState.OPEN,
            DeletionRequest.state != RequestState.ON_HOLD,
            Target.model_id.not_in(busy),
        )
        .group_by(Target.model_id)
        .order_by(func.min(DeletionRequest.due_at))
    )
    waiting = session.execute(query).all()
    in_force = policies.bodies_in_force(session, [model_id for model_id, *_ in waiting])
    return [
        model_id
        for model_id, oldest, number, due_at in waiting
        if _is_due(in_force[model_id], oldest=oldest, number=number, due_at=due_at)
    ]


def _is_due(policy: Mapping[str, Any], *, oldest: datetime, number: int, due_at: datetime) -> bool:
    now, window = datetime.now(UTC), timedelta(seconds=policy["batch_window_seconds"])
    return number >= policy["batch_max"] or oldest + window <= now or due_at - window <= now


def plan(session: Session, model_id: uuid.UUID) -> bool:
    """Put the open targets of a model into one unlearn job; whether that was made.

    Targets whose rows no version in use holds any more are finished without one.
    """
    session.execute(select(Model.id).where(Model.id == model_id).with_for_update(key_share=True))
    targets = repository.open_targets(session, model_id)
    if not targets or jobs.is_unlearning(session, model_id):
        return False
    parent = _version_to_clean(session, model_id)
    if parent is None:
        for target in targets:
            target.be_absent("no version in use holds a deleted row", actor=PLANNER)
            target.finished_at = datetime.now(UTC)
        deletions.finish_requests(session, targets, actor=PLANNER)
        return False
    in_force = policies.in_force(session, model_id)
    body = _applicable(in_force.body, parent)
    if not body["ladder"]:
        for target in targets:
            target.fail(_NO_RUNG, actor=PLANNER)
            target.finished_at = datetime.now(UTC)
        deletions.finish_requests(session, targets, actor=PLANNER)
        return False
    policy = POLICY.validate_python(body)
    job = Job(
        kind=JobKind.UNLEARN,
        model_id=model_id,
        version_id=parent.id,
        dataset_version_id=parent.dataset_version_id,
        policy_id=in_force.id,
        policy=body,
        parameters=_parameters(policy, 0),
        rung=0,
        seed=0,
        created_by=PLANNER,
    )
    jobs.queue(session, job)
    for target in targets:
        target.plan(job.id, actor=PLANNER)
    return True


def _applicable(policy: Mapping[str, Any], parent: ModelVersion) -> dict[str, Any]:
    """The policy as it can be carried out on this version: without its recipe there is no training anew."""
    if parent.recipe is not None:
        return dict(policy)
    ladder = [rung for rung in policy["ladder"] if not METHODS[rung["method"]].exact]
    return {**policy, "ladder": ladder, "audit_budget": 0}


def _parameters(policy: Policy, rung: int) -> dict[str, object]:
    chosen = policy.ladder[rung]
    return {"method": chosen.method, "parameters": dict(chosen.parameters)}


def _version_to_clean(session: Session, model_id: uuid.UUID) -> ModelVersion | None:
    """The oldest version in use that holds a row under a tombstone."""
    for version in registry.aliased_versions_of(session, model_id):
        if len(registry.tombstoned_rows_of(session, version)):
            return version
    return None


@dataclass(frozen=True)
class Assignment:
    """What a claimed unlearn job has to do, fixed at the moment of the claim."""

    parent: ModelVersion
    forget: RowSet
    retain: RowSet
    audit_budget: int  # the largest of the policy's and the requests'; 0 where nothing can be retrained


def begin(session: Session, job: Job, *, actor: str) -> Assignment | None:
    """Fix the forget set of a claimed job, and join every open target of the model to it.

    The targets are read first and the tombstones after: a request commits both at once, so the forget set
    covers at least the targets that were joined. A retry that finds another forget set starts afresh.
    Returns None when nothing is left to forget.
    """
    if job.model_id is None or job.version_id is None:
        raise ValueError("an unlearn job names its model and version")
    targets = [
        *repository.targets_of_job(session, job.id),
        *repository.open_targets(session, job.model_id),
    ]
    requests = repository.requests_of(session, targets)
    for target in targets:
        if target.state is TargetState.OPEN:
            target.plan(job.id, actor=actor)
        if target.state is TargetState.PLANNED:
            target.run(actor=actor)
    for request in requests:
        if request.state is RequestState.RECEIVED:
            request.begin(actor=actor)
    session.flush()
    parent = session.get_one(ModelVersion, job.version_id)
    forget = registry.tombstoned_rows_of(session, parent)
    retain = registry.rows_of(session, parent) - forget
    _fix(session, job, parent, forget=forget, retain=retain)
    asked = max([(job.policy or {})["audit_budget"], *(request.audit_budget for request in requests)])
    budget = asked if parent.recipe is not None else 0
    return Assignment(parent, forget, retain, budget) if len(forget) else None


def _fix(session: Session, job: Job, parent: ModelVersion, *, forget: RowSet, retain: RowSet) -> None:
    if job.forget_digest != forget.digest:
        job.checkpoint = job.outcome = None
        jobs.forget_waits(session, job)
    job.forget_digest = row_sets.keep(session, forget)
    job.rows_digest = row_sets.keep(session, retain)
    job.seed = jobs.seed_of(parent.weights or "", forget.digest, str(job.parameters))


def ask_for_networks(session: Session, job: Job, *, work: Assignment, actor: str) -> list[Job]:
    """The jobs that train what is lacking of the networks that the budget of an unlearn job buys.

    None is lacking once the job has noted what it compares with.
    """
    if "networks" in (job.outcome or {}):
        return []
    version, buys = session.get_one(ModelVersion, job.version_id), bought(work.audit_budget)
    return [
        *references.ask(session, version, work.retain, buys.references, actor=actor),
        *shadows.ask_for_audit(session, version, work.forget, most=buys.shadows, actor=actor),
    ]


def next_rung(job: Job) -> int | None:
    """The rung after the job's own; None after the last."""
    rung = (job.rung or 0) + 1
    return rung if rung < len(POLICY.validate_python(job.policy).ladder) else None


def climb(session: Session, job: Job, rung: int, *, actor: str) -> Job:
    """Queue a further rung of the ladder, under the same policy, for the targets of `job`, now ended."""
    policy = POLICY.validate_python(job.policy)
    following = Job(
        kind=JobKind.UNLEARN,
        model_id=job.model_id,
        version_id=job.version_id,
        dataset_version_id=job.dataset_version_id,
        policy_id=job.policy_id,
        policy=job.policy,
        parameters=_parameters(policy, rung),
        rung=rung,
        seed=0,
        created_by=actor,
    )
    session.flush()
    jobs.queue(session, following)
    for target in repository.targets_of_job(session, job.id):
        target.job_id = following.id
        if target.state is TargetState.AWAITING_APPROVAL:
            target.run(actor=actor)
    return following


def await_approval(session: Session, job: Job, *, actor: str) -> None:
    """Every target of the job waits for a named approver."""
    for target in repository.targets_of_job(session, job.id):
        target.await_approval(actor=actor)


def published(session: Session, job: Job, *, actor: str) -> int:
    """The new version is in use: complete the targets, save where another version holds their rows."""
    targets = repository.targets_of_job(session, job.id)
    left = _left_in_use(session, targets)
    for target in targets:
        if target.request_id in left:
            target.reopen("another version in use still holds some of the rows", actor=actor)
            target.job_id = None
        else:
            target.complete(None, actor=actor)
            target.finished_at = datetime.now(UTC)
    deletions.finish_requests(session, targets, actor=actor)
    return len(targets)


def _left_in_use(session: Session, targets: Sequence[Target]) -> set[uuid.UUID]:
    """The requests among the targets' of which some row is still held by a version in use."""
    if not targets:
        return set()
    held: dict[uuid.UUID, RowSet] = {}
    for version in registry.aliased_versions_of(session, targets[0].model_id):
        rows = registry.tombstoned_rows_of(session, version)
        held[version.dataset_version_id] = held.get(version.dataset_version_id, RowSet(b"")) | rows
    if not any(len(rows) for rows in held.values()):
        return set()
    return {
        target.request_id
        for target in targets
        if any(
            len(rows & held.get(version_id, RowSet(b"")))
            for version_id, rows in row_sets.of_request(session, target.request_id).items()
        )
    }


def ended_without_result(session: Session, job: Job, *, actor: str) -> None:
    """The job failed or was cancelled, or its ladder ended: its targets fail, unless there is more to try.

    A rung that failed, of diverging or of using up its attempts, is followed by the next one. A job that
    somebody cancelled is not.
    """
    parent = session.get_one(ModelVersion, job.version_id)
    if not registry.is_aliased(session, parent):
        overtaken(session, job, "the version is no longer in use", actor=actor)
        return
    if not len(registry.tombstoned_rows_of(session, parent)):
        overtaken(session, job, "nothing was left to forget in this version", actor=actor)
        return
    following = next_rung(job) if job.state is JobState.FAILED else None
    if following is not None:
        climb(session, job, following, actor=actor)
        return
    end = "was cancelled" if job.state is JobState.CANCELLED else "failed"
    targets = repository.targets_of_job(session, job.id)
    for target in targets:
        target.fail(f"its job {end}: {job.reason}", actor=actor)
        target.finished_at = datetime.now(UTC)
    deletions.finish_requests(session, targets, actor=actor)


def overtaken(session: Session, job: Job, reason: str, *, actor: str) -> None:
    """The job's result is of no use any more: plan its targets anew."""
    for target in repository.targets_of_job(session, job.id):
        target.reopen(reason, actor=actor)
        target.job_id = None
