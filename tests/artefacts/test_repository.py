"""Which blobs the database needs, by what needs them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from sqlalchemy import select

from app.artefacts import repository
from app.db import transaction
from app.jobs import service as jobs
from app.registry import references, shadows
from app.registry import service as registry
from app.registry.schemas import NewShadows, Training
from app.tables import (
    DatasetVersion,
    Job,
    JobKind,
    JobState,
    Model,
    ModelVersion,
    ShadowNetwork,
    VersionState,
)
from tests.fixtures.artefacts import Cellar
from tests.fixtures.world import TRAIN, World


def _version(world: World) -> ModelVersion:
    return world.session.scalars(select(ModelVersion)).one()


def _unlearning(world: World) -> Job:
    """A planned unlearn job."""
    world.request(1)
    assert world.plan() == 1
    return world.next_job()


def _training(world: World) -> Job:
    """A queued train job."""
    model = world.session.scalars(select(Model)).one()
    return registry.train(world.session, model, Training(dataset="faces"), actor="trainer")


def _a_superseded_version(world: World, digest: str) -> None:
    version = _version(world)
    world.request(1)
    world.carry_out()
    assert version.state is VersionState.SUPERSEDED
    version.weights = digest


def _an_upload_that_is_validated(world: World, digest: str) -> None:
    version = _version(world)
    version.state, version.weights = VersionState.VALIDATING, digest


def _a_version_that_recorded_confidences(world: World, digest: str) -> None:
    version = _version(world)
    version.figures = {**version.figures, "memorisation": {"kind": "confidence", "proxy": digest}}


def _a_version_that_kept_its_trajectory(world: World, digest: str) -> None:
    version = _version(world)
    version.figures = {**version.figures, "trajectory": ["0" * 64, digest]}


def _a_reference_that_kept_its_trajectory(world: World, digest: str) -> None:
    _add_reference(world, {"weights": "0" * 64, "figures": {"seconds": 1.0, "trajectory": [digest]}})


def _a_reference(world: World, digest: str) -> None:
    _add_reference(world, {"weights": digest, "figures": {"seconds": 1.0}})


def _a_reference_that_recorded_confidences(world: World, digest: str) -> None:
    memorisation = {"kind": "confidence", "proxy": digest}
    _add_reference(world, {"weights": "0" * 64, "figures": {"seconds": 1.0, "memorisation": memorisation}})


def _add_reference(world: World, outcome: dict[str, object]) -> None:
    job = Job(kind=JobKind.REFERENCE, parameters={"number": 0}, seed=1, created_by="test")
    version = _version(world)
    job.version_id, job.rows_digest = version.id, version.rows_digest
    job.outcome = outcome
    world.session.add(job)
    world.session.flush()
    references.keep(world.session, job)
    jobs.settle(job)


def _an_estimate_of_memorisation(world: World, digest: str) -> None:
    version = _version(world)
    version.figures = {**version.figures, "memorisation": {"estimate": {"scores": digest}}}


def _a_shadow(world: World, digest: str) -> None:
    _add_shadow(world, _version(world), digest)


def _add_shadow(world: World, version: ModelVersion, digest: str) -> None:
    model = world.session.get_one(Model, version.model_id)
    shadows.extend(world.session, model, version, NewShadows(networks=2), actor="test")
    first, second = world.session.scalars(select(Job).filter_by(kind=JobKind.SHADOW).order_by(Job.ordinal))
    second.cancel("one is enough", actor="test")
    world.finish_shadow(first, TRAIN[:20], TRAIN)
    world.settle(first)
    world.session.scalars(select(ShadowNetwork)).one().weights = digest


def _a_manifest(world: World, digest: str) -> None:
    world.session.scalars(select(DatasetVersion)).one().manifest = digest


def _a_report(world: World, digest: str) -> None:
    world.request(1)
    world.report(world.carry_out()).blobs = {"margins.svg": digest}


def _the_parameters_of_a_queued_job(world: World, digest: str) -> None:
    job = _training(world)
    job.parameters = {**job.parameters, "start": [{"weights": digest}]}


def _the_checkpoint_of_a_running_job(world: World, digest: str) -> None:
    lease = world.claim(_training(world))
    jobs.keep_checkpoint(world.session, lease, digest=digest, fingerprint="f")


def _the_checkpoint_of_a_requeued_job(world: World, digest: str) -> None:
    lease = world.claim(_training(world))
    jobs.keep_checkpoint(world.session, lease, digest=digest, fingerprint="f")
    jobs.give_back(world.session, lease, "its worker was stopped", counts=False)


def _the_result_of_a_job_that_waits(world: World, digest: str) -> None:
    job = _unlearning(world)
    lease, _ = world.begin(job)
    reference = Job(kind=JobKind.REFERENCE, parameters={}, seed=1, created_by="test")
    result = {"unlearned": {"weights": digest}}
    jobs.wait_for(world.session, lease, [jobs.queue(world.session, reference).id], result, "waiting")


def _the_result_of_a_job_that_is_not_settled(world: World, digest: str) -> None:
    job = _training(world)
    lease = world.claim(job)
    jobs.finish_computing(world.session, lease, {"weights": digest, "figures": {}})


def _the_result_of_a_job_that_awaits_approval(world: World, digest: str) -> None:
    job = _unlearning(world)
    job.policy = {**(job.policy or {}), "publish_when": "approved"}
    lease, _ = world.begin(job)
    world.hand_in(job, lease)
    world.settle(job)
    assert job.state is JobState.AWAITING_APPROVAL
    job.outcome = {**(job.outcome or {}), "unlearned": {"weights": digest}}


Situation = Callable[[World, str], None]


NEEDS: list[tuple[Situation, str]] = [
    (_a_superseded_version, "model versions"),
    (_an_upload_that_is_validated, "model versions"),
    (_a_version_that_recorded_confidences, "memorisation of model versions"),
    (_a_reference, "reference networks"),
    (_a_reference_that_recorded_confidences, "memorisation of reference networks"),
    (_a_version_that_kept_its_trajectory, "trajectories of model versions"),
    (_a_reference_that_kept_its_trajectory, "trajectories of reference networks"),
    (_an_estimate_of_memorisation, "estimates of memorisation"),
    (_a_shadow, "shadow networks"),
    (_a_manifest, "data sets"),
    (_a_report, "reports"),
    (_the_parameters_of_a_queued_job, "parameters of unfinished jobs"),
    (_the_checkpoint_of_a_running_job, "checkpoints of unfinished jobs"),
    (_the_checkpoint_of_a_requeued_job, "checkpoints of unfinished jobs"),
    (_the_result_of_a_job_that_waits, "results of unfinished jobs"),
    (_the_result_of_a_job_that_is_not_settled, "results of unfinished jobs"),
    (_the_result_of_a_job_that_awaits_approval, "results of unfinished jobs"),
]


@pytest.mark.parametrize(("situation", "need"), NEEDS)
def test_what_is_needed_stays(world: World, cellar: Cellar, situation: Situation, need: str) -> None:
    """However old a blob is: while the database has use for it, it is kept, and the reason is given."""
    digest, unneeded = cellar.keep("needed"), cellar.keep("unneeded")
    situation(world, digest)
    world.session.flush()
    assert repository.needed(world.session, [digest, unneeded]) == {digest: need}
    cellar.collect()
    assert digest in cellar.digests
    assert unneeded not in cellar.digests


def _a_failed_upload(world: World, digest: str) -> None:
    version = world.train(world.model("wrong"), alias=None)
    version.state, version.weights = VersionState.FAILED, digest


def _a_purged_version(world: World, digest: str) -> None:
    version = world.train(world.model("erased"), alias=None)
    version.state, version.weights = VersionState.PURGED, digest


def _confidences_of_a_purged_version(world: World, digest: str) -> None:
    version = world.train(world.model("erased"), alias=None)
    version.state = VersionState.PURGED
    version.figures = {"memorisation": {"kind": "confidence", "proxy": digest}}


def _a_shadow_of_a_retired_model(world: World, digest: str) -> None:
    version = world.train(world.model("retired"))
    _add_shadow(world, version, digest)
    model = world.session.get_one(Model, version.model_id)
    registry.retire(world.session, model, actor="owner", reason="replaced")


def _a_shadow_of_a_deleted_row(world: World, digest: str) -> None:
    _add_shadow(world, _version(world), digest)
    world.request(TRAIN[0])
    world.carry_out()
    assert shadows.discard_replaced(world.session, actor="gc") == 1


def _a_reference_on_a_deleted_row(world: World, digest: str) -> None:
    _add_reference(world, {"weights": digest, "figures": {"seconds": 1.0}})
    world.request(TRAIN[0])
    assert references.discard_outdated(world.session, actor="gc") == 1


def _the_result_of_a_rung_that_did_not_publish(world: World, digest: str) -> None:
    job = _unlearning(world)
    world.compute(job, found=True)
    world.settle(job)
    assert job.state is JobState.SUPERSEDED
    job.outcome = {**(job.outcome or {}), "unlearned": {"weights": digest}}


def _the_checkpoint_of_a_cancelled_job(world: World, digest: str) -> None:
    job = _training(world)
    lease = world.claim(job)
    jobs.keep_checkpoint(world.session, lease, digest=digest, fingerprint="f")
    jobs.acknowledge_cancel(world.session, lease)
    world.settle(job)


def _the_checkpoint_of_a_failed_job(world: World, digest: str) -> None:
    job = _training(world)
    lease = world.claim(job)
    jobs.keep_checkpoint(world.session, lease, digest=digest, fingerprint="f")
    jobs.fail(world.session, lease, "diverged")
    world.settle(job)


@pytest.mark.parametrize(
    "situation",
    [
        _a_failed_upload,
        _a_purged_version,
        _confidences_of_a_purged_version,
        _a_shadow_of_a_retired_model,
        _a_shadow_of_a_deleted_row,
        _a_reference_on_a_deleted_row,
        _the_result_of_a_rung_that_did_not_publish,
        _the_checkpoint_of_a_cancelled_job,
        _the_checkpoint_of_a_failed_job,
    ],
)
def test_what_is_over_is_garbage(world: World, cellar: Cellar, situation: Situation) -> None:
    """What no version in the database offers and no job goes on from is not needed."""
    digest = cellar.keep("over")
    situation(world, digest)
    world.session.flush()
    assert repository.needed(world.session, [digest]) == {}
    cellar.collect()
    assert digest not in cellar.digests


def test_only_what_is_asked_for_is_told(world: World, cellar: Cellar) -> None:
    """The answer is about the digests in the question, however much else the database needs."""
    assert repository.needed(world.session, []) == {}
    assert repository.needed(world.session, ["0" * 64]) == {}
    assert set(repository.needed(world.session, cellar.digests)) == cellar.digests


def test_what_changes_hands_is_seen_all_the_time(live_database: str) -> None:
    """While results go from jobs to versions, each in one transaction, no look finds them nowhere."""
    digest = "ab" * 32
    with transaction(live_database) as session:
        world = World(session)
        world.dataset()
        version_id, job_id = world.trained().id, _training(world).id
        session.get_one(Job, job_id).outcome = {"weights": digest}

    def hand_over() -> None:
        for turn in range(150):
            with transaction(live_database) as session:
                published = turn % 2 == 0
                session.get_one(ModelVersion, version_id).weights = digest if published else None
                session.get_one(Job, job_id).settled_at = datetime.now(UTC) if published else None

    with ThreadPoolExecutor(1) as pool, transaction(live_database) as session:
        handing_over = pool.submit(hand_over)
        looks = 0
        while not handing_over.done():
            assert repository.needed(session, [digest]).keys() == {digest}
            looks += 1
        handing_over.result()
    assert looks > 10
