"""Asking for a comparison of methods."""

from __future__ import annotations

from typing import Any

import pytest

from app.datasets import rows as row_sets
from app.errors import Conflict, Invalid
from app.jobs.policies import Rung
from app.registry import comparisons, service
from app.registry.schemas import NewComparison, RandomRows, RowsById
from app.tables import Job, JobKind, JobState, ModelVersion
from models_store.rows import RowSet
from tests.fixtures.world import TRAIN, World

METHODS = [Rung(method="neggrad"), Rung(method="finetune", parameters={"steps": 3})]


def _new(forget: RowsById | RandomRows | None = None, **given: Any) -> NewComparison:
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
    assert job.parameters["methods"][0]["parameters"]["alpha"] == 0.8
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


def test_what_cannot_be_retrained_cannot_be_compared_on(world: World) -> None:
    """There would be nothing to compare with."""
    world.dataset()
    version = world.trained()
    version.recipe = None
    with pytest.raises(Conflict):
        _start(world, version, _new())
