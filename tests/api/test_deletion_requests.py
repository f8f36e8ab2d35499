"""/v1/deletion-requests over HTTP."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import func, select

from app.config import settings
from app.db import transaction
from app.jobs.service import request_cancel
from app.tables import DeletionRequest, Job, JobState
from tests.fixtures.api import Api
from tests.fixtures.world import World

PATH = "/v1/deletion-requests"


def _body(*ordinals: int, **terms: Any) -> dict[str, Any]:
    items = [{"sample_id": f"faces-{ordinal:02d}"} for ordinal in ordinals]
    return {"dataset": "faces", "items": items, **terms}


@pytest.fixture
def stocked(world: World, api: Api) -> Api:
    """The application with a data set and a model trained on it."""
    world.dataset()
    world.trained()
    world.session.commit()
    return api


def test_a_request_is_accepted_and_can_be_followed(stocked: Api) -> None:
    """202 says where it is and when to look again."""
    answer = stocked.post(PATH, _body(1, 2, external_id="ticket-1"))
    assert answer.status_code == 202
    assert answer.headers["Retry-After"] == "2"
    shown = stocked.get(answer.headers["Location"])
    assert shown.json() == answer.json()
    assert (shown.json()["state"], shown.json()["external_id"]) == ("received", "ticket-1")
    assert shown.json()["items"] == {"total": 2, "matched": 2, "no_match": 0}
    assert [target["state"] for target in shown.json()["targets"]] == ["open"]


def test_an_item_that_is_not_found_is_shown_as_such(stocked: Api) -> None:
    """The caller sees the result of every item."""
    body = {"dataset": "faces", "items": [{"sample_id": "unknown"}, {"subject": "person-1"}]}
    items = stocked.get(stocked.post(PATH, body).headers["Location"] + "/items").json()
    assert [(item["result"], item["rows"]) for item in items] == [("no_match", 0), ("matched", 10)]
    assert items[1]["sample_id"] is None
    assert len(items[1]["subject_key"]) == 64


def test_the_same_key_twice_is_one_request(stocked: Api, world: World) -> None:
    """With the same answer; with another body it is refused."""
    keyed = stocked.with_headers(Idempotency_Key="ticket-1")
    first, second = keyed.post(PATH, _body(1)), keyed.post(PATH, _body(1))
    assert first.json() == second.json()
    assert second.headers["Idempotency-Replayed"] == "true"
    assert second.headers["Location"] == first.headers["Location"]
    other = keyed.post(PATH, _body(2))
    assert (other.status_code, other.json()["type"].rsplit("/", 1)[1]) == (422, "idempotency-key-reused")
    assert world.counts()["deletion_requests"] == 1


def test_a_used_external_id_is_a_conflict(stocked: Api) -> None:
    """Without an Idempotency-Key the second request under it is refused."""
    stocked.post(PATH, _body(1, external_id="ticket-1"))
    answer = stocked.post(PATH, _body(1, external_id="ticket-1"))
    assert (answer.status_code, answer.headers["content-type"]) == (409, "application/problem+json")


def test_a_request_can_be_cancelled_once(stocked: Api) -> None:
    """The second time the state does not allow it."""
    place = stocked.post(PATH, _body(1)).headers["Location"]
    cancelled = stocked.post(f"{place}/cancel", {"reason": "a mistake"})
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    assert cancelled.json()["reason"] == "a mistake"
    assert stocked.post(f"{place}/cancel", {"reason": "again"}).status_code == 409


def test_a_failed_request_can_be_retried(stocked: Api, world: World) -> None:
    """Its target is open again."""
    created = stocked.post(PATH, _body(1))
    place = created.headers["Location"]
    assert stocked.post(f"{place}/retry", {"reason": "impatience"}).status_code == 409
    world.plan()
    job = world.next_job()
    request_cancel(world.session, job.id, world.caller(), "not now")
    world.settle(job)
    world.session.commit()
    assert stocked.get(place).json()["state"] == "partly_completed"
    retried = stocked.post(f"{place}/retry", {"reason": "now"}).json()
    assert (retried["state"], retried["targets"][0]["state"]) == ("received", "open")


def test_requests_are_listed_by_state(stocked: Api) -> None:
    """A filter shows those of one state."""
    stocked.post(PATH, _body(1))
    stocked.post(PATH, _body(55))
    assert len(stocked.get(PATH).json()) == 2
    assert [request["items"]["total"] for request in stocked.get(PATH, state="completed").json()] == [1]
    assert stocked.get(PATH, state="on_hold").json() == []


def test_pages_follow_one_another(stocked: Api) -> None:
    """Each row stands on one page, and the last page leads no further."""
    created = [stocked.post(PATH, _body(ordinal)).json()["id"] for ordinal in range(5)]
    seen, page = [], stocked.get(PATH, limit=2)
    while True:
        seen += [request["id"] for request in page.json()]
        if "next" not in page.links:
            break
        page = stocked.get(page.links["next"]["url"].removeprefix("http://expunge"))
    assert seen == created
    assert len(page.json()) == 1


def test_a_page_keeps_its_filter(stocked: Api) -> None:
    """The link to the next page carries the parameters of this one."""
    for ordinal in (50, 51, 52):
        stocked.post(PATH, _body(ordinal))
    page = stocked.get(PATH, limit=2, state="completed")
    assert "state=completed" in page.links["next"]["url"]


def test_a_full_last_page_leads_no_further(stocked: Api) -> None:
    """Exactly as many rows as fit have no next page."""
    for ordinal in (1, 2):
        stocked.post(PATH, _body(ordinal))
    assert "next" not in stocked.get(PATH, limit=2).links


def test_a_certificate_follows_the_request(stocked: Api, world: World) -> None:
    """It shows where the request stands, and in the end what was done."""
    place = stocked.post(PATH, _body(1)).headers["Location"]
    assert stocked.get(f"{place}/certificate").json()["request"]["state"] == "received"
    job = world.carry_out()
    world.session.commit()
    certificate = stocked.get(f"{place}/certificate").json()
    assert certificate["request"]["state"] == "completed"
    assert [report["job_id"] for report in certificate["reports"]] == [str(job.id)]


def test_a_body_above_the_limit_is_413(live_api: Api) -> None:
    """By its declared length, before anything is read or looked up."""
    size = settings().max_body_bytes + 1
    answer = live_api.send("POST", PATH, headers={"Content-Length": str(size)}, content=b"{}")
    assert (answer.status_code, answer.headers["content-type"]) == (413, "application/problem+json")


def test_the_same_key_at_once_is_one_request(live_api: Api, live_database: str) -> None:
    """Of many deliveries one acts, and all get its answer."""
    with transaction(live_database) as session:
        World(session).dataset()
        World(session).trained()
    keyed = live_api.with_headers(Idempotency_Key="ticket-1")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: keyed.post(PATH, _body(1)), range(8)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    with transaction(live_database) as session:
        assert session.scalars(select(func.count()).select_from(DeletionRequest)).one() == 1


def test_the_same_external_id_at_once_is_one_request(live_api: Api, live_database: str) -> None:
    """The others are conflicts, not errors of the server."""
    with transaction(live_database) as session:
        World(session).dataset()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: live_api.post(PATH, _body(1, external_id="t")), range(8)))
    assert sorted(answer.status_code for answer in answers) == [202, *[409] * 7]


def test_fifty_requests_posted_at_once_are_one_job(live_api: Api, live_database: str) -> None:
    """All are accepted, and the planner puts them together."""
    with transaction(live_database) as session:
        World(session).dataset()
        World(session).trained()
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda ordinal: live_api.post(PATH, _body(ordinal % 40)), range(50)))
    assert {answer.status_code for answer in answers} == {202}
    with transaction(live_database) as session:
        world = World(session)
        assert world.plan() == 1
        job = world.next_job()
        world.compute(job)
        world.settle(job)
        assert session.get_one(Job, job.id).state is JobState.DONE
        states = session.scalars(select(DeletionRequest.state)).all()
    assert states == ["completed"] * 50
