"""Every error is a problem+json, with all faults and without what was sent."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from pydantic import BaseModel, Field, ValidationError
from sqlalchemy.exc import IntegrityError, OperationalError

import app as package
from app import errors
from app.errors import Conflict, Fault, Invalid, NotFound, Problem, faults_of
from app.tables import Job, JobState
from app.tables.base import IllegalTransition
from models_store.blobs import StoreUnavailable
from tests.fixtures.api import Api


class _Shape(BaseModel):
    """Something with a rule."""

    sides: int = Field(ge=3)


class _Body(BaseModel):
    """A body with names that JSON pointers escape."""

    body: int = 0
    shapes: list[_Shape] = Field(alias="a/b~c")


class _Teapot(Problem):
    """This is a
    teapot."""

    status = 418
    slug = "teapot"


_DONE = Job(state=JobState.DONE)
_RAISED: dict[str, Exception] = {
    "teapot": _Teapot(headers={"X-Kind": "earthenware"}),
    "invalid": Invalid(faults=[Fault(pointer="/lid", detail="is missing")]),
    "state": IllegalTransition(_DONE, JobState.RUNNING),
    "overtaken": IntegrityError("INSERT secret", {}, Exception("secret")),
    "unreachable": OperationalError("SELECT secret", {}, Exception("secret")),
    "no store": StoreUnavailable("secret"),
    "unexpected": RuntimeError("secret"),
}


@pytest.fixture
def api() -> Api:
    """An application that raises what it is asked for."""
    app = FastAPI()
    errors.install(app)

    @app.get("/raise/{name}")
    def fail(name: str) -> None:
        raise _RAISED[name]

    @app.post("/body")
    def take(body: _Body, amount: int = 0) -> None:
        """Read a body."""

    return Api(app, None)


def _problems() -> Iterator[type[Problem]]:
    """Every kind of problem that the application defines."""
    for module in pkgutil.walk_packages(package.__path__, "app."):
        found = vars(importlib.import_module(module.name)).values()
        yield from (kind for kind in found if isinstance(kind, type) and issubclass(kind, Problem))


@pytest.mark.parametrize(
    ("name", "status", "slug"),
    [
        ("teapot", 418, "teapot"),
        ("invalid", 422, "invalid-request"),
        ("state", 409, "conflict"),
        ("overtaken", 409, "conflict"),
        ("unreachable", 503, "unavailable"),
        ("no store", 503, "unavailable"),
        ("unexpected", 500, "internal-error"),
    ],
)
def test_every_error_has_its_status_and_type(api: Api, name: str, status: int, slug: str) -> None:
    """And says nothing that the database or a bug has quoted."""
    answer = api.get(f"/raise/{name}")
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    problem = answer.json()
    assert problem["type"] == f"https://expunge.dev/problems/{slug}"
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"].endswith(".")
    assert "secret" not in answer.text


def test_a_problems_description_is_its_default_detail(api: Api) -> None:
    """On one line, and its headers are sent."""
    answer = api.get("/raise/teapot")
    assert (answer.json()["detail"], answer.headers["X-Kind"]) == ("This is a teapot.", "earthenware")


def test_faults_are_listed(api: Api) -> None:
    """Each with its place."""
    assert api.get("/raise/invalid").json()["errors"] == [{"pointer": "/lid", "detail": "is missing"}]


def test_pointers_lead_into_the_body(api: Api) -> None:
    """By RFC 6901, with its two escapes; parameters go by their name."""
    body = {"body": "x", "a/b~c": [{"sides": 4}, {"sides": 2}, {}]}
    found = api.send("POST", "/body", json=body, params={"amount": "x"}).json()["errors"]
    assert [fault["pointer"] for fault in found] == [
        "amount",
        "/body",
        "/a~1b~0c/1/sides",
        "/a~1b~0c/2/sides",
    ]


def test_faults_of_a_part_start_where_the_part_stands() -> None:
    """A validated parameter object inside a body is named by its whole path."""
    with pytest.raises(ValidationError) as found:
        _Body.model_validate({"a/b~c": [{"sides": 2}]})
    assert [fault.pointer for fault in faults_of(found.value, "/plan/0")] == ["/plan/0/a~1b~0c/0/sides"]


def test_json_that_is_none_is_400(api: Api) -> None:
    """The body was not understood, so there is nothing to point at."""
    answer = api.send("POST", "/body", content="{", headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["type"].rsplit("/", 1)[1]) == (400, "malformed-json")


def test_every_kind_of_problem_has_a_status_a_type_and_a_text() -> None:
    """None falls back to what its parent says."""
    kinds = set(_problems()) - {Problem}
    assert {NotFound, Conflict, Invalid} < kinds
    for kind in kinds:
        assert {"status", "slug", "__doc__"} <= set(vars(kind)), kind
        assert 400 <= kind.status < 500
        assert kind().detail.endswith(".")
