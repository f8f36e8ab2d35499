"""The dependency that every route names its scope with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from app.callers.service import Caller, Forbidden, Scope, Unauthenticated, authenticate
from app.deps import Db

_bearer = HTTPBearer(auto_error=False, bearerFormat="API key", description="An API key: `exp_…`")


def require(scope: Scope) -> Callable[..., Caller]:
    """A dependency that admits callers with this scope. Raises Unauthenticated or Forbidden."""

    def caller(
        session: Db, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
    ) -> Caller:
        if credentials is None:
            raise Unauthenticated(headers={"WWW-Authenticate": "Bearer"})
        found = authenticate(session, credentials.credentials)
        if scope not in found.scopes:
            raise Forbidden(f"This API key lacks the scope {scope}.")
        return found

    caller.scope = scope  # type: ignore[attr-defined]
    return caller
