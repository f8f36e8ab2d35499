"""What follows from the end of a reference, a training or a registration."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.datasets import service as datasets
from app.db import transaction
from app.deletions import planner
from app.deletions.planner import Assignment
from app.jobs import service as jobs
from app.registry import references
from app.registry import service as registry
from app.registry.schemas import Training
from app.reports import publisher
from app.reports.verdict import Verdict
from app.tables import (
    DatasetState,
    Job,
    JobKind,
    JobState,
    ModelVersion,
    ReferenceNetwork,
)
from tests.fixtures.concurrency import Others
from tests.fixtures.world import TRAIN, World, invented_digest


def _versions(world: World) -> list[ModelVersion]:
    return list(world.session.scalars(select(ModelVersion).order_by(ModelVersion.number)))


# --- references ---------------------------------------------------------------------------------------


def _waiting(world: World, job: Job) -> tuple[Assignment, list[Job]]:
    """Have an unlearn job wait for the networks that its budget buys; what it has to do, and their jobs."""
    lease, work = world.begin(job)
    others = planner.ask_for_networks(world.session, job, work=work, actor="job")
    jobs.wait_for(world.session, lease, [other.id for other in others], {}, "waiting for networks")
    return work, others


def _finish_reference(world: World, job: Job) -> str:
    """Hand in and settle a reference; its weights."""
    weights = invented_digest("reference", job.parameters["number"])
    outcome = {"weights": weights, "figures": {"seconds": 2.0}}
    jobs.finish_computing(world.session, world.claim(job), outcome)
    world.settle(job)
    return weights


def _with_reference(world: World, **policy: Any) -> tuple[Job, str]:
    """An unlearn job that waited for its reference, which is there, and the reference's weights."""
    job = world.planned(1, audit_budget=1, **policy)
    _, (other,) = _waiting(world, job)
    return job, _finish_reference(world, other)


def test_a_finished_reference_is_kept_and_wakes_the_job(world: World) -> None:
    """It is found for the version and the rows it was made for."""
    job, weights = _with_reference(world)
    assert job.state is JobState.QUEUED
    (kept,) = world.session.scalars(select(ReferenceNetwork))
    assert (kept.weights, kept.seconds, kept.rows_digest) == (weights, 2.0, job.rows_digest)


def test_an_exact_reference_is_preferred_to_what_it_judged(world: World) -> None:
    """The retrained network is published, not the approximate one."""
    job, weights = _with_reference(world)
    world.compute(job, reference=weights)
    world.settle(job)
    new = _versions(world)[-1]
    assert (new.origin, new.weights) == ("retrained", weights)
    assert world.report(job).body["model"]["weights_after"] == weights


def test_a_policy_may_publish_the_approximate_network(world: World) -> None:
    """The reference judges without taking its place."""
    job, weights = _with_reference(world, prefer_exact=False)
    world.compute(job, reference=weights)
    world.settle(job)
    new = _versions(world)[-1]
    assert (new.origin, world.report(job).verdict) == ("unlearned", Verdict.PASS)
    assert new.weights != weights


def test_a_job_is_woken_by_the_last_of_its_references(world: World) -> None:
    """Each is kept under its number, whatever the order in which they end; one that failed is missing."""
    job = world.planned(1, audit_budget=3)
    work, (first, second, third) = _waiting(world, job)
    last = _finish_reference(world, third)
    jobs.fail(world.session, world.claim(first), "diverged")
    world.settle(first)
    assert job.state == "waiting"
    middle = _finish_reference(world, second)
    assert job.state is JobState.QUEUED
    kept = references.of(world.session, work.parent.id, work.retain.digest, most=4)
    assert [(network.number, network.weights) for network in kept] == [(1, middle), (2, last)]


def test_the_next_rung_is_judged_by_the_same_references(world: World) -> None:
    """They are of the same rows, so nothing is trained for it."""
    ladder = [{"method": "neggrad"}, {"method": "finetune"}, {"method": "retrain"}]
    job = world.planned(1, audit_budget=2, ladder=ladder, prefer_exact=False)
    _, asked = _waiting(world, job)
    weights = [_finish_reference(world, other) for other in asked]
    world.compute(job, reference=weights[0], found=True)
    world.settle(job)
    following = world.next_job()
    _, work = world.begin(following)
    assert following.rung == 1
    assert planner.ask_for_networks(world.session, following, work=work, actor="job") == []
    kept = references.of(world.session, work.parent.id, work.retain.digest, most=2)
    assert [network.weights for network in kept] == weights


def test_a_reference_on_a_row_that_was_deleted_meanwhile_is_not_kept(world: World) -> None:
    """Other rows remain by now: the job that waited starts over, and asks for references of those."""
    job = world.planned(1, audit_budget=2)
    before, (first, second) = _waiting(world, job)
    _finish_reference(world, first)
    world.request(2)
    _finish_reference(world, second)
    assert (second.state, second.reason) == (JobState.FAILED, references.OUTDATED)
    assert job.state is JobState.QUEUED
    after, asked = _waiting(world, job)
    assert set(after.forget) == {1, 2}
    assert [other.parameters["number"] for other in asked] == [0, 1]
    assert {other.rows_digest for other in asked} == {after.retain.digest} != {before.retain.digest}
    assert jobs.waits_of(world.session, [job.id]) == {job.id: [other.id for other in asked]}


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_a_job_goes_on_without_a_reference_that_cannot_be_had(world: World, end: str) -> None:
    """It is woken however the reference's job ended."""
    job = world.planned(1, audit_budget=1)
    _, (other,) = _waiting(world, job)
    if end == "failed":
        jobs.fail(world.session, world.claim(other), "out of memory")
    else:
        jobs.request_cancel(world.session, other.id, world.caller(), "too dear")
    world.settle(other)
    assert job.state is JobState.QUEUED


# --- training and registering -------------------------------------------------------------------------


def test_a_training_whose_rows_were_deleted_meanwhile_starts_over(world: World) -> None:
    """It is queued again without its result, and the next attempt leaves the rows out."""
    world.dataset()
    model = world.model()
    job = registry.train(world.session, model, Training(dataset="faces"), actor="trainer")
    world.finish_training(job)
    world.request(1)
    world.settle(job)
    assert (job.state, job.outcome, job.rows_digest) == (JobState.QUEUED, None, None)
    assert _versions(world) == []
    world.finish_training(job)
    world.settle(job)
    assert world.rows(world.aliased(model.id)) == set(TRAIN) - {1}


def test_a_training_without_an_alias_is_checked_as_well(world: World) -> None:
    """A version in no use must not hold deleted rows either."""
    world.dataset()
    job = registry.train(world.session, world.model(), Training(dataset="faces", alias=None), actor="trainer")
    world.finish_training(job)
    world.request(1)
    world.settle(job)
    assert (job.state, _versions(world)) == (JobState.QUEUED, [])


def test_a_training_waits_for_a_request_that_is_being_accepted(others: Others) -> None:
    """It finds the deletion instead of publishing just before it."""
    with transaction(others.url) as session:
        world = World(session)
        world.dataset()
        job = registry.train(session, world.model(), Training(dataset="faces", alias=None), actor="trainer")
        world.finish_training(job)
        job_id, caller = job.id, world.caller()
    with transaction(others.url) as session:
        World(session).request(1, by=caller)
        settled = others.stuck(partial(publisher.settle, job_id=job_id))
    settled.result()
    with transaction(others.url) as session:
        assert session.get_one(Job, job_id).state is JobState.QUEUED


def test_a_training_on_a_data_set_retired_meanwhile_fails(world: World) -> None:
    """A deletion could no longer reach its rows."""
    world.dataset()
    job = registry.train(world.session, world.model(), Training(dataset="faces"), actor="trainer")
    world.finish_training(job)
    datasets.retire(world.session, "faces", "contract ended", actor="desk")
    world.settle(job)
    assert (job.state, job.reason) == (JobState.FAILED, "the data set was retired while it trained")
    assert _versions(world) == []


def test_a_failed_training_moves_nothing(world: World) -> None:
    """It is settled, and that is all."""
    world.dataset()
    job = registry.train(world.session, world.model(), Training(dataset="faces"), actor="trainer")
    jobs.fail(world.session, world.claim(job), "the loss is not a number")
    world.settle(job)
    assert job.settled_at is not None
    assert _versions(world) == []


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_a_registration_whose_job_ended_early_has_failed(world: World, end: str) -> None:
    """A data set version does not stay pending for ever."""
    version = world.register()
    job = world.next_job(JobKind.INGEST)
    if end == "failed":
        jobs.fail(world.session, world.claim(job), "its worker was lost")
    else:
        jobs.request_cancel(world.session, job.id, world.caller(), "wrong folder")
    world.settle(job)
    assert version.state is DatasetState.FAILED
    assert version.reason == f"its job ended: {job.reason}"


def test_a_registration_that_was_refused_keeps_its_reason(world: World) -> None:
    """The faults of the data say more than that the job has failed."""
    version = world.register()
    job = world.next_job(JobKind.INGEST)
    lease = world.claim(job)
    datasets.refuse(version, ["row 3: no such class"], actor="job")
    jobs.fail(world.session, lease, "the data has faults")
    world.settle(job)
    assert version.reason == "1 faults"


def test_ended_jobs_are_found_until_they_are_settled(world: World) -> None:
    """The scheduler asks for the next one until there is none."""
    job = world.planned(1)
    world.compute(job)
    world.session.flush()
    assert publisher.next_to_settle(world.session, skip=()) == job.id
    assert publisher.next_to_settle(world.session, skip={job.id}) is None
    world.settle(job)
    assert publisher.next_to_settle(world.session, skip=()) is None


def test_settling_belongs_to_one_transaction(others: Others) -> None:
    """If anything in it fails, nothing of it has happened, and the job can be settled later."""
    with transaction(others.url) as session:
        world = World(session)
        job = world.planned(1)
        world.compute(job)
        job_id, before = job.id, world.counts()

    def settle_and_break(session: Session) -> None:
        publisher.settle(session, job_id)
        session.flush()
        raise RuntimeError("the machine goes away")

    with pytest.raises(RuntimeError):
        others.start(settle_and_break).result()
    with transaction(others.url) as session:
        world = World(session)
        assert world.counts() == before
        publisher.settle(session, job_id)
        assert session.get_one(Job, job_id).state is JobState.DONE
