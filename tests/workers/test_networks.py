"""Which networks an audit compares with; and that they decide nothing of the method's own run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.config import Settings
from app.deletions.planner import Assignment
from app.jobs import service as jobs
from app.registry import references, shadows
from app.tables import Job
from tests.fixtures.world import HOLDOUT, TRAIN, World, invented_digest
from workers import assemble
from workers.spec import ShadowSpec, UnlearnSpec


def _finish_reference(world: World, job: Job) -> str:
    weights = invented_digest("reference", job.id)
    outcome = {"weights": weights, "figures": {"seconds": 1.0 + job.parameters["number"]}}
    jobs.finish_computing(world.session, world.claim(job), outcome)
    world.settle(job)
    return weights


def _begun(world: World, **policy: Any) -> tuple[Job, Assignment]:
    job = world.planned(1, **policy)
    _, work = world.begin(job)
    return job, work


def _spec(world: World, job: Job, work: Assignment, config: Settings) -> UnlearnSpec:
    spec = assemble.unlearning(world.session, job, work, config)
    return assemble.with_networks(world.session, job, work, spec)


@pytest.mark.parametrize(("budget", "expected"), [(0, 1), (1, 1), (2, 2), (3, 3), (4, 3)])
def test_an_audit_takes_as_many_references_as_its_budget_buys(
    world: World, config: Settings, budget: int, expected: int
) -> None:
    """Of three that are there, the first ones; and the very first in any case, since it costs nothing."""
    job, work = _begun(world, audit_budget=budget)
    asked = references.ask(world.session, work.parent, work.retain, 3, actor="test")
    weights = tuple(_finish_reference(world, other) for other in asked)
    spec = _spec(world, job, work, config)
    assert spec.references == weights[:expected]
    assert (spec.reference, spec.reference_seconds) == (weights[0], 1.0)
    assert spec.shadows == ()


def test_without_any_there_is_nothing_to_compare_with(world: World, config: Settings) -> None:
    """The audit says so."""
    job, work = _begun(world, audit_budget=6)
    spec = _spec(world, job, work, config)
    assert (spec.reference, spec.reference_seconds, spec.references, spec.shadows) == (None, None, (), ())


def test_shadows_come_with_the_rows_they_were_trained_on(world: World, config: Settings) -> None:
    """Two for each unit beyond the references."""
    job, work = _begun(world, audit_budget=5)
    pool = shadows.ask_for_audit(world.session, work.parent, work.forget, most=3, actor="test")
    rows = [[*TRAIN[2:20], HOLDOUT[0]], TRAIN[20:], TRAIN[5:]]
    for other, trained_on in zip(pool, rows, strict=True):
        world.finish_shadow(other, trained_on, TRAIN)
        world.settle(other)
    spec = _spec(world, job, work, config)
    assert [list(shadow.rows) for shadow in spec.shadows] == [list(each) for each in rows[:2]]
    assert [shadow.weights for shadow in spec.shadows] == [
        invented_digest("shadow", other.id) for other in pool[:2]
    ]


def test_what_was_noted_stays(world: World, config: Settings) -> None:
    """Networks that come later, even with lower numbers, are not those of an audit that has begun."""
    job, work = _begun(world, audit_budget=3)
    first, second, third = references.ask(world.session, work.parent, work.retain, 3, actor="test")
    jobs.fail(world.session, world.claim(first), "diverged")
    world.settle(first)
    for other in (second, third):
        _finish_reference(world, other)
    before = _spec(world, job, work, config)
    (again,) = references.ask(world.session, work.parent, work.retain, 3, actor="test")
    lowest = _finish_reference(world, again)
    after = _spec(world, job, work, config)
    assert len(before.references) == 2
    assert (after.references, after.reference, after.reference_seconds) == (
        before.references,
        before.reference,
        before.reference_seconds,
    )
    found = references.find(world.session, work.parent.id, work.retain.digest)
    assert found is not None
    assert found.weights == lowest


def test_a_checkpoint_outlives_what_its_network_will_be_compared_with(world: World, config: Settings) -> None:
    """They are in the description, but not in the fingerprint; anything else changes it."""
    job, work = _begun(world)
    spec = assemble.unlearning(world.session, job, work, config)
    networks: dict[str, Any] = {
        "reference_seconds": 2.0,
        "references": ("a" * 64, "b" * 64),
        "shadows": (ShadowSpec(weights="c" * 64, rows=work.retain),),
    }
    compared = replace(spec, **networks)
    assert assemble.fingerprint(compared) == assemble.fingerprint(spec)
    assert assemble.fingerprint(replace(compared, seed=spec.seed + 1)) != assemble.fingerprint(spec)
    described = assemble.described(compared)
    assert described["references"] == ["a" * 64, "b" * 64]
    assert described["shadows"] == [{"weights": "c" * 64, "rows": work.retain.digest}]
