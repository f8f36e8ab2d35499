"""What the application says of itself: operations, scopes, errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from app.callers.router import router as keys
from app.callers.service import Scope
from app.datasets.router import router as datasets
from app.deletions.router import models as retirement
from app.deletions.router import router as deletions
from app.jobs.router import router as jobs
from app.registry.router import router as models
from app.registry.router import weights
from app.reports.router import router as reports
from tests.fixtures.api import Api
from tests.fixtures.world import World

_OPEN = {"/healthz", "/readyz", "/metrics"}
# What they ask about does not belong into a URL.
_CREATED_BY_NAME = {"/v1/weights/{digest}"}
_ASKED_BY_POST = {"look_up_memorisation", "look_up_samples", "preview_deletion_request"}
_OPERATIONS = {
    "approve_job",
    "cancel_deletion_request",
    "cancel_job",
    "create_deletion_request",
    "create_deletion_requests",
    "deny_deletion_request",
    "download_weights",
    "estimate_memorisation",
    "healthz",
    "issue_key",
    "list_architectures",
    "list_datasets",
    "list_deletion_items",
    "list_deletion_requests",
    "list_jobs",
    "list_keys",
    "list_methods",
    "list_model_versions",
    "list_models",
    "list_readers",
    "list_reports",
    "list_poisoned_samples",
    "look_up_memorisation",
    "look_up_samples",
    "measure_readiness",
    "metrics",
    "compare_methods",
    "move_alias",
    "preview_deletion_request",
    "read_attestation",
    "read_certificate",
    "read_comparison",
    "read_dataset",
    "read_deletion_request",
    "read_job",
    "read_lineage",
    "read_memorisation",
    "read_model",
    "read_readiness",
    "read_report",
    "read_report_page",
    "read_version",
    "readyz",
    "register_dataset",
    "register_model",
    "register_version",
    "reject_job",
    "remove_alias",
    "retire_dataset",
    "retire_model",
    "retry_deletion_request",
    "revoke_key",
    "set_policy",
    "train_model",
    "upload_deletion_request",
    "upload_weights",
}


def _closed() -> list[APIRoute]:
    """The routes that need a key; `test_every_operation_is_checked_here` sees that none is forgotten."""
    routers = (keys, datasets, models, retirement, weights, deletions, jobs, reports)
    return [route for router in routers for route in router.routes if isinstance(route, APIRoute)]


def _scopes(dependant: Dependant) -> Iterator[Scope]:
    """The scopes that a route's dependencies ask for."""
    if (scope := getattr(dependant.call, "scope", None)) is not None:
        yield scope
    for inner in dependant.dependencies:
        yield from _scopes(inner)


@pytest.fixture
def description(api: Api) -> dict[str, Any]:
    """The OpenAPI document as it is served."""
    document: dict[str, Any] = api.with_key(None).get("/openapi.json").json()
    return document


def _operations(description: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for path in description["paths"].values() for operation in path.values()]


def test_every_operation_is_checked_here(description: dict[str, Any]) -> None:
    """The routes of these tests and the open ones are all there are."""
    described = {path for path in description["paths"] if path not in _OPEN}
    assert {route.path for route in _closed()} == described


def test_every_route_names_one_scope() -> None:
    """Whoever adds a route has to say who may call it."""
    for route in _closed():
        assert len(list(_scopes(route.dependant))) == 1, route.name


def test_routes_that_change_something_need_more_than_reading() -> None:
    """No scope to read lets anybody write."""
    for route in _closed():
        (scope,) = _scopes(route.dependant)
        reads = route.methods == {"GET"} or route.operation_id in _ASKED_BY_POST
        assert scope.endswith(":read") == reads or scope is Scope.KEYS_ADMIN


@pytest.mark.parametrize("route", _closed(), ids=lambda route: route.name)
def test_without_its_scope_a_route_is_closed(api: Api, world: World, route: APIRoute) -> None:
    """No key is 401, a key with every other scope is 403, whatever else is wrong with the call."""
    (scope,) = _scopes(route.dependant)
    method = next(iter(route.methods or ()))
    key = api.post(
        "/v1/keys", {"name": "all but one", "scopes": [other for other in Scope if other != scope]}
    )
    path = route.path.replace("{name}", "net").replace("{alias}", "production").replace("{number}", "1")
    path = path.replace("{digest}", "0" * 64)
    for parameter in ("{request_id}", "{job_id}", "{report_id}", "{key_id}"):
        path = path.replace(parameter, "00000000-0000-0000-0000-000000000000")
    nobody = api.with_key(None).send(method, path)
    assert (nobody.status_code, nobody.headers["content-type"]) == (401, "application/problem+json")
    assert nobody.headers["www-authenticate"] == "Bearer"
    other = api.with_key(key.json()["secret"]).send(method, path)
    assert (other.status_code, other.headers["content-type"]) == (403, "application/problem+json")
    assert scope in other.json()["detail"]


def test_operation_ids_stay_as_they_are(description: dict[str, Any]) -> None:
    """Clients are generated from them: one may be added, none renamed."""
    found = [operation["operationId"] for operation in _operations(description)]
    assert sorted(found) == sorted(_OPERATIONS)


def test_every_operation_says_what_it_does(description: dict[str, Any]) -> None:
    """In a summary and in a sentence, under a heading."""
    for operation in _operations(description):
        assert operation["summary"]
        assert operation["description"].endswith(".")
        assert operation["tags"]


def test_every_error_is_described_as_a_problem(description: dict[str, Any]) -> None:
    """With its schema, and as problem+json alone."""
    for operation in _operations(description):
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                schema = {"$ref": "#/components/schemas/ProblemBody"}
                assert response["content"] == {"application/problem+json": {"schema": schema}}


def test_every_closed_operation_describes_its_errors(description: dict[str, Any]) -> None:
    """Missing and insufficient keys, wrong input, broken and huge bodies, paths that lead nowhere."""
    for path, operations in description["paths"].items():
        for operation in operations.values():
            if path in _OPEN:
                continue
            expected = {"401", "403", "422"}
            expected |= {"400", "413"} if "requestBody" in operation else set()
            expected |= {"404"} if "{" in path and path not in _CREATED_BY_NAME else set()
            assert expected <= set(operation["responses"])


def test_the_key_is_described_as_a_bearer_token(description: dict[str, Any]) -> None:
    """Every closed operation asks for it."""
    for path, operations in description["paths"].items():
        for operation in operations.values():
            assert (path in _OPEN) == (operation.get("security") is None)


def test_every_body_is_described_with_an_example_or_a_default(description: dict[str, Any]) -> None:
    """A reader sees for each field that has to be filled in what could stand there."""
    schemas = description["components"]["schemas"]
    for operation in _operations(description):
        for content in operation.get("requestBody", {}).get("content", {}).values():
            if "$ref" not in content["schema"]:  # a file
                assert content.get("example") or content["schema"].get("format") == "binary"
                continue
            schema = schemas[content["schema"]["$ref"].rsplit("/", 1)[1]]
            whole = schema.get("examples")
            for name in schema.get("required", []):
                assert whole or schema["properties"][name].get("examples"), (operation["operationId"], name)
