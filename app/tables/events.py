"""What has to leave the database after a commit: messages to the broker and to webhooks."""

from __future__ import annotations

import uuid
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from sqlalchemy import BigInteger, ForeignKey, Identity, Index, text
from sqlalchemy.dialects.postgresql import ARRAY, TEXT
from sqlalchemy.orm import Mapped, mapped_column

from app.tables.base import Base, CreatedAt, Id, Json, Stateful, moves, state_type


class OutboxMessage(Base):
    """Written in the transaction it tells of; relayed after the commit, at least once."""

    __tablename__ = "outbox"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    topic: Mapped[str]
    payload: Mapped[Json]
    created_at: Mapped[CreatedAt]
    published_at: Mapped[datetime | None]

    __table_args__ = (Index("ix_outbox_unpublished", "id", postgresql_where=text("published_at IS NULL")),)


class WebhookEndpoint(Base):
    """Where events are delivered; `secret` signs them (Standard Webhooks)."""

    __tablename__ = "webhook_endpoints"

    id: Mapped[Id]
    url: Mapped[str]
    secret: Mapped[bytes]
    topics: Mapped[list[str]] = mapped_column(ARRAY(TEXT))
    created_at: Mapped[CreatedAt]
    created_by: Mapped[str]
    disabled_at: Mapped[datetime | None]


class DeliveryState(StrEnum):
    """pending until one attempt succeeds or the last one has failed."""

    PENDING = "pending"
    DELIVERED = "delivered"
    GAVE_UP = "gave_up"


class WebhookDelivery(Stateful, Base):
    """One event on its way to one endpoint."""

    __tablename__ = "webhook_deliveries"
    MOVES: ClassVar = moves(
        {DeliveryState.PENDING: (DeliveryState.DELIVERED, DeliveryState.GAVE_UP)}, DeliveryState
    )

    id: Mapped[Id]
    endpoint_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("webhook_endpoints.id"))
    message_id: Mapped[int] = mapped_column(ForeignKey("outbox.id"))
    state: Mapped[DeliveryState] = mapped_column(state_type(DeliveryState), default=DeliveryState.PENDING)
    reason: Mapped[str | None]
    attempts: Mapped[int] = mapped_column(default=0)
    next_attempt_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]
