"""How ready a version is for deletions: asking for the measurement, and reading what it found."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.errors import Conflict, NotFound
from app.jobs import service as jobs
from app.registry import service, shadows
from app.registry.schemas import NewReadiness, ReadinessView
from app.tables import Job, JobKind, JobState, Model, ModelVersion


def start(session: Session, model: Model, version: ModelVersion, new: NewReadiness, *, actor: str) -> Job:
    """Queue the measurement.

    Raises:
        Conflict: the model was retired, or the version has no weights or no row left.
    """
    service.refuse_retired(model)
    if version.weights is None or not len(shadows.remaining(session, version)):
        raise Conflict("Only of a version with weights and rows can readiness be measured.")
    job = Job(
        kind=JobKind.READINESS,
        model_id=model.id,
        version_id=version.id,
        dataset_version_id=version.dataset_version_id,
        parameters={"rows": new.rows, "iterations": new.iterations},
        seed=new.seed,
        created_by=actor,
    )
    return jobs.queue(session, job)


def view(session: Session, version: ModelVersion) -> ReadinessView:
    """The newest measurement that did not fail. Raises NotFound if there was none."""
    query = select(Job).where(
        Job.kind == JobKind.READINESS,
        Job.version_id == version.id,
        Job.state.not_in((JobState.FAILED, JobState.CANCELLED)),
    )
    job = session.scalar(query.order_by(Job.ordinal.desc()).limit(1))
    if job is None:
        raise NotFound("The version's readiness was not measured.")
    return ReadinessView(job_id=job.id, state=job.state, figures=(job.outcome or {}).get("figures"))
