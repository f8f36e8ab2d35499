"""A job that wants a reference, computed for real: it waits, audits, and the reference is published."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from app.config import Settings
from app.db import transaction
from app.deletions.schemas import NewItem, NewRequest
from app.jobs import service as jobs
from app.jobs.params import TrainingRecipe
from app.registry import service as registry
from app.registry.schemas import Training
from app.tables import (
    Artefact,
    DeletionRequest,
    Job,
    JobKind,
    JobState,
    ModelVersion,
    ReferenceNetwork,
    RequestState,
)
from models_store.blobs import BlobStore
from tests.fixtures.world import World
from workers.training.confidence import scores


def test_a_job_waits_for_its_reference_which_is_published(
    work: Callable[[JobKind], uuid.UUID], config: Settings
) -> None:
    """The method runs once, the audit compares with the reference, and its weights are those in use."""
    with transaction() as session:
        World(session).register("digits")
    work(JobKind.INGEST)
    with transaction() as session:
        ladder = [{"method": "finetune", "parameters": {"steps": 5}}, {"method": "retrain"}]
        # Two epochs teach little, and to each network something else: usefulness is not what is tested.
        useful = {"utility_margin": 0.99}
        model = World(session).model(audit_budget=1, ladder=ladder, thresholds=useful)
        training = Training(dataset="digits", recipe=TrainingRecipe(epochs=2))
        registry.train(session, model, training, actor="test")
        model_id = model.id
    work(JobKind.TRAIN)
    with transaction() as session:
        world = World(session)
        items = [NewItem(subject="contributor-10"), NewItem(subject="contributor-11")]
        request_id = world.accept(NewRequest(dataset="digits", items=items)).id
        assert world.plan() == 1

    job_id = work(JobKind.UNLEARN)
    with transaction() as session:
        assert session.get_one(Job, job_id).state is JobState.WAITING
    reference_id = work(JobKind.REFERENCE)
    assert work(JobKind.UNLEARN) == job_id

    with transaction() as session:
        world = World(session)
        job = jobs.get(session, job_id)
        assert (job.state, job.attempt) == (JobState.DONE, 1)
        figures = (job.outcome or {})["figures"]
        assert set(figures["accuracy"]) == {"original", "unlearned", "reference"}
        reference = session.query(ReferenceNetwork).filter_by(job_id=reference_id).one()
        version = world.aliased(model_id)
        assert (version.origin, version.weights) == ("retrained", reference.weights)
        assert version.figures["memorisation"] == reference.figures["memorisation"]
        assert BlobStore(config.store).has(version.weights or "")
        assert session.get_one(DeletionRequest, request_id).state is RequestState.COMPLETED


def test_a_retrained_network_has_confidences_of_its_own_rows(
    work: Callable[[JobKind], uuid.UUID], config: Settings
) -> None:
    """The new version's figures name them, and they are noted as derived from the rows that remain."""
    with transaction() as session:
        World(session).register("digits")
    work(JobKind.INGEST)
    with transaction() as session:
        useful = {"utility_margin": 0.99}
        model = World(session).model(ladder=[{"method": "retrain"}], thresholds=useful)
        model_id = model.id
        registry.train(
            session, model, Training(dataset="digits", recipe=TrainingRecipe(epochs=1)), actor="test"
        )
    work(JobKind.TRAIN)
    with transaction() as session:
        world = World(session)
        world.accept(NewRequest(dataset="digits", items=[NewItem(subject="contributor-10")]))
        assert world.plan() == 1
    job_id = work(JobKind.UNLEARN)
    with transaction() as session:
        version = World(session).aliased(model_id)
        rows, proxy = registry.rows_of(session, version), version.figures["memorisation"]["proxy"]
        noted = {artefact.name: artefact for artefact in session.query(Artefact).filter_by(job_id=job_id)}
        assert (version.origin, version.job_id) == ("retrained", job_id)
        assert version.figures["memorisation"]["rows"] == version.rows_digest
        assert noted["confidence.safetensors"].digest == proxy
        assert noted["confidence.safetensors"].rows_digest == rows.digest
        assert ((found := scores(BlobStore(config.store).get(proxy), rows)) < 1).all()
        assert len(found) == len(rows)


def test_a_training_leaves_confidences_that_know_their_rows(
    work: Callable[[JobKind], uuid.UUID], config: Settings
) -> None:
    """The version's figures name them, and they are noted as derived from the rows it was trained on."""
    with transaction() as session:
        World(session).register("digits")
    work(JobKind.INGEST)
    with transaction() as session:
        training = Training(dataset="digits", recipe=TrainingRecipe(epochs=1))
        model_id = registry.train(session, World(session).model(), training, actor="test").model_id
    job_id = work(JobKind.TRAIN)
    with transaction() as session:
        version = session.query(ModelVersion).filter_by(model_id=model_id).one()
        noted = {artefact.name: artefact for artefact in session.query(Artefact).filter_by(job_id=job_id)}
        assert {artefact.rows_digest for artefact in noted.values()} == {version.rows_digest}
        proxy = version.figures["memorisation"]["proxy"]
        assert version.figures["memorisation"]["rows"] == version.rows_digest
        assert noted["confidence.safetensors"].digest == proxy
        found = scores(BlobStore(config.store).get(proxy), registry.rows_of(session, version))
        assert ((found > 0) & (found < 1)).all()
