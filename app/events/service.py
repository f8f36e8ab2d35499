"""Writing the audit log and the outbox; both only ever inside the transaction they tell of."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.tables import AuditEntry, OutboxMessage

WAKE = "job.wake"  # the one topic that goes to the broker; all others are events for webhooks


def record(
    session: Session,
    *,
    actor: str,
    action: str,
    entity: str,
    entity_id: uuid.UUID | str,
    reason: str | None = None,
    **facts: Any,  # noqa: ANN401  (JSON-ready values of any kind)
) -> None:
    """Add a row to the audit log. `facts` must hold no sample ID, subject or secret."""
    session.add(
        AuditEntry(
            actor=actor, action=action, entity=entity, entity_id=str(entity_id), reason=reason, facts=facts
        )
    )


def emit(session: Session, topic: str, **payload: Any) -> None:  # noqa: ANN401  (JSON-ready values)
    """Put a message into the outbox; it is relayed after the commit, at least once."""
    session.add(OutboxMessage(topic=topic, payload=payload))


def wake_worker(session: Session, job_id: uuid.UUID, queue: str, *, urgent: bool) -> None:
    """Have the broker told, after the commit, that this job is waiting."""
    emit(session, WAKE, job_id=str(job_id), queue=queue, urgent=urgent)


def unpublished(session: Session, limit: int) -> Sequence[OutboxMessage]:
    """The oldest messages not yet relayed, locked against a second relay."""
    query = (
        select(OutboxMessage)
        .where(OutboxMessage.published_at.is_(None))
        .order_by(OutboxMessage.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return session.scalars(query).all()


def mark_published(message: OutboxMessage) -> None:
    """The message was handed over."""
    message.published_at = datetime.now(UTC)
