"""Pools of shadows: asked for, grown, left without deleted rows, and estimated from once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.datasets import service as datasets
from app.db import transaction
from app.deletions import service as deletions
from app.errors import Conflict, Invalid
from app.jobs import service as jobs
from app.registry import service, shadows
from app.registry.schemas import NewShadows, Pool
from app.reports import publisher
from app.tables import Job, JobKind, JobState, ModelVersion, ShadowNetwork
from tests.fixtures.concurrency import Others
from tests.fixtures.world import TRAIN, World, invented_digest

HALF = TRAIN[: len(TRAIN) // 2]
OTHER_HALF = TRAIN[len(TRAIN) // 2 :]


def _ask(world: World, version: ModelVersion, networks: int = 4, share: float = 0.5) -> int:
    model = service.get(world.session, "net")
    wanted = NewShadows(networks=networks, share=share)
    return shadows.extend(world.session, model, version, wanted, actor="engineer")


def _jobs(world: World, kind: JobKind = JobKind.SHADOW) -> list[Job]:
    world.session.flush()
    return list(world.session.scalars(select(Job).filter_by(kind=kind).order_by(Job.ordinal)))


def _queued(world: World, kind: JobKind = JobKind.SHADOW) -> list[Job]:
    return [job for job in _jobs(world, kind) if job.state is JobState.QUEUED]


def _train(world: World, rows: Iterable[int] = HALF) -> None:
    """Carry every queued shadow job out on these rows."""
    for job in _queued(world):
        world.finish_shadow(job, rows, TRAIN)
        world.settle(job)


def _estimate(world: World, version: ModelVersion, job: Job) -> str:
    """Hand in and settle what an estimate job finds in the pool as it is now; the scores' digest."""
    pool = shadows.pool_name(shadows.networks(world.session, version, job.parameters["share"]))
    return _hand_in(world, job, world.claim(job), pool)


def _hand_in(world: World, job: Job, lease: jobs.Lease, pool: str) -> str:
    digest = invented_digest("scores", pool, job.attempt)
    found = {"pool": pool, "share": job.parameters["share"], "networks": 4, "scores": digest}
    jobs.finish_computing(world.session, lease, {"estimate": found})
    world.settle(job)
    return digest


def _pool(world: World, version: ModelVersion, **changes: Any) -> bool:
    """Whether the version's only pool stands like this."""
    empty = {"asked": 4, "done": 0, "running": 0, "failed": 0, "discarded": 0, "estimating": False}
    return shadows.pools(world.session, version) == [Pool(**{"share": 0.5, **empty, **changes})]


@pytest.fixture
def version(world: World) -> ModelVersion:
    """A version in production, trained on forty rows."""
    world.dataset()
    return world.trained()


# --- asking -------------------------------------------------------------------------------------------


def test_a_pool_grows_by_what_it_lacks(world: World, version: ModelVersion) -> None:
    """Each network is one job, with a number and a seed of its own, and is asked for once."""
    assert _ask(world, version, networks=3) == 3
    assert _pool(world, version, asked=3, running=3)
    _train(world)
    assert _ask(world, version, networks=8) == 5
    assert _ask(world, version, networks=8) == 0
    assert _ask(world, version, networks=5) == 0
    asked = _jobs(world)
    assert [job.parameters["number"] for job in asked] == list(range(8))
    assert len({job.seed for job in asked}) == 8
    assert {job.parameters["recipe"]["epochs"] for job in asked} == {(version.recipe or {})["epochs"]}
    assert _pool(world, version, asked=8, done=3, running=5, estimating=True)


def test_another_share_is_another_pool(world: World, version: ModelVersion) -> None:
    """Both stand beside each other, and no network is in two."""
    assert (_ask(world, version, networks=2), _ask(world, version, networks=2, share=0.7)) == (2, 2)
    _train(world)
    assert [(pool.share, pool.done) for pool in shadows.pools(world.session, version)] == [(0.5, 2), (0.7, 2)]
    assert len(shadows.networks(world.session, version, 0.7)) == 2


def test_what_failed_is_asked_for_again(world: World, version: ModelVersion) -> None:
    """The others stay as they are."""
    _ask(world, version)
    first, second, *_ = _queued(world)
    jobs.fail(world.session, world.claim(first), "diverged")
    jobs.request_cancel(world.session, second.id, world.caller(), "too dear")
    for job in (first, second):
        world.settle(job)
    assert _pool(world, version, running=2, failed=2)
    assert _ask(world, version) == 2
    assert [job.parameters["number"] for job in _queued(world)] == [2, 3, 0, 1]


@pytest.mark.parametrize("share", [0.01, 0.99])
def test_a_share_has_to_leave_rows_on_both_sides(world: World, version: ModelVersion, share: float) -> None:
    """Of forty rows a hundredth is none."""
    with pytest.raises(Invalid) as found:
        _ask(world, version, share=share)
    assert [fault.pointer for fault in found.value.faults] == ["/share"]


def _no_recipe(world: World, version: ModelVersion) -> None:
    version.recipe = None


def _retired_model(world: World, version: ModelVersion) -> None:
    service.retire(world.session, service.get(world.session, "net"), actor="owner", reason="replaced")


def _retired_dataset(world: World, version: ModelVersion) -> None:
    datasets.get_version(world.session, version.dataset_version_id).retire("replaced", actor="owner")


@pytest.mark.parametrize("change", [_no_recipe, _retired_model, _retired_dataset])
def test_what_cannot_be_trained_alike_has_no_pool(
    world: World, version: ModelVersion, change: Callable[[World, ModelVersion], None]
) -> None:
    """Nothing is queued."""
    change(world, version)
    world.session.flush()
    with pytest.raises(Conflict):
        _ask(world, version)
    assert _jobs(world) == []


# --- deletions ----------------------------------------------------------------------------------------


def test_shadows_of_a_deleted_row_are_used_no_more(world: World, version: ModelVersion) -> None:
    """Those that never learned it stay; asking again removes the others and trains as many anew."""
    _ask(world, version)
    first, second, *_ = _queued(world)
    for job in (first, second):
        world.finish_shadow(job, HALF, TRAIN)
        world.settle(job)
    _train(world, OTHER_HALF)
    world.request(HALF[0])
    left = shadows.networks(world.session, version, 0.5)
    assert [kept.number for kept in left] == [2, 3]
    assert _pool(world, version, done=2, discarded=2, estimating=True)
    assert _ask(world, version) == 2
    assert set(world.session.scalars(select(ShadowNetwork.number))) == {2, 3}
    assert [job.parameters["number"] for job in _queued(world)] == [0, 1]
    assert world.changes(version.id)[-1] == ("engineer", "shadows discarded", None)


def test_a_request_that_is_taken_back_changes_nothing(world: World, version: ModelVersion) -> None:
    """The rows may train again, so what was trained on them can be used again."""
    _ask(world, version)
    _train(world)
    request = world.request(HALF[0])
    assert shadows.networks(world.session, version, 0.5) == []
    deletions.cancel(world.session, request.id, "a mistake", actor="desk")
    assert len(shadows.networks(world.session, version, 0.5)) == 4


def test_a_shadow_whose_row_was_deleted_meanwhile_starts_over(world: World, version: ModelVersion) -> None:
    """Its network is not kept; the next attempt draws from the rows that are left."""
    _ask(world, version, networks=2)
    job, _ = _queued(world)
    world.finish_shadow(job, HALF, TRAIN)
    world.request(HALF[0])
    world.settle(job)
    assert (job.state, job.outcome, job.rows_digest) == (JobState.QUEUED, None, None)
    assert world.session.scalars(select(ShadowNetwork)).all() == []


def test_a_shadow_of_a_retired_model_is_not_kept(world: World, version: ModelVersion) -> None:
    """Queued ones are cancelled with the model, and one that ends in spite of it is of no use."""
    _ask(world, version, networks=2)
    running, queued = _queued(world)
    lease = world.claim(running)
    _retired_model(world, version)
    assert queued.state is JobState.CANCELLED
    running.rows_digest = version.rows_digest
    jobs.finish_computing(world.session, lease, {})
    for job in (running, queued):
        world.settle(job)
    assert (running.state, running.reason) == (JobState.FAILED, "the model was retired meanwhile")
    assert world.session.scalars(select(ShadowNetwork)).all() == []
    assert _jobs(world, JobKind.ESTIMATE) == []


# --- the estimate -------------------------------------------------------------------------------------


def test_the_last_network_has_the_estimate_made(world: World, version: ModelVersion) -> None:
    """One job, when all that was asked for is over; what it finds is kept with the version."""
    _ask(world, version, networks=3)
    *others, last = _queued(world)
    for job in others:
        world.finish_shadow(job, HALF, TRAIN)
        world.settle(job)
    assert _jobs(world, JobKind.ESTIMATE) == []
    world.finish_shadow(last, OTHER_HALF, TRAIN)
    world.settle(last)
    (job,) = _jobs(world, JobKind.ESTIMATE)
    assert _pool(world, version, asked=3, done=3, estimating=True)
    digest = _estimate(world, version, job)
    assert job.state is JobState.DONE
    assert version.figures["memorisation"]["estimate"]["scores"] == digest
    assert version.figures["seconds"] == 1.0
    assert _ask(world, version, networks=3) == 0
    assert len(_jobs(world, JobKind.ESTIMATE)) == 1


def test_a_failure_is_not_waited_for(world: World, version: ModelVersion) -> None:
    """The estimate is made from the networks that there are, if these are at least two."""
    _ask(world, version, networks=3)
    *others, last = _queued(world)
    for job in others:
        world.finish_shadow(job, HALF, TRAIN)
        world.settle(job)
    jobs.fail(world.session, world.claim(last), "diverged")
    world.settle(last)
    assert len(_queued(world, JobKind.ESTIMATE)) == 1


def test_one_network_tells_nothing(world: World, version: ModelVersion) -> None:
    """There is nothing to compare it with."""
    _ask(world, version, networks=2)
    first, second = _queued(world)
    jobs.fail(world.session, world.claim(first), "diverged")
    world.settle(first)
    world.finish_shadow(second, HALF, TRAIN)
    world.settle(second)
    assert _jobs(world, JobKind.ESTIMATE) == []


def test_an_estimate_of_a_pool_that_has_changed_is_made_again(world: World, version: ModelVersion) -> None:
    """Networks came, or went with a deletion, while it was computed; what is kept is of those there are."""
    _ask(world, version, networks=2)
    _train(world)
    (job,) = _queued(world, JobKind.ESTIMATE)
    lease = world.claim(job)
    before = shadows.pool_name(shadows.networks(world.session, version, 0.5))
    _ask(world, version, networks=4)
    _train(world, OTHER_HALF)
    assert len(_jobs(world, JobKind.ESTIMATE)) == 1
    _hand_in(world, job, lease, before)
    assert job.state is JobState.QUEUED
    assert "memorisation" not in version.figures
    world.request(HALF[0])
    digest = _estimate(world, version, job)
    assert version.figures["memorisation"]["estimate"]["scores"] == digest


def test_an_estimate_is_kept_while_the_pool_grows(world: World, version: ModelVersion) -> None:
    """It is of the networks that there were; the last of the new ones has another one made."""
    _ask(world, version, networks=2)
    _train(world)
    (job,) = _queued(world, JobKind.ESTIMATE)
    lease = world.claim(job)
    before = shadows.pool_name(shadows.networks(world.session, version, 0.5))
    _ask(world, version, networks=4)
    ending, last = _queued(world)
    world.finish_shadow(ending, HALF, TRAIN)
    world.settle(ending)
    first = _hand_in(world, job, lease, before)
    assert (job.state, version.figures["memorisation"]["estimate"]["scores"]) == (JobState.DONE, first)
    world.finish_shadow(last, HALF, TRAIN)
    world.settle(last)
    assert len(_queued(world, JobKind.ESTIMATE)) == 1


def test_a_lost_estimate_is_had_by_asking_again(world: World, version: ModelVersion) -> None:
    """No network is trained for it."""
    _ask(world, version, networks=2)
    _train(world)
    (lost,) = _queued(world, JobKind.ESTIMATE)
    jobs.fail(world.session, world.claim(lost), "out of memory")
    world.settle(lost)
    assert _ask(world, version, networks=2) == 0
    assert len(_queued(world, JobKind.ESTIMATE)) == 1


def test_an_estimate_for_a_retired_model_is_not_kept(world: World, version: ModelVersion) -> None:
    """It may have been under way when the model was retired."""
    _ask(world, version, networks=2)
    _train(world)
    (job,) = _queued(world, JobKind.ESTIMATE)
    lease = world.claim(job)
    _retired_model(world, version)
    _hand_in(world, job, lease, shadows.pool_name(shadows.networks(world.session, version, 0.5)))
    assert job.state is JobState.FAILED
    assert "memorisation" not in version.figures


def test_two_last_networks_at_once_have_one_estimate_made(others: Others) -> None:
    """Whichever is settled second sees that both are over."""
    with transaction(others.url) as session:
        world = World(session)
        world.dataset()
        _ask(world, world.trained(), networks=2)
        ending = _queued(world)
        for job in ending:
            world.finish_shadow(job, HALF, TRAIN)
        first, second = (job.id for job in ending)
    with transaction(others.url) as session:
        publisher.settle(session, first)
        session.flush()
        late = others.stuck(partial(_settle, second))
        assert not late.done()
    late.result()
    with transaction(others.url) as session:
        assert len(_jobs(World(session), JobKind.ESTIMATE)) == 1
        assert session.query(ShadowNetwork).count() == 2


def _settle(job_id: Any, session: Session) -> None:
    publisher.settle(session, job_id)


def test_two_who_ask_at_once_get_one_pool(others: Others) -> None:
    """The second one waits, and finds that nothing is lacking."""
    with transaction(others.url) as session:
        world = World(session)
        world.dataset()
        version_id = world.trained().id

    def ask(session: Session) -> int:
        return _ask(World(session), session.get_one(ModelVersion, version_id), networks=3)

    with transaction(others.url) as session:
        assert ask(session) == 3
        late = others.stuck(ask)
        assert not late.done()
    assert late.result() == 0
    with transaction(others.url) as session:
        assert len(_jobs(World(session))) == 3
