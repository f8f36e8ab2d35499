"""Which requests a list shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import ColumnElement, and_, func, select
from sqlalchemy.orm import Session

from app.deletions.schemas import Filter
from app.tables import Dataset, DeletionRequest, Model, Target, Tombstones


def page(session: Session, wanted: Filter, *, after: int, limit: int) -> Sequence[DeletionRequest]:
    """Those of the requests that are wanted, in the order they were received."""
    query = select(DeletionRequest).where(DeletionRequest.ordinal > after, *_conditions(wanted))
    return session.scalars(query.order_by(DeletionRequest.ordinal).limit(limit)).all()


def _conditions(wanted: Filter) -> Iterator[ColumnElement[bool]]:
    request = DeletionRequest
    if wanted.state:
        yield request.state.in_(wanted.state)
    if wanted.received_after:
        yield request.received_at > wanted.received_after
    if wanted.received_before:
        yield request.received_at < wanted.received_before
    if wanted.due_before:
        yield request.due_at < wanted.due_before
    if wanted.overdue:
        yield and_(request.due_at < func.now(), request.finished_at.is_(None))
    if wanted.model:
        named = select(Target.request_id).join(Model, Model.id == Target.model_id)
        yield request.id.in_(named.where(Model.name == wanted.model))
    if wanted.dataset:
        marked = select(Tombstones.request_id).join(Dataset, Dataset.id == Tombstones.dataset_id)
        yield marked.where(Dataset.name == wanted.dataset, Tombstones.request_id == request.id).exists()
