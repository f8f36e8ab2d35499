"""API keys: issued once in the clear, kept as a digest, checked on every request."""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.errors import NotFound, Problem
from app.events import service as events
from app.tables import ApiKey


class Scope(StrEnum):
    """What a key may do; every route names the one it needs."""

    DATASETS_READ = "datasets:read"
    DATASETS_WRITE = "datasets:write"
    MODELS_READ = "models:read"
    MODELS_WRITE = "models:write"
    DELETIONS_READ = "deletions:read"
    DELETIONS_WRITE = "deletions:write"
    JOBS_READ = "jobs:read"
    JOBS_WRITE = "jobs:write"
    JOBS_APPROVE = "jobs:approve"
    REPORTS_READ = "reports:read"
    KEYS_ADMIN = "keys:admin"


class Unauthenticated(Problem):
    """Send an API key that is in force: `Authorization: Bearer KEY`."""

    status = 401
    slug = "unauthenticated"


class Forbidden(Problem):
    """This API key may not do that."""

    status = 403
    slug = "forbidden"


@dataclass(frozen=True)
class Caller:
    """Whoever holds the key of this request."""

    id: uuid.UUID
    name: str
    prefix: str
    scopes: frozenset[str]

    @property
    def actor(self) -> str:
        """How the audit log names this caller."""
        return f"{self.name} ({self.prefix})"


def issue(
    session: Session, *, name: str, scopes: Sequence[str], actor: str, secret: str | None = None
) -> tuple[ApiKey, str]:
    """A new key and its secret, which is not stored and cannot be shown again."""
    prefix = f"exp_{secrets.token_hex(4)}"
    secret = secret or f"{prefix}_{secrets.token_urlsafe(32)}"
    key = ApiKey(name=name, prefix=prefix, digest=_digest(secret), scopes=list(scopes), created_by=actor)
    session.add(key)
    session.flush()
    events.record(session, actor=actor, action="issued", entity="ApiKey", entity_id=key.id)
    return key, secret


def ensure_admin_key(session: Session, secret: str | None) -> str | None:
    """Make the first admin key, with `secret` if one is given; return its secret only if one was made."""
    if secret is not None:
        known = session.scalar(select(ApiKey.id).where(ApiKey.digest == _digest(secret)))
    else:
        known = session.scalar(select(ApiKey.id).limit(1))
    if known is not None:
        return None
    _, shown = issue(session, name="admin", scopes=[*Scope], actor="first start", secret=secret)
    return shown


def authenticate(session: Session, secret: str) -> Caller:
    """The caller whose key this is. Raises Unauthenticated."""
    key = session.scalar(select(ApiKey).where(ApiKey.digest == _digest(secret)))
    now = datetime.now(UTC)
    if key is None or key.revoked_at is not None or (key.expires_at is not None and key.expires_at <= now):
        raise Unauthenticated(headers={"WWW-Authenticate": "Bearer"})
    if key.last_used_at is None or now - key.last_used_at > timedelta(minutes=1):
        key.last_used_at = now
    return Caller(id=key.id, name=key.name, prefix=key.prefix, scopes=frozenset(key.scopes))


def list_keys(session: Session) -> Sequence[ApiKey]:
    """Every key ever issued, oldest first."""
    return session.scalars(select(ApiKey).order_by(ApiKey.created_at, ApiKey.id)).all()


def revoke(session: Session, key_id: uuid.UUID, *, actor: str) -> ApiKey:
    """Put a key out of force at once; revoking it again changes nothing."""
    key = session.get(ApiKey, key_id)
    if key is None:
        raise NotFound
    if key.revoked_at is None:
        key.revoked_at = datetime.now(UTC)
        events.record(session, actor=actor, action="revoked", entity="ApiKey", entity_id=key.id)
    return key


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
