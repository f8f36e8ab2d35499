"""Audits that compare with several networks, computed for real: they ask, wait, and resume."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from sqlalchemy import func, select

from app.config import Settings
from app.db import transaction
from app.deletions.schemas import NewItem, NewRequest
from app.jobs import service as jobs
from app.jobs.params import TrainingRecipe
from app.registry import references, shadows
from app.registry import service as registry
from app.registry.schemas import NewShadows, Training
from app.tables import Job, JobKind, JobState, ModelVersion, ReferenceNetwork
from models_store.blobs import BlobStore
from tests.fixtures.world import World
from tests.workers.conftest import take
from workers import auditing, examination, run, shadowing
from workers.answers import Answers
from workers.auditing import audit
from workers.monitor import Monitor
from workers.nets.network import Network
from workers.spec import AuditOutcome, ShadowSpec, UnlearnSpec

Work = Callable[[JobKind], uuid.UUID]
_FINETUNE = {"method": "finetune", "parameters": {"steps": 3}}


def _planned(work: Work, budget: int, *ladder: Mapping[str, Any]) -> None:
    """Have a job planned that is to forget a person, with this budget, from a version that was trained."""
    _trained(work, budget, *ladder)
    with transaction() as session:
        _forget(World(session), "contributor-10")
        assert World(session).plan() == 1


def _trained(work: Work, budget: int, *ladder: Mapping[str, Any]) -> None:
    """Have a version trained, and an audit of its deletions with this budget."""
    with transaction() as session:
        World(session).register("digits")
    work(JobKind.INGEST)
    with transaction() as session:
        policy: dict[str, Any] = {
            "ladder": [*ladder, {"method": "retrain"}],
            "thresholds": {"utility_margin": 0.99},
        }
        model = World(session).model(audit_budget=budget, **policy)
        training = Training(dataset="digits", recipe=TrainingRecipe(epochs=1))
        registry.train(session, model, training, actor="test")
    work(JobKind.TRAIN)


def _forget(world: World, person: str) -> None:
    world.accept(NewRequest(dataset="digits", items=[NewItem(subject=person)]))


def _job(job_id: uuid.UUID) -> Job:
    with transaction() as session:
        job = jobs.get(session, job_id)
        session.expunge(job)
        return job


def _count(kind: JobKind) -> int:
    with transaction() as session:
        return session.scalars(select(func.count()).where(Job.kind == kind)).one()


def _references() -> list[str]:
    """The weights of all references, in the order of their numbers."""
    with transaction() as session:
        query = select(ReferenceNetwork.weights).order_by(ReferenceNetwork.number)
        return list(session.scalars(query))


def _die(lease: jobs.Lease, one_thread: Settings) -> None:
    """Compute the job until the worker dies, and return it to the queue."""
    with pytest.raises(KeyboardInterrupt):
        run.execute(lease, one_thread, threading.Event())
    with transaction() as session:
        jobs.give_back(session, lease, "its worker was lost")


def test_an_audit_compares_with_all_that_its_budget_buys(work: Work) -> None:
    """Five trainings: four references and two shadows, which any worker trains; the method runs once."""
    _planned(work, 5, _FINETUNE)
    job_id = work(JobKind.UNLEARN)
    waiting = _job(job_id)
    assert (waiting.state, _count(JobKind.REFERENCE), _count(JobKind.SHADOW)) == (JobState.WAITING, 4, 2)
    for kind in [JobKind.SHADOW, *[JobKind.REFERENCE] * 4, JobKind.SHADOW]:
        assert _job(job_id).state is JobState.WAITING
        work(kind)
    assert work(JobKind.UNLEARN) == job_id
    done = _job(job_id)
    assert (done.state, done.attempt) == (JobState.DONE, 1)
    before, after = waiting.outcome or {}, done.outcome or {}
    assert after["unlearned"] == before["unlearned"]
    assert after["spec"]["references"] == _references()
    assert len(set(_references())) == 4
    with transaction() as session:
        assert World(session).aliased(done.model_id or job_id).weights == _references()[0]
        version = session.get_one(ModelVersion, done.version_id)
        pool = [shadows.opened(session, kept) for kept in shadows.networks(session, version, 0.5)]
        assert after["spec"]["shadows"] == [
            {"weights": shadow.kept.weights, "rows": shadow.rows.digest} for shadow in pool
        ]


def test_an_interrupted_audit_goes_on_with_the_same_networks(
    work: Work, one_thread: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was trained meanwhile: the same figures to the last bit, and nothing is trained for them."""
    _planned(work, 5, _FINETUNE)
    work(JobKind.UNLEARN)
    for kind in [JobKind.REFERENCE] * 4 + [JobKind.SHADOW]:
        work(kind)
    with transaction() as session:
        jobs.fail(session, take(JobKind.SHADOW), "out of memory")
    _settle_failed()
    found: list[tuple[UnlearnSpec, AuditOutcome]] = []

    def dies(spec: UnlearnSpec, store: BlobStore, monitor: Monitor, *, known: Answers) -> AuditOutcome:
        found.append((spec, audit(spec, store, monitor, known=known)))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(auditing, "audit", dies)
        _die(take(JobKind.UNLEARN), one_thread)
    with transaction() as session:  # somebody asks for the shadow that is lacking, and for more
        version = session.query(ModelVersion).one()
        shadows.extend(session, registry.get(session, "net"), version, NewShadows(networks=3), actor="me")
    work(JobKind.SHADOW)
    work(JobKind.SHADOW)
    trained = _count(JobKind.SHADOW)
    job = _job(work(JobKind.UNLEARN))
    ((spec, audited),) = found
    outcome = job.outcome or {}
    assert len(spec.references) == 4
    assert outcome["spec"]["references"] == list(spec.references)
    assert [shadow["weights"] for shadow in outcome["spec"]["shadows"]] == [
        shadow.weights for shadow in spec.shadows
    ]
    assert _timeless(outcome["figures"]) == _timeless(audited.figures)
    assert outcome["blobs"] == audited.blobs
    assert _count(JobKind.SHADOW) == trained


def test_an_audit_with_shadows_is_resumed_where_it_was(
    work: Work, one_thread: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool from before the deletion: half of its networks learned F; no answer is lost."""
    _trained(work, 8, _FINETUNE)
    with transaction() as session:
        version = session.query(ModelVersion).one()
        shadows.extend(session, registry.get(session, "net"), version, NewShadows(networks=8), actor="me")
    for _ in range(8):
        work(JobKind.SHADOW)
    with transaction() as session:
        _forget(World(session), "contributor-10")
        World(session).plan()
    work(JobKind.UNLEARN)
    for _ in range(4):
        work(JobKind.REFERENCE)
    unlearned: list[ShadowSpec] = []
    unlearn = shadowing.Bench._unlearned

    def fragile(bench: shadowing.Bench, shadow: ShadowSpec) -> Network:
        unlearned.append(shadow)
        if len(unlearned) == 4:
            raise KeyboardInterrupt
        return unlearn(bench, shadow)

    monkeypatch.setattr(shadowing.Bench, "_unlearned", fragile)
    _die(take(JobKind.UNLEARN), one_thread)

    def never(*_arguments: object, **_named: object) -> None:
        raise AssertionError("a network was asked again")

    monkeypatch.setattr(examination, "all_answers", never)
    resumed = _job(work(JobKind.UNLEARN)).outcome or {}
    assert [shadow.weights for shadow in unlearned].count(unlearned[3].weights) == 2
    assert len(unlearned) == 9
    attack = resumed["figures"]["shadow_attack"]
    assert attack["shadows"] == 8
    assert attack["ulira"] is not None
    assert attack["rows"]["forget"] > 10
    assert attack["rows"]["holdout"] > 10


def test_a_worker_that_dies_before_it_waits_has_nothing_trained_twice(
    work: Work, one_thread: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one finds the method's result, and the jobs that were queued; one of them has ended."""
    _planned(work, 2, _FINETUNE)

    def dies(*_arguments: object) -> None:
        raise KeyboardInterrupt

    lease = take(JobKind.UNLEARN)
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "wait_for", dies)
        _die(lease, one_thread)
    before = _job(lease.job_id).outcome or {}
    assert _count(JobKind.REFERENCE) == 2
    work(JobKind.REFERENCE)
    assert _job(work(JobKind.UNLEARN)).state is JobState.WAITING
    work(JobKind.REFERENCE)
    done = _job(work(JobKind.UNLEARN))
    assert (done.state, _count(JobKind.REFERENCE)) == (JobState.DONE, 2)
    assert (done.outcome or {})["unlearned"] == before["unlearned"]
    assert (done.outcome or {})["spec"]["references"] == _references()


def test_a_reference_that_failed_is_done_without(work: Work) -> None:
    """The audit goes on with the others, and asks for none again."""
    _planned(work, 3, _FINETUNE)
    job_id = work(JobKind.UNLEARN)
    with transaction() as session:
        jobs.fail(session, take(JobKind.REFERENCE), "diverged")
    _settle_failed()
    work(JobKind.REFERENCE)
    assert _job(job_id).state is JobState.WAITING
    work(JobKind.REFERENCE)
    done = _job(work(JobKind.UNLEARN))
    assert (done.state, _count(JobKind.REFERENCE)) == (JobState.DONE, 3)
    assert len(_references()) == 2
    assert (done.outcome or {})["spec"]["references"] == _references()


def test_a_deletion_while_references_train_has_the_job_start_over(work: Work) -> None:
    """One that is there is of no use, one that is queued is not trained; both are asked for anew."""
    _planned(work, 2, _FINETUNE)
    job_id = work(JobKind.UNLEARN)
    work(JobKind.REFERENCE)
    before = _job(job_id)
    with transaction() as session:
        _forget(World(session), "contributor-11")
    late = _job(work(JobKind.REFERENCE))
    assert (late.state, late.reason, late.outcome) == (JobState.FAILED, references.OUTDATED, None)
    assert work(JobKind.UNLEARN) == job_id
    again = _job(job_id)
    assert (again.state, _count(JobKind.REFERENCE)) == (JobState.WAITING, 4)
    assert again.forget_digest != before.forget_digest
    assert (again.outcome or {})["unlearned"]["weights"] != (before.outcome or {})["unlearned"]["weights"]
    work(JobKind.REFERENCE)
    work(JobKind.REFERENCE)
    done = _job(work(JobKind.UNLEARN))
    assert done.state is JobState.DONE
    with transaction() as session:
        kept = references.of(session, done.version_id or job_id, done.rows_digest or "", most=4)
        assert (done.outcome or {})["spec"]["references"] == [network.weights for network in kept]
    assert len(kept) == 2


def test_an_exact_method_waits_for_nothing(work: Work) -> None:
    """It is its own yardstick, whatever the budget."""
    _planned(work, 9)
    done = _job(work(JobKind.UNLEARN))
    assert done.state is JobState.DONE
    assert (_count(JobKind.REFERENCE), _count(JobKind.SHADOW)) == (0, 0)


def _settle_failed() -> None:
    """What the publisher does with the job that has failed."""
    with transaction() as session:
        query = select(Job).filter_by(state=JobState.FAILED, settled_at=None)
        World(session).settle(session.scalars(query).one())


def _timeless(figures: object) -> object:
    """The figures without the seconds that things took."""
    if isinstance(figures, Mapping):
        return {name: _timeless(value) for name, value in figures.items() if name != "seconds"}
    if isinstance(figures, list | tuple):
        return [_timeless(value) for value in figures]
    return figures
