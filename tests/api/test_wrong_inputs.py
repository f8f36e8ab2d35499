"""Bad input is a problem that names every fault, repeats nothing that was sent, and changes nothing."""

from __future__ import annotations

import base64
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from sqlalchemy import select

from app import logs
from app.tables import DeletionRequest, OutboxMessage
from tests.fixtures.api import Api
from tests.fixtures.world import World

REQUESTS = "/v1/deletion-requests"
NOBODY = "00000000-0000-0000-0000-000000000000"
SECRET = "alice.secret@example.org"


@pytest.fixture
def stocked(world: World, api: Api) -> Api:
    """The application with a data set and a model trained on it."""
    world.dataset()
    world.trained()
    world.session.commit()
    return api


@pytest.fixture
def log_lines() -> Iterator[io.StringIO]:
    """Everything that is logged, as the API's process would write it."""
    root, text = logging.getLogger(), io.StringIO()
    former = (root.handlers[:], root.level)
    logs.configure("api")
    handler = logging.StreamHandler(text)
    handler.setFormatter(root.handlers[0].formatter)
    root.handlers = [handler]
    yield text
    root.handlers, root.level = former
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


def _raw(api: Api, path: str, body: str | bytes, method: str = "POST") -> Any:
    return api.send(method, path, content=body, headers={"Content-Type": "application/json"})


def _cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


_BAD_BODIES = {
    "NUL in a sample ID": (
        REQUESTS,
        {"dataset": "faces", "items": [{"sample_id": "a\0b"}]},
        "/items/0/sample_id",
    ),
    "NUL in a subject": (REQUESTS, {"dataset": "faces", "items": [{"subject": "a\0b"}]}, "/items/0/subject"),
    "half a character": (REQUESTS, {"items": [{"sample_id": "\ud800"}]}, "/items/0/sample_id"),
    "NUL in an external ID": (
        REQUESTS,
        {"items": [{"sample_id": "faces-01"}], "external_id": "\0"},
        "/external_id",
    ),
    "no items": (REQUESTS, {"dataset": "faces", "items": []}, "/items"),
    "both at once": (REQUESTS, {"items": [{"sample_id": "a", "subject": "b"}]}, "/items/0"),
    "neither": (REQUESTS, {"items": [{"dataset": "faces"}]}, "/items/0"),
    "no time zone": (REQUESTS, {"items": [{"subject": "b"}], "due_at": "2030-01-01T00:00:00"}, "/due_at"),
    "not an object": (REQUESTS, [1, 2], "/"),
    "wrong name": ("/v1/models", {"name": "No Such Name!"}, "/name"),
    "no number": (
        "/v1/models",
        {"name": "x", "policy": {"batch_window_seconds": float("nan")}},
        "/policy/batch_window_seconds",
    ),
    "a rate out of range": (
        "/v1/models/net/train",
        {"dataset": "faces", "recipe": {"learning_rate": 0}},
        "/recipe/learning_rate",
    ),
    "an unknown objective": (
        "/v1/models/net/train",
        {"dataset": "faces", "recipe": {"objective": {"name": SECRET}}},
        "/recipe/objective",
    ),
    "a version beyond all": (
        "/v1/models/net/train",
        {"dataset": "faces", "dataset_version": 2**40},
        "/dataset_version",
    ),
    "an unknown scope": ("/v1/keys", {"name": "x", "scopes": [SECRET]}, "/scopes/0"),
    "an unknown reader": ("/v1/datasets", {"name": "x", "reader": SECRET}, "/reader"),
    "an unknown reason": (f"{REQUESTS}/{NOBODY}/cancel", {"reason": ""}, "/reason"),
}


@pytest.mark.parametrize(("path", "body", "pointer"), _BAD_BODIES.values(), ids=_BAD_BODIES)
def test_a_wrong_body_is_422(stocked: Api, path: str, body: object, pointer: str) -> None:
    """The fault says where it is, by a JSON pointer."""
    answer = _raw(stocked, path, json.dumps(body))
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert [fault["pointer"] for fault in answer.json()["errors"]] == [pointer]
    assert SECRET not in answer.text


@pytest.mark.parametrize(
    ("path", "parameters", "name"),
    [
        (REQUESTS, {"limit": 0}, "limit"),
        (REQUESTS, {"limit": 1001}, "limit"),
        (REQUESTS, {"state": SECRET}, "state"),
        (REQUESTS, {"cursor": "!!!"}, "cursor"),
        (REQUESTS, {"cursor": _cursor("x")}, "cursor"),
        (REQUESTS, {"cursor": _cursor(str(2**70))}, "cursor"),
        (REQUESTS, {"cursor": _cursor("-1")}, "cursor"),
        (f"{REQUESTS}/{SECRET}", {}, "request_id"),
        (f"{REQUESTS}/{NOBODY}/items", {"limit": 0}, "limit"),
        ("/v1/datasets/a%00b", {}, "name"),
        ("/v1/models/a%00b", {}, "name"),
    ],
)
def test_a_wrong_parameter_is_422(stocked: Api, path: str, parameters: dict[str, Any], name: str) -> None:
    """The fault names the parameter."""
    answer = stocked.get(path, **parameters)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert [fault["pointer"] for fault in answer.json()["errors"]] == [name]
    assert SECRET not in answer.text


@pytest.mark.parametrize("key", ["", "k" * 256])
def test_a_wrong_idempotency_key_is_422(stocked: Api, key: str) -> None:
    """An empty or endless key is no key."""
    body = {"dataset": "faces", "items": [{"sample_id": "faces-01"}]}
    answer = stocked.with_headers(Idempotency_Key=key).post(REQUESTS, body)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "Idempotency-Key")


@pytest.mark.parametrize(
    "body",
    ['{"items": [', "", "[" * 100_000, b'{"dataset": "\xff"}', '{"dataset": ' + "9" * 5000 + "}"],
    ids=["cut off", "empty", "too deep", "not UTF-8", "an endless number"],
)
def test_a_broken_body_is_a_problem(stocked: Api, body: str | bytes) -> None:
    """It is the caller's fault, and said so."""
    answer = _raw(stocked, REQUESTS, body)
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"


def test_every_fault_of_a_body_is_named_at_once(stocked: Api) -> None:
    """One round is enough to correct them all."""
    body = {
        "name": "No Name",
        "policy": {
            "thresholds": {"auc_margin": 2, "colour": 1},
            "publish_when": "tuesday",
            "due_days": 0,
        },
    }
    found = {fault["pointer"] for fault in stocked.post("/v1/models", body).json()["errors"]}
    assert found == {
        "/name",
        "/policy/thresholds/auc_margin",
        "/policy/thresholds/colour",
        "/policy/publish_when",
        "/policy/due_days",
    }


def test_of_very_many_faults_the_first_are_shown(stocked: Api) -> None:
    """The others are counted."""
    items = [{"sample_id": f"unknown-{number}"} for number in range(1200)]
    problem = stocked.post(REQUESTS, {"dataset": "faces", "items": items}).json()
    assert len(problem["errors"]) == 1000
    assert "1200 faults" in problem["detail"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("PATCH", REQUESTS, 405),
        ("GET", f"{REQUESTS}/{NOBODY}", 404),
        ("GET", f"{REQUESTS}/{NOBODY}/items", 404),
        ("GET", f"{REQUESTS}/{NOBODY}/certificate", 404),
        ("GET", "/v1/datasets/unknown", 404),
        ("GET", "/v1/models/unknown", 404),
        ("GET", "/v1/models/unknown/versions", 404),
        ("GET", f"/v1/jobs/{NOBODY}", 404),
        ("GET", f"/v1/reports/{NOBODY}", 404),
        ("GET", f"/v1/reports/{NOBODY}/html", 404),
        ("GET", f"/v1/reports/{NOBODY}/attestation", 404),
        ("DELETE", f"/v1/keys/{NOBODY}", 404),
    ],
)
def test_what_is_not_there_is_a_problem(stocked: Api, method: str, path: str, status: int) -> None:
    """Wherever it is missing: as a route, a method or a row."""
    answer = stocked.send(method, path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert answer.json()["status"] == status


def test_a_refused_request_changes_nothing(stocked: Api, world: World) -> None:
    """Nothing is half done, whatever the fault."""
    before = world.counts()
    for body in (
        {"dataset": "faces", "items": [{"sample_id": "unknown"}]},
        {"dataset": "nowhere", "items": [{"sample_id": "faces-01"}]},
        {"dataset": "faces", "items": [{"sample_id": "faces-01"}], "due_at": "2020-01-01T00:00:00Z"},
    ):
        answer = stocked.with_headers(Idempotency_Key="key").post(REQUESTS, body)
        assert answer.status_code == 422
    assert world.counts() == before


def test_what_is_sent_stands_in_no_error_and_no_log(
    stocked: Api, world: World, log_lines: io.StringIO
) -> None:
    """Neither a sample ID, a subject nor a key, whether the request is refused or accepted."""
    answers = [
        stocked.post(REQUESTS, {"dataset": "faces", "items": [{"sample_id": SECRET}]}),
        stocked.post(REQUESTS, {"dataset": "faces", "items": [{"subject": SECRET, "sample_id": SECRET}]}),
        stocked.post(REQUESTS, {"dataset": "faces", "items": [{"subject": {SECRET: 1}}]}),
        stocked.post(REQUESTS, {"dataset": "faces", "items": SECRET, "due_at": SECRET}),
        _raw(stocked, REQUESTS, f'{{"items": [{{"subject": "{SECRET}"'),
        stocked.with_key(SECRET).get(REQUESTS),
    ]
    assert {answer.status_code for answer in answers} == {422, 400, 401}
    items = [{"sample_id": SECRET}, {"subject": SECRET}, {"sample_id": "faces-01"}]
    accepted = stocked.post(REQUESTS, {"dataset": "faces", "items": items})
    assert accepted.status_code == 202
    for answer in [*answers, accepted]:
        assert SECRET not in answer.text
    payloads = [message.payload for message in world.session.scalars(select(OutboxMessage))]
    assert SECRET not in json.dumps(payloads)
    assert SECRET not in log_lines.getvalue()


def test_an_unexpected_error_quotes_no_data(stocked: Api, world: World, log_lines: io.StringIO) -> None:
    """The answer is a bare 500; the log has the place, and what a database error quotes is withheld."""
    item = {"sample_id": "faces-01"}
    created = stocked.post(REQUESTS, {"dataset": "faces", "items": [item], "external_id": SECRET})
    request = world.session.get_one(DeletionRequest, created.json()["id"])
    request.regulation = f"{SECRET}\0"  # what no caller can send and no database can store
    answer = stocked.get(REQUESTS)
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert SECRET not in answer.text
    logged = log_lines.getvalue()
    assert "unexpected_error" in logged
    assert SECRET not in logged
