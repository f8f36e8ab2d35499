"""Whatever happens in whatever order: no deleted row stays in use, and every request comes to its end."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from sqlalchemy import select

from app.callers.service import Caller
from app.datasets import rows as row_sets
from app.deletions import planner
from app.deletions import service as deletions
from app.errors import Conflict
from app.jobs import service as jobs
from app.registry import service as registry
from app.registry.schemas import Training
from app.reports import publisher
from app.reports import service as reports
from app.tables import (
    Alias,
    DeletionRequest,
    Job,
    JobKind,
    JobState,
    ModelVersion,
    RequestState,
    Target,
    TargetState,
)
from tests.fixtures.world import World

_ENDS = (TargetState.COMPLETED, TargetState.ALREADY_ABSENT, TargetState.RETIRED)
_STEPS = 120
_ROUNDS = 60  # enough to carry out whatever is left
_MODELS = {"first": "not_failed", "second": "approved"}


@dataclass
class _Walk:
    """A walk through the life of two models, each step drawn by a seed."""

    world: World
    draw: random.Random
    desk: Caller
    officer: Caller
    steps: dict[str, Callable[[], None]] = field(init=False)

    def __post_init__(self) -> None:
        self.steps = {
            "request": self.request,
            "cancel": self.cancel,
            "retry": self.retry,
            "train": self.train,
            "move an alias": self.move_alias,
            "cancel a job": self.cancel_job,
            **self.service_steps(),
        }

    def service_steps(self) -> dict[str, Callable[[], None]]:
        """What the service does by itself, and the decisions it asks for."""
        return {"plan": self.plan, "compute": self.compute, "settle": self.settle, "decide": self.decide}

    def step(self) -> None:
        """One step; what the present state does not allow changes nothing."""
        name = self.draw.choice(list(self.steps))
        try:
            with self.world.session.begin_nested():
                self.steps[name]()
        except Conflict:
            pass

    def finish(self) -> None:
        """Let the service come to the end of everything that is open."""
        for _ in range(_ROUNDS):
            for act in (self.retry, *self.service_steps().values()):
                act()

    def request(self) -> None:
        self.world.request(*self.draw.sample(range(60), 2), by=self.desk)

    def cancel(self) -> None:
        if request := self._any_request(RequestState.RECEIVED):
            deletions.cancel(self.world.session, request.id, "a mistake", actor="desk")

    def retry(self) -> None:
        if request := self._any_request(RequestState.PARTLY_COMPLETED):
            deletions.retry(self.world.session, request.id, "once more", actor="desk")

    def train(self) -> None:
        model = registry.get(self.world.session, self.draw.choice(list(_MODELS)))
        alias = self.draw.choice(["production", "stable", None])
        registry.train(self.world.session, model, Training(dataset="faces", alias=alias), actor="trainer")

    def move_alias(self) -> None:
        versions = select(ModelVersion).order_by(ModelVersion.ordinal)
        version = self.draw.choice(self.world.session.scalars(versions).all())
        alias = self.draw.choice(["production", "stable"])
        registry.set_alias(self.world.session, version, alias, actor="desk", reason="try it")

    def cancel_job(self) -> None:
        if job := self._any_job(JobState.QUEUED, JobState.AWAITING_APPROVAL):
            jobs.request_cancel(self.world.session, job.id, self.officer, "not now")

    def plan(self) -> None:
        self.world.plan()

    def compute(self) -> None:
        if job := self._any_job(JobState.QUEUED):
            self.world.age(job, 1)  # whatever pause it has to make is over
            if job.kind is JobKind.TRAIN:
                self.world.finish_training(job)
            else:
                self._unlearn(job)

    def _unlearn(self, job: Job) -> None:
        lease = self.world.claim(job)
        work = planner.begin(self.world.session, job, actor=f"job {job.id}")
        if work is None:
            jobs.fail(self.world.session, lease, "nothing was left to forget")
        elif not len(work.retain):
            jobs.fail(self.world.session, lease, "every training row is to be forgotten")
        elif self.draw.random() < 0.1:
            jobs.fail(self.world.session, lease, "the loss is not a number")
        elif self.draw.random() < 0.1:
            jobs.give_back(self.world.session, lease, "its worker was stopped", counts=False)
        else:
            self.world.hand_in(job, lease, found=self.draw.random() < 0.3)

    def settle(self) -> None:
        self.world.session.flush()
        if job_id := publisher.next_to_settle(self.world.session, skip=()):
            publisher.settle(self.world.session, job_id)

    def decide(self) -> None:
        if job := self._any_job(JobState.AWAITING_APPROVAL):
            act = self.draw.choice([reports.approve, reports.approve, reports.reject])
            act(self.world.session, job.id, self.officer, "as drawn")

    def _any_request(self, state: RequestState) -> DeletionRequest | None:
        self.world.session.flush()
        query = select(DeletionRequest).filter_by(state=state).order_by(DeletionRequest.ordinal)
        found = self.world.session.scalars(query).all()
        return self.draw.choice(found) if found else None

    def _any_job(self, *states: JobState) -> Job | None:
        self.world.session.flush()
        query = select(Job).where(Job.state.in_(states)).order_by(Job.ordinal)
        found = self.world.session.scalars(query).all()
        return self.draw.choice(found) if found else None

    # --- what must always hold ----------------------------------------------------------------------------

    def check(self) -> None:
        """No version in use holds a deleted row for which nothing is to be done."""
        self.world.session.flush()
        for version in self._in_use():
            pending = [
                row_sets.of_request(self.world.session, request_id).get(version.dataset_version_id, ())
                for request_id in self.world.session.scalars(
                    select(Target.request_id).where(
                        Target.model_id == version.model_id, Target.state.not_in(_ENDS)
                    )
                )
            ]
            held = set(registry.tombstoned_rows_of(self.world.session, version))
            assert held <= {ordinal for rows in pending for ordinal in rows}

    def check_end(self) -> None:
        """Every request has ended well, and no version in use holds a deleted row."""
        self.world.session.flush()
        states = set(self.world.session.scalars(select(DeletionRequest.state)))
        assert states <= {RequestState.COMPLETED, RequestState.CANCELLED}
        for version in self._in_use():
            assert not len(registry.tombstoned_rows_of(self.world.session, version))

    def _in_use(self) -> list[ModelVersion]:
        named = select(Alias.version_id)
        return list(self.world.session.scalars(select(ModelVersion).where(ModelVersion.id.in_(named))))


@pytest.mark.parametrize("seed", range(2))
def test_every_request_ends_and_no_deleted_row_stays_in_use(world: World, seed: int) -> None:
    """Requests, cancellations, failures, trainings, roll backs and decisions, in an order drawn by a seed."""
    world.dataset()
    for name, publish_when in _MODELS.items():
        world.trained(name, publish_when=publish_when)
    walk = _Walk(world, random.Random(seed), world.caller("desk"), world.caller("officer"))
    for _ in range(_STEPS):
        walk.step()
        walk.check()
    walk.finish()
    walk.check_end()
