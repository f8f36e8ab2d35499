"""What is known of a version's memorisation, and what of it a new version keeps."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import save

from app.registry import memorisation, uploads
from app.registry.schemas import Proxy
from app.tables import Job, ModelVersion
from tests.fixtures.world import TRAIN, World, invented_digest

CONFIDENCES = [place / 64 for place in range(len(TRAIN))]  # float32 holds them exactly


def _kept(version: ModelVersion, **values: list[float]) -> str:
    """A blob of numbers of the version's rows."""
    tensors = {name: np.array(each, dtype=np.float32) for name, each in values.items()}
    return uploads.store().put(save(tensors, {"facts": json.dumps({"rows": version.rows_digest})}))


@pytest.fixture
def version(world: World) -> ModelVersion:
    """A version in production whose training recorded confidences."""
    world.dataset()
    version = world.trained(ladder=[{"method": "finetune"}, {"method": "retrain"}], prefer_exact=False)
    proxy = {"kind": "confidence", "proxy": _kept(version, confidence=CONFIDENCES)}
    version.figures = {**version.figures, "memorisation": proxy}
    return version


def _estimated(version: ModelVersion, scores: list[float], errors: list[float]) -> None:
    digest = _kept(version, scores=scores, standard_errors=errors)
    estimate = {
        "scores": digest,
        "pool": "0" * 64,
        "share": 0.5,
        "networks": 32,
        "rows": 39,
        "standard_error": 0.18,
        "quantiles": {"0.5": 0.0},
        "shares_above": {"0.5": 0.25},
        "spearman_with_proxy": 0.75,
    }
    version.figures = {"memorisation": {**version.figures["memorisation"], "estimate": estimate}}


def test_what_there_is_is_shown(world: World, version: ModelVersion) -> None:
    """Proxy and estimate in figures, without what is the database's own; none is None."""
    shown = memorisation.view(world.session, version)
    assert (shown.proxy, shown.estimate, shown.pools) == (Proxy(version=1), None, [])
    _estimated(version, CONFIDENCES, CONFIDENCES)
    shown = memorisation.view(world.session, version)
    assert shown.estimate is not None
    assert (shown.estimate.networks, shown.estimate.spearman_with_proxy) == (32, 0.75)
    assert "pool" not in shown.estimate.model_dump()
    version.figures = {}
    assert memorisation.view(world.session, version).proxy is None


def test_single_samples_have_both_scores(world: World, version: ModelVersion) -> None:
    """In the order they were asked for; the proxy is turned round; an unknown score is None."""
    scores = [0.25, float("nan"), *CONFIDENCES[2:]]
    _estimated(version, scores, [0.125, float("nan"), *CONFIDENCES[2:]])
    found = memorisation.look_up(world.session, version, ["faces-01", "faces-00"])
    second, first = found.samples
    assert (first.sample_id, first.estimate, first.standard_error, first.proxy) == (
        "faces-00",
        0.25,
        0.125,
        1,
    )
    assert (second.estimate, second.standard_error, second.proxy) == (None, None, 1 - 1 / 64)
    assert found.unknown_sample_ids == []


def test_what_is_not_the_versions_is_unknown(world: World, version: ModelVersion) -> None:
    """Samples that nobody has, that were never trained on, and that have been deleted."""
    world.request(TRAIN[3])
    names = ["faces-02", "nobody", "faces-55", "faces-03"]
    found = memorisation.look_up(world.session, version, names)
    assert [sample.sample_id for sample in found.samples] == ["faces-02"]
    assert found.unknown_sample_ids == [1, 2, 3]


def _published(world: World, job: Job) -> ModelVersion:
    world.settle(job)
    return world.aliased(job.model_id) if job.model_id else pytest.fail("the job names no model")


def test_a_changed_network_keeps_the_proxy_of_the_rows_that_remain(
    world: World, version: ModelVersion
) -> None:
    """Also after the next request: it says whose training recorded it; an estimate is not its own."""
    _estimated(version, CONFIDENCES, CONFIDENCES)
    for row in (0, 7):
        world.request(TRAIN[row])
        assert world.plan() == 1
        job = world.next_job()
        world.compute(job)
        new = _published(world, job)
    assert (new.number, new.origin) == (3, "unlearned")
    shown = memorisation.view(world.session, new)
    assert (shown.proxy, shown.estimate) == (Proxy(version=1), None)
    found = memorisation.scores(world.session, new, "proxy")
    assert found is not None
    assert found.values == {row: 1 - CONFIDENCES[row] for row in TRAIN if row not in (0, 7)}


def test_a_retrained_network_has_its_own_proxy(world: World, version: ModelVersion) -> None:
    """The one that its training recorded."""
    policy_of_retraining = {"ladder": [{"method": "retrain"}]}
    model = world.model("retrained", **policy_of_retraining)
    parent = world.train(model)
    world.request(TRAIN[0])
    assert world.plan() == 2
    job = world.session.query(Job).filter_by(model_id=model.id, kind="unlearn").one()
    lease, _ = world.begin(job)
    world.hand_in(job, lease)
    own = invented_digest("confidences")
    unlearned = {**(job.outcome or {})["unlearned"], "blobs": {"confidence.safetensors": own}}
    job.outcome = {**(job.outcome or {}), "unlearned": unlearned}
    new = _published(world, job)
    assert (new.parent_id, new.origin) == (parent.id, "retrained")
    assert new.figures["memorisation"] == {"kind": "confidence", "proxy": own, "rows": job.rows_digest}
