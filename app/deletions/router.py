"""/v1/deletion-requests: post, list, read, cancel, retry."""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from app.bodies import received
from app.callers.auth import demand, require, require_for_upload
from app.callers.idempotency import Answer, IdempotencyHeader, once
from app.callers.service import Caller, Scope
from app.datasets.schemas import Name
from app.deletions import previews, service
from app.deletions.lists import MEDIA_TYPES, ItemList
from app.deletions.schemas import (
    Accepted,
    Filter,
    ItemView,
    NewRequest,
    NewRequests,
    Preview,
    RequestView,
    UploadTerms,
)
from app.deps import Begin, Db, Paging
from app.errors import Faults, UnsupportedMediaType, documented, documented_with_body
from app.jobs.schemas import Reason
from app.registry import service as registry
from app.registry import views
from app.registry.schemas import ModelView
from app.tables import DeletionRequest, ItemResult

router = APIRouter(
    prefix="/v1/deletion-requests", tags=["deletion requests"], responses=documented(401, 403, 422)
)
models = APIRouter(prefix="/v1/models", tags=["models"], responses=documented(401, 403, 422))
_LIST_BODY = {
    "required": True,
    "content": {
        "application/x-ndjson": {"schema": {"type": "string"}, "example": '{"sample_id": "digits-0042"}\n'},
        "text/csv": {"schema": {"type": "string"}, "example": "sample_id\ndigits-0042\n"},
    },
}
Reader = Annotated[Caller, Depends(require(Scope.DELETIONS_READ))]
Writer = Annotated[Caller, Depends(require(Scope.DELETIONS_WRITE))]


@router.post(
    "",
    status_code=202,
    response_model=RequestView,
    operation_id="create_deletion_request",
    responses=documented_with_body(409),
)
def create(body: NewRequest, session: Db, caller: Writer, key: IdempotencyHeader = None) -> JSONResponse:
    """Ask for samples to be forgotten by every model in use that was trained on them.

    The samples are barred from training at once. Items that are not found are kept and say `no_match`.
    """

    def act() -> Answer:
        return _accepted(session, service.accept(session, body, caller))

    return once(session, caller, key, route="deletion-requests", payload=body, act=act)


@router.post(
    "/bulk",
    status_code=202,
    response_model=Accepted,
    operation_id="create_deletion_requests",
    responses=documented_with_body(409),
)
def create_all(body: NewRequests, session: Db, caller: Writer, key: IdempotencyHeader = None) -> JSONResponse:
    """Post up to a hundred requests at once: all of them are accepted, or none."""

    def act() -> Answer:
        accepted = service.accept_all(session, body.requests, caller)
        for request in accepted:
            session.refresh(request)
        return Answer(Accepted(requests=service.view(session, accepted)))

    return once(session, caller, key, route="deletion-requests/bulk", payload=body, act=act)


@router.post(
    "/upload",
    status_code=202,
    response_model=RequestView,
    operation_id="upload_deletion_request",
    responses=documented_with_body(409, 415),
    openapi_extra={"requestBody": _LIST_BODY},
)
async def upload(
    request: Request,
    caller: Annotated[Caller, Depends(require_for_upload(Scope.DELETIONS_WRITE))],
    terms: Annotated[UploadTerms, Query()],
    begin: Begin,
    external_id: Annotated[str | None, Header(alias="External-Id", min_length=1, max_length=200)] = None,
    key: IdempotencyHeader = None,
) -> JSONResponse:
    """Post a request whose items are a file, of up to a million lines or more.

    One JSON object a line (`application/x-ndjson`), or CSV with a header (`text/csv`): `sample_id` or
    `subject`, and optionally `dataset`. Faults are named by line.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in MEDIA_TYPES or request.headers.get("content-encoding", "identity") != "identity":
        raise UnsupportedMediaType(f"Send {' or '.join(MEDIA_TYPES)}, not compressed.")
    async with received(request) as body:
        items = ItemList(body.file, media_type, Faults())
        sent = f"{body.digest} {terms.model_dump_json()} {external_id}"
        chosen = service.Terms(external_id=external_id, **terms.model_dump(exclude={"dataset"}))

        def accept() -> JSONResponse:
            with begin() as session:

                def act() -> Answer:
                    return _accepted(
                        session, service.accept_list(session, items, terms.dataset, chosen, caller)
                    )

                return once(session, caller, key, route="deletion-requests/upload", payload=sent, act=act)

        return await run_in_threadpool(accept)


def _accepted(session: Session, request: DeletionRequest) -> Answer:
    session.refresh(request)
    where = f"/v1/deletion-requests/{request.id}"
    return Answer(service.view(session, [request])[0], location=where)


@router.post("/preview", operation_id="preview_deletion_request", responses=documented_with_body())
def preview(
    body: NewRequest,
    session: Db,
    caller: Reader,
    probe: Annotated[
        bool, Query(description="Also have a job measure what forgetting would take; needs `jobs:write`.")
    ] = False,
) -> Preview:
    """Say what a request would do: models concerned, cost, what would be left behind. Nothing is deleted."""
    if probe:
        demand(caller, Scope.JOBS_WRITE)
    return previews.preview(session, body, probing=caller.actor if probe else None)


@router.get("", operation_id="list_deletion_requests")
def list_requests(
    session: Db,
    _caller: Reader,
    paging: Paging,
    request: Request,
    response: Response,
    wanted: Annotated[Filter, Query()],
) -> list[RequestView]:
    """Requests in the order they were received."""
    found = service.list_requests(session, wanted, after=paging.after, limit=paging.limit + 1)
    return service.view(session, paging.cut(found, request, response))


@router.get("/{request_id}", operation_id="read_deletion_request", responses=documented(404))
def read(request_id: uuid.UUID, session: Db, _caller: Reader) -> RequestView:
    """One request: what was found, which models are concerned, and where each stands."""
    return service.view(session, [service.get(session, request_id)])[0]


@router.get("/{request_id}/items", operation_id="list_deletion_items", responses=documented(404))
def items(
    request_id: uuid.UUID,
    session: Db,
    _caller: Reader,
    paging: Paging,
    request: Request,
    response: Response,
    result: ItemResult | None = None,
) -> list[ItemView]:
    """The request's items in their order, each with what was found for it."""
    found = service.view_items(session, request_id, after=paging.after, limit=paging.limit + 1, result=result)
    return list(paging.cut(found, request, response))


@router.post(
    "/{request_id}/cancel", operation_id="cancel_deletion_request", responses=documented_with_body(404, 409)
)
def cancel(request_id: uuid.UUID, body: Reason, session: Db, caller: Writer) -> RequestView:
    """Take a request back while nothing was done for it; its samples may then train again."""
    request = service.cancel(session, request_id, body.reason, actor=caller.actor)
    return service.view(session, [request])[0]


@router.post(
    "/{request_id}/deny", operation_id="deny_deletion_request", responses=documented_with_body(404, 409)
)
def deny(request_id: uuid.UUID, body: Reason, session: Db, caller: Writer) -> RequestView:
    """Refuse a request, saying why, while nothing was done for it; its samples may then train again."""
    request = service.deny(session, request_id, body.reason, actor=caller.actor)
    return service.view(session, [request])[0]


@router.post(
    "/{request_id}/retry", operation_id="retry_deletion_request", responses=documented_with_body(404, 409)
)
def retry(request_id: uuid.UUID, body: Reason, session: Db, caller: Writer) -> RequestView:
    """Try the models that failed once more."""
    request = service.retry(session, request_id, body.reason, actor=caller.actor)
    return service.view(session, [request])[0]


@models.post("/{name}/retire", operation_id="retire_model", responses=documented_with_body(404, 409))
def retire_model(
    name: Name,
    body: Reason,
    session: Db,
    caller: Annotated[Caller, Depends(require(Scope.MODELS_WRITE))],
) -> ModelView:
    """Retire a model: its aliases go, its jobs are cancelled, and it has nothing left to forget."""
    model = registry.get(session, name)
    service.retire_model(session, model, body.reason, actor=caller.actor)
    session.flush()
    return views.view(session, model)
