"""What follows from a job's end: verdict, publish rule, new version, report, and finished targets.

Each job is settled in one transaction. Its blobs were written before, so a crash leaves at most a blob that
nothing refers to.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from sqlalchemy.orm import Session

from app.datasets import rows as row_sets
from app.datasets import service as datasets
from app.deletions import planner
from app.events import service as events
from app.jobs import service as jobs
from app.jobs.params import METHODS
from app.jobs.policies import POLICY
from app.registry import memorisation, references, registration, shadows
from app.registry import service as registry
from app.registry.service import NewVersion
from app.reports import filing
from app.reports.verdict import Action, Decision, Judgement, judge, publish_decision
from app.tables import Job, JobKind, JobState, ModelVersion, Report

PUBLISHER = "publisher"
_RETIRED = "the model was retired meanwhile"
_ENDED = (JobState.AUDITED, JobState.FAILED, JobState.CANCELLED)


def next_to_settle(session: Session, *, skip: Collection[uuid.UUID]) -> uuid.UUID | None:
    """The oldest ended job, not in `skip`, whose consequences were not drawn yet."""
    return jobs.unsettled(session, _ENDED, skip)


def settle(session: Session, job_id: uuid.UUID) -> None:
    """Draw the consequences of a job's end, once."""
    job = jobs.locked(session, job_id)
    if job.settled_at is not None or job.state not in _ENDED:
        return
    if job.state is JobState.AUDITED:
        _FINISH[job.kind](session, job)
    else:
        _end_without_result(session, job)
    if job.is_final:
        close(session, job)


def close(session: Session, job: Job) -> None:
    """The job is over and its consequences are drawn: say so, and wake those that waited for it."""
    jobs.settle(job)
    jobs.wake_waiting(session, job)
    events.emit(session, f"job.{job.state}", job_id=str(job.id), kind=job.kind)


def _end_without_result(session: Session, job: Job) -> None:
    if job.kind is JobKind.UNLEARN:
        planner.ended_without_result(session, job, actor=PUBLISHER)
    elif job.kind is JobKind.INGEST:
        datasets.give_up(session, job, actor=PUBLISHER)
    elif job.kind is JobKind.VALIDATE:
        registration.end_without_result(session, job, actor=PUBLISHER)
    elif job.kind is JobKind.SHADOW:
        _estimate_if_last(session, job)


def _finish_ingest(_session: Session, job: Job) -> None:
    job.finish(None, actor=PUBLISHER)


def _finish_comparison(_session: Session, job: Job) -> None:
    job.finish(f"{len((job.outcome or {}).get('rows', ()))} runs", actor=PUBLISHER)


def _finish_measurement(_session: Session, job: Job) -> None:
    job.finish(None, actor=PUBLISHER)


def _finish_validation(session: Session, job: Job) -> None:
    """Put an uploaded version into use, or say what is wrong with it."""
    said = registration.finish(session, job, actor=PUBLISHER)
    if (job.outcome or {}).get("faults"):
        job.fail(said, actor=PUBLISHER)
    else:
        job.finish(said, actor=PUBLISHER)


def _finish_training(session: Session, job: Job) -> None:
    """Register the new version, unless one of its rows was deleted while it trained."""
    outcome = job.outcome or {}
    version_id, model_id = job.dataset_version_id, job.model_id
    if version_id is None or model_id is None or job.rows_digest is None:
        raise ValueError("a train job names its model and rows")
    registry.lock_aliases(session)
    if not datasets.hold_ready(session, version_id):
        job.fail("the data set was retired while it trained", actor=PUBLISHER)
        return
    if row_sets.holds_deleted(session, job):
        jobs.start_over(session, job, "rows were deleted while it trained")
        return
    new = NewVersion(
        origin="trained",
        job=job,
        parent=None,
        dataset_version_id=version_id,
        rows_digest=job.rows_digest,
        architecture=job.parameters["architecture"],
        recipe=job.parameters["recipe"],
        weights=outcome["weights"],
        figures=outcome["figures"],
    )
    version = registry.add_version(session, model_id, new, actor=PUBLISHER)
    if job.parameters["alias"] is not None:
        name = job.parameters["alias"]
        registry.set_alias(session, version, name, actor=job.created_by, reason="trained for this alias")
    job.finish(f"version {version.number}", actor=PUBLISHER)


def _finish_reference(session: Session, job: Job) -> None:
    """Keep the network, unless one of its rows was deleted while it trained: then others remain."""
    if row_sets.holds_deleted(session, job):
        job.fail(references.OUTDATED, actor=PUBLISHER)
    else:
        references.keep(session, job)
        job.finish(None, actor=PUBLISHER)


def _finish_shadow(session: Session, job: Job) -> None:
    """Add the network to its pool, unless one of its rows was deleted while it trained."""
    if shadows.is_unwanted(session, job):
        job.fail(_RETIRED, actor=PUBLISHER)
    elif row_sets.holds_deleted(session, job):
        jobs.start_over(session, job, "rows were deleted while it trained")
    else:
        shadows.add(session, job)
        job.finish(None, actor=PUBLISHER)
    _estimate_if_last(session, job)


def _estimate_if_last(session: Session, job: Job) -> None:
    version, share = shadows.version_of(session, job), job.parameters["share"]
    shadows.estimate_if_complete(session, version, share, actor=PUBLISHER)


def _finish_estimate(session: Session, job: Job) -> None:
    """Keep the estimate with its version, unless the pool is another one by now."""
    if shadows.is_unwanted(session, job):
        job.fail(_RETIRED, actor=PUBLISHER)
    elif shadows.keep_estimate(session, job, actor=PUBLISHER):
        job.finish(None, actor=PUBLISHER)
    else:
        jobs.start_over(session, job, "the pool has changed meanwhile")


def _finish_unlearning(session: Session, job: Job) -> None:
    """Judge the figures by the job's own policy, then publish, ask, or go on to the next rung."""
    judgement, decision = decide(job)
    if decision.action is Action.PUBLISH:
        publish(session, job, judgement, decision, actor=PUBLISHER)
    elif decision.action is Action.AWAIT_APPROVAL:
        job.await_approval(decision.reason, actor=PUBLISHER)
        planner.await_approval(session, job, actor=PUBLISHER)
    else:
        reject(session, job, judgement, decision, actor=PUBLISHER)


def decide(job: Job) -> tuple[Judgement, Decision]:
    """The verdict on an audited job and what its policy makes of it, from its figures alone."""
    policy = POLICY.validate_python(job.policy)
    figures = (job.outcome or {})["figures"]
    rung = job.rung or 0
    judgement = judge(figures, policy.thresholds)
    decision = publish_decision(
        judgement,
        figures,
        publish_when=policy.publish_when,
        exact=METHODS[policy.ladder[rung].method].exact,
        last_rung=rung + 1 >= len(policy.ladder),
        prefer_exact=policy.prefer_exact,
    )
    return judgement, decision


def publish(session: Session, job: Job, judgement: Judgement, decision: Decision, *, actor: str) -> Report:
    """Put the job's network into use everywhere its parent was, and file the report.

    If no alias names the parent any more, somebody was faster: the network is not published and the
    targets are planned anew.
    """
    registry.lock_aliases(session)
    parent = session.get_one(ModelVersion, job.version_id)
    if not registry.is_aliased(session, parent):
        return _give_way(session, job, judgement, decision, actor=actor)
    version = registry.add_version(
        session, parent.model_id, _new_version(session, job, parent, decision), actor=actor
    )
    registry.replace_everywhere(
        session, old=parent, new=version, actor=actor, reason=f"unlearned by job {job.id}"
    )
    report = filing.file_report(session, job, parent, judgement, decision, version=version)
    planner.published(session, job, actor=actor)
    job.finish(f"version {version.number}", actor=actor)
    return report


def _give_way(session: Session, job: Job, judgement: Judgement, decision: Decision, *, actor: str) -> Report:
    """File the report of a network that would have been published, had its parent still been in use."""
    reason = "the model's aliases moved while the job ran"
    late = replace(decision, action=Action.REJECT, reason=f"{decision.reason} But {reason}.")
    parent = session.get_one(ModelVersion, job.version_id)
    report = filing.file_report(session, job, parent, judgement, late, version=None)
    planner.overtaken(session, job, reason, actor=actor)
    job.supersede(reason, actor=actor)
    return report


def _new_version(session: Session, job: Job, parent: ModelVersion, decision: Decision) -> NewVersion:
    outcome = job.outcome or {}
    is_reference = decision.network == "reference"
    weights = outcome["spec"]["references"][0] if is_reference else outcome["unlearned"]["weights"]
    exact = is_reference or METHODS[job.parameters["method"]].exact
    if job.rows_digest is None or weights is None:
        raise ValueError("an audited unlearn job names its rows and its networks")
    return NewVersion(
        origin="retrained" if exact else "unlearned",
        job=job,
        parent=parent,
        dataset_version_id=parent.dataset_version_id,
        rows_digest=job.rows_digest,
        architecture=parent.architecture,
        recipe=parent.recipe,
        weights=weights,
        figures={
            "accuracy": outcome["figures"]["accuracy"][decision.network],
            **memorisation.carried_over(session, job, parent, weights),
        },
    )


def reject(session: Session, job: Job, judgement: Judgement, decision: Decision, *, actor: str) -> Report:
    """File the report of a network that is not published, and queue the next rung, if there is one."""
    parent = session.get_one(ModelVersion, job.version_id)
    report = filing.file_report(session, job, parent, judgement, decision, version=None)
    following = planner.next_rung(job)
    job.supersede(decision.reason, actor=actor)
    if following is None:
        planner.ended_without_result(session, job, actor=actor)
    else:
        planner.climb(session, job, following, actor=actor)
    return report


_FINISH: Mapping[JobKind, Callable[[Session, Job], None]] = {
    JobKind.INGEST: _finish_ingest,
    JobKind.VALIDATE: _finish_validation,
    JobKind.TRAIN: _finish_training,
    JobKind.REFERENCE: _finish_reference,
    JobKind.SHADOW: _finish_shadow,
    JobKind.ESTIMATE: _finish_estimate,
    JobKind.UNLEARN: _finish_unlearning,
    JobKind.COMPARE: _finish_comparison,
    JobKind.PROBE: _finish_measurement,
    JobKind.READINESS: _finish_measurement,
}
