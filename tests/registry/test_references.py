"""References: numbered, asked for once whoever asks, and given up when their rows are deleted."""

from __future__ import annotations

import uuid

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db import transaction
from app.deletions import planner
from app.jobs import service as jobs
from app.jobs.policies import Rung
from app.registry import comparisons, references
from app.registry import service as registry
from app.registry.schemas import NewComparison, RowsById
from app.tables import Job, JobKind, JobState, ModelVersion, ReferenceNetwork
from models_store.rows import RowSet
from tests.fixtures.concurrency import Others
from tests.fixtures.world import TRAIN, World, invented_digest

LEFT = RowSet.of(TRAIN[1:])


@pytest.fixture
def version(world: World) -> ModelVersion:
    """A version in production, trained on forty rows."""
    world.dataset()
    return world.trained()


def _ask(world: World, version: ModelVersion, most: int, rows: RowSet = LEFT) -> list[Job]:
    return references.ask(world.session, version, rows, most, actor="job")


def _numbers(asked: list[Job]) -> list[int]:
    return [job.parameters["number"] for job in asked]


def _finish(world: World, job: Job) -> str:
    weights = invented_digest("reference", job.id)
    outcome = {"weights": weights, "figures": {"seconds": 2.0}}
    jobs.finish_computing(world.session, world.claim(job), outcome)
    world.settle(job)
    return weights


def _found(world: World, version: ModelVersion, most: int, rows: RowSet = LEFT) -> list[str]:
    kept = references.of(world.session, version.id, rows.digest, most=most)
    return [network.weights for network in kept]


def test_a_reference_is_trained_as_its_version_was_on_what_remains(
    world: World, version: ModelVersion
) -> None:
    """Same architecture and recipe, exactly these rows; the first has the seed that the only one had."""
    asked = _ask(world, version, 3)
    same = {"architecture": version.architecture, "recipe": version.recipe}
    assert [job.parameters for job in asked] == [{**same, "number": number} for number in range(3)]
    assert {(job.kind, job.version_id) for job in asked} == {(JobKind.REFERENCE, version.id)}
    assert {job.rows_digest for job in asked} == {LEFT.digest}
    facts = (version.weights or "", LEFT.digest, "reference")
    assert [job.seed for job in asked] == [
        jobs.seed_of(*facts),
        jobs.seed_of(*facts, "1"),
        jobs.seed_of(*facts, "2"),
    ]


def test_what_is_under_way_is_not_queued_again(world: World, version: ModelVersion) -> None:
    """Neither what waits for a worker, nor what runs or is about to be kept; more of it is."""
    first, second = _ask(world, version, 2)
    world.claim(first)
    jobs.finish_computing(world.session, world.claim(second), {})
    assert _ask(world, version, 2) == [first, second]
    *before, third = _ask(world, version, 3)
    assert before == [first, second]
    assert third.parameters["number"] == 2


def test_what_is_there_is_found_in_the_order_of_numbers(world: World, version: ModelVersion) -> None:
    """Whichever ended first; a smaller budget takes the first ones and asks for nothing."""
    asked = _ask(world, version, 3)
    weights = [_finish(world, job) for job in reversed(asked)][::-1]
    assert _found(world, version, 4) == weights
    assert _found(world, version, 2) == weights[:2]
    first = references.find(world.session, version.id, LEFT.digest)
    assert first is not None
    assert (first.weights, first.number) == (weights[0], 0)
    assert _ask(world, version, 2) == _ask(world, version, 3) == []
    assert _numbers(_ask(world, version, 4)) == [3]


def test_what_failed_is_asked_for_again_by_others(world: World, version: ModelVersion) -> None:
    """And is done without until then: the first one is the lowest there is."""
    failing, other = _ask(world, version, 2)
    jobs.fail(world.session, world.claim(failing), "diverged")
    world.settle(failing)
    weights = _finish(world, other)
    first = references.find(world.session, version.id, LEFT.digest)
    assert first is not None
    assert (first.weights, first.number) == (weights, 1)
    assert _ask(world, version, 1) == []
    assert _numbers(_ask(world, version, 2)) == [0]


def test_other_rows_have_other_references(world: World, version: ModelVersion) -> None:
    """Nothing is shared, and no seed is."""
    (one,) = _ask(world, version, 1)
    (other,) = _ask(world, version, 1, RowSet.of(TRAIN[2:]))
    assert one.seed != other.seed
    _finish(world, one)
    assert _found(world, version, 1, RowSet.of(TRAIN[2:])) == []


def test_a_comparison_and_a_deletion_share_a_reference(world: World, version: ModelVersion) -> None:
    """Whichever comes second waits for the job of the first."""
    model = registry.get(world.session, "net")
    comparison = comparisons.start(
        world.session,
        model,
        version,
        NewComparison(forget=RowsById(sample_ids=["faces-01"]), methods=[Rung(method="neggrad")]),
        actor="engineer",
    )
    (asked,) = comparisons.ask_for_reference(world.session, comparison, actor="job")
    world.request(1)
    world.plan()
    job = world.next_job()
    _, work = world.begin(job)
    work = planner.Assignment(work.parent, work.forget, work.retain, audit_budget=1)
    assert planner.ask_for_networks(world.session, job, work=work, actor="job") == [asked]
    _finish(world, asked)
    assert planner.ask_for_networks(world.session, job, work=work, actor="job") == []


def test_two_who_ask_at_once_wait_for_the_same(others: Others) -> None:
    """The second one finds what the first has queued."""
    with transaction(others.url) as session:
        world = World(session)
        world.dataset()
        version_id = world.trained().id

    def ask(session: Session) -> list[uuid.UUID]:
        version = session.get_one(ModelVersion, version_id)
        return [job.id for job in references.ask(session, version, LEFT, 3, actor="job")]

    with transaction(others.url) as session:
        first = ask(session)
        late = others.stuck(ask)
        assert not late.done()
    assert late.result() == first
    with transaction(others.url) as session:
        assert len(session.scalars(select(Job).filter_by(kind=JobKind.REFERENCE)).all()) == 3


def test_those_on_deleted_rows_are_given_up(world: World, version: ModelVersion) -> None:
    """And on record; those on rows that remain stay, as do those that a job is about to judge by."""
    (gone,), (kept,) = _ask(world, version, 1), _ask(world, version, 1, RowSet.of(TRAIN[5:]))
    for job in (gone, kept):
        _finish(world, job)
    comparison = comparisons.start(
        world.session,
        registry.get(world.session, "net"),
        version,
        NewComparison(forget=RowsById(sample_ids=["faces-09"]), methods=[Rung(method="neggrad")]),
        actor="engineer",
    )
    (busy,) = comparisons.ask_for_reference(world.session, comparison, actor="job")
    _finish(world, busy)
    world.request(4)
    assert references.discard_outdated(world.session, actor="gc") == 1
    left = set(world.session.scalars(select(ReferenceNetwork.job_id)))
    assert left == {kept.id, busy.id}
    assert world.changes(version.id)[-1] == ("gc", "references discarded", None)
    jobs.request_cancel(world.session, comparison.id, world.caller(), "not needed")
    world.settle(comparison)
    assert references.discard_outdated(world.session, actor="gc") == 1
    assert comparison.state is JobState.CANCELLED
