"""Shadows for an audit: which of a pool may judge, and what is trained when they are too few."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from sqlalchemy import select

from app.datasets import rows as row_sets
from app.datasets import service as datasets
from app.deletions.schemas import NewItem, NewRequest
from app.jobs import service as jobs
from app.registry import service, shadows
from app.registry.schemas import NewShadows
from app.tables import Job, JobKind, JobState, ModelVersion, ShadowNetwork
from models_store.rows import RowSet
from tests.fixtures.world import HOLDOUT, TRAIN, World

HALF = [*TRAIN[:20], *HOLDOUT[:5]]
OTHER_HALF = [*TRAIN[20:], *HOLDOUT[5:]]


@pytest.fixture
def version(world: World) -> ModelVersion:
    """A version in production, trained on forty rows; ten are held out."""
    world.dataset()
    return world.trained()


def _ask(world: World, version: ModelVersion, *forget: int, most: int) -> list[Job]:
    rows = RowSet.of(forget)
    return shadows.ask_for_audit(world.session, version, rows, most=most, actor="job")


def _numbers(asked: Iterable[Job]) -> list[int]:
    return [job.parameters["number"] for job in asked]


def _train(world: World, *asked: Job, rows: Iterable[int] = HALF) -> None:
    for job in asked:
        world.finish_shadow(job, rows, TRAIN)
        world.settle(job)


def _usable(world: World, version: ModelVersion, *forget: int, most: int = 99) -> list[int]:
    found = shadows.for_audit(world.session, version, RowSet.of(forget), most=most)
    return [network.number for network in found]


def _pool(world: World, version: ModelVersion, networks: int, share: float = 0.5) -> list[Job]:
    wanted = NewShadows(networks=networks, share=share)
    shadows.extend(world.session, service.get(world.session, "net"), version, wanted, actor="engineer")
    query = select(Job).filter_by(kind=JobKind.SHADOW, state=JobState.QUEUED).order_by(Job.ordinal)
    return list(world.session.scalars(query))


def test_networks_are_drawn_from_rows_that_trained_and_that_were_held_out(
    world: World, version: ModelVersion
) -> None:
    """Less those deleted; test rows are never among them."""
    assert set(shadows.candidates(world.session, version)) == {*TRAIN, *HOLDOUT}
    world.request(3, 44)
    assert set(shadows.candidates(world.session, version)) == {*TRAIN, *HOLDOUT} - {3, 44}
    assert set(shadows.remaining(world.session, version)) == set(TRAIN) - {3}


def test_networks_that_learned_what_is_forgotten_may_judge(world: World, version: ModelVersion) -> None:
    """An estimate leaves them out; an audit of another deletion does too."""
    first, second, third = _ask(world, version, most=3)
    _train(world, first, third)
    _train(world, second, rows=OTHER_HALF)
    world.request(0)
    assert [kept.number for kept in shadows.networks(world.session, version, 0.5)] == [1]
    assert _usable(world, version, 0) == [0, 1, 2]
    assert _usable(world, version, 0, most=2) == [0, 1]
    world.request(30)
    assert _usable(world, version, 0) == [0, 2]
    assert _usable(world, version, 0, 30) == [0, 1, 2]


def test_a_persons_held_out_rows_go_with_the_others(world: World, version: ModelVersion) -> None:
    """The network learned row 45 of a person who wants to be forgotten; row 44 is somebody else's."""
    (job,) = _ask(world, version, most=1)
    _train(world, job, rows=[*TRAIN[:20], 44, 45])
    world.accept(NewRequest(dataset="faces", items=[NewItem(subject="person-3")]))
    forget = service.tombstoned_rows_of(world.session, version)
    assert 45 in world.tombstoned(datasets.get_version(world.session, version.dataset_version_id))
    assert _usable(world, version, *forget) == [0]
    world.request(44)
    assert _usable(world, version, *forget) == []


def test_a_network_from_before_held_out_rows_were_drawn_cannot_judge(
    world: World, version: ModelVersion
) -> None:
    """It says nothing of them; its place in the pool is its own, and others get the next numbers."""
    old, new = _pool(world, version, 2)
    _train(world, old, new)
    kept = world.session.scalars(select(ShadowNetwork).filter_by(number=0)).one()
    kept.candidates_digest = row_sets.keep(world.session, RowSet.of(TRAIN))
    assert _usable(world, version) == [1]
    assert _numbers(_ask(world, version, most=3)) == [2, 3]
    assert [kept.number for kept in shadows.networks(world.session, version, 0.5)] == [0, 1]


def test_a_pool_grows_by_what_the_audit_lacks(world: World, version: ModelVersion) -> None:
    """What is usable stays; what is under way, for whomever, is waited for."""
    first, second, third = _pool(world, version, 3)
    _train(world, first)
    world.claim(second)
    world.request(0)
    assert _ask(world, version, 0, most=1) == []
    assert _ask(world, version, 0, most=3) == [second, third]
    asked = _ask(world, version, 0, most=5)
    assert asked[:2] == [second, third]
    assert _numbers(asked[2:]) == [3, 4]
    assert _ask(world, version, 0, most=5) == asked
    assert _usable(world, version, 0) == [0]


def test_another_share_does_not_count(world: World, version: ModelVersion) -> None:
    """An audit's networks are trained on half of the rows."""
    _train(world, *_pool(world, version, 2, share=0.3))
    assert _usable(world, version) == []
    assert _numbers(_ask(world, version, most=2)) == [0, 1]


def test_networks_of_other_deleted_rows_make_room(world: World, version: ModelVersion) -> None:
    """Their numbers are trained anew; those that learned only what is forgotten are not."""
    first, second, third = _ask(world, version, most=3)
    _train(world, first, third)
    _train(world, second, rows=OTHER_HALF)
    world.request(0)
    world.request(49)  # held out
    assert _usable(world, version, 0) == [0, 2]
    assert _ask(world, version, 0, most=2) == []
    assert _numbers(_ask(world, version, 0, most=3)) == [1]
    assert set(world.session.scalars(select(ShadowNetwork.number))) == {0, 2}
    _train(world, *_ask(world, version, 0, most=3), rows=TRAIN[1:10])
    assert _usable(world, version, 0) == [0, 1, 2]


def test_a_failure_is_asked_for_again_by_the_next_audit(world: World, version: ModelVersion) -> None:
    """Under its number, and so with its seed."""
    failing, other = _ask(world, version, most=2)
    jobs.fail(world.session, world.claim(failing), "diverged")
    world.settle(failing)
    _train(world, other)
    (again,) = _ask(world, version, most=2)
    assert (again.parameters, again.seed) == (failing.parameters, failing.seed)


def test_nothing_is_trained_on_a_retired_data_set(world: World, version: ModelVersion) -> None:
    """The audit does without."""
    datasets.get_version(world.session, version.dataset_version_id).retire("replaced", actor="owner")
    world.session.flush()
    assert _ask(world, version, most=2) == []


def test_no_budget_no_question(world: World, version: ModelVersion) -> None:
    """Nothing is asked, and nothing found."""
    _train(world, *_pool(world, version, 2))
    assert _ask(world, version, most=0) == []
    assert _usable(world, version, most=0) == []


def test_the_last_one_wakes_who_waits(world: World) -> None:
    """Shadows end as references do."""
    job = world.planned(1)
    version = world.session.get_one(ModelVersion, job.version_id)
    first, second = _ask(world, version, 1, most=2)
    lease, _ = world.begin(job)
    jobs.wait_for(world.session, lease, [first.id, second.id], {}, "waiting")
    _train(world, first, rows=[5, 41])
    assert job.state == "waiting"
    jobs.fail(world.session, world.claim(second), "diverged")
    world.settle(second)
    assert job.state is JobState.QUEUED


def test_a_held_out_row_that_is_deleted_leaves_no_network_behind(world: World, version: ModelVersion) -> None:
    """No model has to forget it, so no version will be replaced; while one is to be, its networks stay."""
    first, second = _ask(world, version, most=2)
    _train(world, first)
    _train(world, second, rows=OTHER_HALF)
    world.request(0)
    world.request(49)
    assert shadows.discard_replaced(world.session, actor="gc") == 0
    world.carry_out()
    assert shadows.discard_replaced(world.session, actor="gc") == 2


def test_held_out_rows_are_enough_to_give_a_network_up(world: World, version: ModelVersion) -> None:
    """The version in use has nothing to forget."""
    first, second = _ask(world, version, most=2)
    _train(world, first)
    _train(world, second, rows=OTHER_HALF)
    world.request(49)
    assert shadows.discard_replaced(world.session, actor="gc") == 1
    assert set(world.session.scalars(select(ShadowNetwork.number))) == {0}
