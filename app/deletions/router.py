"""/v1/deletion-requests: post, list, read, cancel, retry."""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse

from app.callers.auth import require
from app.callers.idempotency import Answer, IdempotencyHeader, once
from app.callers.service import Caller, Scope
from app.deletions import service
from app.deletions.schemas import ItemView, NewRequest, RequestView
from app.deps import Db, Paging
from app.errors import documented, documented_with_body
from app.jobs.schemas import Reason
from app.tables import RequestState

router = APIRouter(
    prefix="/v1/deletion-requests", tags=["deletion requests"], responses=documented(401, 403, 422)
)
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
        request = service.accept(session, body, caller)
        session.refresh(request)
        return Answer(service.view(session, [request])[0], location=f"/v1/deletion-requests/{request.id}")

    return once(session, caller, key, route="deletion-requests", payload=body, act=act)


@router.get("", operation_id="list_deletion_requests")
def list_requests(
    session: Db,
    _caller: Reader,
    paging: Paging,
    request: Request,
    response: Response,
    state: RequestState | None = None,
) -> list[RequestView]:
    """Requests in the order they were received."""
    found = service.list_requests(session, after=paging.after, limit=paging.limit + 1, state=state)
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
    after: Annotated[int, Query(ge=0, lt=2**31, description="The first position wanted.")] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> list[ItemView]:
    """The request's items, each with what was found for it."""
    return service.view_items(session, request_id, after=after, limit=limit)


@router.post(
    "/{request_id}/cancel", operation_id="cancel_deletion_request", responses=documented_with_body(404, 409)
)
def cancel(request_id: uuid.UUID, body: Reason, session: Db, caller: Writer) -> RequestView:
    """Take a request back while nothing was done for it; its samples may then train again."""
    request = service.cancel(session, request_id, body.reason, actor=caller.actor)
    return service.view(session, [request])[0]


@router.post(
    "/{request_id}/retry", operation_id="retry_deletion_request", responses=documented_with_body(404, 409)
)
def retry(request_id: uuid.UUID, body: Reason, session: Db, caller: Writer) -> RequestView:
    """Try the models that failed once more."""
    request = service.retry(session, request_id, body.reason, actor=caller.actor)
    return service.view(session, [request])[0]
