"""From open targets to unlearn jobs, and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.db import transaction
from app.deletions import planner
from app.jobs import service as jobs
from app.registry import policies
from app.tables import Job, JobKind, RequestState, Target, TargetState
from tests.fixtures.concurrency import Others
from tests.fixtures.world import TRAIN, World

HOUR = 3600


@pytest.fixture
def digits(world: World) -> World:
    """A world with a data set and a model in use whose requests wait for an hour."""
    world.dataset()
    world.trained(batch_window_seconds=HOUR, batch_max=3)
    return world


def _states(world: World, *targets: Target) -> list[TargetState]:
    world.session.flush()
    return [target.state for target in targets]


# --- when a job is made -------------------------------------------------------------------------------


def test_requests_wait_for_the_window(digits: World) -> None:
    """Nothing is planned while others may still arrive; then one job takes them all."""
    first, second = digits.request(1), digits.request(2)
    assert digits.plan() == 0
    digits.age(digits.targets(first)[0], HOUR)
    assert digits.plan() == 1
    job = digits.next_job()
    assert {target.job_id for request in (first, second) for target in digits.targets(request)} == {job.id}


def test_a_full_batch_does_not_wait(digits: World) -> None:
    """As soon as so many requests wait, their job is made."""
    digits.request(1)
    digits.request(2)
    assert digits.plan() == 0
    digits.request(3)
    assert digits.plan() == 1


def test_a_near_due_date_does_not_wait(digits: World) -> None:
    """A request whose due date lies within the window takes all others along."""
    other = digits.request(1)
    urgent = digits.request(2)
    assert digits.plan() == 0
    urgent.due_at = datetime.now(UTC) + timedelta(minutes=30)
    assert digits.plan() == 1
    assert _states(digits, *digits.targets(other)) == [TargetState.PLANNED]


def test_a_request_on_hold_is_left_out(digits: World) -> None:
    """It neither brings a job about nor joins one."""
    held = digits.request(1)
    held.state = RequestState.ON_HOLD
    digits.age(digits.targets(held)[0], HOUR)
    assert digits.plan() == 0
    digits.age(digits.targets(digits.request(2))[0], HOUR)
    assert digits.plan() == 1
    assert _states(digits, *digits.targets(held)) == [TargetState.OPEN]


def test_a_model_has_one_live_job(digits: World) -> None:
    """Requests that arrive later wait for the next one."""
    digits.age(digits.targets(digits.request(1))[0], HOUR)
    assert digits.plan() == 1
    late = digits.request(2)
    digits.age(digits.targets(late)[0], HOUR)
    assert digits.plan() == 0
    assert _states(digits, *digits.targets(late)) == [TargetState.OPEN]


def test_a_job_that_has_failed_still_comes_first(world: World) -> None:
    """Its next rung may follow; a request that arrives before that is settled joins it."""
    job = world.planned(1)
    lease, _ = world.begin(job)
    jobs.fail(world.session, lease, "the loss is not a number")
    late = world.request(2)
    assert world.plan() == 0
    world.settle(job)
    following = world.next_job()
    assert following.rung == 1
    _, work = world.begin(following)
    assert set(work.forget) == {1, 2}
    assert [target.job_id for target in world.targets(late)] == [following.id]


def test_the_database_lets_a_model_have_one_live_job(world: World) -> None:
    """Whatever plans, the index refuses a second one."""
    job = world.planned(1)
    twin = Job(
        kind=JobKind.UNLEARN, model_id=job.model_id, parameters={}, seed=0, rung=0, created_by="somebody"
    )
    world.session.add(twin)
    with pytest.raises(IntegrityError, match="uq_jobs_one_live_unlearn_per_model"):
        world.session.flush()


def test_each_model_gets_its_own_job(world: World) -> None:
    """A request for rows of two models is carried out by two jobs."""
    world.dataset()
    world.trained("first")
    world.trained("second")
    request = world.request(1)
    assert world.plan() == 2
    assert len({target.job_id for target in world.targets(request)}) == 2


def test_the_most_urgent_model_comes_first(world: World) -> None:
    """Of several models whose batches are due, that with the nearest due date is planned first."""
    world.dataset("faces")
    world.dataset("other")
    relaxed, urgent = world.trained("first"), world.trained("second", "other")
    world.request(1)
    world.request(1, dataset="other").due_at = datetime.now(UTC) + timedelta(days=1)
    world.session.flush()
    assert planner.due(world.session) == [urgent.model_id, relaxed.model_id]


def test_a_request_being_accepted_does_not_hide_the_model_from_the_planner(others: Others) -> None:
    """A busy caller cannot keep the requests of all others from being planned."""
    with transaction(others.url) as session:
        world = World(session)
        world.dataset()
        world.trained()
        world.request(1)
    with transaction(others.url) as session:
        World(session).request(2)
        session.flush()
        assert others.stuck(lambda other: World(other).plan()).result() == 1


def test_fifty_requests_at_once_are_one_job(others: Others) -> None:
    """However they arrive within the window, they are carried out together."""
    with transaction(others.url) as session:
        world = World(session)
        world.dataset()
        world.trained(batch_window_seconds=1)
        caller = world.caller()

    def post(session: Session, ordinal: int) -> None:
        World(session).request(ordinal % 40, by=caller)

    for future in [others.start(partial(post, ordinal=ordinal)) for ordinal in range(50)]:
        future.result()
    with transaction(others.url) as session:
        world = World(session)
        for target in session.scalars(select(Target)):
            world.age(target, 1)
        assert world.plan() == 1
        _, work = world.begin(world.next_job())
        states = session.scalars(select(Target.state)).all()
        assert list(states) == [TargetState.RUNNING] * 50
        assert set(work.forget) == set(TRAIN)


# --- what the job is about ----------------------------------------------------------------------------


def test_the_job_starts_from_the_version_in_use(world: World) -> None:
    """Its parent is what the alias names, its method the ladder's first, its policy a copy."""
    world.dataset()
    version = world.trained()
    world.request(1)
    world.plan()
    job = world.next_job()
    assert (job.version_id, job.rung, job.parameters["method"]) == (version.id, 0, "neggrad")
    in_force = policies.in_force(world.session, version.model_id)
    assert (job.policy_id, job.policy) == (in_force.id, in_force.body)


def test_the_oldest_version_that_holds_the_rows_comes_first(world: World) -> None:
    """Versions in use are cleaned one after another, until none holds a deleted row."""
    world.dataset()
    model = world.model()
    archive = world.train(model, alias="archive")
    current = world.train(model)
    request = world.request(1)
    parents = [world.carry_out().version_id for _ in range(2)]
    assert parents == [archive.id, current.id]
    assert _states(world, *world.targets(request)) == [TargetState.COMPLETED]
    assert request.state is RequestState.COMPLETED
    assert world.rows(world.aliased(model.id)) == world.rows(world.aliased(model.id, "archive"))


def test_a_target_stays_open_while_another_version_holds_its_rows(world: World) -> None:
    """The first job of two does not finish the request."""
    world.dataset()
    model = world.model()
    world.train(model, alias="archive")
    world.train(model)
    request = world.request(1)
    world.carry_out()
    (target,) = world.targets(request)
    assert (target.state, target.job_id, target.finished_at) == (TargetState.OPEN, None, None)
    assert request.state is RequestState.IN_PROGRESS


def test_a_request_whose_rows_have_left_meanwhile_needs_no_job(world: World) -> None:
    """A model that was trained anew without the rows has nothing to forget."""
    world.dataset()
    model = world.model()
    world.train(model)
    request = world.request(1)
    world.train(model)
    assert world.plan() == 0
    (target,) = world.targets(request)
    assert target.state is TargetState.ALREADY_ABSENT
    assert target.finished_at is not None
    assert request.state is RequestState.COMPLETED
