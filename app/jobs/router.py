"""/v1/jobs and /v1/methods: what is computed, and what could be."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field

from app.callers.auth import require
from app.callers.service import Caller, Scope
from app.config import settings
from app.deps import Db, Paging
from app.errors import documented, documented_with_body
from app.jobs import service
from app.jobs.params import (
    METHODS,
    READERS,
    TORCHVISION_CLASSIFIERS,
    architecture_schema,
    method_schema,
    reader_schema,
)
from app.jobs.schemas import JobView, Reason
from app.tables import Job, JobState

router = APIRouter(prefix="/v1", tags=["jobs"], responses=documented(401, 403, 422))
Reader = Annotated[Caller, Depends(require(Scope.JOBS_READ))]
Writer = Annotated[Caller, Depends(require(Scope.JOBS_WRITE))]


class Method(BaseModel):
    """An unlearning method: what it does, what it costs, where it comes from."""

    name: str
    summary: str
    use: str = Field(description="When to choose it.")
    passes_per_step: int | None = Field(
        description="Forward/backward passes with a plain objective; null if it takes no steps."
    )
    passes: str = Field(description="All passes, in words.")
    parameter_copies: int = Field(
        description="Memory besides the weights and their gradient, as a multiple of the weights."
    )
    exact: bool
    source: str
    parameters: dict[str, Any]


@router.get("/jobs", operation_id="list_jobs")
def list_jobs(
    session: Db,
    _caller: Reader,
    paging: Paging,
    request: Request,
    response: Response,
    state: JobState | None = None,
) -> list[JobView]:
    """Jobs in the order they were made."""
    found = service.list_jobs(session, after=paging.after, limit=paging.limit + 1, state=state)
    jobs = paging.cut(found, request, response)
    ids = [job.id for job in jobs]
    progress, waits = service.progress_of(session, ids), service.waits_of(session, ids)
    return [JobView.of(job, progress, waits) for job in jobs]


@router.get("/jobs/{job_id}", operation_id="read_job", responses=documented(404))
def read_job(job_id: uuid.UUID, session: Db, _caller: Reader) -> JobView:
    """One job, with its live progress."""
    return _view(session, service.get(session, job_id))


@router.post("/jobs/{job_id}/cancel", operation_id="cancel_job", responses=documented_with_body(404, 409))
def cancel_job(job_id: uuid.UUID, body: Reason, session: Db, caller: Writer) -> JobView:
    """Cancel a job: at once if it waits, at its next step if it runs."""
    return _view(session, service.request_cancel(session, job_id, caller, body.reason))


@router.get("/methods", operation_id="list_methods")
def list_methods(_caller: Reader) -> list[Method]:
    """Every unlearning method with the JSON schema of its parameters, its cost and its source."""
    return [
        Method(
            name=name,
            summary=info.summary,
            use=info.use,
            passes_per_step=info.passes_per_step,
            passes=info.passes,
            parameter_copies=info.parameter_copies,
            exact=info.exact,
            source=info.source,
            parameters=method_schema(name),
        )
        for name, info in METHODS.items()
    ]


class ReaderDescription(BaseModel):
    """A reader of data sets."""

    name: str
    summary: str
    needs_location: bool
    options: dict[str, Any] = Field(description="JSON schema.")


class ArchitectureDescription(BaseModel):
    """How a network is named."""

    parameters: dict[str, Any] = Field(description="JSON schema.")
    torchvision: list[str] = Field(description="The names of torchvision's classifiers.")
    plugins: list[str] = Field(description="The names that the operator has approved.")


@router.get("/readers", operation_id="list_readers")
def list_readers(_caller: Reader) -> list[ReaderDescription]:
    """Every reader of data sets with the JSON schema of its options."""
    return [
        ReaderDescription(
            name=name,
            summary=info.summary,
            needs_location=info.needs_location,
            options=reader_schema(name),
        )
        for name, info in READERS.items()
    ]


@router.get("/architectures", operation_id="list_architectures")
def list_architectures(_caller: Reader) -> ArchitectureDescription:
    """Every network that can be trained here or uploaded."""
    return ArchitectureDescription(
        parameters=architecture_schema(),
        torchvision=list(TORCHVISION_CLASSIFIERS),
        plugins=list(settings().network_plugins),
    )


def _view(session: Db, job: Job) -> JobView:
    session.flush()
    return JobView.of(job, service.progress_of(session, [job.id]), service.waits_of(session, [job.id]))
