"""Errors that callers see: small classes that carry their status, rendered in one place (RFC 9457)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any, ClassVar

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails
from sqlalchemy.exc import IntegrityError, OperationalError
from starlette.exceptions import HTTPException

from app.tables.base import IllegalTransition
from models_store.blobs import StoreUnavailable

log = structlog.get_logger(__name__)
MEDIA_TYPE = "application/problem+json"
FAULTS_SHOWN = 1000
_SLUGS = {404: "not-found", 405: "method-not-allowed", 413: "body-too-large"}


class Fault(BaseModel):
    """One thing that is wrong, and where: a JSON pointer into the body, or the name of a parameter."""

    pointer: str = Field(examples=["/items/0/sample_id"])
    detail: str = Field(examples=["the data set has no such sample"])


class ProblemBody(BaseModel):
    """An error answer (RFC 9457). `errors` names every fault at once; inputs are never echoed."""

    type: str = Field(examples=["https://expunge.dev/problems/invalid-request"])
    title: str = Field(examples=["Unprocessable Content"])
    status: int = Field(examples=[422])
    detail: str = Field(examples=["The request has faults; nothing was done."])
    errors: list[Fault] = []


class Problem(Exception):
    """The request could not be carried out."""

    status: ClassVar[int] = 400
    slug: ClassVar[str] = "bad-request"

    def __init__(
        self,
        detail: str | None = None,
        *,
        faults: Sequence[Fault] = (),
        count: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        """`count`: how many faults there are in all, if `faults` holds only the first of them."""
        self.detail = detail or " ".join((type(self).__doc__ or "").split())
        self.faults = tuple(faults)
        self.count = max(count or 0, len(self.faults))
        self.headers = headers
        super().__init__(self.detail)


class Invalid(Problem):
    """The request has faults; nothing was done."""

    status = 422
    slug = "invalid-request"


class NotFound(Problem):
    """There is no such thing, or it is not yours to see."""

    status = 404
    slug = "not-found"


class Conflict(Problem):
    """The present state does not allow this."""

    status = 409
    slug = "conflict"


class UnsupportedMediaType(Problem):
    """The body is of a media type that is not taken here."""

    status = 415
    slug = "unsupported-media-type"


class Faults:
    """Faults as they are found: the first thousand, and how many there are in all."""

    def __init__(self) -> None:
        self.first: list[Fault] = []
        self.count = 0

    def add(self, pointer: str, detail: str) -> None:
        """Note one more."""
        self.count += 1
        if len(self.first) < FAULTS_SHOWN:
            self.first.append(Fault(pointer=pointer, detail=detail))

    def add_counted(self, count: int, pointers: Iterable[str], detail: str) -> None:
        """Note so many of one kind, of which only the first ones' places are known."""
        known = 0
        for pointer in pointers:
            self.add(pointer, detail)
            known += 1
        self.count += count - known

    def raise_any(self) -> None:
        """Raises Invalid if there are faults."""
        if self.count:
            raise Invalid(faults=self.first, count=self.count)


def faults_of(error: ValidationError | RequestValidationError, prefix: str = "") -> list[Fault]:
    """Pydantic's errors as faults, without the inputs that caused them."""
    of_request = isinstance(error, RequestValidationError)
    return [
        Fault(
            pointer=_place(entry["loc"]) if of_request else _pointer(entry["loc"], prefix),
            detail=_detail(entry),
        )
        for entry in error.errors()
    ]


def _place(location: Sequence[str | int]) -> str:
    """A parameter by its name, a part of the body by its pointer."""
    part, *path = location
    return _pointer(path) if part == "body" else str(path[0])


def _pointer(path: Sequence[str | int], prefix: str = "") -> str:
    escaped = [str(part).replace("~", "~0").replace("/", "~1") for part in path]
    return prefix + "".join(f"/{part}" for part in escaped) or "/"


def _detail(entry: ErrorDetails | dict[str, Any]) -> str:
    if entry["type"] == "union_tag_invalid":  # pydantic's own message repeats what was sent
        return f"must be one of: {entry['ctx']['expected_tags']}"
    return str(entry["msg"]).removeprefix("Value error, ")


def render(
    status: int,
    slug: str,
    detail: str,
    *,
    faults: Sequence[Fault] = (),
    count: int = 0,
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    """A problem+json response; of very many faults the first thousand are shown and the rest counted."""
    count = max(count, len(faults))
    if count > FAULTS_SHOWN:
        detail = f"{detail} {count} faults; the first {FAULTS_SHOWN} are listed."
    body = ProblemBody(
        type=f"https://expunge.dev/problems/{slug}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        errors=list(faults[:FAULTS_SHOWN]),
    )
    return JSONResponse(body.model_dump(), status_code=status, headers=headers, media_type=MEDIA_TYPE)


def _problem(_request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, Problem):
        raise error
    return render(
        error.status,
        error.slug,
        error.detail,
        faults=error.faults,
        count=error.count,
        headers=error.headers,
    )


def _validation(_request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, RequestValidationError):
        raise error
    if any(entry["type"] == "json_invalid" for entry in error.errors()):
        return render(400, "malformed-json", "The body is not JSON.")
    return render(Invalid.status, Invalid.slug, Invalid().detail, faults=faults_of(error))


def _http(_request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HTTPException):
        raise error
    headers = dict(error.headers) if error.headers else None
    slug = _SLUGS.get(error.status_code, "http")
    return render(error.status_code, slug, str(error.detail), headers=headers)


def _transition(_request: Request, error: Exception) -> JSONResponse:
    return render(Conflict.status, Conflict.slug, f"{error}.")


def _overtaken(_request: Request, error: Exception) -> JSONResponse:
    """Two requests at once wanted the same unique thing; the database let one of them have it."""
    log.info("integrity_conflict", kind=type(error).__name__)
    return render(
        Conflict.status, "conflict", "Somebody else has just made such a thing; read it and try again."
    )


def _unreachable(_request: Request, error: Exception) -> JSONResponse:
    log.warning("database_unreachable", kind=type(error).__name__)
    detail = "The database does not answer; nothing was done."
    return render(503, "unavailable", detail, headers={"Retry-After": "2"})


def _store_unavailable(_request: Request, error: Exception) -> JSONResponse:
    log.warning("store_unavailable", detail=str(error))
    detail = "The artefact store cannot be used; nothing was done."
    return render(503, "unavailable", detail, headers={"Retry-After": "10"})


def _unexpected(_request: Request, error: Exception) -> JSONResponse:
    log.error("unexpected_error", kind=type(error).__name__, exc_info=error)
    return render(500, "internal-error", "Something went wrong here; it was logged and nothing was done.")


def install(app: FastAPI) -> None:
    """Make every error of `app` a problem+json."""
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(IllegalTransition, _transition)
    app.add_exception_handler(IntegrityError, _overtaken)
    app.add_exception_handler(OperationalError, _unreachable)
    app.add_exception_handler(StoreUnavailable, _store_unavailable)
    app.add_exception_handler(Exception, _unexpected)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI entries for these error statuses."""
    return {
        status: {
            "model": ProblemBody,
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {}},
        }
        for status in statuses
    }


def documented_with_body(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The same for an operation that takes a body, which may be broken or too large."""
    return documented(400, 413, *statuses)


def only_problems(openapi: dict[str, Any]) -> None:
    """Have every error of the description be problem+json alone: FastAPI adds the routes' own media type."""
    for operation in [operation for path in openapi["paths"].values() for operation in path.values()]:
        for response in operation["responses"].values():
            content = response.get("content", {})
            if MEDIA_TYPE in content:
                response["content"] = {MEDIA_TYPE: next(filter(None, content.values()))}
