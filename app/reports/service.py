"""Reading reports, deciding on jobs that await approval, and the certificate of a request."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.callers.service import Caller, Forbidden
from app.config import settings
from app.deletions import service as deletions
from app.errors import Conflict, NotFound
from app.jobs import service as jobs
from app.reports import publisher
from app.reports.render import render_html
from app.reports.schemas import Certificate, ReportSummary
from app.reports.verdict import Action
from app.tables import Attestation, DeletionRequest, Job, JobState, Report, RequestState, Target
from models_store.blobs import BlobStore

_STATEMENTS = {
    RequestState.COMPLETED: (
        "No model version in use was trained on, or still counts among its training rows, a sample that this "
        "request names. The reports say how that was measured and what no measurement can prove."
    ),
    RequestState.CANCELLED: "The request was taken back before anything was done.",
}
_PENDING_STATEMENT = "The request is not finished; this certificate shows where it stands."


def get(session: Session, report_id: uuid.UUID) -> Report:
    """The report. Raises NotFound."""
    report = session.get(Report, report_id)
    if report is None:
        raise NotFound
    return report


def list_reports(session: Session, *, after: int, limit: int) -> Sequence[Report]:
    """Reports in the order they were filed."""
    return session.scalars(
        select(Report).where(Report.ordinal > after).order_by(Report.ordinal).limit(limit)
    ).all()


def page_of(session: Session, report_id: uuid.UUID) -> str:
    """The report as a self-contained HTML page. Raises NotFound."""
    report = get(session, report_id)
    store = BlobStore(settings().store)
    pictures = {
        name: store.get(digest).decode() for name, digest in report.blobs.items() if name.endswith(".svg")
    }
    return render_html(report.body, pictures=pictures)


def attestation_of(session: Session, report_id: uuid.UUID) -> Attestation:
    """The signed envelope of a report. Raises NotFound."""
    found = session.get(Attestation, report_id)
    if found is None:
        raise NotFound
    return found


def approve(session: Session, job_id: uuid.UUID, caller: Caller, reason: str) -> Job:
    """Publish the network of a job that awaits approval. Raises NotFound, Conflict or Forbidden."""
    grounds = f"Approved by {caller.actor}: {reason}"
    return _decide(session, job_id, caller, Action.PUBLISH, grounds)


def reject(session: Session, job_id: uuid.UUID, caller: Caller, reason: str) -> Job:
    """Refuse the network of a job that awaits approval; the next rung follows. Raises as `approve`."""
    grounds = f"Rejected by {caller.actor}: {reason}"
    return _decide(session, job_id, caller, Action.REJECT, grounds)


def _decide(session: Session, job_id: uuid.UUID, caller: Caller, action: Action, grounds: str) -> Job:
    job = _awaiting(session, job_id, caller)
    judgement, proposed = publisher.decide(job)
    decision = replace(proposed, action=action, rule="approved", reason=grounds)
    carry_out = publisher.publish if action is Action.PUBLISH else publisher.reject
    carry_out(session, job, judgement, decision, actor=caller.actor)
    publisher.close(session, job)
    return job


def _awaiting(session: Session, job_id: uuid.UUID, caller: Caller) -> Job:
    job = jobs.locked(session, job_id)
    if job.state is not JobState.AWAITING_APPROVAL:
        raise Conflict(f"The job is {job.state}; it awaits no approval.")
    submitters = (
        select(DeletionRequest.caller_id)
        .join(Target, Target.request_id == DeletionRequest.id)
        .where(Target.job_id == job.id)
    )
    if caller.id in set(session.scalars(submitters)):
        raise Forbidden("Whoever submitted a request may not decide on its result.")
    return job


def certificate(session: Session, request_id: uuid.UUID) -> Certificate:
    """The certificate of a request as it stands now. Raises NotFound."""
    request = deletions.get(session, request_id)
    shown = deletions.view(session, [request])[0]
    job_ids = {target.job_id for target in shown.targets if target.job_id is not None}
    reports = session.scalars(select(Report).where(Report.job_id.in_(job_ids)).order_by(Report.ordinal))
    return Certificate(
        request=shown,
        items=deletions.view_items(session, request_id, after=0, limit=request.item_count),
        reports=[ReportSummary.model_validate(report) for report in reports],
        statement=_STATEMENTS.get(request.state, _PENDING_STATEMENT),
    )
