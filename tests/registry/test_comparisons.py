"""Asking for a comparison of methods."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from app.datasets import rows as row_sets
from app.errors import Conflict, Invalid
from app.jobs.policies import Rung
from app.registry import comparisons, service, uploads
from app.registry.schemas import NewComparison, PoisonedRows, RandomRows, RowsById, TierRows
from app.tables import Job, JobKind, JobState, ModelVersion
from models_store.rows import RowSet
from tests.fixtures.world import TRAIN, World

METHODS = [Rung(method="neggrad"), Rung(method="finetune", parameters={"steps": 3})]


def _new(
    forget: RowsById | TierRows | RandomRows | PoisonedRows | None = None, **given: Any
) -> NewComparison:
    chosen = forget or RandomRows(share=0.25, seed=1)
    return NewComparison(**{"forget": chosen, "methods": METHODS, "seeds": 2, **given})


def _start(world: World, version: ModelVersion, new: NewComparison) -> Job:
    model = service.get(world.session, "net")
    return comparisons.start(world.session, model, version, new, actor="engineer")


def _faults(world: World, version: ModelVersion, new: NewComparison) -> list[str]:
    with pytest.raises(Invalid) as found:
        _start(world, version, new)
    return [fault.pointer for fault in found.value.faults]


def test_a_comparison_is_a_job_with_everything_spelled_out(world: World) -> None:
    """Its rows are fixed when it is asked for: the drawn ones, and the others but those deleted by then."""
    world.dataset()
    version = world.trained()
    world.request(TRAIN[0])
    job = _start(world, version, _new())
    assert (job.kind, job.state, job.version_id) == (JobKind.COMPARE, JobState.QUEUED, version.id)
    assert job.parameters["methods"][0]["parameters"]["alpha"] == 0.6
    assert (job.parameters["methods"][1]["parameters"]["steps"], job.parameters["seeds"]) == (3, 2)
    assert job.forget_digest is not None
    assert job.rows_digest is not None
    forget, retain = (row_sets.read(world.session, digest) for digest in (job.forget_digest, job.rows_digest))
    assert len(forget) == round(0.25 * len(TRAIN))
    assert forget.bits != b""
    assert set(retain) == set(TRAIN) - set(forget) - {TRAIN[0]}


def test_rows_may_be_named(world: World) -> None:
    """By their samples' IDs."""
    world.dataset()
    version = world.trained()
    named = RowsById(sample_ids=[f"faces-{row:02d}" for row in TRAIN[:3]])
    job = _start(world, version, _new(named))
    assert row_sets.read(world.session, str(job.forget_digest)) == RowSet.of(TRAIN[:3])


def test_every_fault_is_named_at_once(world: World) -> None:
    """Of the methods and of the samples."""
    world.dataset()
    version = world.trained()
    strange = next(row for row in range(60) if row not in TRAIN)
    new = _new(
        RowsById(sample_ids=["unknown", f"faces-{strange:02d}"]),
        methods=[
            Rung(method="magic"),
            Rung(method="retrain"),
            Rung(method="neggrad", parameters={"alpha": 2, "roh": 1}),
        ],
    )
    assert set(_faults(world, version, new)) == {
        "/methods/0/method",
        "/methods/1/method",
        "/methods/2/parameters/alpha",
        "/methods/2/parameters/roh",
        "/forget/sample_ids/0",
        "/forget/sample_ids",
    }


def test_some_row_has_to_remain(world: World) -> None:
    """There would be nothing to retrain on."""
    world.dataset()
    version = world.trained()
    everything = RowsById(sample_ids=[f"faces-{row:02d}" for row in TRAIN])
    assert _faults(world, version, _new(everything)) == ["/forget"]


def _scored(world: World, version: ModelVersion, values: dict[str, list[float]], *, estimate: bool) -> None:
    """Give the version scores in the store: the proxy's confidences, or an estimate."""
    content = save({name: np.array(each) for name, each in values.items()}, _facts(version))
    kept = uploads.store().put(content)
    known = {"estimate": {"scores": kept}} if estimate else {"kind": "confidence", "proxy": kept}
    version.figures = {"memorisation": {**version.figures.get("memorisation", {}), **known}}
    world.session.flush()


def _facts(version: ModelVersion) -> dict[str, str]:
    return {"facts": json.dumps({"rows": version.rows_digest})}


def _rows(world: World, job: Job) -> list[int]:
    return list(row_sets.read(world.session, str(job.forget_digest)))


@pytest.fixture
def scored(world: World) -> ModelVersion:
    """A version of which a later row is the more memorised by the estimate, an earlier one by the proxy."""
    world.dataset()
    version = world.trained()
    rising = [place / len(TRAIN) for place in range(len(TRAIN))]
    _scored(world, version, {"confidence": rising}, estimate=False)
    errors = [0.1] * len(TRAIN)
    _scored(world, version, {"scores": rising, "standard_errors": errors}, estimate=True)
    return version


def test_a_tier_is_forgotten_by_the_best_scores_there_are(world: World, scored: ModelVersion) -> None:
    """Which these were stands in the job."""
    job = _start(world, scored, _new(TierRows(tier="high", share=0.1)))
    assert _rows(world, job) == list(TRAIN[-4:])
    assert job.parameters["forget"] == {"tier": "high", "share": 0.1, "by": "estimate", "seed": 0}
    mid = _start(world, scored, _new(TierRows(tier="mid", share=0.075)))
    assert _rows(world, mid) == [19, 20, 21]
    by_proxy = _start(world, scored, _new(TierRows(tier="high", share=0.1, by="proxy")))
    assert _rows(world, by_proxy) == list(TRAIN[:4])


def test_without_an_estimate_the_proxy_serves(world: World, scored: ModelVersion) -> None:
    """Unless the estimate was asked for."""
    known = {name: kept for name, kept in scored.figures["memorisation"].items() if name != "estimate"}
    scored.figures = {"memorisation": known}
    job = _start(world, scored, _new(TierRows(tier="low", share=0.1)))
    assert _rows(world, job) == list(TRAIN[-4:])
    assert job.parameters["forget"]["by"] == "proxy"
    with pytest.raises(Conflict):
        _start(world, scored, _new(TierRows(tier="low", share=0.1, by="estimate")))


def test_a_deleted_row_is_in_no_tier(world: World, scored: ModelVersion) -> None:
    """The next one takes its place."""
    world.request(TRAIN[-1])
    job = _start(world, scored, _new(TierRows(tier="high", share=0.1)))
    assert _rows(world, job) == list(TRAIN[-5:-1])


def test_equal_scores_are_decided_by_the_seed(world: World, scored: ModelVersion) -> None:
    """Not by the rows' order, which may be that of their classes."""
    tied = [0.0] * 20 + [0.5] * 5 + [1.0] * 15
    _scored(world, scored, {"scores": tied, "standard_errors": tied}, estimate=True)
    drawn = [_rows(world, _start(world, scored, _new(_seeded(seed)))) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(set(rows) <= set(TRAIN[25:]) for rows in drawn)


def _seeded(seed: int) -> TierRows:
    return TierRows(tier="high", share=0.1, seed=seed)


def test_tiers_that_would_share_rows_are_a_fault(world: World, scored: ModelVersion) -> None:
    """Named together with the others."""
    new = _new(TierRows(tier="low", share=0.4), methods=[Rung(method="magic")])
    assert set(_faults(world, scored, new)) == {"/forget/share", "/methods/0/method"}


def test_a_version_without_scores_has_no_tiers(world: World) -> None:
    """That is said before anything is queued; so is that they were lost."""
    world.dataset()
    version = world.trained()
    with pytest.raises(Conflict, match="no such memorisation scores"):
        _start(world, version, _new(TierRows(tier="low", share=0.1)))
    version.figures = {"memorisation": {"kind": "confidence", "proxy": "0" * 64}}
    with pytest.raises(Conflict, match="cannot be read"):
        _start(world, version, _new(TierRows(tier="low", share=0.1)))


def test_what_cannot_be_retrained_cannot_be_compared_on(world: World) -> None:
    """There would be nothing to compare with."""
    world.dataset()
    version = world.trained()
    version.recipe = None
    with pytest.raises(Conflict):
        _start(world, version, _new())


def test_poisoned_rows_are_forgotten_together(world: World) -> None:
    """Those that the version was trained on."""
    world.poisoned(1, 5, 30)
    version = world.trained()
    job = _start(world, version, _new(PoisonedRows(poisoned=True)))
    assert _rows(world, job) == [1, 5, 30]
    assert set(row_sets.read(world.session, str(job.rows_digest))) == set(TRAIN) - {1, 5, 30}
    assert job.parameters["forget"] == {"poisoned": True}


def test_without_poison_there_is_nothing_to_clean(world: World) -> None:
    """Named together with the other faults."""
    world.dataset()
    new = _new(PoisonedRows(poisoned=True), methods=[Rung(method="magic")])
    assert set(_faults(world, world.trained(), new)) == {"/forget/poisoned", "/methods/0/method"}
