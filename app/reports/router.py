"""/v1/reports, certificates, and the decisions that a policy leaves to a person."""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import HTMLResponse

from app.callers.auth import require
from app.callers.service import Caller, Scope
from app.deps import Db, Paging
from app.errors import documented, documented_with_body
from app.jobs import service as jobs
from app.jobs.schemas import JobView
from app.reports import comparisons, service
from app.reports.schemas import (
    Approval,
    AttestationView,
    Certificate,
    ComparisonView,
    ReportSummary,
    ReportView,
)
from app.tables import Job

router = APIRouter(prefix="/v1", tags=["reports"], responses=documented(401, 403, 422))
Reader = Annotated[Caller, Depends(require(Scope.REPORTS_READ))]
Requester = Annotated[Caller, Depends(require(Scope.DELETIONS_READ))]
Approver = Annotated[Caller, Depends(require(Scope.JOBS_APPROVE))]


@router.get("/reports", operation_id="list_reports")
def list_reports(
    session: Db, _caller: Reader, paging: Paging, request: Request, response: Response
) -> list[ReportSummary]:
    """Reports in the order they were filed."""
    found = service.list_reports(session, after=paging.after, limit=paging.limit + 1)
    return [ReportSummary.model_validate(report) for report in paging.cut(found, request, response)]


@router.get("/reports/{report_id}", operation_id="read_report", responses=documented(404))
def read_report(report_id: uuid.UUID, session: Db, _caller: Reader) -> ReportView:
    """One report, as data."""
    return ReportView.model_validate(service.get(session, report_id), from_attributes=True)


@router.get(
    "/reports/{report_id}/html",
    operation_id="read_report_page",
    response_class=HTMLResponse,
    responses=documented(404),
)
def read_report_page(report_id: uuid.UUID, session: Db, _caller: Reader) -> HTMLResponse:
    """One report, as a self-contained page for people."""
    return HTMLResponse(service.page_of(session, report_id))


@router.get("/reports/{report_id}/attestation", operation_id="read_attestation", responses=documented(404))
def read_attestation(report_id: uuid.UUID, session: Db, _caller: Reader) -> AttestationView:
    """The signed envelope of a report; it verifies without this service."""
    return AttestationView.model_validate(service.attestation_of(session, report_id))


@router.get("/comparisons/{job_id}", operation_id="read_comparison", responses=documented(404))
def read_comparison(job_id: uuid.UUID, session: Db, _caller: Reader) -> ComparisonView:
    """What a comparison of methods has come to so far."""
    return comparisons.view(session, jobs.get(session, job_id))


@router.get(
    "/deletion-requests/{request_id}/certificate",
    operation_id="read_certificate",
    responses=documented(404),
)
def read_certificate(request_id: uuid.UUID, session: Db, _caller: Requester) -> Certificate:
    """What one request gets: its items, what was done for each model, and the verdicts."""
    return service.certificate(session, request_id)


@router.post("/jobs/{job_id}/approve", operation_id="approve_job", responses=documented_with_body(404, 409))
def approve_job(job_id: uuid.UUID, body: Approval, session: Db, caller: Approver) -> JobView:
    """Publish the network of a job that awaits approval. The approver is not the submitter."""
    return _view(session, service.approve(session, job_id, caller, body.reason))


@router.post("/jobs/{job_id}/reject", operation_id="reject_job", responses=documented_with_body(404, 409))
def reject_job(job_id: uuid.UUID, body: Approval, session: Db, caller: Approver) -> JobView:
    """Refuse the network of a job that awaits approval; the policy's next method follows."""
    return _view(session, service.reject(session, job_id, caller, body.reason))


def _view(session: Db, job: Job) -> JobView:
    session.flush()
    return JobView.of(job, jobs.progress_of(session, [job.id]), jobs.waits_of(session, [job.id]))
