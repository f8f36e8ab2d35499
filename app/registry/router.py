"""/v1/models: register, train, look at versions, set policies, move aliases."""

from __future__ import annotations

import base64
import re
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from app.callers.auth import require, require_for_upload
from app.callers.idempotency import Answer, IdempotencyHeader, once
from app.callers.service import Caller, Scope
from app.datasets.schemas import Name
from app.deps import Db, Paging
from app.errors import NotFound, documented, documented_with_body
from app.jobs.policies import Policy
from app.jobs.schemas import Reason
from app.registry import (
    comparisons,
    memorisation,
    policies,
    readiness,
    registration,
    service,
    shadows,
    uploads,
    views,
)
from app.registry.schemas import (
    AliasMove,
    Digest,
    Lineage,
    MemorisationLookup,
    MemorisationView,
    ModelView,
    NewComparison,
    NewModel,
    NewReadiness,
    NewShadows,
    PolicyView,
    PoolsExtended,
    ReadinessView,
    Registered,
    SampleScores,
    Started,
    Training,
    Uploaded,
    VersionNumber,
    VersionUpload,
    VersionView,
)
from app.tables import VersionState

router = APIRouter(prefix="/v1/models", tags=["models"], responses=documented(401, 403, 422))
weights = APIRouter(prefix="/v1/weights", tags=["models"], responses=documented(401, 403, 422))
_WEIGHTS_BODY = {
    "required": True,
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}
Reader = Annotated[Caller, Depends(require(Scope.MODELS_READ))]
Writer = Annotated[Caller, Depends(require(Scope.MODELS_WRITE))]


@router.post("", status_code=201, operation_id="register_model", responses=documented_with_body(409))
def register(body: NewModel, session: Db, caller: Writer) -> ModelView:
    """Register a model under a name, with the policy for deletions from it."""
    model = service.create(session, body, actor=caller.actor)
    session.refresh(model)
    return views.view(session, model)


@router.get("", operation_id="list_models")
def list_models(
    session: Db,
    _caller: Reader,
    paging: Paging,
    request: Request,
    response: Response,
    retired: Annotated[bool | None, Query(description="Only retired models, or only others.")] = None,
) -> list[ModelView]:
    """Models in the order they were registered."""
    found = service.list_models(session, after=paging.after, limit=paging.limit + 1, retired=retired)
    return [views.view(session, model) for model in paging.cut(found, request, response)]


@router.get("/{name}", operation_id="read_model", responses=documented(404))
def read(name: Name, session: Db, _caller: Reader) -> ModelView:
    """One model: what its aliases name, and its policy in force."""
    return views.view(session, service.get(session, name))


@router.get("/{name}/versions", operation_id="list_model_versions", responses=documented(404))
def versions(
    name: Name,
    session: Db,
    _caller: Reader,
    paging: Paging,
    request: Request,
    response: Response,
    state: Annotated[list[VersionState] | None, Query(description="One of these.")] = None,
) -> list[VersionView]:
    """The model's versions, oldest first: where each came from, and on how many rows it stands."""
    model = service.get(session, name)
    found = service.versions_of(
        session, model, after=paging.after, limit=paging.limit + 1, states=state or ()
    )
    return views.view_versions(session, paging.cut(found, request, response))


@weights.put(
    "/{digest}",
    status_code=201,
    operation_id="upload_weights",
    responses={
        200: {"model": Uploaded, "description": "The store had it already."},
        **documented_with_body(),
    },
    openapi_extra={"requestBody": _WEIGHTS_BODY},
)
async def upload_weights(
    digest: Digest,
    request: Request,
    response: Response,
    _caller: Annotated[Caller, Depends(require_for_upload(Scope.MODELS_WRITE))],
) -> Uploaded:
    """Upload a safetensors file to the address of its SHA-256. Sending it again changes nothing."""
    kept = await uploads.receive(digest, request.stream())
    response.status_code = 201 if kept.is_new else 200
    return kept.view


@router.post(
    "/{name}/versions",
    status_code=202,
    response_model=Registered,
    operation_id="register_version",
    responses=documented_with_body(404, 409),
)
def register_version(
    name: Name, body: VersionUpload, session: Db, caller: Writer, key: IdempotencyHeader = None
) -> JSONResponse:
    """Register uploaded weights as a version of the model; a job validates them."""

    def act() -> Answer:
        done = registration.register(session, service.get(session, name), body, actor=caller.actor)
        return Answer(done, location=f"/v1/models/{name}/versions/{done.version}")

    return once(session, caller, key, route=f"register {name}", payload=body, act=act)


@router.get("/{name}/versions/{number}", operation_id="read_version", responses=documented(404))
def read_version(name: Name, number: VersionNumber, session: Db, _caller: Reader) -> VersionView:
    """One version: its rows, its figures, and what validation found."""
    version = service.get_version(session, service.get(session, name), number)
    return views.view_versions(session, [version])[0]


@router.get(
    "/{name}/versions/{number}/weights",
    operation_id="download_weights",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
        304: {"description": "You have it already."},
        **documented(404),
    },
)
def download_weights(
    name: Name,
    number: VersionNumber,
    session: Db,
    _caller: Reader,
    known: Annotated[str | None, Header(alias="If-None-Match", max_length=1000)] = None,
) -> Response:
    """The version's weights as a safetensors file. A file that was damaged in the store breaks off."""
    version = service.get_version(session, service.get(session, name), number)
    if version.weights is None:
        raise NotFound("The version has no weights.")
    headers = {"ETag": f'"{version.weights}"'}
    if version.weights in re.findall(r'"([0-9a-f]{64})"', known or ""):
        return Response(status_code=304, headers=headers)
    digest = base64.b64encode(bytes.fromhex(version.weights)).decode()
    headers |= {
        "Content-Length": str(uploads.size_of(version.weights)),
        "Content-Disposition": f'attachment; filename="{name}-{number}.safetensors"',
        "Repr-Digest": f"sha-256=:{digest}:",
    }
    return StreamingResponse(
        uploads.store().chunks(version.weights), headers=headers, media_type="application/octet-stream"
    )


@router.get("/{name}/versions/{number}/lineage", operation_id="read_lineage", responses=documented(404))
def read_lineage(name: Name, number: VersionNumber, session: Db, _caller: Reader) -> Lineage:
    """Where a version came from, and what came of it."""
    return views.lineage(session, service.get_version(session, service.get(session, name), number))


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


@router.post(
    "/{name}/versions/{number}/compare",
    status_code=202,
    response_model=Started,
    operation_id="compare_methods",
    responses=documented_with_body(404, 409),
)
def compare(
    name: Name,
    number: VersionNumber,
    body: NewComparison,
    session: Db,
    caller: Writer,
    key: IdempotencyHeader = None,
) -> JSONResponse:
    """Compare unlearning methods on a version. Nothing is deleted or published; a reference is retrained."""

    def act() -> Answer:
        model = service.get(session, name)
        version = service.get_version(session, model, number)
        job = comparisons.start(session, model, version, body, actor=caller.actor)
        return Answer(Started(job_id=job.id), location=f"/v1/comparisons/{job.id}")

    return once(session, caller, key, route=f"compare {name} {number}", payload=body, act=act)


@router.post(
    "/{name}/versions/{number}/memorisation",
    status_code=202,
    response_model=PoolsExtended,
    operation_id="estimate_memorisation",
    responses=documented_with_body(404, 409),
)
def estimate_memorisation(
    name: Name,
    number: VersionNumber,
    body: NewShadows,
    session: Db,
    caller: Writer,
    key: IdempotencyHeader = None,
) -> JSONResponse:
    """Train networks on random shares of a version's rows; from all of them memorisation is estimated.

    A pool that has some of the networks gets those that it lacks, a job each.
    """

    def act() -> Answer:
        model = service.get(session, name)
        version = service.get_version(session, model, number)
        queued = shadows.extend(session, model, version, body, actor=caller.actor)
        answer = PoolsExtended(queued=queued, pools=shadows.pools(session, version))
        return Answer(answer, location=f"/v1/models/{name}/versions/{number}/memorisation")

    return once(session, caller, key, route=f"memorisation {name} {number}", payload=body, act=act)


@router.get(
    "/{name}/versions/{number}/memorisation", operation_id="read_memorisation", responses=documented(404)
)
def read_memorisation(name: Name, number: VersionNumber, session: Db, _caller: Reader) -> MemorisationView:
    """How far a version has memorised its rows, in figures, and where the pools for it stand."""
    return memorisation.view(session, service.get_version(session, service.get(session, name), number))


@router.post(
    "/{name}/versions/{number}/memorisation:lookup",
    operation_id="look_up_memorisation",
    responses=documented_with_body(404, 409),
)
def look_up_memorisation(
    name: Name, number: VersionNumber, body: MemorisationLookup, session: Db, _caller: Reader
) -> SampleScores:
    """How far a version has memorised single samples: the estimate with its standard error, and the proxy."""
    version = service.get_version(session, service.get(session, name), number)
    return memorisation.look_up(session, version, body.sample_ids)


@router.post(
    "/{name}/versions/{number}/readiness",
    status_code=202,
    response_model=Started,
    operation_id="measure_readiness",
    responses=documented_with_body(404, 409),
)
def measure_readiness(
    name: Name,
    number: VersionNumber,
    body: NewReadiness,
    session: Db,
    caller: Writer,
    key: IdempotencyHeader = None,
) -> JSONResponse:
    """Measure how hard deletions from a version will be, before there is any. Nothing is changed."""

    def act() -> Answer:
        model = service.get(session, name)
        version = service.get_version(session, model, number)
        job = readiness.start(session, model, version, body, actor=caller.actor)
        return Answer(Started(job_id=job.id), location=f"/v1/models/{name}/versions/{number}/readiness")

    return once(session, caller, key, route=f"readiness {name} {number}", payload=body, act=act)


@router.get("/{name}/versions/{number}/readiness", operation_id="read_readiness", responses=documented(404))
def read_readiness(name: Name, number: VersionNumber, session: Db, _caller: Reader) -> ReadinessView:
    """What the newest measurement of a version's readiness found."""
    return readiness.view(session, service.get_version(session, service.get(session, name), number))


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
    return views.view(session, model)


@router.post(
    "/{name}/aliases/{alias}/remove", operation_id="remove_alias", responses=documented_with_body(404)
)
def remove_alias(name: Name, alias: Name, body: Reason, session: Db, caller: Writer) -> ModelView:
    """Have an alias name nothing any more."""
    model = service.get(session, name)
    service.remove_alias(session, model, alias, actor=caller.actor, reason=body.reason)
    session.flush()
    return views.view(session, model)
