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


def test_many_requests_are_accepted_at_once(stocked: Api) -> None:
    """Each for itself, in the order given."""
    answer = stocked.post(f"{PATH}/bulk", {"requests": [_body(1), _body(2, external_id="two")]})
    assert answer.status_code == 202
    accepted = answer.json()["requests"]
    assert [request["external_id"] for request in accepted] == [None, "two"]
    assert [request["id"] for request in stocked.get(PATH).json()] == [request["id"] for request in accepted]


def test_of_many_requests_all_are_accepted_or_none(stocked: Api, world: World) -> None:
    """The faults of every one are named with its place."""
    wrong = [_body(1), _body(99), {**_body(2), "dataset": "nowhere"}]
    answer = stocked.post(f"{PATH}/bulk", {"requests": wrong})
    assert answer.status_code == 422
    pointers = {fault["pointer"] for fault in answer.json()["errors"]}
    assert pointers == {"/requests/1/items/0/sample_id", "/requests/2/dataset"}
    assert world.session.scalar(select(func.count()).select_from(DeletionRequest)) == 0


def _uploaded(api: Api, content: bytes, media_type: str = "application/x-ndjson", **terms: str) -> Any:
    headers = {"Content-Type": media_type}
    return api.send("POST", f"{PATH}/upload", content=content, headers=headers, params=terms)


def test_a_list_is_uploaded(stocked: Api) -> None:
    """As JSON lines or CSV; terms stand in the query, the caller's own name in a header."""
    named = stocked.with_headers(External_Id="ticket-9")
    first = _uploaded(named, b'{"sample_id": "faces-01"}\n{"subject": "person-2"}\n', dataset="faces")
    assert first.status_code == 202
    assert (first.json()["external_id"], first.json()["items"]["matched"]) == ("ticket-9", 2)
    second = _uploaded(stocked, b"sample_id,dataset\nfaces-03,faces\n", "text/csv; charset=utf-8")
    assert second.status_code == 202
    assert second.json()["targets"][0]["state"] == "open"


def test_an_uploaded_list_is_sent_again_under_its_key(stocked: Api) -> None:
    """The same bytes get the same answer; others are refused."""
    keyed = stocked.with_headers(Idempotency_Key="list-1")
    first = _uploaded(keyed, b'{"sample_id": "faces-01"}', dataset="faces")
    second = _uploaded(keyed, b'{"sample_id": "faces-01"}', dataset="faces")
    assert first.json() == second.json()
    assert _uploaded(keyed, b'{"sample_id": "faces-02"}', dataset="faces").status_code == 422


@pytest.mark.parametrize(
    ("content", "media_type", "status", "place"),
    [
        (b'{"sample_id": "faces-01"}\nnonsense\n', "application/x-ndjson", 422, "line 2: item"),
        (b'{"sample_id": "unknown"}', "application/x-ndjson", 422, "line 1: sample_id"),
        (b'{"sample_id": "a", "dataset": "x"}', "application/x-ndjson", 422, "line 1: dataset"),
        (b"", "application/x-ndjson", 422, "/items"),
        (b"sample_id\n", "text/csv", 422, "/items"),
        (b"[]", "application/json", 415, None),
    ],
)
def test_a_wrong_list_is_refused_as_a_whole(
    stocked: Api, world: World, content: bytes, media_type: str, status: int, place: str | None
) -> None:
    """With its faults by line; nothing of it is left."""
    answer = _uploaded(stocked, content, media_type, dataset="faces")
    assert answer.status_code == status
    assert [fault["pointer"] for fault in answer.json()["errors"]] == ([place] if place else [])
    assert world.session.scalar(select(func.count()).select_from(DeletionRequest)) == 0


def test_a_request_is_denied_with_a_reason(stocked: Api, world: World) -> None:
    """Its rows may train again; a denied request cannot be denied or cancelled any more."""
    where = stocked.post(PATH, _body(1)).headers["Location"]
    denied = stocked.post(f"{where}/deny", {"reason": "identity not proved"}).json()
    assert (denied["state"], denied["reason"]) == ("denied", "identity not proved")
    assert [target["state"] for target in denied["targets"]] == ["retired"]
    assert world.counts()["tombstones"] == world.counts()["tombstoned_rows"] == 0
    assert stocked.post(f"{where}/deny", {"reason": "again"}).status_code == 409
    assert stocked.post(f"{where}/cancel", {"reason": "again"}).status_code == 409
    assert stocked.post(f"{where}/deny", {}).status_code == 422


def test_lists_are_narrowed_down(stocked: Api, world: World) -> None:
    """By state, time, model and data set, all of which must hold."""
    first = stocked.post(PATH, _body(1, due_at="2036-01-01T00:00:00Z")).json()["id"]
    second = stocked.post(PATH, _body(45)).json()["id"]  # a held-out row: no model is concerned

    def found(**wanted: Any) -> list[str]:
        answer = stocked.get(PATH, **wanted)
        assert answer.status_code == 200, answer.text
        return [request["id"] for request in answer.json()]

    assert found() == [first, second]
    assert found(state="completed") == [second]
    assert found(state=["completed", "received"]) == [first, second]
    assert found(model="net") == [first]
    assert found(dataset="faces") == [first, second]
    assert found(dataset="other") == []
    assert found(due_before="2035-01-01T00:00:00Z") == [second]
    assert found(received_after="2035-01-01T00:00:00Z") == []
    assert found(received_before="2035-01-01T00:00:00Z", model="net") == [first]
    assert found(overdue=True) == []
    assert stocked.get(PATH, received_after="yesterday").status_code == 422


def test_items_come_in_pages(stocked: Api) -> None:
    """Each page leads to the next one; a result can be asked for."""
    items = [{"sample_id": f"faces-{row:02d}"} for row in (1, 2, 3)] + [{"sample_id": "unknown"}]
    where = stocked.post(PATH, {"dataset": "faces", "items": items}).headers["Location"] + "/items"
    first = stocked.get(where, limit=3)
    assert [item["position"] for item in first.json()] == [0, 1, 2]
    following = first.links["next"]["url"]
    assert [item["position"] for item in stocked.get(following).json()] == [3]
    assert [item["position"] for item in stocked.get(where, result="no_match").json()] == [3]


def test_samples_are_looked_up(stocked: Api) -> None:
    """By ID or by subject; what is unknown is named by its position."""
    stocked.post(PATH, _body(1))
    wanted = {"sample_ids": ["faces-01", "x", "faces-45"], "subjects": ["nobody", "person-3"]}
    found = stocked.post("/v1/datasets/faces/samples:lookup", wanted).json()
    shown = {row["sample_id"]: row for row in found["samples"]}
    assert len(shown) == 11  # faces-45 is about person-3, too
    assert (shown["faces-01"]["role"], shown["faces-01"]["deleted"]) == ("train", True)
    assert (shown["faces-45"]["role"], shown["faces-45"]["deleted"]) == ("holdout", False)
    assert (found["unknown_sample_ids"], found["unknown_subjects"]) == ([1], [0])
    assert stocked.post("/v1/datasets/nowhere/samples:lookup", wanted).status_code == 404


def test_a_preview_is_shown(stocked: Api) -> None:
    """What the request would do, in the API's words."""
    shown = stocked.post(f"{PATH}/preview", _body(1, 2)).json()
    assert [(model["model"], model["rows_to_forget"]) for model in shown["models"]] == [("net", 2)]
    assert stocked.get(PATH).json() == []
