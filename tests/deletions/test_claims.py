"""An unlearn job from its claim to its end, and what becomes of its targets."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from app.datasets import tombstones
from app.deletions import planner, service
from app.deletions.schemas import NewItem, NewRequest
from app.jobs import service as jobs
from app.jobs.policies import POLICY
from app.registry import policies
from app.registry import service as registry
from app.registry.schemas import Training
from app.tables import JobKind, JobState, RequestState, Target, TargetState
from tests.fixtures.world import TRAIN, World

HOUR = 3600


def _states(world: World, *targets: Target) -> list[TargetState]:
    world.session.flush()
    return [target.state for target in targets]


# --- the claim ----------------------------------------------------------------------------------------


def test_the_forget_set_is_every_deleted_row_of_the_parent(world: World) -> None:
    """And the rest of its rows is what is retained."""
    world.dataset()
    world.trained()
    world.accept(NewRequest(dataset="faces", items=[NewItem(subject="person-3")]))
    world.plan()
    _, work = world.begin(world.next_job())
    assert set(work.forget) == {3, 9, 15, 21, 27, 33, 39}
    assert set(work.retain) == set(TRAIN) - set(work.forget)


def test_a_claim_moves_targets_and_requests_on(world: World) -> None:
    """From here on the request cannot be taken back."""
    world.dataset()
    world.trained()
    request = world.request(1)
    world.plan()
    world.begin(world.next_job())
    assert _states(world, *world.targets(request)) == [TargetState.RUNNING]
    assert request.state is RequestState.IN_PROGRESS


def test_a_request_that_arrives_after_planning_joins_at_the_claim(world: World) -> None:
    """Its rows are forgotten by the job that was planned before it."""
    world.dataset()
    world.trained()
    world.request(1)
    world.plan()
    late = world.request(2)
    job = world.next_job()
    _, work = world.begin(job)
    assert set(work.forget) == {1, 2}
    assert [target.job_id for target in world.targets(late)] == [job.id]
    assert _states(world, *world.targets(late)) == [TargetState.RUNNING]


def test_a_cancelled_requests_rows_are_not_forgotten(world: World) -> None:
    """Taken back between planning and claim, they stay in training."""
    world.dataset()
    world.trained()
    world.request(1)
    cancelled = world.request(2)
    world.plan()
    service.cancel(world.session, cancelled.id, "a mistake", actor="desk")
    _, work = world.begin(world.next_job())
    assert set(work.forget) == {1}


def test_a_job_whose_every_request_was_cancelled_has_nothing_to_do(world: World) -> None:
    """The claim says so instead of making an empty forget set."""
    world.dataset()
    world.trained()
    request = world.request(1)
    world.plan()
    service.cancel(world.session, request.id, "a mistake", actor="desk")
    job = world.next_job()
    world.claim(job)
    assert planner.begin(world.session, job, actor="job") is None


def test_a_second_attempt_takes_up_the_first_ones_work(world: World) -> None:
    """The same forget set keeps checkpoint, result and seed."""
    job = world.planned(1)
    lease, _ = world.begin(job)
    jobs.keep_checkpoint(world.session, lease, digest="d", fingerprint="f")
    job.outcome = {"unlearned": {"weights": "w"}}
    before = (job.seed, job.forget_digest)
    jobs.give_back(world.session, lease, "its worker was stopped")
    world.begin(job)
    assert (job.seed, job.forget_digest) == before
    assert job.checkpoint == {"digest": "d", "fingerprint": "f"}
    assert job.outcome == {"unlearned": {"weights": "w"}}


def test_a_second_attempt_with_other_rows_starts_afresh(world: World) -> None:
    """What was computed for the forget set of before is of no use any more."""
    job = world.planned(1, audit_budget=1)
    lease, work = world.begin(job)
    (other,) = planner.ask_for_networks(world.session, job, work=work, actor="job")
    jobs.keep_checkpoint(world.session, lease, digest="d", fingerprint="f")
    jobs.wait_for(world.session, lease, [other.id], {"unlearned": {"weights": "w"}}, "waiting")
    world.request(2)
    jobs.request_cancel(world.session, other.id, world.caller(), "too dear")
    world.settle(other)
    seed = job.seed
    world.begin(job)
    assert (job.checkpoint, job.outcome) == (None, None)
    assert not job.has_waited  # a reference for the old rows is none for these
    assert jobs.waits_of(world.session, [job.id]) == {job.id: []}
    assert job.seed != seed


def test_the_seed_depends_on_the_work_alone(world: World) -> None:
    """The same weights, rows and method give the same seed in any job; another method gives another."""
    world.dataset()
    world.trained()
    world.request(1)
    world.plan()
    first = world.next_job()
    world.compute(first, found=True)
    world.settle(first)
    second = world.next_job()
    world.begin(second)
    assert first.forget_digest == second.forget_digest
    assert first.seed != second.seed
    seed = second.seed
    jobs.request_cancel(world.session, second.id, world.caller(), "not now")
    jobs.acknowledge_cancel(world.session, jobs.Lease(second.id, second.lease_token))
    world.settle(second)
    (target,) = world.session.scalars(select(Target)).all()
    service.retry(world.session, target.request_id, "now", actor="desk")
    world.plan()
    third = world.next_job()
    world.begin(third)
    assert third.seed == first.seed != seed


@pytest.mark.parametrize(
    ("policy", "requests", "expected"),
    [({}, (0,), 0), ({}, (2, 5, 0), 5), ({"audit_budget": 3}, (0, 1), 3), ({"audit_budget": 3}, (4,), 4)],
)
def test_a_job_has_the_largest_budget_that_was_asked_for(
    world: World, policy: dict[str, Any], requests: tuple[int, ...], expected: int
) -> None:
    """By the policy, or by any of its requests."""
    world.dataset()
    world.trained(**policy)
    for number, budget in enumerate(requests):
        items = [NewItem(sample_id=f"faces-{number:02d}")]
        world.accept(NewRequest(dataset="faces", items=items, audit_budget=budget))
    world.plan()
    _, work = world.begin(world.next_job())
    assert work.audit_budget == expected


def test_without_a_recipe_a_budget_buys_nothing(world: World) -> None:
    """Nothing can be retrained, whatever policy and request ask for."""
    world.dataset()
    version = world.trained(audit_budget=4)
    version.recipe = None
    items = [NewItem(sample_id="faces-01")]
    world.accept(NewRequest(dataset="faces", items=items, audit_budget=9))
    world.plan()
    job = world.next_job()
    _, work = world.begin(job)
    assert (work.audit_budget, (job.policy or {})["audit_budget"]) == (0, 0)


@pytest.mark.parametrize(("budget", "references", "shadows"), [(0, 0, 0), (3, 3, 0), (6, 4, 4)])
def test_a_job_asks_for_what_its_budget_buys(
    world: World, budget: int, references: int, shadows: int
) -> None:
    """References of the rows that remain, and shadows of its version."""
    job = world.planned(1, audit_budget=budget)
    _, work = world.begin(job)
    asked = planner.ask_for_networks(world.session, job, work=work, actor="job")
    kinds = [JobKind.REFERENCE] * references + [JobKind.SHADOW] * shadows
    assert [other.kind for other in asked] == kinds
    assert {other.version_id for other in asked} <= {job.version_id}
    assert {other.rows_digest for other in asked[:references]} <= {job.rows_digest}


# --- the end ------------------------------------------------------------------------------------------


def test_a_climb_queues_the_next_rung_for_the_same_targets(world: World) -> None:
    """Under the policy that the first rung had, even if another is in force by now."""
    world.dataset()
    version = world.trained()
    request = world.request(1)
    world.plan()
    first = world.next_job()
    world.compute(first, found=True)
    model = registry.get(world.session, "net")
    policies.set_policy(world.session, model, POLICY.validate_python({"due_days": 3}), actor="desk")
    world.settle(first)
    second = world.next_job()
    assert (second.rung, second.parameters["method"], second.policy) == (1, "retrain", first.policy)
    assert second.version_id == version.id
    assert [target.job_id for target in world.targets(request)] == [second.id]
    assert planner.next_rung(second) is None


def test_a_cancelled_job_fails_its_targets(world: World) -> None:
    """The request is partly completed and says that its job was cancelled, and why."""
    world.dataset()
    world.trained()
    request = world.request(1)
    world.plan()
    job = world.next_job()
    jobs.request_cancel(world.session, job.id, world.caller(), "not today")
    world.settle(job)
    (target,) = world.targets(request)
    assert (target.state, target.reason) == (TargetState.FAILED, "its job was cancelled: not today")
    assert request.state is RequestState.PARTLY_COMPLETED
    assert request.finished_at is not None


def test_a_failed_rung_is_followed_by_the_next_and_the_last_fails_its_targets(world: World) -> None:
    """A method that diverged leaves the retraining to be tried; its reason is then the target's."""
    world.dataset()
    world.trained()
    request = world.request(1)
    world.plan()
    for rung, reason in enumerate(("diverged", "the loss is not a number")):
        (target,) = world.targets(request)
        assert target.state in (TargetState.PLANNED, TargetState.RUNNING)
        job = world.next_job()
        assert job.rung == rung
        lease, _ = world.begin(job)
        jobs.fail(world.session, lease, reason)
        world.settle(job)
    (target,) = world.targets(request)
    assert (target.state, target.reason) == (TargetState.FAILED, "its job failed: the loss is not a number")


def test_a_job_that_has_nothing_left_to_do_fails_nobody(world: World) -> None:
    """The request it was made for was cancelled; another's rows are in a later version, which comes next."""
    world.dataset()
    model = world.model()
    passing = world.request(2)
    first = world.train(model, alias="archive")  # without row 2
    tombstones.lift(world.session, passing.id)
    second = world.train(model)
    cancelled, kept = world.request(1), world.request(2)
    world.plan()
    job = world.next_job()
    assert job.version_id == first.id
    service.cancel(world.session, cancelled.id, "a mistake", actor="desk")
    lease = world.claim(job)
    assert planner.begin(world.session, job, actor="job") is None
    jobs.fail(world.session, lease, "nothing was left to forget")
    world.settle(job)
    assert _states(world, *world.targets(kept)) == [TargetState.OPEN]
    assert world.carry_out().version_id == second.id
    assert kept.state is RequestState.COMPLETED
    assert passing.state is RequestState.COMPLETED


def test_training_meanwhile_leaves_the_targets_to_the_next_plan(world: World) -> None:
    """When the alias has moved on to a version without the rows, they count as absent."""
    world.dataset()
    model = world.model()
    world.train(model)
    request = world.request(1)
    world.plan()
    job = world.next_job()
    world.compute(job)
    retrained = registry.train(world.session, model, Training(dataset="faces"), actor="trainer")
    world.finish_training(retrained)
    world.settle(retrained)
    world.settle(job)
    assert job.state is JobState.SUPERSEDED
    assert _states(world, *world.targets(request)) == [TargetState.OPEN]
    assert world.plan() == 0
    assert request.state is RequestState.COMPLETED
