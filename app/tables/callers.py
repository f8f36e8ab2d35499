"""API keys and the answers kept under idempotency keys."""

from __future__ import annotations

import uuid
from datetime import datetime

from sqlalchemy import ForeignKey
from sqlalchemy.dialects.postgresql import ARRAY, TEXT
from sqlalchemy.orm import Mapped, mapped_column

from app.tables.base import Base, CreatedAt, Id, Json


class ApiKey(Base):
    """A caller. The secret itself is shown once and never stored: `digest` is its SHA-256."""

    __tablename__ = "api_keys"

    id: Mapped[Id]
    name: Mapped[str]
    prefix: Mapped[str]
    digest: Mapped[bytes] = mapped_column(unique=True)
    scopes: Mapped[list[str]] = mapped_column(ARRAY(TEXT))
    created_at: Mapped[CreatedAt]
    created_by: Mapped[str]
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class IdempotencyKey(Base):
    """What a caller was answered the first time it used this key."""

    __tablename__ = "idempotency_keys"

    caller_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("api_keys.id"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    fingerprint: Mapped[bytes]
    status: Mapped[int | None]
    body: Mapped[Json | None]
    location: Mapped[str | None]
    created_at: Mapped[CreatedAt]
