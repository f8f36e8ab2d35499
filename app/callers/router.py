"""/v1/keys: issue, list and revoke API keys."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from app.callers import service
from app.callers.auth import require
from app.callers.service import Caller, Scope
from app.deps import Db
from app.errors import documented, documented_with_body
from app.text import Text

router = APIRouter(prefix="/v1/keys", tags=["keys"], responses=documented(401, 403, 422))
Admin = Annotated[Caller, Depends(require(Scope.KEYS_ADMIN))]


class NewKey(BaseModel):
    """A key to issue."""

    model_config = ConfigDict(extra="forbid")
    name: Text = Field(min_length=1, max_length=200, examples=["privacy desk"])
    scopes: list[Scope] = Field(min_length=1, examples=[["deletions:read", "deletions:write"]])


class Key(BaseModel):
    """A key, without its secret."""

    model_config = ConfigDict(from_attributes=True)
    id: uuid.UUID
    name: str
    prefix: str = Field(examples=["exp_1f2e3d4c"])
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class IssuedKey(Key):
    """A new key with its secret, shown this once."""

    secret: str = Field(examples=["exp_1f2e3d4c_…"])


@router.post("", status_code=201, operation_id="issue_key", responses=documented_with_body())
def issue(body: NewKey, session: Db, caller: Admin) -> IssuedKey:
    """Issue an API key. Its secret is in this answer and nowhere else."""
    key, secret = service.issue(session, name=body.name, scopes=body.scopes, actor=caller.actor)
    session.refresh(key)
    return IssuedKey(**Key.model_validate(key).model_dump(), secret=secret)


@router.get("", operation_id="list_keys")
def list_keys(session: Db, _caller: Admin) -> list[Key]:
    """Every key, without secrets."""
    return [Key.model_validate(key) for key in service.list_keys(session)]


@router.delete("/{key_id}", operation_id="revoke_key", responses=documented(404))
def revoke(key_id: uuid.UUID, session: Db, caller: Admin) -> Key:
    """Put a key out of force at once."""
    return Key.model_validate(service.revoke(session, key_id, actor=caller.actor))
