"""Keys, data sets, models, jobs and reports over HTTP."""

from __future__ import annotations

import uuid

import pytest

from app.callers.service import Scope
from app.jobs.params import METHODS, SharpMinMax
from app.reports.attestation import load_public_pem, verify
from app.tables import Job
from tests.fixtures.api import Api
from tests.fixtures.world import World

KEY_FIELDS = {"id", "name", "prefix", "scopes", "created_at", "expires_at", "last_used_at", "revoked_at"}


@pytest.fixture
def stocked(world: World, api: Api) -> Api:
    """The application with a data set and a model trained on it."""
    world.dataset()
    world.trained()
    world.session.commit()
    return api


@pytest.fixture
def published(world: World, stocked: Api) -> Job:
    """The job of a request that was carried out."""
    world.request(1)
    job = world.carry_out()
    world.session.commit()
    return job


@pytest.fixture
def awaiting(world: World, api: Api) -> Job:
    """A job whose result awaits approval; the request was posted with the key of `api`."""
    world.dataset()
    world.trained(publish_when="approved")
    world.session.commit()
    api.post("/v1/deletion-requests", {"dataset": "faces", "items": [{"sample_id": "faces-01"}]})
    job = world.carry_out()
    world.session.commit()
    return job


# --- keys ----------------------------------------------------------------------------------------------


def test_a_key_is_shown_once(api: Api) -> None:
    """The secret is in the answer that issues it, and in no other."""
    issued = api.post("/v1/keys", {"name": "desk", "scopes": ["jobs:read"]})
    assert issued.status_code == 201
    assert set(issued.json()) == KEY_FIELDS | {"secret"}
    listed = api.get("/v1/keys")
    assert set(listed.json()[0]) == KEY_FIELDS
    assert issued.json()["secret"] not in listed.text


def test_a_key_opens_what_its_scopes_say_until_it_is_revoked(api: Api) -> None:
    """From 403 over 200 to 401."""
    issued = api.post("/v1/keys", {"name": "desk", "scopes": ["jobs:read"]}).json()
    holder = api.with_key(issued["secret"])
    assert holder.get("/v1/jobs").status_code == 200
    assert holder.get("/v1/models").status_code == 403
    revoked = api.send("DELETE", f"/v1/keys/{issued['id']}")
    assert revoked.json()["revoked_at"] is not None
    assert holder.get("/v1/jobs").status_code == 401


@pytest.mark.parametrize("header", ["", "Basic YTpi", "Bearer", "Bearer  ", "Bearer exp_unknown"])
def test_what_is_no_key_of_ours_is_401(api: Api, header: str) -> None:
    """However it is written."""
    answer = api.with_key(None).with_headers(Authorization=header).get("/v1/jobs")
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")


# --- data sets -----------------------------------------------------------------------------------------


def test_a_data_set_is_registered_and_read_by_a_job(api: Api) -> None:
    """202 with the version, which is pending, and the job."""
    answer = api.post("/v1/datasets", {"name": "digits", "reader": "sklearn_digits"})
    assert answer.status_code == 202
    assert answer.json()["dataset"]["state"] == "pending"
    job = api.get(f"/v1/jobs/{answer.json()['job_id']}").json()
    assert (job["kind"], job["state"]) == ("ingest", "queued")
    (version,) = api.get(answer.headers["Location"]).json()
    assert version == answer.json()["dataset"]


def test_data_sets_are_listed_by_their_newest_version(world: World, api: Api) -> None:
    """A page holds each data set once."""
    world.dataset("faces")
    world.register("faces")
    world.register("other")
    world.session.commit()
    listed = api.get("/v1/datasets").json()
    assert [(dataset["name"], dataset["version"]) for dataset in listed] == [("faces", 2), ("other", 1)]


def test_a_data_set_in_use_cannot_be_retired(stocked: Api) -> None:
    """409, and it stays ready."""
    assert stocked.post("/v1/datasets/faces/retire", {"reason": "over"}).status_code == 409
    assert stocked.get("/v1/datasets/faces").json()[0]["state"] == "ready"


# --- models --------------------------------------------------------------------------------------------


def test_a_model_is_registered_with_its_policy(api: Api) -> None:
    """Every default is spelled out."""
    answer = api.post("/v1/models", {"name": "net", "policy": {"due_days": 10}})
    assert answer.status_code == 201
    assert answer.json()["aliases"] == {}
    policy = answer.json()["policy"]
    assert (policy["number"], policy["body"]["due_days"], policy["body"]["publish_when"]) == (
        1,
        10,
        "not_failed",
    )
    assert api.get("/v1/models/net").json() == answer.json()
    assert api.post("/v1/models", {"name": "net"}).status_code == 409


def test_training_is_queued_once_for_a_key(stocked: Api, world: World) -> None:
    """The same key and body give the same job; another model's training under it is refused."""
    keyed = stocked.with_headers(Idempotency_Key="train")
    first, second = (keyed.post("/v1/models/net/train", {"dataset": "faces"}) for _ in range(2))
    assert (first.status_code, first.json()) == (202, second.json())
    stocked.post("/v1/models", {"name": "other"})
    assert keyed.post("/v1/models/other/train", {"dataset": "faces"}).status_code == 422


def test_versions_are_listed_with_their_lineage(published: Job, stocked: Api) -> None:
    """Each says where it came from and on how many rows it stands."""
    first, second = stocked.get("/v1/models/net/versions").json()
    assert (first["number"], first["origin"], first["rows"], first["aliases"]) == (1, "trained", 40, [])
    assert (second["number"], second["origin"], second["rows"]) == (2, "unlearned", 39)
    assert (second["parent_id"], second["aliases"]) == (first["id"], ["production"])
    page = stocked.get("/v1/models/net/versions", limit=1)
    assert len(page.json()) == 1
    assert "next" in page.links


def test_a_policy_is_replaced_as_a_whole(stocked: Api) -> None:
    """Its number grows; a faulty one leaves it as it is."""
    assert stocked.put("/v1/models/net/policy", {"due_days": 3}).json()["number"] == 2
    ladder = [{"method": "sharp_minmax", "parameters": {"rho": -1, "alpha": 2}}]
    refused = stocked.put("/v1/models/net/policy", {"ladder": ladder})
    assert {fault["pointer"] for fault in refused.json()["errors"]} == {
        "/ladder",
        "/ladder/0/parameters/rho",
        "/ladder/0/parameters/alpha",
    }
    assert stocked.get("/v1/models/net").json()["policy"]["number"] == 2


def test_an_alias_is_moved_with_a_reason(stocked: Api) -> None:
    """To a version that there is."""
    place = "/v1/models/net/aliases/stable"
    moved = stocked.put(place, {"version": 1, "reason": "tried and tested"})
    assert moved.json()["aliases"] == {"production": 1, "stable": 1}
    unknown = stocked.put(place, {"version": 9, "reason": "tried and tested"})
    assert [fault["pointer"] for fault in unknown.json()["errors"]] == ["/version"]


def test_an_alias_does_not_go_back_to_deleted_rows(published: Job, stocked: Api) -> None:
    """409, and the alias stays where it is."""
    back = stocked.put("/v1/models/net/aliases/production", {"version": 1, "reason": "roll back"})
    assert back.status_code == 409
    assert stocked.get("/v1/models/net").json()["aliases"] == {"production": 2}
    assert stocked.get("/v1/models/net/versions").json()[0]["state"] == "superseded"


# --- jobs and methods ----------------------------------------------------------------------------------


def test_a_job_is_cancelled_by_name(stocked: Api, world: World) -> None:
    """At once if it waits; a second time is a conflict."""
    job_id = stocked.post("/v1/models/net/train", {"dataset": "faces"}).json()["job_id"]
    cancelled = stocked.post(f"/v1/jobs/{job_id}/cancel", {"reason": "wrong model"})
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    assert stocked.post(f"/v1/jobs/{job_id}/cancel", {"reason": "again"}).status_code == 409
    caller = stocked.get("/v1/keys").json()[0]
    changes = world.changes(uuid.UUID(job_id))
    assert (f"admin ({caller['prefix']})", "queued->cancelled", "wrong model") in changes


def test_jobs_are_listed_by_state(stocked: Api) -> None:
    """Oldest first."""
    stocked.post("/v1/models/net/train", {"dataset": "faces"})
    assert [job["kind"] for job in stocked.get("/v1/jobs").json()] == ["ingest", "train", "train"]
    assert [job["kind"] for job in stocked.get("/v1/jobs", state="queued").json()] == ["train"]


def test_every_method_is_listed_with_its_parameters(api: Api) -> None:
    """With schema, cost and source."""
    methods = {method["name"]: method for method in api.get("/v1/methods").json()}
    assert set(methods) == set(METHODS)
    rho = methods["sharp_minmax"]["parameters"]["properties"]["rho"]
    assert rho["default"] == SharpMinMax().rho
    assert methods["retrain"]["exact"]


# --- reports and decisions -----------------------------------------------------------------------------


def test_a_report_can_be_read_in_every_form(published: Job, stocked: Api) -> None:
    """As data, as a page, and as an envelope that verifies without this service."""
    (summary,) = stocked.get("/v1/reports").json()
    place = f"/v1/reports/{summary['id']}"
    report = stocked.get(place).json()
    assert (report["job_id"], report["published"], report["verdict"]) == (
        str(published.id),
        True,
        "inconclusive",
    )
    page = stocked.get(f"{place}/html")
    assert page.headers["content-type"].startswith("text/html")
    signed = stocked.get(f"{place}/attestation").json()
    statement = verify(signed["envelope"], load_public_pem(signed["public_key"]))
    assert statement["predicate"]["job"] == report["body"]["job"]


def test_the_submitter_cannot_approve(awaiting: Job, api: Api) -> None:
    """Another caller with the scope can, once."""
    place = f"/v1/jobs/{awaiting.id}/approve"
    assert api.post(place, {"reason": "trust me"}).status_code == 403
    secret = api.post("/v1/keys", {"name": "officer", "scopes": [Scope.JOBS_APPROVE]}).json()["secret"]
    officer = api.with_key(secret)
    approved = officer.post(place, {"reason": "figures checked"})
    assert (approved.status_code, approved.json()["state"]) == (200, "done")
    assert officer.post(place, {"reason": "again"}).status_code == 409
    assert api.get("/v1/models/net").json()["aliases"] == {"production": 2}


def test_a_rejected_job_is_followed_by_the_next_method(awaiting: Job, api: Api) -> None:
    """Which is queued at once."""
    secret = api.post("/v1/keys", {"name": "officer", "scopes": [Scope.JOBS_APPROVE]}).json()["secret"]
    rejected = api.with_key(secret).post(f"/v1/jobs/{awaiting.id}/reject", {"reason": "no"})
    assert rejected.json()["state"] == "superseded"
    assert [job["rung"] for job in api.get("/v1/jobs", state="queued").json()] == [1]
