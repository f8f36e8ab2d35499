"""States change along drawn lines only, each change on record."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, make_transient

from app.tables import (
    AuditEntry,
    DatasetVersion,
    DeletionRequest,
    Job,
    JobKind,
    JobState,
    ModelVersion,
    Target,
    WebhookDelivery,
)
from app.tables.base import IllegalTransition, Stateful
from tests.fixtures.world import World

_KINDS: tuple[type[Stateful], ...] = (
    DatasetVersion,
    DeletionRequest,
    Job,
    ModelVersion,
    Target,
    WebhookDelivery,
)
_FINAL = {
    "DatasetVersion": {"failed", "retired"},
    "DeletionRequest": {"completed", "denied", "cancelled"},
    "Job": {"done", "failed", "cancelled", "superseded"},
    "ModelVersion": {"failed", "purged"},
    "Target": {"completed", "already_absent", "retired"},
    "WebhookDelivery": {"delivered", "gave_up"},
}
_JOB_MOVES: dict[str, Callable[[Job], None]] = {
    "running": lambda job: job.start(actor="a"),
    "queued": lambda job: job.requeue("r", actor="a"),
    "waiting": lambda job: job.wait("r", actor="a"),
    "audited": lambda job: job.finish_computing(actor="a"),
    "awaiting_approval": lambda job: job.await_approval("r", actor="a"),
    "done": lambda job: job.finish("r", actor="a"),
    "failed": lambda job: job.fail("r", actor="a"),
    "cancelled": lambda job: job.cancel("r", actor="a"),
    "superseded": lambda job: job.supersede("r", actor="a"),
}


def _job(session: Session, state: StrEnum) -> Job:
    job = Job(kind=JobKind.TRAIN, state=state, parameters={}, seed=0, created_by="test")
    session.add(job)
    session.flush()
    return job


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: kind.__name__)
def test_every_state_has_its_lines(kind: type[Stateful]) -> None:
    """The table names each state once, and the final ones are those of the design."""
    (states,) = {type(state) for state in kind.MOVES}
    assert set(kind.MOVES) == set(states.__members__.values())
    assert {state.value for state, moves in kind.MOVES.items() if not moves} == _FINAL[kind.__name__]


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: kind.__name__)
def test_every_state_can_end(kind: type[Stateful]) -> None:
    """From each state some line leads on to a final one."""
    ends = {state for state, moves in kind.MOVES.items() if not moves}
    for _ in kind.MOVES:
        ends |= {state for state, moves in kind.MOVES.items() if moves & ends}
    assert ends == set(kind.MOVES)


@pytest.mark.parametrize("to", _JOB_MOVES)
@pytest.mark.parametrize("start", JobState)
def test_a_job_moves_along_its_lines_only(session: Session, start: JobState, to: str) -> None:
    """What is not drawn is refused and changes nothing."""
    job = _job(session, start)
    if JobState(to) in Job.MOVES[start]:
        _JOB_MOVES[to](job)
        assert job.state == to
        assert (job.finished_at is not None) == job.is_final
    else:
        with pytest.raises(IllegalTransition):
            _JOB_MOVES[to](job)
        assert (job.state, job.reason) == (start, None)


def test_a_change_is_recorded_with_actor_and_reason(session: Session) -> None:
    """And the row shows the newest reason."""
    job = _job(session, JobState.RUNNING)
    job.fail("out of memory", actor="worker")
    session.flush()
    entry = session.scalars(select(AuditEntry)).one()
    assert (entry.actor, entry.action, entry.reason) == ("worker", "running->failed", "out of memory")
    assert (entry.entity, entry.entity_id) == ("Job", str(job.id))
    assert job.reason == "out of memory"


def test_no_state_changes_outside_a_session(session: Session) -> None:
    """A change that could not be recorded does not happen silently."""
    job = _job(session, JobState.QUEUED)
    make_transient(job)
    with pytest.raises(RuntimeError):
        job.start(actor="worker")


def test_the_database_knows_the_states_too(world: World) -> None:
    """A state that does not exist cannot be written past the application."""
    job = _job(world.session, JobState.QUEUED)
    with pytest.raises(IntegrityError):
        world.session.execute(text("UPDATE jobs SET state = 'asleep' WHERE id = :id"), {"id": job.id})
