"""The life of a job row, whoever dies and whenever."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.config import Settings
from app.db import transaction
from app.errors import Conflict, NotFound
from app.events import service as events
from app.jobs import service
from app.jobs.service import Lease, LeaseLost
from app.tables import Artefact, Job, JobKind, JobState, OutboxMessage
from tests.fixtures.concurrency import Others
from tests.fixtures.world import World, invented_digest


@pytest.fixture
def job(world: World) -> Job:
    """A queued job about nothing."""
    return _queue(world.session)


@pytest.fixture
def lease(job: Job, world: World) -> Lease:
    """A worker's lease on the job."""
    return world.claim(job)


def _queue(session: Session, **options: Any) -> Job:
    return service.queue(
        session, Job(kind=JobKind.REFERENCE, parameters={}, seed=0, created_by="test"), **options
    )


def _woken(session: Session) -> list[str]:
    session.flush()
    query = select(OutboxMessage).filter_by(topic=events.WAKE).order_by(OutboxMessage.id)
    return [message.payload["job_id"] for message in session.scalars(query)]


# --- the queue and the claim ---------------------------------------------------------------------------


def test_a_queued_job_wakes_a_worker(world: World, job: Job) -> None:
    """The message holds the job's ID, its queue and whether it may wait, and nothing else."""
    (message,) = world.session.scalars(select(OutboxMessage))
    expected = {"job_id": str(job.id), "queue": "jobs", "urgent": True}
    assert (message.topic, message.payload) == (events.WAKE, expected)
    assert world.changes(job.id) == [("test", "queued", None)]


@pytest.mark.parametrize("kind", JobKind)
def test_what_computes_much_waits_in_a_queue_of_its_own(
    world: World, configure: Callable[..., Settings], kind: JobKind
) -> None:
    """What needs no accelerator never stands behind it; without the setting there is one queue."""
    configure(compute_queue="gpu")
    light = kind in (JobKind.INGEST, JobKind.VALIDATE)
    job = service.queue(world.session, Job(kind=kind, parameters={}, seed=0, created_by="test"))
    assert job.queue == ("jobs" if light else "gpu")
    assert world.session.scalars(select(OutboxMessage)).one().payload["queue"] == job.queue


def test_a_delayed_job_waits(world: World) -> None:
    """Nobody is woken for it yet, and nobody may claim it yet."""
    job = _queue(world.session, delay_seconds=60)
    assert _woken(world.session) == []
    assert service.claim(world.session, job.id, worker="w", lease_seconds=30) is None


def test_a_claim_takes_the_job(world: World, job: Job) -> None:
    """It is running, under a lease with an owner, a token and an end."""
    lease = service.claim(world.session, job.id, worker="w", lease_seconds=30)
    assert lease == Lease(job.id, 1)
    assert (job.state, job.attempt, job.lease_owner) == (JobState.RUNNING, 1, "w")
    assert job.started_at is not None
    assert job.lease_expires_at is not None
    assert job.lease_expires_at > datetime.now(UTC) + timedelta(seconds=25)


def test_a_second_delivery_finds_the_job_claimed(world: World, job: Job, lease: Lease) -> None:
    """The same message twice is one run."""
    assert service.claim(world.session, job.id, worker="other", lease_seconds=30) is None
    assert job.lease_owner == "worker"


def test_a_job_that_is_not_there_cannot_be_claimed(world: World) -> None:
    """A message may outlive its database."""
    assert service.claim(world.session, uuid.uuid4(), worker="w", lease_seconds=30) is None


def test_of_many_claims_at_once_one_succeeds(others: Others) -> None:
    """Two deliveries to two machines are one run."""
    with transaction(others.url) as session:
        job_id = _queue(session).id

    def claim(session: Session) -> Lease | None:
        return service.claim(session, job_id, worker="w", lease_seconds=30)

    leases = [future.result() for future in [others.start(claim) for _ in range(8)]]
    assert [lease for lease in leases if lease is not None] == [Lease(job_id, 1)]


# --- writes under a lease ------------------------------------------------------------------------------


def _writes(session: Session, lease: Lease) -> dict[str, Callable[[], object]]:
    other = _queue(session)
    return {
        "heartbeat": partial(service.heartbeat, session, lease, lease_seconds=30),
        "held": partial(service.held, session, lease),
        "checkpoint": partial(service.keep_checkpoint, session, lease, digest="d", fingerprint="f"),
        "finish": partial(service.finish_computing, session, lease, {}),
        "wait": partial(service.wait_for, session, lease, [other.id], {}, "waiting"),
        "fail": partial(service.fail, session, lease, "broken"),
        "give back": partial(service.give_back, session, lease, "stopped"),
        "cancel": partial(service.acknowledge_cancel, session, lease),
        "progress": partial(
            service.report_progress, session, lease, phase="training", done=9, total=9, figures={}
        ),
    }


_WRITES = ["heartbeat", "held", "checkpoint", "finish", "wait", "fail", "give back", "cancel", "progress"]


@pytest.mark.parametrize("write", _WRITES)
def test_a_stale_token_writes_nothing(world: World, job: Job, lease: Lease, write: str) -> None:
    """A worker that was cut off and comes back finds its job in another's hands."""
    world.age(job, 60)
    service.take_back_expired(world.session, 10)
    current = world.claim(job)
    with pytest.raises(LeaseLost):
        _writes(world.session, lease)[write]()
    world.session.flush()
    assert (job.state, job.lease_token, job.outcome) == (JobState.RUNNING, current.token, None)
    assert service.progress_of(world.session, [job.id]) == {}


@pytest.mark.parametrize("write", _WRITES)
def test_an_ended_job_takes_no_more_writes(world: World, job: Job, lease: Lease, write: str) -> None:
    """Whoever held the lease has handed it in."""
    service.finish_computing(world.session, lease, {"weights": "w"})
    world.session.flush()
    with pytest.raises(LeaseLost):
        _writes(world.session, lease)[write]()
    assert (job.state, job.outcome) == (JobState.AUDITED, {"weights": "w"})


def test_a_heartbeat_prolongs_the_lease(world: World, job: Job, lease: Lease) -> None:
    """And says that nobody wants the job cancelled."""
    before = job.lease_expires_at
    assert service.heartbeat(world.session, lease, lease_seconds=300) is False
    world.session.refresh(job)
    assert before is not None
    assert job.lease_expires_at is not None
    assert job.lease_expires_at > before


def test_progress_is_one_row_overwritten(world: World, job: Job, lease: Lease) -> None:
    """However often it is written, the newest is what is shown."""
    for done in (1, 2):
        service.report_progress(
            world.session, lease, phase="training", done=done, total=9, figures={"loss": 0.5}
        )
    shown = service.progress_of(world.session, [job.id])[job.id]
    assert (shown.phase, shown.done, shown.total, shown.figures) == ("training", 2, 9, {"loss": 0.5})
    assert world.counts()["job_progress"] == 1


def test_progress_gets_through_while_the_job_is_held(others: Others) -> None:
    """A job that loads rows in one long transaction reports its progress from another."""
    with transaction(others.url) as session:
        lease = World(session).claim(_queue(session))
    report = partial(service.report_progress, lease=lease, phase="loading", done=1, total=2, figures={})
    with transaction(others.url) as session:
        service.held(session, lease)
        others.stuck(report).result(timeout=5)


def test_a_checkpoint_replaces_the_former(world: World, job: Job, lease: Lease) -> None:
    """The digest it replaces comes back, so that its blob can be dropped."""
    assert service.keep_checkpoint(world.session, lease, digest="one", fingerprint="f") is None
    assert service.keep_checkpoint(world.session, lease, digest="two", fingerprint="f") == "one"
    assert job.checkpoint == {"digest": "two", "fingerprint": "f"}


def test_a_blob_is_noted_with_the_rows_it_derives_from(world: World, job: Job, lease: Lease) -> None:
    """Noted twice, it is one row."""
    digest = invented_digest("weights")
    for _ in range(2):
        service.note_artefact(world.session, job, name="weights", digest=digest, rows_digest=None)
    (found,) = world.session.scalars(select(Artefact))
    assert (found.job_id, found.name, found.digest) == (job.id, "weights", digest)


def test_a_finished_computation_awaits_the_publisher(world: World, job: Job, lease: Lease) -> None:
    """The lease ends, and what was noted before stays in the outcome."""
    job.outcome = {"unlearned": "w"}
    service.finish_computing(world.session, lease, {"figures": {}})
    assert (job.state, job.lease_owner, job.lease_expires_at) == (JobState.AUDITED, None, None)
    assert job.outcome == {"unlearned": "w", "figures": {}}


def _end(session: Session, other: Job, *, well: bool = True) -> None:
    """What the publisher does when a job has ended."""
    if well:
        service.finish_computing(session, World(session).claim(other), {})
        other.finish(None, actor="publisher")
    else:
        service.fail(session, World(session).claim(other), "broken")
    service.wake_waiting(session, other)


def test_a_job_waits_for_others_without_a_worker(world: World, job: Job, lease: Lease) -> None:
    """When the last of them has ended, the job is queued again with all its attempts before it."""
    first, second = _queue(world.session), _queue(world.session)
    service.wait_for(world.session, lease, {first.id, second.id}, {"a": 1}, "waiting for references")
    assert (job.state, job.has_waited, job.lease_owner) == (JobState.WAITING, True, None)
    assert job.outcome == {"a": 1}
    assert service.waits_of(world.session, [job.id, first.id]) == {
        job.id: [first.id, second.id],
        first.id: [],
    }
    _end(world.session, second)
    assert job.state == "waiting"
    _end(world.session, first)
    assert (job.state, job.attempt, job.has_waited) == (JobState.QUEUED, 0, True)
    assert _woken(world.session).count(str(job.id)) == 2


def test_one_that_failed_has_ended(world: World, job: Job, lease: Lease) -> None:
    """Nothing more will come of it, whether or not the consequences were drawn."""
    first, second = _queue(world.session), _queue(world.session)
    service.wait_for(world.session, lease, [first.id, second.id], {}, "waiting")
    service.fail(world.session, world.claim(first), "broken")
    assert job.state == "waiting"
    _end(world.session, second, well=False)
    assert job.state is JobState.QUEUED
    service.wake_waiting(world.session, first)
    assert _woken(world.session).count(str(job.id)) == 2


def test_a_job_is_not_woken_by_another_ones_end(world: World, job: Job, lease: Lease) -> None:
    """It waits for certain jobs."""
    service.wait_for(world.session, lease, [_queue(world.session).id], {}, "waiting")
    _end(world.session, _queue(world.session))
    assert job.state == "waiting"


@pytest.mark.parametrize("well", [True, False])
def test_what_has_ended_before_is_not_waited_for(world: World, job: Job, lease: Lease, well: bool) -> None:
    """The job is queued at once if all have, and otherwise when the rest has."""
    over, live = _queue(world.session), _queue(world.session)
    _end(world.session, over, well=well)
    service.wait_for(world.session, lease, [over.id], {}, "waiting")
    assert (job.state, job.has_waited) == (JobState.QUEUED, True)
    service.wait_for(world.session, world.claim(job), [over.id, live.id], {}, "waiting")
    assert job.state == "waiting"
    _end(world.session, live)
    assert job.state is JobState.QUEUED


def test_what_was_waited_for_can_be_forgotten(world: World, job: Job, lease: Lease) -> None:
    """The job may then wait again, and for something else."""
    other = _queue(world.session)
    service.wait_for(world.session, lease, [other.id], {}, "waiting")
    service.forget_waits(world.session, job)
    assert (job.has_waited, service.waits_of(world.session, [job.id])) == (False, {job.id: []})


def _waiting(url: str, others: int) -> tuple[uuid.UUID, list[uuid.UUID]]:
    """A job that waits, and the jobs that it waits for, which run."""
    with transaction(url) as session:
        job, awaited = _queue(session), [_queue(session) for _ in range(others)]
        ids = [other.id for other in awaited]
        service.wait_for(session, World(session).claim(job), ids, {}, "waiting")
        return job.id, ids


def _end_by_id(session: Session, job_id: uuid.UUID) -> None:
    _end(session, service.locked(session, job_id))


def test_two_last_ones_that_end_at_once_wake_the_job(others: Others) -> None:
    """The second finds the job locked, waits, and sees that the first has ended too."""
    job_id, (first, second) = _waiting(others.url, 2)
    with transaction(others.url) as session:
        _end_by_id(session, first)
        assert service.get(session, job_id).state is JobState.WAITING
        late = others.stuck(partial(_end_by_id, job_id=second))
        assert not late.done()
    late.result()
    with transaction(others.url) as session:
        assert service.get(session, job_id).state is JobState.QUEUED
        assert _woken(session).count(str(job_id)) == 2


def test_many_that_end_at_once_wake_the_job_once(others: Others) -> None:
    """In whatever order they come."""
    job_id, awaited = _waiting(others.url, 8)
    for future in [others.start(partial(_end_by_id, job_id=other)) for other in awaited]:
        future.result()
    with transaction(others.url) as session:
        assert service.get(session, job_id).state is JobState.QUEUED
        assert _woken(session).count(str(job_id)) == 2


def test_one_that_ends_while_the_wait_is_noted_is_not_missed(others: Others) -> None:
    """The job waits for the end to be settled, and then finds that there is nothing to wait for."""
    with transaction(others.url) as session:
        lease = World(session).claim(_queue(session))
        other = _queue(session).id
    wait = partial(service.wait_for, lease=lease, others=[other], outcome={}, reason="waiting")
    with transaction(others.url) as session:
        _end_by_id(session, other)
        late = others.stuck(wait)
        assert not late.done()
    late.result()
    with transaction(others.url) as session:
        assert service.get(session, lease.job_id).state is JobState.QUEUED


def test_one_that_is_about_to_end_finds_the_job_waiting(others: Others) -> None:
    """The other way round: whoever settles the end waits until the wait is noted."""
    with transaction(others.url) as session:
        lease = World(session).claim(_queue(session))
        other = _queue(session).id
    with transaction(others.url) as session:
        service.wait_for(session, lease, [other], {}, "waiting")
        late = others.stuck(partial(_end_by_id, job_id=other))
        assert not late.done()
    late.result()
    with transaction(others.url) as session:
        assert service.get(session, lease.job_id).state is JobState.QUEUED


def test_a_job_that_another_begins_to_wait_for_can_be_claimed(others: Others) -> None:
    """Its worker is not sent away: the message would not come again soon."""
    with transaction(others.url) as session:
        lease = World(session).claim(_queue(session))
        other = _queue(session).id
    claim = partial(service.claim, job_id=other, worker="w", lease_seconds=30)
    with transaction(others.url) as session:
        service.wait_for(session, lease, [other], {}, "waiting")
        assert others.start(claim).result(timeout=5) == Lease(other, 1)


# --- workers that die ----------------------------------------------------------------------------------


def test_a_lost_workers_job_is_queued_again(world: World, job: Job, lease: Lease) -> None:
    """When the lease runs out the job goes back, at once after the first loss."""
    world.age(job, 60)
    assert service.take_back_expired(world.session, 10) == 1
    assert (job.state, job.reason, job.not_before) == (JobState.QUEUED, "its worker was lost", None)
    assert _woken(world.session).count(str(job.id)) == 2


def test_a_living_workers_job_is_left_alone(world: World, job: Job, lease: Lease) -> None:
    """A lease in force is not taken back."""
    assert service.take_back_expired(world.session, 10) == 0
    assert job.state is JobState.RUNNING


def test_each_loss_makes_the_pause_longer(world: World, job: Job) -> None:
    """And after the last attempt the job fails, saying how many were made."""
    pauses = []
    for _ in range(job.max_attempts):
        world.claim(job)
        world.age(job, 60)
        service.take_back_expired(world.session, 10)
        pauses.append((job.not_before - datetime.now(UTC)).total_seconds() if job.not_before else 0)
        world.age(job, 1000)
    assert job.state is JobState.FAILED
    assert job.reason == "its worker was lost; 5 attempts were made"
    assert [round(pause, -1) for pause in pauses[:4]] == [0, 0, 10, 60]
    assert pauses[0] == 0 < pauses[1]


def test_a_worker_that_is_stopped_costs_no_attempt(world: World, job: Job, lease: Lease) -> None:
    """An upgrade of the machines does not use up a job's attempts."""
    service.give_back(world.session, lease, "its worker was stopped", counts=False)
    assert (job.state, job.attempt, job.not_before) == (JobState.QUEUED, 0, None)


def test_a_process_that_died_costs_an_attempt(world: World, job: Job) -> None:
    """Out of memory five times is a failure."""
    for _ in range(job.max_attempts):
        service.give_back(world.session, world.claim(job), "its process was ended by SIGKILL")
        world.age(job, 1000)
    assert job.state is JobState.FAILED


def test_a_job_that_cannot_be_done_fails_at_once(world: World, job: Job, lease: Lease) -> None:
    """Another attempt would meet the same reason."""
    service.fail(world.session, lease, "the loss is not a number")
    assert (job.state, job.reason) == (JobState.FAILED, "the loss is not a number")
    assert job.finished_at is not None


# --- cancelling ----------------------------------------------------------------------------------------


def test_a_queued_job_is_cancelled_at_once(world: World, job: Job) -> None:
    """By whom and why is on record."""
    caller = world.caller("operator")
    service.request_cancel(world.session, job.id, caller, "not needed")
    assert (job.state, job.reason) == (JobState.CANCELLED, "not needed")
    assert (caller.actor, "queued->cancelled", "not needed") in world.changes(job.id)


def test_a_running_job_is_asked_to_stop(world: World, job: Job, lease: Lease) -> None:
    """Its worker learns of it with the next heartbeat, and closes the job in the caller's name."""
    caller = world.caller("operator")
    service.request_cancel(world.session, job.id, caller, "not needed")
    world.session.flush()
    assert job.state == "running"
    assert service.heartbeat(world.session, lease, lease_seconds=30) is True
    service.acknowledge_cancel(world.session, lease)
    assert job.state is JobState.CANCELLED
    actions = [(actor, action) for actor, action, _ in world.changes(job.id)]
    assert actions[-2:] == [(caller.actor, "cancel requested"), (caller.actor, "running->cancelled")]


def test_a_waiting_job_is_cancelled_at_once(world: World, job: Job, lease: Lease) -> None:
    """It holds no worker that would have to stop."""
    service.wait_for(world.session, lease, [_queue(world.session).id], {}, "waiting")
    service.request_cancel(world.session, job.id, world.caller(), "not needed")
    assert job.state is JobState.CANCELLED


def test_a_job_that_must_start_over_is_cancelled_if_somebody_asked_for_it(
    world: World, job: Job, lease: Lease
) -> None:
    """The wish came too late to stop the computation, but not to stop the next."""
    service.request_cancel(world.session, job.id, world.caller(), "not needed")
    service.finish_computing(world.session, lease, {})
    service.start_over(world.session, job, "rows were deleted while it trained")
    assert job.state is JobState.CANCELLED


@pytest.mark.parametrize("lost", ["lease", "process", "worker"])
def test_a_job_to_be_cancelled_is_not_run_again(world: World, job: Job, lease: Lease, lost: str) -> None:
    """Whatever becomes of its worker before it has stopped."""
    service.request_cancel(world.session, job.id, world.caller(), "not needed")
    if lost == "lease":
        world.age(job, 60)
        service.take_back_expired(world.session, 10)
    else:
        service.give_back(world.session, lease, "it died", counts=lost == "process")
    assert job.state is JobState.CANCELLED


def test_an_ended_job_cannot_be_cancelled(world: World, job: Job, lease: Lease) -> None:
    """Neither one that is over nor one whose result is about to be published."""
    service.finish_computing(world.session, lease, {})
    with pytest.raises(Conflict):
        service.request_cancel(world.session, job.id, world.caller(), "too late")
    job.finish(None, actor="publisher")
    with pytest.raises(Conflict):
        service.request_cancel(world.session, job.id, world.caller(), "too late")
    assert job.state is JobState.DONE


def test_a_job_that_is_not_there_is_not_found(world: World) -> None:
    """Neither to read nor to cancel."""
    with pytest.raises(NotFound):
        service.get(world.session, uuid.uuid4())
    with pytest.raises(NotFound):
        service.request_cancel(world.session, uuid.uuid4(), world.caller(), "why not")


# --- the sweep -----------------------------------------------------------------------------------------


def test_a_forgotten_job_wakes_a_worker_again(world: World, job: Job) -> None:
    """The broker may have lost the message."""
    assert service.wake_forgotten(world.session, after_seconds=20, limit=10) == 0
    world.age(job, 30)
    assert service.wake_forgotten(world.session, after_seconds=20, limit=10) == 1
    assert service.wake_forgotten(world.session, after_seconds=20, limit=10) == 0
    assert _woken(world.session) == [str(job.id)] * 2


@pytest.mark.parametrize("kind", [JobKind.SHADOW, JobKind.ESTIMATE])
def test_what_may_wait_is_not_woken_again_so_soon(world: World, kind: JobKind) -> None:
    """Hundreds of them may be queued for hours; the broker is spared their messages."""
    job = service.queue(world.session, Job(kind=kind, parameters={}, seed=0, created_by="test"))
    assert world.session.scalars(select(OutboxMessage)).one().payload["urgent"] is False
    world.age(job, 590)
    assert service.wake_forgotten(world.session, after_seconds=20, limit=10) == 0
    world.age(job, 610)
    assert service.wake_forgotten(world.session, after_seconds=20, limit=10) == 1


def test_a_delayed_job_wakes_a_worker_when_its_pause_is_over(world: World) -> None:
    """Not before, and then without waiting for the broker's patience."""
    job = _queue(world.session, delay_seconds=60)
    assert service.wake_forgotten(world.session, after_seconds=0, limit=10) == 0
    world.age(job, 1)
    assert service.wake_forgotten(world.session, after_seconds=20, limit=10) == 1
    assert world.claim(job)


def test_running_and_ended_jobs_are_not_woken(world: World, job: Job, lease: Lease) -> None:
    """Only what waits in the queue needs a worker."""
    world.age(job, 1000)
    assert service.wake_forgotten(world.session, after_seconds=20, limit=10) == 0


def test_ended_jobs_are_settled_oldest_first(world: World) -> None:
    """Each once, and those in trouble are passed over."""
    first, second = _queue(world.session), _queue(world.session)
    for job in (second, first):
        service.finish_computing(world.session, world.claim(job), {})
    world.session.flush()
    states = [JobState.AUDITED]
    assert service.unsettled(world.session, states, skip={}) == first.id
    assert service.unsettled(world.session, states, skip={first.id: 1.0}) == second.id
    service.settle(first)
    service.settle(second)
    assert service.unsettled(world.session, states, skip={}) is None
