"""/v1/models: register, train, look at versions, set policies, move aliases."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from app.callers.auth import require
from app.callers.idempotency import Answer, IdempotencyHeader, once
from app.callers.service import Caller, Scope
from app.datasets.schemas import Name
from app.deps import Db, Paging
from app.errors import documented, documented_with_body
from app.jobs.policies import Policy
from app.registry import policies, service
from app.registry.schemas import AliasMove, ModelView, NewModel, PolicyView, Started, Training, VersionView

router = APIRouter(prefix="/v1/models", tags=["models"], responses=documented(401, 403, 422))
Reader = Annotated[Caller, Depends(require(Scope.MODELS_READ))]
Writer = Annotated[Caller, Depends(require(Scope.MODELS_WRITE))]


@router.post("", status_code=201, operation_id="register_model", responses=documented_with_body(409))
def register(body: NewModel, session: Db, caller: Writer) -> ModelView:
    """Register a model under a name, with the policy for deletions from it."""
    model = service.create(session, body, actor=caller.actor)
    session.refresh(model)
    return service.view(session, model)


@router.get("", operation_id="list_models")
def list_models(
    session: Db, _caller: Reader, paging: Paging, request: Request, response: Response
) -> list[ModelView]:
    """Models in the order they were registered."""
    found = service.list_models(session, after=paging.after, limit=paging.limit + 1)
    return [service.view(session, model) for model in paging.cut(found, request, response)]


@router.get("/{name}", operation_id="read_model", responses=documented(404))
def read(name: Name, session: Db, _caller: Reader) -> ModelView:
    """One model: what its aliases name, and its policy in force."""
    return service.view(session, service.get(session, name))


@router.get("/{name}/versions", operation_id="list_model_versions", responses=documented(404))
def versions(
    name: Name, session: Db, _caller: Reader, paging: Paging, request: Request, response: Response
) -> list[VersionView]:
    """The model's versions, oldest first: where each came from, and on how many rows it stands."""
    model = service.get(session, name)
    found = service.versions_of(session, model, after=paging.after, limit=paging.limit + 1)
    return service.view_versions(session, paging.cut(found, request, response))


@router.post(
    "/{name}/train",
    status_code=202,
    response_model=Started,
    operation_id="train_model",
    responses=documented_with_body(404),
)
def train(
    name: Name, body: Training, session: Db, caller: Writer, key: IdempotencyHeader = None
) -> JSONResponse:
    """Train a new version from scratch on the data set's training rows, less those that were deleted."""

    def act() -> Answer:
        job = service.train(session, service.get(session, name), body, actor=caller.actor)
        return Answer(Started(job_id=job.id), location=f"/v1/jobs/{job.id}")

    return once(session, caller, key, route=f"train {name}", payload=body, act=act)


@router.put("/{name}/policy", operation_id="set_policy", responses=documented_with_body(404, 409))
def set_policy(name: Name, body: Policy, session: Db, caller: Writer) -> PolicyView:
    """Set the model's policy: a new, numbered version. Jobs already planned keep the one they have."""
    version = policies.set_policy(session, service.get(session, name), body, actor=caller.actor)
    session.refresh(version)
    return PolicyView.model_validate(version)


@router.put("/{name}/aliases/{alias}", operation_id="move_alias", responses=documented_with_body(404, 409))
def move_alias(name: Name, alias: Name, body: AliasMove, session: Db, caller: Writer) -> ModelView:
    """Have an alias name a version; refused for a version that holds deleted rows."""
    model = service.get(session, name)
    version = service.version_to_name(session, model, body.version)
    service.set_alias(session, version, alias, actor=caller.actor, reason=body.reason)
    session.flush()
    return service.view(session, model)
