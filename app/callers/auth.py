"""The dependency that every route names its scope with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy.orm import Session

from app.callers.service import Caller, Forbidden, Scope, Unauthenticated, authenticate
from app.deps import Begin, Db

_bearer = HTTPBearer(auto_error=False, bearerFormat="API key", description="An API key: `exp_…`")


Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


def require(scope: Scope) -> Callable[..., Caller]:
    """A dependency that admits callers with this scope. Raises Unauthenticated or Forbidden."""

    def caller(session: Db, credentials: Credentials) -> Caller:
        return _admit(session, credentials, scope)

    caller.scope = scope  # type: ignore[attr-defined]
    return caller


def require_for_upload(scope: Scope) -> Callable[..., Caller]:
    """The same for a body that may be long on its way: no connection to the database is held meanwhile."""

    def caller(begin: Begin, credentials: Credentials) -> Caller:
        with begin() as session:
            return _admit(session, credentials, scope)

    caller.scope = scope  # type: ignore[attr-defined]
    return caller


def _admit(session: Session, credentials: HTTPAuthorizationCredentials | None, scope: Scope) -> Caller:
    if credentials is None:
        raise Unauthenticated(headers={"WWW-Authenticate": "Bearer"})
    found = authenticate(session, credentials.credentials)
    demand(found, scope)
    return found


def demand(caller: Caller, scope: Scope) -> None:
    """Raises Forbidden if the caller lacks this scope."""
    if scope not in caller.scopes:
        raise Forbidden(f"This API key lacks the scope {scope}.")
