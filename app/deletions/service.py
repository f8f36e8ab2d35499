"""Accepting, showing, cancelling and finishing deletion requests."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.callers.service import Caller
from app.datasets import rows as row_sets
from app.datasets import tombstones
from app.datasets.matching import Matches
from app.deletions import filtering, lists, repository
from app.deletions.lists import ItemList
from app.deletions.matching import Naming, batched, json_pointer, match
from app.deletions.schemas import Filter, ItemCounts, ItemView, NewRequest, RequestView, TargetView
from app.errors import Conflict, Faults, NotFound
from app.events import service as events
from app.pseudonyms import pseudonyms
from app.registry import policies
from app.registry import service as registry
from app.tables import (
    DeletionRequest,
    ItemResult,
    Model,
    RequestState,
    Target,
    TargetState,
)

DEFAULT_DUE_DAYS = 30
LATEST_DUE = timedelta(days=3650)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a caller asks for besides the samples themselves."""

    external_id: str | None = None
    regulation: str = "gdpr"
    due_at: datetime | None = None
    audit_budget: int = 0


def accept(session: Session, new: NewRequest, caller: Caller) -> DeletionRequest:
    """Take one request in. Raises as `accept_naming`."""
    return accept_naming(session, naming_of(new), terms_of(new), caller)


def accept_all(session: Session, requests: Sequence[NewRequest], caller: Caller) -> list[DeletionRequest]:
    """Take all these requests in, or none. Raises as `accept_naming`, naming the faults of every one."""
    faults = Faults()
    accepted: list[DeletionRequest] = []
    for number, new in enumerate(requests):
        at = f"/requests/{number}"
        matches = _match(session, naming_of(new, at), terms_of(new), faults, at)
        if not faults.count:
            accepted.append(_take_in(session, matches, terms_of(new), caller))
    faults.raise_any()
    return accepted


def naming_of(new: NewRequest, at: str = "") -> Naming:
    """The items of a request that came as JSON."""
    return Naming(dataset=new.dataset, batches=batched(enumerate(new.items)), pointer=json_pointer(at))


def terms_of(new: NewRequest) -> Terms:
    """The terms of a request that came as JSON."""
    return Terms(
        external_id=new.external_id,
        regulation=new.regulation,
        due_at=new.due_at,
        audit_budget=new.audit_budget,
    )


def accept_list(
    session: Session, items: ItemList, dataset: str | None, terms: Terms, caller: Caller
) -> DeletionRequest:
    """Take a request in whose items are a file. Raises as `accept_naming`, faults by line."""
    naming = Naming(dataset=dataset, batches=items, pointer=lists.pointer)
    return accept_naming(session, naming, terms, caller, faults=items.faults)


def accept_naming(
    session: Session, naming: Naming, terms: Terms, caller: Caller, *, faults: Faults | None = None
) -> DeletionRequest:
    """Take a request in, all of it in this transaction: items, tombstones, a target a model.

    `faults` holds what going through the items finds wrong with them.

    Raises:
        Invalid: the request has faults, all of them named; nothing was done.
        Conflict: this caller has used the external ID before.
    """
    faults = faults or Faults()
    matches = _match(session, naming, terms, faults)
    faults.raise_any()
    return _take_in(session, matches, terms, caller)


def _match(session: Session, naming: Naming, terms: Terms, faults: Faults, at: str = "") -> Matches:
    now = datetime.now(UTC)
    if terms.due_at is not None and not now < terms.due_at < now + LATEST_DUE:
        faults.add(f"{at}/due_at", f"must lie within the next {LATEST_DUE.days} days")
    return match(session, naming, pseudonyms(), faults, at=at)


def _take_in(session: Session, matches: Matches, terms: Terms, caller: Caller) -> DeletionRequest:
    names, request_id = pseudonyms(), uuid.uuid4()
    _refuse_twin(session, terms, caller)
    matched = repository.add_items(session, matches, request_id, names.key_id)
    tombstones.bury(session, matches, request_id, names)
    registry.hold_aliases(session)
    models = models_holding(session, request_id, list(matches.homes))
    request = DeletionRequest(
        id=request_id,
        caller_id=caller.id,
        external_id=terms.external_id,
        regulation=terms.regulation,
        audit_budget=terms.audit_budget,
        item_count=matches.count,
        matched_count=matched,
        due_at=terms.due_at or _due(session, models),
    )
    session.add(request)
    session.flush()
    session.add_all(Target(request_id=request.id, model_id=model_id) for model_id in models)
    _announce(session, request, caller.actor, models)
    finish_if_untargeted(session, request, models, actor=caller.actor)
    session.flush()
    return request


def finish_if_untargeted(
    session: Session, request: DeletionRequest, models: Sequence[uuid.UUID], *, actor: str
) -> None:
    """A request that no model is concerned by has nothing to wait for."""
    if not models:
        request.complete("no model in use was trained on these rows", actor=actor)
        _finished(session, request)


def _refuse_twin(session: Session, terms: Terms, caller: Caller) -> None:
    if terms.external_id is not None:
        twin = select(DeletionRequest.id).filter_by(caller_id=caller.id, external_id=terms.external_id)
        if session.scalar(twin) is not None:
            raise Conflict("You have posted a request with this external ID before.")


def models_holding(
    session: Session, request_id: uuid.UUID, dataset_version_ids: Sequence[uuid.UUID]
) -> list[uuid.UUID]:
    """The models of which some aliased version, of these data set versions, holds any row of the request."""
    versions = registry.aliased_versions(session, dataset_version_ids)
    return list(
        dict.fromkeys(
            version.model_id
            for version in versions
            if row_sets.covers_any(
                session, request_id, version.dataset_version_id, registry.rows_of(session, version)
            )
        )
    )


def _due(session: Session, models: Sequence[uuid.UUID]) -> datetime:
    days = [policies.in_force(session, model_id).body["due_days"] for model_id in models]
    return datetime.now(UTC) + timedelta(days=min(days, default=DEFAULT_DUE_DAYS))


def _announce(session: Session, request: DeletionRequest, actor: str, models: Sequence[uuid.UUID]) -> None:
    events.record(
        session,
        actor=actor,
        action="accepted",
        entity="DeletionRequest",
        entity_id=request.id,
        items=request.item_count,
        matched=request.matched_count,
        models=len(models),
    )
    events.emit(session, "deletion_request.received", request_id=str(request.id))


def get(session: Session, request_id: uuid.UUID) -> DeletionRequest:
    """The request. Raises NotFound."""
    request = session.get(DeletionRequest, request_id)
    if request is None:
        raise NotFound
    return request


def list_requests(session: Session, wanted: Filter, *, after: int, limit: int) -> Sequence[DeletionRequest]:
    """Requests in the order they were received."""
    return filtering.page(session, wanted, after=after, limit=limit)


def view(session: Session, requests: Sequence[DeletionRequest]) -> list[RequestView]:
    """Requests as the API shows them, in one more query however many there are."""
    targets = repository.targets_of(session, [request.id for request in requests])
    return [
        RequestView(
            id=request.id,
            external_id=request.external_id,
            regulation=request.regulation,
            state=request.state,
            reason=request.reason,
            audit_budget=request.audit_budget,
            items=ItemCounts(
                total=request.item_count,
                matched=request.matched_count,
                no_match=request.item_count - request.matched_count,
            ),
            targets=[TargetView.model_validate(target) for target in targets[request.id]],
            received_at=request.received_at,
            due_at=request.due_at,
            finished_at=request.finished_at,
        )
        for request in requests
    ]


def view_items(
    session: Session, request_id: uuid.UUID, *, after: int, limit: int, result: ItemResult | None = None
) -> list[ItemView]:
    """The request's items as the API shows them. Raises NotFound."""
    get(session, request_id)
    return [
        ItemView(
            position=item.position,
            dataset=dataset,
            sample_id=item.sample_id,
            subject_key=item.subject_key.hex() if item.subject_key else None,
            result=item.result,
            reason=item.reason,
            rows=item.rows,
        )
        for item, dataset in repository.items_of(session, request_id, after=after, limit=limit, result=result)
    ]


def cancel(session: Session, request_id: uuid.UUID, reason: str, *, actor: str) -> DeletionRequest:
    """Take a pending request back; its tombstones are lifted. Raises NotFound or Conflict."""
    request = _drop(session, request_id, "cancelled", actor)
    request.cancel(reason, actor=actor)
    _finished(session, request)
    return request


def deny(session: Session, request_id: uuid.UUID, reason: str, *, actor: str) -> DeletionRequest:
    """Refuse a pending request; its tombstones are lifted. Raises NotFound or Conflict."""
    request = _drop(session, request_id, "denied", actor)
    request.deny(reason, actor=actor)
    _finished(session, request)
    return request


def _drop(session: Session, request_id: uuid.UUID, how: str, actor: str) -> DeletionRequest:
    """Undo what accepting the request has done, as long as nothing else was."""
    request, targets = repository.locked(session, request_id)
    if request is None:
        raise NotFound
    if request.state is not RequestState.RECEIVED:
        raise Conflict(f"The request is {request.state}; only one that nothing was done for can be {how}.")
    for target in targets:
        if target.state in (TargetState.OPEN, TargetState.PLANNED):
            target.retire(f"the request was {how}", actor=actor)
    tombstones.lift(session, request_id)
    return request


def retire_model(session: Session, model: Model, reason: str, *, actor: str) -> None:
    """Retire a model: nothing is left to be forgotten by it. Raises Conflict if it was retired before."""
    registry.retire(session, model, actor=actor, reason=reason)
    targets = repository.unfinished_targets(session, model.id)
    for target in targets:
        target.retire("the model was retired", actor=actor)
        target.finished_at = datetime.now(UTC)
    finish_requests(session, targets, actor=actor)


def retry(session: Session, request_id: uuid.UUID, reason: str, *, actor: str) -> DeletionRequest:
    """Open the request's failed targets again. Raises NotFound, or Conflict if none has failed."""
    request, targets = repository.locked(session, request_id)
    if request is None:
        raise NotFound
    failed = [target for target in targets if target.state is TargetState.FAILED]
    if not failed:
        raise Conflict("No model failed for this request.")
    for target in failed:
        target.reopen(reason, actor=actor)
        target.finished_at = None
    if request.state is RequestState.PARTLY_COMPLETED:
        request.finished_at = None
        if any(target.state is TargetState.COMPLETED for target in targets):
            request.begin(actor=actor)  # what was done for other models cannot be taken back
        else:
            request.go_back_to_received(reason, actor=actor)
    return request


def finish_requests(session: Session, targets: Sequence[Target], *, actor: str) -> None:
    """Finish those requests of which these were the last targets to be carried out."""
    session.flush()
    requests = [request for request in repository.requests_of(session, targets) if not request.is_final]
    ids = [request.id for request in requests]
    unfinished, failed = repository.unfinished(session, ids), repository.failed(session, ids)
    for request in requests:
        if request.id in unfinished:
            continue
        if request.id in failed:
            request.complete_partly("not every model could be freed of the rows", actor=actor)
        else:
            request.complete(None, actor=actor)
        _finished(session, request)


def _finished(session: Session, request: DeletionRequest) -> None:
    request.finished_at = datetime.now(UTC)
    events.emit(session, f"deletion_request.{request.state}", request_id=str(request.id))
