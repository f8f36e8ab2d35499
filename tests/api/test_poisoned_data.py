"""Data sets that are poisoned for experiments, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.api import Api
from tests.fixtures.world import World

POISON = {"name": "badnets", "rate": 0.05, "target": 0}
SPELLED_OUT = {
    **POISON,
    "trigger": "square",
    "size": 3,
    "margin": 1,
    "value": 255,
    "include_target": False,
    "seed": 0,
}


def _register(api: Api, poison: object) -> Any:
    return api.post("/v1/datasets", {"name": "digits", "reader": "sklearn_digits", "poison": poison})


def test_poison_is_registered_with_everything_spelled_out(api: Api) -> None:
    """Which rows it concerns is not known yet; a data set without it says so."""
    shown = _register(api, POISON).json()["dataset"]
    assert shown["poison"] == {"parameters": SPELLED_OUT, "count": None}
    assert _register(api, None).json()["dataset"]["poison"] is None


def test_every_fault_of_the_poison_is_named(api: Api) -> None:
    """At once; nothing was registered."""
    numbers = {"rate": 0, "target": -1, "size": 0, "margin": -1, "value": 256, "seed": -1}
    wrong = {**numbers, "name": "magic", "trigger": "cat", "include_target": "perhaps", "colour": "red"}
    answer = _register(api, wrong)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    found = {fault["pointer"] for fault in answer.json()["errors"]}
    assert found == {f"/poison/{name}" for name in wrong}
    for name, value in (("rate", 1), ("target", 10_000), ("rate", None)):
        errors = _register(api, {**POISON, name: value}).json()["errors"]
        assert [fault["pointer"] for fault in errors] == [f"/poison/{name}"]
    assert _register(api, {}).json()["errors"][0]["pointer"] == "/poison/rate"
    assert api.get("/v1/datasets").json() == []


@pytest.fixture
def poisoned(world: World, api: Api) -> Api:
    """The application with two versions of a data set, of which the second is poisoned."""
    world.dataset()
    world.poisoned(0, 5, 30)
    world.session.commit()
    return api


def test_poisoned_samples_are_listed_in_pages(poisoned: Api) -> None:
    """The first row among them; `next` leads through all."""
    first = poisoned.get("/v1/datasets/faces/poisoned-samples", limit=2)
    assert first.json() == [
        {"position": place, "sample_id": f"faces-{row:02d}", "dataset_version": 2, "row": row}
        for place, row in ((0, 0), (1, 5))
    ]
    rest = poisoned.get(first.links["next"]["url"])
    assert [(sample["position"], sample["sample_id"]) for sample in rest.json()] == [(2, "faces-30")]
    assert "next" not in rest.links
    assert poisoned.get("/v1/datasets/faces").json()[0]["poison"]["count"] == 3


def test_a_version_without_poison_has_no_poisoned_samples(poisoned: Api) -> None:
    """One that is not there is not found."""
    place = "/v1/datasets/faces/poisoned-samples"
    assert poisoned.get(place, dataset_version=1).json() == []
    for missing in (poisoned.get(place, dataset_version=3), poisoned.get(place.replace("faces", "other"))):
        assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")
    beyond = "OTIyMzM3MjAzNjg1NDc3NTgwNw"  # 2^63 - 1
    assert poisoned.get(place, cursor=beyond).json() == []


def test_a_deletion_request_can_name_them(poisoned: Api, world: World) -> None:
    """As any other sample."""
    world.trained()
    world.session.commit()
    samples = poisoned.get("/v1/datasets/faces/poisoned-samples").json()
    items = [{"sample_id": sample["sample_id"]} for sample in samples]
    answer = poisoned.post("/v1/deletion-requests", {"dataset": "faces", "items": items})
    assert answer.status_code == 202
    assert answer.json()["targets"]


def test_only_a_version_on_poisoned_data_can_be_cleaned(poisoned: Api, world: World) -> None:
    """422 for any other, and for what is neither true nor a choice of rows."""
    world.trained()
    world.session.commit()
    body = {"forget": {"poisoned": True}, "methods": [{"method": "finetune"}]}
    place = "/v1/models/net/versions/1/compare"
    assert poisoned.post(place, body).status_code == 202
    assert poisoned.post(place, {**body, "forget": {"poisoned": False}}).status_code == 422
    world.dataset("plain")
    world.trained("other", "plain")
    world.session.commit()
    refused = poisoned.post(place.replace("net", "other"), body)
    assert refused.status_code == 422
    assert [fault["pointer"] for fault in refused.json()["errors"]] == ["/forget/poisoned"]
