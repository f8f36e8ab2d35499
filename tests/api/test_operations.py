"""Health, readiness and figures for operators."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from app.config import Settings
from app.db import engine_for
from tests.fixtures.api import Api
from tests.fixtures.world import World


def test_a_living_process_is_healthy(api: Api) -> None:
    """Without a key, and whatever the database does."""
    assert api.with_key(None).get("/healthz").json() == {"status": "ok"}


def test_a_process_with_its_database_is_ready(live_api: Api) -> None:
    """Without a key."""
    assert live_api.with_key(None).get("/readyz").json() == {"status": "ready"}


@pytest.fixture
def unreachable(configure: Callable[..., Settings], api: Api) -> None:
    """A database that nobody serves."""
    configure(database_url="postgresql+psycopg://nobody@127.0.0.1:1/none")


@pytest.mark.usefixtures("unreachable")
def test_a_process_without_its_database_is_not_ready(api: Api) -> None:
    """503 says when to ask again, and not why."""
    api.app.dependency_overrides.clear()
    for path in ("/readyz", "/v1/jobs"):
        answer = api.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
        assert answer.headers["Retry-After"] == "2"
        assert "127.0.0.1" not in answer.text


def test_figures_count_answers_by_their_route(api: Api) -> None:
    """The label is the route's template: neither an ID nor what was not found makes a new series."""
    api.get("/v1/jobs/00000000-0000-0000-0000-000000000000")
    api.get("/v1/models/alice-secret")
    api.get("/alice-secret")
    text = api.with_key(None).get("/metrics").text
    assert 'route="/v1/jobs/{job_id}",status="404"' in text
    assert 'route="/v1/models/{name}",status="404"' in text
    assert "alice-secret" not in text


def test_invented_methods_make_no_series(api: Api) -> None:
    """Anybody can send them, without a key."""
    assert api.with_key(None).send("ALICE-SECRET", "/v1/jobs").status_code == 405
    text = api.get("/metrics").text
    assert 'method="unknown",route="/v1/jobs",status="405"' in text
    assert "ALICE-SECRET" not in text


def test_figures_show_what_waits(world: World, api: Api) -> None:
    """Jobs, requests, the nearest due date and the outbox."""
    world.dataset()
    world.trained(due_days=10)
    world.request(1)
    world.plan()
    world.session.commit()
    text = api.get("/metrics").text
    assert 'expunge_jobs{kind="unlearn",state="queued"} 1.0' in text
    assert 'expunge_deletion_requests{state="received"} 1.0' in text
    left = re.search(r"^expunge_days_left_of_most_urgent_request (\S+)$", text, re.MULTILINE)
    assert left is not None
    assert float(left[1]) == pytest.approx(10, abs=0.01)
    assert "expunge_outbox_lag_seconds" in text
    assert "expunge_oldest_queued_job_seconds" in text


def test_what_may_wait_is_no_sign_of_lagging_workers(world: World, api: Api) -> None:
    """Shadows are counted, but their age is not that of the queue."""
    world.dataset()
    world.trained()
    world.session.commit()
    api.post("/v1/models/net/versions/1/memorisation", {"networks": 2})
    text = api.get("/metrics").text
    assert 'expunge_jobs{kind="shadow",state="queued"} 2.0' in text
    assert "expunge_oldest_queued_job_seconds" not in text


def test_an_idle_service_shows_no_ages(api: Api) -> None:
    """What does not wait has no age, not age 0."""
    text = api.get("/metrics").text
    assert "expunge_oldest_queued_job_seconds" not in text
    assert "expunge_days_left_of_most_urgent_request" not in text


def test_one_engine_serves_a_database(engine: Engine) -> None:
    """Sessions share its pool."""
    url = engine.url.render_as_string(hide_password=False)
    assert engine_for(url) is engine_for(url)
    engine_for(url).dispose()
