"""Registering versions that were trained elsewhere: from an uploaded file to a validated version."""

from __future__ import annotations

import uuid
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.datasets import rows as row_sets
from app.datasets import service as datasets
from app.datasets.matching import Matches, Named
from app.errors import FAULTS_SHOWN, Conflict, Faults
from app.jobs import service as jobs
from app.jobs.params import METHODS
from app.registry import fitness, policies, service, uploads
from app.registry.schemas import Registered, RowsByFile, RowsById, VersionUpload
from app.tables import (
    DatasetVersion,
    Job,
    JobKind,
    Model,
    ModelVersion,
    ReferenceNetwork,
    ShadowNetwork,
    VersionState,
)

_WITHOUT_RECIPE = (
    "Without a training recipe nothing can be retrained: `retrain` is not on this version's ladder, and no"
    " reference network can be made to compare with, so no verdict on it can be `pass`."
)
_WITHOUT_METHOD = (
    "The policy's ladder has only exact methods, which need a recipe: deletions from this version would fail."
)


def register(session: Session, model: Model, new: VersionUpload, *, actor: str) -> Registered:
    """A new version of the model, and the job that validates it.

    Raises:
        Invalid: the registration has faults, all of them named.
        Conflict: the model was retired.
    """
    service.refuse_retired(model)
    faults = Faults()
    _check_files(new, faults)
    dataset = fitness.fitting_dataset(session, new, faults)
    rows = _rows(session, new, dataset, faults) if dataset is not None else {}
    faults.raise_any()
    if dataset is None:
        raise ValueError("a registration without faults has a data set")
    version = service.reserve_version(session, model, new, dataset, actor=actor)
    job = Job(
        kind=JobKind.VALIDATE,
        model_id=model.id,
        version_id=version.id,
        dataset_version_id=dataset.id,
        parameters={"rows": rows, "alias": new.alias},
        seed=0,
        created_by=actor,
    )
    jobs.queue(session, job)
    version.job_id = job.id
    return Registered(
        model=model.name, version=version.number, job_id=job.id, notes=_notes(session, model, new)
    )


def _check_files(new: VersionUpload, faults: Faults) -> None:
    if not uploads.store().has(new.weights):
        faults.add("/weights", "no such file was uploaded: PUT it to /v1/weights/ first")
    if new.architecture.normalisation is None:
        faults.add(
            "/architecture/normalisation",
            "how the input was normalised must be given: mean and std, where the largest pixel is 1",
        )


def _rows(session: Session, new: VersionUpload, dataset: DatasetVersion, faults: Faults) -> dict[str, Any]:
    """What the job is told of the rows: a role, the digest of a set, or a file."""
    if isinstance(new.rows, RowsById):
        matches = Matches(session)
        matches.add([Named(place, None, name, None) for place, name in enumerate(new.rows.sample_ids)])
        matches.find_in([(dataset.id, dataset.dataset_id)])
        count, places = matches.unmatched(FAULTS_SHOWN)
        pointers = (f"/rows/sample_ids/{place}" for place in places)
        faults.add_counted(count, pointers, "the data set version has no such sample")
        return {"digest": row_sets.keep(session, matches.rows_of(dataset.id))}
    if isinstance(new.rows, RowsByFile):
        try:
            return {"file": datasets.inside_roots(new.rows.file)}
        except ValueError as reason:
            faults.add("/rows/file", str(reason))
            return {}
    return {"role": new.rows.split}


def _notes(session: Session, model: Model, new: VersionUpload) -> list[str]:
    if new.recipe is not None:
        return []
    ladder = policies.in_force(session, model.id).body["ladder"]
    is_stuck = all(METHODS[rung["method"]].exact for rung in ladder)
    return [_WITHOUT_RECIPE, *([_WITHOUT_METHOD] if is_stuck else [])]


def finish(session: Session, job: Job, *, actor: str) -> str:
    """Draw the consequences of a validation; what is to be said of the job's end.

    An alias that may not be moved to the version stays where it is.
    """
    service.lock_aliases(session)
    version = session.get_one(ModelVersion, job.version_id, with_for_update=True)
    outcome = job.outcome or {}
    if faults := outcome.get("faults"):
        reject(session, version, faults, actor=actor)
        return f"the upload has {len(faults)} faults: {faults[0]['detail']}"
    version.rows_digest = outcome["rows_digest"]
    version.figures = outcome["figures"]
    version.become_ready(actor=actor)
    session.flush()
    alias = job.parameters["alias"]
    if alias is None:
        return f"version {version.number}"
    try:
        service.set_alias(session, version, alias, actor=job.created_by, reason="registered for this alias")
    except Conflict as refusal:
        return f"version {version.number}, but the alias {alias} was not moved to it: {refusal.detail}"
    return f"version {version.number}"


def reject(session: Session, version: ModelVersion, faults: list[dict[str, str]], *, actor: str) -> None:
    """The upload cannot be used: say why, and leave nothing of it but that."""
    version.faults = faults
    weights, version.weights = version.weights, None
    version.fail(f"{len(faults)} faults", actor=actor)
    session.flush()
    if weights is not None and not _is_needed(session, weights):
        uploads.store().delete(weights)


def _is_needed(session: Session, weights: str) -> bool:
    """Whether another version, a reference or a shadow has this very file."""
    versions = (
        select(func.count())
        .select_from(ModelVersion)
        .where(ModelVersion.weights == weights, ModelVersion.state != VersionState.FAILED)
    )
    others = [
        select(func.count()).select_from(kind).where(kind.weights == weights)
        for kind in (ReferenceNetwork, ShadowNetwork)
    ]
    return any(session.scalars(query).one() for query in (versions, *others))


def end_without_result(session: Session, job: Job, *, actor: str) -> None:
    """The validating job failed or was cancelled: its version cannot be used."""
    version: ModelVersion | None = session.get(ModelVersion, _version_id(job), with_for_update=True)
    if version is not None and version.state is VersionState.VALIDATING:
        reject(session, version, [{"at": "job", "detail": f"its job ended: {job.reason}"}], actor=actor)


def _version_id(job: Job) -> uuid.UUID:
    if job.version_id is None:
        raise ValueError("a validating job names its version")
    return job.version_id
