"""What follows from a job's end."""

from __future__ import annotations

from functools import partial

from sqlalchemy import select

from app.db import transaction
from app.jobs import service as jobs
from app.registry import service as registry
from app.reports import publisher
from app.reports.attestation import load_public_pem, verify
from app.reports.verdict import Verdict
from app.tables import (
    Attestation,
    JobState,
    ModelVersion,
    OutboxMessage,
    RequestState,
    Target,
    TargetState,
    VersionState,
)
from tests.fixtures.concurrency import Others
from tests.fixtures.world import TRAIN, World


def _versions(world: World) -> list[ModelVersion]:
    return list(world.session.scalars(select(ModelVersion).order_by(ModelVersion.number)))


def _topics(world: World) -> list[str]:
    return list(world.session.scalars(select(OutboxMessage.topic).order_by(OutboxMessage.id)))


# --- publishing ---------------------------------------------------------------------------------------


def test_publishing_puts_the_new_version_into_use(world: World) -> None:
    """The alias names a version without the rows, made from the one before, and the request is done."""
    world.dataset()
    version = world.trained()
    request = world.request(1, 2)
    job = world.carry_out()
    new = world.aliased(version.model_id)
    assert (new.number, new.origin, new.parent_id, new.job_id) == (2, "unlearned", version.id, job.id)
    assert world.rows(new) == set(TRAIN) - {1, 2}
    assert new.weights == (job.outcome or {})["unlearned"]["weights"]
    assert version.state is VersionState.SUPERSEDED
    assert (job.state, job.reason) == (JobState.DONE, "version 2")
    assert [target.state for target in world.targets(request)] == [TargetState.COMPLETED]
    assert request.state is RequestState.COMPLETED
    assert request.finished_at is not None


def test_publishing_tells_others(world: World) -> None:
    """The report, the alias, the request and the job each have their event."""
    world.dataset()
    world.trained()
    world.request(1)
    world.carry_out()
    assert {"report.filed", "model.alias_moved", "deletion_request.completed", "job.done"} <= set(
        _topics(world)
    )


def test_a_published_report_is_filed_and_signed(world: World) -> None:
    """It says what the verdict was and what followed, and its envelope verifies."""
    world.dataset()
    version = world.trained()
    world.request(1)
    job = world.carry_out()
    report = world.report(job)
    new = world.aliased(version.model_id)
    assert (report.verdict, report.published) == (Verdict.INCONCLUSIVE, True)
    assert (report.version_before_id, report.version_after_id) == (version.id, new.id)
    assert report.body["data"]["forget_rows"] == 1
    assert report.body["requests"] == 1
    signed = world.session.get_one(Attestation, report.id)
    statement = verify(signed.envelope, load_public_pem(signed.public_key))
    digests = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    assert digests["weights-before"] == version.weights
    assert digests["weights-after"] == new.weights
    assert digests["retained-rows"] == new.rows_digest


def test_a_job_is_settled_once(world: World) -> None:
    """A second settling changes nothing."""
    job = world.planned(1)
    world.compute(job)
    world.settle(job)
    before = world.counts()
    world.settle(job)
    assert world.counts() == before


def test_a_job_that_has_not_ended_is_not_settled(world: World) -> None:
    """Nothing follows from a computation that still runs."""
    job = world.planned(1)
    world.begin(job)
    before = world.counts()
    world.settle(job)
    assert (world.counts(), job.state) == (before, JobState.RUNNING)


def test_two_schedulers_publish_one_version(others: Others) -> None:
    """Of two that settle the same job at once, one does and the other finds it done."""
    with transaction(others.url) as session:
        world = World(session)
        job = world.planned(1)
        world.compute(job)
        job_id = job.id
    for future in [others.start(partial(publisher.settle, job_id=job_id)) for _ in range(4)]:
        future.result()
    with transaction(others.url) as session:
        assert [version.number for version in _versions(World(session))] == [1, 2]


def test_publishing_and_accepting_at_once_do_not_block_each_other(others: Others) -> None:
    """A request that is being accepted comes before the publication, which then leaves it open."""
    with transaction(others.url) as session:
        world = World(session)
        job = world.planned(1)
        world.compute(job)
        job_id, caller = job.id, world.caller()

    with transaction(others.url) as session:
        registry.hold_aliases(session)
        published = others.stuck(partial(publisher.settle, job_id=job_id))
        request_id = World(session).request(2, by=caller).id
    published.result()
    with transaction(others.url) as session:
        world = World(session)
        (target,) = session.scalars(select(Target).filter_by(request_id=request_id))
        assert target.state is TargetState.OPEN
        assert world.plan() == 1


# --- requests that arrive meanwhile -------------------------------------------------------------------


def test_a_request_that_arrives_while_the_job_runs_gets_the_next_job(world: World) -> None:
    """The finished requests are done, the later one is carried out from the new version."""
    job = world.planned(1)
    world.compute(job)
    late = world.request(2)
    world.settle(job)
    assert [target.state for target in world.targets(late)] == [TargetState.OPEN]
    following = world.carry_out()
    new = _versions(world)[-1]
    assert following.version_id == _versions(world)[1].id
    assert world.rows(new) == set(TRAIN) - {1, 2}
    assert late.state is RequestState.COMPLETED


def test_a_second_request_for_rows_in_work_is_done_with_the_first(world: World) -> None:
    """Its rows have left the model when its turn comes."""
    job = world.planned(1)
    world.compute(job)
    late = world.request(1)
    world.settle(job)
    assert world.plan() == 0
    assert [target.state for target in world.targets(late)] == [TargetState.ALREADY_ABSENT]
    assert late.state is RequestState.COMPLETED


def test_a_job_whose_parent_was_replaced_publishes_nothing(world: World) -> None:
    """Somebody moved the alias while the job ran: no version is made, and the targets are planned anew."""
    world.dataset()
    model = world.model()
    world.train(model)
    request = world.request(1)
    world.plan()
    job = world.next_job()
    world.compute(job)
    spare = world.train(model, alias=None)
    registry.set_alias(world.session, spare, "production", actor="desk", reason="newer data")
    before = len(_versions(world))
    world.settle(job)
    report = world.report(job)
    assert len(_versions(world)) == before
    assert (job.state, report.published, report.version_after_id) == (JobState.SUPERSEDED, False, None)
    assert report.body["publication"]["publish"] is False
    assert [(target.state, target.job_id) for target in world.targets(request)] == [(TargetState.OPEN, None)]


def test_a_failed_job_whose_parent_was_replaced_fails_nobody(world: World) -> None:
    """The rows are no longer in use, so its failure harms no request."""
    world.dataset()
    model = world.model()
    world.train(model)
    request = world.request(1)
    world.plan()
    job = world.next_job()
    lease, _ = world.begin(job)
    world.train(model)
    jobs.fail(world.session, lease, "the loss is not a number")
    world.settle(job)
    world.plan()
    assert [target.state for target in world.targets(request)] == [TargetState.ALREADY_ABSENT]
    assert request.state is RequestState.COMPLETED


# --- the ladder ---------------------------------------------------------------------------------------


def test_a_rejected_network_leads_to_the_next_method(world: World) -> None:
    """Its report is filed, nothing is published, and the next rung runs under the same policy."""
    job = world.planned(1)
    world.compute(job, found=True)
    world.settle(job)
    report = world.report(job)
    assert (job.state, report.verdict, report.published) == (JobState.SUPERSEDED, Verdict.FAIL, False)
    following = world.next_job()
    assert (following.rung, following.policy) == (1, job.policy)
    assert len(_versions(world)) == 1


def test_the_last_rung_publishes_whatever_an_attack_says(world: World) -> None:
    """A network that never saw the rows has forgotten them."""
    job = world.planned(1)
    world.compute(job, found=True)
    world.settle(job)
    last = world.next_job()
    world.compute(last, found=True)
    world.settle(last)
    new = _versions(world)[-1]
    assert (last.state, new.origin, new.number) == (JobState.DONE, "retrained", 2)


def test_a_useless_last_rung_is_left_to_a_person(world: World) -> None:
    """A retrained network that lost its accuracy is not put into use by itself."""
    job = world.planned(1, ladder=[{"method": "retrain"}])
    world.compute(job, loss=0.3)
    world.settle(job)
    assert job.state is JobState.AWAITING_APPROVAL
    assert len(_versions(world)) == 1


def test_an_inconclusive_audit_without_power_is_not_enough(world: World) -> None:
    """An attack that does not even find the rows in the original says nothing about the result."""
    job = world.planned(1)
    world.compute(job, detects=False)
    world.settle(job)
    assert (job.state, world.next_job().rung) == (JobState.SUPERSEDED, 1)


def test_only_what_passed_is_published_where_the_policy_says_so(world: World) -> None:
    """An inconclusive result goes on to the next rung; a pass is published."""
    job = world.planned(1, publish_when="passed")
    world.compute(job)
    world.settle(job)
    assert job.state is JobState.SUPERSEDED


def test_a_policy_that_asks_waits_for_approval(world: World) -> None:
    """Nothing is published, and the targets say that a person has to decide."""
    world.dataset()
    world.trained(publish_when="approved")
    request = world.request(1)
    job = world.carry_out()
    assert (job.state, job.settled_at) == (JobState.AWAITING_APPROVAL, None)
    assert [target.state for target in world.targets(request)] == [TargetState.AWAITING_APPROVAL]
    assert len(_versions(world)) == 1


def test_a_job_cancelled_before_its_approval_fails_its_targets(world: World) -> None:
    """Nobody decided, and nobody will."""
    world.dataset()
    world.trained(publish_when="approved")
    request = world.request(1)
    job = world.carry_out()
    jobs.request_cancel(world.session, job.id, world.caller("operator"), "superfluous")
    world.settle(job)
    assert [target.state for target in world.targets(request)] == [TargetState.FAILED]
    assert request.state is RequestState.PARTLY_COMPLETED
