"""Readiness over HTTP: asking for the measurement, and reading what it found."""

from __future__ import annotations

import pytest

from app.jobs import service as jobs
from app.reports import publisher
from app.tables import JobKind
from tests.fixtures.api import Api
from tests.fixtures.world import World

PLACE = "/v1/models/net/versions/1/readiness"


@pytest.fixture
def stocked(world: World, api: Api) -> Api:
    """The application with a data set and a model trained on it."""
    world.dataset()
    world.trained()
    world.session.commit()
    return api


def test_it_is_asked_for_and_read_where_the_answer_says(stocked: Api, world: World) -> None:
    """404 before it is asked for; then its state, and its figures once they are there."""
    assert stocked.get(PLACE).status_code == 404
    answer = stocked.post(PLACE, {"rows": 100})
    assert (answer.status_code, answer.headers["Location"]) == (202, PLACE)
    assert stocked.get(PLACE).json() == {
        "job_id": answer.json()["job_id"],
        "state": "queued",
        "figures": None,
    }
    job = world.next_job(JobKind.READINESS)
    assert job.parameters == {"rows": 100, "iterations": 50}
    jobs.finish_computing(world.session, world.claim(job), {"figures": {"effort": "small"}})
    publisher.settle(world.session, job.id)
    world.session.commit()
    shown = stocked.get(PLACE).json()
    assert (shown["state"], shown["figures"]) == ("done", {"effort": "small"})


def test_it_is_queued_once_for_a_key(stocked: Api) -> None:
    """The same key and body give the same job."""
    keyed = stocked.with_headers(Idempotency_Key="ready")
    first, second = (keyed.post(PLACE, {}) for _ in range(2))
    assert first.json() == second.json()


def test_every_fault_is_named(stocked: Api) -> None:
    """And of what there is none nothing is measured."""
    answer = stocked.post(PLACE, {"rows": 0, "iterations": 0, "depth": 3})
    assert answer.status_code == 422
    pointers = {fault["pointer"] for fault in answer.json()["errors"]}
    assert pointers == {"/rows", "/iterations", "/depth"}
    assert stocked.post("/v1/models/net/versions/9/readiness", {}).status_code == 404
    stocked.post("/v1/models/net/retire", {"reason": "no longer served"})
    assert stocked.post(PLACE, {}).status_code == 409
