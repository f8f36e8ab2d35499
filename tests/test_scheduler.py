"""One loop that moves everything on, whatever fails in it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import redis
from celery import Celery
from sqlalchemy import create_engine, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from app import scheduler
from app.config import Settings
from app.db import transaction
from app.embedded import redis_url
from app.events import service as events
from app.jobs import service as jobs
from app.registry import policies
from app.scheduler import Scheduler
from app.tables import DeletionRequest, Job, JobKind, JobState, OutboxMessage, RequestState
from tests.fixtures.world import World

_PATIENCE_SECONDS = 10


@pytest.fixture
def working(live_database: str, broker_url: str, configure: Callable[..., Settings]) -> Scheduler:
    """A scheduler of the live database and the real broker."""
    return Scheduler(configure(broker_url=broker_url))


def _registered(world: World) -> Job:
    """The queued job of a registration."""
    world.register()
    return world.next_job(JobKind.INGEST)


def _queued(broker: str) -> int:
    """How many messages wait for workers."""
    with redis.Redis.from_url(redis_url(broker)) as client:
        return int(client.llen("jobs"))


def _unpublished(url: str) -> int:
    with transaction(url) as session:
        return len(events.unpublished(session, 1000))


def test_a_turn_after_turn_carries_a_request_out(working: Scheduler, live_database: str) -> None:
    """Planned, woken, settled: nothing else has to be called."""
    with transaction(live_database) as session:
        world = World(session)
        world.dataset()
        world.trained()
        request_id = world.request(1).id
    working.turn()
    with transaction(live_database) as session:
        world = World(session)
        world.compute(world.next_job())
    working.turn()
    with transaction(live_database) as session:
        assert session.get_one(DeletionRequest, request_id).state is RequestState.COMPLETED


def test_a_turn_wakes_a_worker_by_the_jobs_id(
    working: Scheduler, live_database: str, broker_url: str
) -> None:
    """The message holds that and nothing else; once it is handed over it is not sent again."""
    with transaction(live_database) as session:
        job_id = _registered(World(session)).id
    working.turn()
    working.turn()
    assert _queued(broker_url) == 1
    with redis.Redis.from_url(redis_url(broker_url)) as client:
        (message,) = client.lrange("jobs", 0, -1)
    assert str(job_id).encode() in message
    assert _unpublished(live_database) == 0


def test_what_may_wait_lets_everything_else_pass(
    working: Scheduler, live_database: str, broker_url: str
) -> None:
    """A worker gets the registration first, though many shadows were queued before it."""
    with transaction(live_database) as session:
        for number in range(3):
            parameters = {"number": number}
            jobs.queue(session, Job(kind=JobKind.SHADOW, parameters=parameters, seed=0, created_by="test"))
    working.turn()
    with transaction(live_database) as session:
        job_id = _registered(World(session)).id
    working.turn()
    with Celery(broker=broker_url).connection() as connection:
        inbox = connection.SimpleQueue("jobs")
        received = [inbox.get(timeout=5) for _ in range(4)]
    assert [str(job_id) in str(message.payload) for message in received] == [True, False, False, False]


def test_an_unreachable_broker_loses_no_message(
    working: Scheduler, live_database: str, broker_url: str, configure: Callable[..., Settings]
) -> None:
    """What could not be handed over is, when the broker is back; meanwhile nobody waits for it."""
    with transaction(live_database) as session:
        _registered(World(session))
    configure(broker_url="redis://127.0.0.1:1/0")
    started = time.monotonic()
    working.turn()
    assert time.monotonic() - started < 3
    assert _unpublished(live_database) == 1
    configure(broker_url=broker_url)
    working.turn()
    assert (_unpublished(live_database), _queued(broker_url)) == (0, 1)


def test_a_broker_that_lost_its_data_is_told_again(
    working: Scheduler, live_database: str, broker_url: str
) -> None:
    """The sweep wakes a worker for what has waited too long."""
    with transaction(live_database) as session:
        job_id = _registered(World(session)).id
    working.turn()
    with redis.Redis.from_url(redis_url(broker_url)) as client:
        client.flushall()
    with transaction(live_database) as session:
        World(session).age(session.get_one(Job, job_id), 1000)
    working.turn()
    assert _queued(broker_url) == 1


def test_a_lost_workers_job_is_queued_again(working: Scheduler, live_database: str, broker_url: str) -> None:
    """And a worker is woken for it in the same turn."""
    with transaction(live_database) as session:
        world = World(session)
        job = _registered(world)
        world.claim(job)
        world.age(job, 60)
        job_id = job.id
    working.turn()
    with transaction(live_database) as session:
        assert session.get_one(Job, job_id).state is JobState.QUEUED
    assert _queued(broker_url) == 2  # the registration's own message, and this one


def test_a_faulty_job_does_not_hold_up_others(working: Scheduler, live_database: str) -> None:
    """It is left for later; the jobs after it are settled in the same turn."""
    with transaction(live_database) as session:
        world = World(session)
        world.dataset("faces")
        world.dataset("other")
        world.trained("first")
        world.trained("second", "other")
        requests = [world.request(1).id, world.request(1, dataset="other").id]
        world.plan()
        broken, sound = session.scalars(
            select(Job).filter_by(state=JobState.QUEUED).order_by(Job.ordinal)
        ).all()
        for job in (broken, sound):
            world.compute(job)
        broken.outcome = {"figures": None}
        broken_id, sound_id = broken.id, sound.id
    working.turn()
    with transaction(live_database) as session:
        assert session.get_one(Job, broken_id).state is JobState.AUDITED
        assert session.get_one(Job, sound_id).state is JobState.DONE
        states = [session.get_one(DeletionRequest, request_id).state for request_id in requests]
    assert states == ["in_progress", "completed"]


def test_a_faulty_job_is_tried_again_after_a_while(
    working: Scheduler, live_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in every turn; but when its pause is over, and the fault with it, it is settled."""
    with transaction(live_database) as session:
        world = World(session)
        world.dataset()
        world.trained()
        world.request(1)
        world.plan()
        job = world.next_job()
        world.compute(job)
        job_id, outcome = job.id, job.outcome
        job.outcome = {"figures": None}
    working.turn()
    with transaction(live_database) as session:
        session.get_one(Job, job_id).outcome = outcome
    working.turn()
    with transaction(live_database) as session:
        assert session.get_one(Job, job_id).state is JobState.AUDITED
    monkeypatch.setattr(scheduler, "_RETRY_FAULTY_SECONDS", 0.0)
    working.turn()
    with transaction(live_database) as session:
        assert session.get_one(Job, job_id).state is JobState.DONE


def test_a_model_that_cannot_be_planned_does_not_hold_up_others(
    working: Scheduler, live_database: str
) -> None:
    """A policy that nobody understands any more stops its own model alone."""
    with transaction(live_database) as session:
        world = World(session)
        world.dataset()
        broken, sound = world.trained("first"), world.trained("second")
        world.request(1)
        body = policies.in_force(session, broken.model_id)
        body.body = {**body.body, "ladder": "of a release yet to come"}
        sound_id = sound.model_id
    working.turn()
    with transaction(live_database) as session:
        assert World(session).next_job().model_id == sound_id


def test_a_step_that_fails_does_not_keep_the_others_from_working(
    live_database: str, configure: Callable[..., Settings]
) -> None:
    """Without a broker the relay cannot work; everything else does."""
    working = Scheduler(configure(broker_url=""))
    with transaction(live_database) as session:
        world = World(session)
        world.dataset()
        world.trained()
        world.request(1)
    working.turn()
    with transaction(live_database) as session:
        assert World(session).next_job()
    assert _unpublished(live_database) > 0


def test_events_that_nobody_waits_for_are_marked(working: Scheduler, live_database: str) -> None:
    """Only wake-up calls go to the broker."""
    with transaction(live_database) as session:
        events.emit(session, "deletion_request.received", request_id="7")
    working.turn()
    with transaction(live_database) as session:
        assert session.scalars(select(OutboxMessage.published_at)).one() is not None


# --- several schedulers ----------------------------------------------------------------------------------


class _Counted(Scheduler):
    """A scheduler that counts its turns and does nothing in them."""

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self.turns = 0

    def turn(self) -> None:
        self.turns += 1


@dataclass
class _Shift:
    """A scheduler at work in a thread of its own, on a connection of its own."""

    scheduler: _Counted
    stop: threading.Event
    ended: Future[None]
    backend: int

    def has_worked(self) -> bool:
        """Whether it takes a turn before our patience ends."""
        before, until = self.scheduler.turns, time.monotonic() + _PATIENCE_SECONDS
        while self.scheduler.turns == before and time.monotonic() < until:
            time.sleep(0.005)
        return self.scheduler.turns > before

    def stands_by(self) -> bool:
        """Whether it takes no turn for a good many pauses."""
        before = self.scheduler.turns
        time.sleep(0.2)
        return self.scheduler.turns == before


@pytest.fixture
def shift(live_database: str, configure: Callable[..., Settings]) -> Iterator[Callable[[], _Shift]]:
    """A function that starts another scheduler on the same database."""
    config = configure(scheduler_seconds=0.01)
    engine, shifts = create_engine(live_database, poolclass=NullPool), list[_Shift]()
    with ThreadPoolExecutor() as pool:

        def start() -> _Shift:
            connection = engine.connect()
            backend = connection.scalar(text("SELECT pg_backend_pid()"))
            connection.rollback()
            working, stop = _Counted(config), threading.Event()

            def work() -> None:
                with connection:
                    scheduler._work(working, connection, stop)

            shifts.append(_Shift(working, stop, pool.submit(work), backend or 0))
            return shifts[-1]

        yield start
        for begun in shifts:
            begun.stop.set()


def test_of_two_schedulers_one_works(shift: Callable[[], _Shift]) -> None:
    """The other stands by, and takes over when the first one stops."""
    first = shift()
    assert first.has_worked()
    second = shift()
    assert second.stands_by()
    assert second.scheduler.turns == 0
    first.stop.set()
    first.ended.result()
    assert second.has_worked()


def test_a_scheduler_that_lost_its_connection_stops_working(
    shift: Callable[[], _Shift], live_database: str
) -> None:
    """Its lock is gone with it, so another may be at work by now."""
    first = shift()
    assert first.has_worked()
    second = shift()
    with create_engine(live_database, poolclass=NullPool).connect() as connection:
        connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": first.backend})
    with pytest.raises(OperationalError):
        first.ended.result(timeout=_PATIENCE_SECONDS)
    assert second.has_worked()


def test_a_scheduler_shows_that_it_lives(shift: Callable[[], _Shift], config: Settings) -> None:
    """From its first turn on, and not a minute after its last one, until another begins."""
    assert not scheduler.is_alive(config)
    first = shift()
    assert first.has_worked()
    assert scheduler.is_alive(config)
    first.stop.set()
    first.ended.result()
    then = time.time() - 61
    os.utime(config.var / "scheduler.alive", (then, then))
    assert not scheduler.is_alive(config)
    assert shift().has_worked()
    assert scheduler.is_alive(config)
