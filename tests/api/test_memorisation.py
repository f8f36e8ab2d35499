"""Memorisation over HTTP: asking for a pool, reading what came of it, looking samples up."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import save
from sqlalchemy import select

from app.registry import uploads
from app.tables import ModelVersion
from tests.fixtures.api import Api
from tests.fixtures.world import TRAIN, World

PLACE = "/v1/models/net/versions/1/memorisation"
NOTHING: dict[str, object] = {"proxy": None, "estimate": None, "pools": []}


@pytest.fixture
def stocked(world: World, api: Api) -> Api:
    """The application with a data set and a model trained on it."""
    world.dataset()
    world.trained()
    world.session.commit()
    return api


def _record_proxy(world: World) -> None:
    version = world.session.scalars(select(ModelVersion)).one()
    confidences = np.linspace(0, 1, len(TRAIN), dtype=np.float32)
    facts = {"facts": json.dumps({"rows": version.rows_digest})}
    digest = uploads.store().put(save({"confidence": confidences}, facts))
    version.figures = {"memorisation": {"kind": "confidence", "proxy": digest}}
    world.session.commit()


def test_a_pool_is_asked_for_and_followed(stocked: Api) -> None:
    """202 says how many jobs were queued and where to look."""
    assert stocked.get(PLACE).json() == NOTHING
    answer = stocked.post(PLACE, {"networks": 3})
    assert (answer.status_code, answer.headers["Location"]) == (202, PLACE)
    (pool,) = answer.json()["pools"]
    assert answer.json()["queued"] == 3
    assert (pool["share"], pool["asked"], pool["running"], pool["done"]) == (0.5, 3, 3, 0)
    assert stocked.get(answer.headers["Location"]).json() == {**NOTHING, "pools": [pool]}
    kinds = [job["kind"] for job in stocked.get("/v1/jobs", state="queued").json()]
    assert kinds.count("shadow") == 3
    assert stocked.post(PLACE, {"networks": 5}).json()["queued"] == 2


def test_a_pool_is_asked_for_once_for_a_key(stocked: Api) -> None:
    """The first answer comes again."""
    keyed = stocked.with_headers(Idempotency_Key="pool")
    first, second = (keyed.post(PLACE, {"networks": 2}) for _ in range(2))
    assert (first.json(), second.headers["Idempotency-Replayed"]) == (second.json(), "true")
    assert second.json()["queued"] == 2


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"networks": 1}, "/networks"),
        ({"networks": 513}, "/networks"),
        ({"share": 0}, "/share"),
        ({"share": 1}, "/share"),
        ({"share": 0.001}, "/share"),
        ({"size": 3}, "/size"),
    ],
)
def test_wrong_wishes_are_refused(stocked: Api, body: dict[str, float], pointer: str) -> None:
    """Each by its field, and nothing is queued."""
    answer = stocked.post(PLACE, body)
    assert answer.status_code == 422
    assert [fault["pointer"] for fault in answer.json()["errors"]] == [pointer]
    assert stocked.get(PLACE).json() == NOTHING


def test_what_is_not_there_is_not_found(stocked: Api) -> None:
    """No model, and no such version."""
    for place in ("/v1/models/other/versions/1/memorisation", "/v1/models/net/versions/7/memorisation"):
        assert stocked.get(place).status_code == 404
        assert stocked.post(place, {}).status_code == 404
        assert stocked.post(f"{place}:lookup", {"sample_ids": ["faces-00"]}).status_code == 404


def test_what_cannot_be_trained_again_is_409(stocked: Api, world: World) -> None:
    """A version without a recipe has no pool."""
    world.session.scalars(select(ModelVersion)).one().recipe = None
    world.session.commit()
    assert stocked.post(PLACE, {}).status_code == 409


def test_samples_are_looked_up_by_post(stocked: Api, world: World) -> None:
    """Their names stand in no URL; what is unknown is named by its position."""
    _record_proxy(world)
    assert stocked.get(PLACE).json()["proxy"] == {"version": 1}
    answer = stocked.post(f"{PLACE}:lookup", {"sample_ids": ["faces-39", "nobody"]})
    assert answer.status_code == 200
    (sample,) = answer.json()["samples"]
    assert sample == {"sample_id": "faces-39", "estimate": None, "standard_error": None, "proxy": 0}
    assert answer.json()["unknown_sample_ids"] == [1]


def test_methods_are_compared_on_a_tier(stocked: Api, world: World) -> None:
    """With scores it is queued; without them 409, with overlapping tiers 422."""
    place = "/v1/models/net/versions/1/compare"
    body = {"forget": {"tier": "high", "share": 0.1}, "methods": [{"method": "neggrad"}]}
    assert stocked.post(place, body).status_code == 409
    _record_proxy(world)
    answer = stocked.post(place, body)
    assert answer.status_code == 202
    job = stocked.get(f"/v1/jobs/{answer.json()['job_id']}").json()
    assert job["parameters"]["forget"] == {"tier": "high", "share": 0.1, "by": "proxy", "seed": 0}
    wide = {**body, "forget": {"tier": "high", "share": 0.4}}
    (fault,) = stocked.post(place, wide).json()["errors"]
    assert fault["pointer"] == "/forget/share"
