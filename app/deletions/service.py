"""Accepting, showing, cancelling and finishing deletion requests."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from app.callers.service import Caller
from app.datasets import tombstones
from app.deletions import repository
from app.deletions.matching import Matches, match
from app.deletions.schemas import ItemCounts, ItemView, NewRequest, RequestView, TargetView
from app.errors import Conflict, Fault, NotFound
from app.events import service as events
from app.pseudonyms import Pseudonyms, pseudonyms
from app.registry import policies
from app.registry import service as registry
from app.tables import (
    DeletionItem,
    DeletionRequest,
    ItemResult,
    RequestState,
    Target,
    TargetState,
)
from models_store.rows import RowSet

DEFAULT_DUE_DAYS = 30
LATEST_DUE = timedelta(days=3650)


def accept(session: Session, new: NewRequest, caller: Caller) -> DeletionRequest:
    """Take a request in, all of it in this transaction: items, tombstones, a target a model.

    Raises:
        Invalid: the request has faults, all of them named; nothing was done.
        Conflict: this caller has used the external ID before.
    """
    names = pseudonyms()
    matches = match(session, new, names, further_faults=_faults_of_terms(new))
    _refuse_twin(session, new, caller)
    registry.hold_aliases(session)
    models = _models_holding(session, matches)
    request = DeletionRequest(
        id=uuid.uuid4(),
        caller_id=caller.id,
        external_id=new.external_id,
        regulation=new.regulation,
        reference=new.reference,
        item_count=len(matches.named),
        matched_count=len(matches.rows_per_item()),
        due_at=new.due_at or _due(session, models),
    )
    session.add(request)
    session.flush()
    _add_items(session, request, matches, names)
    _bury(session, request, matches, names)
    session.add_all(Target(request_id=request.id, model_id=model_id) for model_id in models)
    _announce(session, request, caller.actor, models)
    if not models:
        request.complete("no model in use was trained on these rows", actor=caller.actor)
        _finished(session, request)
    session.flush()
    return request


def _faults_of_terms(new: NewRequest) -> list[Fault]:
    now = datetime.now(UTC)
    if new.due_at is None or now < new.due_at < now + LATEST_DUE:
        return []
    return [Fault(pointer="/due_at", detail=f"must lie within the next {LATEST_DUE.days} days")]


def _refuse_twin(session: Session, new: NewRequest, caller: Caller) -> None:
    if new.external_id is not None:
        twin = select(DeletionRequest.id).filter_by(caller_id=caller.id, external_id=new.external_id)
        if session.scalar(twin) is not None:
            raise Conflict("You have posted a request with this external ID before.")


def _models_holding(session: Session, matches: Matches) -> list[uuid.UUID]:
    """The models of which some aliased version was trained on any of the rows found."""
    ordinals: dict[uuid.UUID, list[int]] = {}
    for row in matches.found:
        ordinals.setdefault(row.version_id, []).append(row.ordinal)
    wanted = {version_id: RowSet.of(rows) for version_id, rows in ordinals.items()}
    versions = registry.aliased_versions(session, list(wanted))
    return list(
        dict.fromkeys(
            version.model_id
            for version in versions
            if len(registry.rows_of(session, version) & wanted[version.dataset_version_id])
        )
    )


def _due(session: Session, models: Sequence[uuid.UUID]) -> datetime:
    days = [policies.in_force(session, model_id).body["due_days"] for model_id in models]
    return datetime.now(UTC) + timedelta(days=min(days, default=DEFAULT_DUE_DAYS))


def _add_items(session: Session, request: DeletionRequest, matches: Matches, names: Pseudonyms) -> None:
    rows = matches.rows_per_item()
    home = {row.position: row.dataset_id for row in matches.found}
    session.execute(
        insert(DeletionItem),
        [
            {
                "request_id": request.id,
                "position": item.position,
                "dataset_id": item.dataset_id or home.get(item.position),
                "sample_id": item.sample_id,
                "subject_key": item.subject_key,
                "key_id": names.key_id,
                "result": ItemResult.MATCHED if item.position in rows else ItemResult.NO_MATCH,
                "reason": None if item.position in rows else "no data set in force has it",
                "rows": len(rows.get(item.position, ())),
            }
            for item in matches.named
        ],
    )


def _bury(session: Session, request: DeletionRequest, matches: Matches, names: Pseudonyms) -> None:
    people = {
        (row.position, row.dataset_id, row.subject_key)
        for row in matches.found
        if matches.named[row.position].subject_key is not None and row.subject_key is not None
    }
    tombstones.bury(session, request_id=request.id, found=matches.found, subjects=sorted(people), names=names)


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


def list_requests(
    session: Session, *, after: int, limit: int, state: RequestState | None = None
) -> Sequence[DeletionRequest]:
    """Requests in the order they were received."""
    return repository.page(session, after=after, limit=limit, state=state)


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
            reference=request.reference,
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


def view_items(session: Session, request_id: uuid.UUID, *, after: int, limit: int) -> list[ItemView]:
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
        for item, dataset in repository.items_of(session, request_id, after=after, limit=limit)
    ]


def cancel(session: Session, request_id: uuid.UUID, reason: str, *, actor: str) -> DeletionRequest:
    """Take a pending request back; its tombstones are lifted. Raises NotFound or Conflict."""
    request, targets = repository.locked(session, request_id)
    if request is None:
        raise NotFound
    if request.state is not RequestState.RECEIVED:
        raise Conflict(
            f"The request is {request.state}; only one that nothing was done for can be cancelled."
        )
    for target in targets:
        if target.state in (TargetState.OPEN, TargetState.PLANNED):
            target.retire("the request was cancelled", actor=actor)
    tombstones.lift(session, request_id)
    request.cancel(reason, actor=actor)
    _finished(session, request)
    return request


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
