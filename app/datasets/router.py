"""/v1/datasets: register, list, inspect, retire."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse

from app.callers.auth import require
from app.callers.idempotency import Answer, IdempotencyHeader, once
from app.callers.service import Caller, Scope
from app.datasets import lookup, service
from app.datasets.schemas import (
    DatasetView,
    Lookup,
    LookupResult,
    Name,
    NewDataset,
    PoisonedSample,
    Registration,
)
from app.deps import Db, Paging
from app.errors import documented, documented_with_body
from app.jobs.schemas import Reason

router = APIRouter(prefix="/v1/datasets", tags=["data sets"], responses=documented(401, 403, 422))
Reader = Annotated[Caller, Depends(require(Scope.DATASETS_READ))]
Writer = Annotated[Caller, Depends(require(Scope.DATASETS_WRITE))]


@router.post(
    "",
    status_code=202,
    response_model=Registration,
    operation_id="register_dataset",
    responses=documented_with_body(409),
)
def register(body: NewDataset, session: Db, caller: Writer, key: IdempotencyHeader = None) -> JSONResponse:
    """Register a data set (again, if the name is known: that makes a new version). A job reads its rows."""

    def act() -> Answer:
        version, job = service.register(session, body, actor=caller.actor)
        session.refresh(version)
        answer = Registration(dataset=service.view(version, body.name), job_id=job.id)
        return Answer(answer, location=f"/v1/datasets/{body.name}")

    return once(session, caller, key, route="datasets", payload=body, act=act)


@router.get("", operation_id="list_datasets")
def list_datasets(
    session: Db, _caller: Reader, paging: Paging, request: Request, response: Response
) -> list[DatasetView]:
    """Data sets, each by its newest version."""
    found = service.list_datasets(session, after=paging.after, limit=paging.limit + 1)
    names = [dataset.name for dataset in paging.cut(found, request, response)]
    return [service.versions_of(session, name)[0] for name in names]


@router.get("/{name}", operation_id="read_dataset", responses=documented(404))
def read(name: Name, session: Db, _caller: Reader) -> list[DatasetView]:
    """Every version of a data set, newest first, with the faults of those that could not be registered."""
    return service.versions_of(session, name)


@router.post("/{name}/retire", operation_id="retire_dataset", responses=documented_with_body(404, 409))
def retire(name: Name, body: Reason, session: Db, caller: Writer) -> list[DatasetView]:
    """Retire a data set: nothing trains on it, and no deletion can name it, any more."""
    return service.retire(session, name, body.reason, actor=caller.actor)


@router.post("/{name}/samples:lookup", operation_id="look_up_samples", responses=documented_with_body(404))
def look_up(name: Name, body: Lookup, session: Db, _caller: Reader) -> LookupResult:
    """Look samples and people up: in which versions they are, for what, and whether they were deleted."""
    return lookup.look_up(session, name, body)


@router.get("/{name}/poisoned-samples", operation_id="list_poisoned_samples", responses=documented(404))
def poisoned_samples(
    name: Name,
    session: Db,
    _caller: Reader,
    paging: Paging,
    request: Request,
    response: Response,
    dataset_version: Annotated[
        int | None, Query(ge=1, lt=2**31, description="The newest ready one if left out.")
    ] = None,
) -> list[PoisonedSample]:
    """The samples that were poisoned for an experiment, so that a deletion request can name them."""
    found = lookup.poisoned(session, name, dataset_version, after=paging.after, limit=paging.limit + 1)
    return list(paging.cut(found, request, response))
