"""The queries on requests, items and targets."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from sqlalchemy import ColumnElement, SQLColumnExpression, any_, func, literal, select, text
from sqlalchemy.dialects.postgresql import ARRAY, UUID
from sqlalchemy.orm import Session

from app.datasets.matching import Matches
from app.tables import (
    Dataset,
    DeletionItem,
    DeletionRequest,
    ItemResult,
    RequestState,
    Target,
    TargetState,
)

TERMINAL = (TargetState.COMPLETED, TargetState.ALREADY_ABSENT, TargetState.RETIRED, TargetState.FAILED)


def locked(session: Session, request_id: uuid.UUID) -> tuple[DeletionRequest | None, Sequence[Target]]:
    """The request and its targets, locked against any other change: targets first, here as everywhere."""
    query = select(Target).where(Target.request_id == request_id).order_by(Target.id).with_for_update()
    targets = session.scalars(query.execution_options(populate_existing=True)).all()
    request = session.get(DeletionRequest, request_id, with_for_update=True, populate_existing=True)
    return request, targets


def targets_of(session: Session, request_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, list[Target]]:
    """The targets of each of these requests."""
    found: dict[uuid.UUID, list[Target]] = {request_id: [] for request_id in request_ids}
    for target in session.scalars(
        select(Target).where(Target.request_id.in_(request_ids)).order_by(Target.opened_at, Target.id)
    ):
        found[target.request_id].append(target)
    return found


def targets_of_job(session: Session, job_id: uuid.UUID) -> Sequence[Target]:
    """The targets that this job carries out, locked."""
    query = select(Target).where(Target.job_id == job_id, Target.state.not_in(TERMINAL))
    return session.scalars(query.order_by(Target.id).with_for_update()).all()


def open_targets(session: Session, model_id: uuid.UUID) -> Sequence[Target]:
    """The model's targets that no job carries out yet, locked; those of requests on hold stay out."""
    query = (
        select(Target)
        .join(DeletionRequest, DeletionRequest.id == Target.request_id)
        .where(
            Target.model_id == model_id,
            Target.state == TargetState.OPEN,
            DeletionRequest.state != RequestState.ON_HOLD,
        )
        .order_by(Target.id)
        .with_for_update(of=Target)
    )
    return session.scalars(query).all()


def unfinished_targets(session: Session, model_id: uuid.UUID) -> Sequence[Target]:
    """What the model was still to forget, locked; also what failed, which could be tried again."""
    done = [state for state in TERMINAL if state is not TargetState.FAILED]
    query = select(Target).where(Target.model_id == model_id, Target.state.not_in(done))
    return session.scalars(query.order_by(Target.id).with_for_update()).all()


def requests_of(session: Session, targets: Sequence[Target]) -> Sequence[DeletionRequest]:
    """The requests that these targets belong to, locked in one order everywhere."""
    ids = sorted({target.request_id for target in targets})
    query = select(DeletionRequest).where(_is_among(DeletionRequest.id, ids)).order_by(DeletionRequest.id)
    return session.scalars(query.with_for_update()).all()


def unfinished(session: Session, request_ids: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Those of the requests that still have a target to be carried out."""
    return _with_targets(session, request_ids, Target.state.not_in(TERMINAL))


def failed(session: Session, request_ids: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Those of the requests that have a failed target."""
    return _with_targets(session, request_ids, Target.state == TargetState.FAILED)


def _with_targets(
    session: Session, request_ids: Sequence[uuid.UUID], condition: ColumnElement[bool]
) -> set[uuid.UUID]:
    query = select(Target.request_id).where(_is_among(Target.request_id, request_ids), condition)
    return set(session.scalars(query.distinct()))


def _is_among(column: SQLColumnExpression[uuid.UUID], ids: Sequence[uuid.UUID]) -> ColumnElement[bool]:
    """Like IN, which takes 65,535 values at most: one job may carry out more requests."""
    return column == any_(literal(list(ids), ARRAY(UUID)))


_ADD_ITEMS = """
    INSERT INTO deletion_items
        (request_id, position, dataset_id, sample_id, subject_key, key_id, result, reason, rows)
    SELECT CAST(:request AS uuid), i.position, {columns} FROM named_items i {found}
"""
_EACH = {
    "columns": "CAST(:home AS uuid), i.sample_id, i.subject_key, :key_id, 'matched', NULL, :rows",
    "found": "",
}
_COUNTED = {
    "columns": """
        coalesce(i.dataset_id, m.dataset_id), i.sample_id, i.subject_key, :key_id,
        CASE WHEN m.rows > 0 THEN 'matched' ELSE 'no_match' END,
        CASE WHEN m.rows > 0 THEN NULL ELSE 'no data set in force has it' END, coalesce(m.rows, 0)
    """,
    "found": """
        LEFT JOIN (SELECT position, count(*) AS rows, any_value(dataset_id) AS dataset_id
                   FROM matched_rows GROUP BY position) m ON m.position = i.leader
    """,
}


def add_items(session: Session, matches: Matches, request_id: uuid.UUID, key_id: str) -> int:
    """Keep what was named, and matched, as this request's items; how many of them matched."""
    values: dict[str, object] = {"request": request_id, "key_id": key_id}
    if rows := matches.rows_each:  # nothing to be looked up: a third of the time
        values |= {"home": next(iter(matches.homes.values())), "rows": rows}
        session.execute(text(_ADD_ITEMS.format(**_EACH)), values)
        return matches.count
    session.execute(text(_ADD_ITEMS.format(**_COUNTED)), values)
    matched = select(func.count()).where(
        DeletionItem.request_id == request_id, DeletionItem.result == ItemResult.MATCHED
    )
    return session.scalars(matched).one()


def items_of(
    session: Session, request_id: uuid.UUID, *, after: int, limit: int, result: ItemResult | None
) -> Sequence[tuple[DeletionItem, str | None]]:
    """The request's items from position `after` on, each with the name of its data set."""
    query = (
        select(DeletionItem, Dataset.name)
        .outerjoin(Dataset, Dataset.id == DeletionItem.dataset_id)
        .where(DeletionItem.request_id == request_id, DeletionItem.position >= after)
    )
    if result is not None:
        query = query.where(DeletionItem.result == result)
    return session.execute(query.order_by(DeletionItem.position).limit(limit)).all()
