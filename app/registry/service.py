"""Models: registered, trained, versioned, and named by aliases."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from app.datasets import rows as row_sets
from app.datasets import service as datasets
from app.errors import Conflict, Fault, Faults, Invalid, NotFound
from app.events import service as events
from app.jobs import service as jobs
from app.jobs.params import plain_data
from app.registry import fitness, policies
from app.registry.schemas import NewModel, Training, VersionUpload
from app.tables import (
    Alias,
    DatasetVersion,
    Job,
    JobKind,
    Model,
    ModelVersion,
    VersionState,
)
from models_store.rows import RowSet

_ALIASES = 0x616C6961  # the advisory lock between those who accept deletions and those who move aliases


def create(session: Session, new: NewModel, *, actor: str) -> Model:
    """Register a model. Raises Invalid, or Conflict if the name is taken."""
    if session.scalar(select(Model.id).where(Model.name == new.name)):
        raise Conflict("A model of this name is registered already.")
    model = Model(id=uuid.uuid4(), name=new.name, description=new.description, created_by=actor)
    session.add(model)
    session.flush()
    policies.set_policy(session, model, new.policy, actor=actor, at="/policy")
    events.record(session, actor=actor, action="created", entity="Model", entity_id=model.id)
    return model


def get(session: Session, name: str) -> Model:
    """The model of this name. Raises NotFound."""
    model = session.scalar(select(Model).where(Model.name == name))
    if model is None:
        raise NotFound
    return model


def refuse_retired(model: Model) -> None:
    """Raises Conflict if the model was retired."""
    if model.retired_at is not None:
        raise Conflict("The model was retired.")


def list_models(session: Session, *, after: int, limit: int, retired: bool | None = None) -> Sequence[Model]:
    """Models in the order they were registered; only those in force or only retired ones, if that is said."""
    query = select(Model).where(Model.ordinal > after)
    if retired is not None:
        query = query.where(Model.retired_at.is_not(None) if retired else Model.retired_at.is_(None))
    return session.scalars(query.order_by(Model.ordinal).limit(limit)).all()


def train(session: Session, model: Model, training: Training, *, actor: str) -> Job:
    """Queue a training.

    Raises:
        Invalid: the data set is not ready, or it cannot be learned so: all reasons are named.
        Conflict: the model was retired.
    """
    refuse_retired(model)
    faults = Faults()
    dataset = fitness.fitting_dataset(session, training, faults)
    faults.raise_any()
    if dataset is None:
        raise ValueError("a training without faults has a data set")
    job = Job(
        kind=JobKind.TRAIN,
        model_id=model.id,
        dataset_version_id=dataset.id,
        parameters={
            "architecture": plain_data(training.architecture),
            "recipe": plain_data(training.recipe),
            "alias": training.alias,
        },
        seed=training.seed,
        created_by=actor,
    )
    return jobs.queue(session, job)


@dataclass(frozen=True, kw_only=True)
class NewVersion:
    """What a new version is made of."""

    origin: str
    job: Job
    parent: ModelVersion | None
    dataset_version_id: uuid.UUID
    rows_digest: str
    architecture: Mapping[str, Any]
    recipe: Mapping[str, Any] | None
    weights: str
    figures: Mapping[str, Any]


def add_version(session: Session, model_id: uuid.UUID, new: NewVersion, *, actor: str) -> ModelVersion:
    """The model's next version, ready."""
    version = ModelVersion(
        id=uuid.uuid4(),
        model_id=model_id,
        number=_next_number(session, model_id),
        state=VersionState.READY,
        origin=new.origin,
        parent_id=new.parent.id if new.parent else None,
        job_id=new.job.id,
        dataset_version_id=new.dataset_version_id,
        rows_digest=new.rows_digest,
        architecture=dict(new.architecture),
        recipe=dict(new.recipe) if new.recipe is not None else None,
        weights=new.weights,
        figures=dict(new.figures),
    )
    return _added(session, version, actor)


def reserve_version(
    session: Session, model: Model, upload: VersionUpload, dataset: DatasetVersion, *, actor: str
) -> ModelVersion:
    """The model's next version, of an upload that is still to be validated."""
    version = ModelVersion(
        id=uuid.uuid4(),
        model_id=model.id,
        number=_next_number(session, model.id),
        state=VersionState.VALIDATING,
        origin="uploaded",
        dataset_version_id=dataset.id,
        architecture=plain_data(upload.architecture),
        recipe=plain_data(upload.recipe) if upload.recipe is not None else None,
        weights=upload.weights,
        figures={},
    )
    return _added(session, version, actor)


def _next_number(session: Session, model_id: uuid.UUID) -> int:
    """The number of the model's next version. Its row is locked, so numbers have no gaps and no twins."""
    # A weaker lock than FOR UPDATE, which would keep others from inserting rows that refer to the model.
    session.scalars(select(Model.id).where(Model.id == model_id).with_for_update(key_share=True)).one()
    return (session.scalar(select(func.max(ModelVersion.number)).filter_by(model_id=model_id)) or 0) + 1


def _added(session: Session, version: ModelVersion, actor: str) -> ModelVersion:
    session.add(version)
    session.flush()
    events.record(
        session,
        actor=actor,
        action="created",
        entity="ModelVersion",
        entity_id=version.id,
        number=version.number,
        origin=version.origin,
    )
    return version


def hold_aliases(session: Session) -> None:
    """Until this transaction ends no alias moves: a deletion being accepted must not be overtaken by one."""
    session.execute(select(func.pg_advisory_xact_lock_shared(_ALIASES)))


def lock_aliases(session: Session) -> None:
    """Until this transaction ends nobody else moves an alias or accepts a deletion.

    Whoever will move an alias calls this before anything that others may wait for.
    """
    session.execute(select(func.pg_advisory_xact_lock(_ALIASES)))


def aliased_versions(session: Session, dataset_version_ids: Sequence[uuid.UUID]) -> Sequence[ModelVersion]:
    """The versions, trained on one of these data set versions, that some alias names."""
    named = select(Alias.version_id)
    query = select(ModelVersion).where(
        ModelVersion.id.in_(named), ModelVersion.dataset_version_id.in_(dataset_version_ids)
    )
    return session.scalars(query.order_by(ModelVersion.ordinal)).all()


def is_aliased(session: Session, version: ModelVersion) -> bool:
    """Whether some alias names the version."""
    return session.scalar(select(Alias.name).where(Alias.version_id == version.id).limit(1)) is not None


def aliased_versions_of(session: Session, model_id: uuid.UUID) -> Sequence[ModelVersion]:
    """The versions of one model that some alias names, oldest first."""
    named = select(Alias.version_id).where(Alias.model_id == model_id)
    return session.scalars(
        select(ModelVersion).where(ModelVersion.id.in_(named)).order_by(ModelVersion.ordinal)
    ).all()


def rows_of(session: Session, version: ModelVersion) -> RowSet:
    """The rows the version was trained on, less those removed since; none while they are not known."""
    return row_sets.read(session, version.rows_digest) if version.rows_digest else RowSet(b"")


def tombstoned_rows_of(session: Session, version: ModelVersion) -> RowSet:
    """Those of the version's rows that may not train: what has to be forgotten."""
    return rows_of(session, version) & row_sets.tombstoned(session, version.dataset_version_id)


def lock_version(session: Session, version_id: uuid.UUID) -> None:
    """Have what is decided from all jobs for a version decided by one transaction at a time."""
    # A weaker lock than FOR UPDATE, which would keep others from inserting rows that refer to the version.
    query = select(ModelVersion.id).where(ModelVersion.id == version_id).with_for_update(key_share=True)
    session.scalars(query).one()


def replace_everywhere(
    session: Session, *, old: ModelVersion, new: ModelVersion, actor: str, reason: str
) -> list[str]:
    """Move every alias that names `old` to `new`, by compare-and-swap; the names of those moved.

    Raises:
        Conflict: `new` holds a row that may not train and that `old` does not hold. (Rows deleted while
            `new` was being made are in both; moving on is then still a step away from them.)
    """
    lock_aliases(session)
    left = tombstoned_rows_of(session, new)
    if len(left - rows_of(session, old)):
        raise Conflict("The version holds deleted rows.")
    moved = session.scalars(
        update(Alias)
        .where(Alias.model_id == old.model_id, Alias.version_id == old.id)
        .values(version_id=new.id, revision=Alias.revision + 1, updated_at=func.now())
        .returning(Alias.name)
    ).all()
    for name in moved:
        _record_move(session, new, name, actor=actor, reason=reason)
    if moved:
        old.supersede(actor=actor)
    return list(moved)


def set_alias(session: Session, version: ModelVersion, name: str, *, actor: str, reason: str) -> None:
    """Have `name` name this version.

    Raises:
        Conflict: the version holds deleted rows, is not ready, or its data set was retired.
    """
    lock_aliases(session)
    alias = session.get(Alias, (version.model_id, name), populate_existing=True)
    if alias is not None and alias.version_id == version.id:
        return
    _check_usable(session, version)
    if version.state is VersionState.SUPERSEDED:
        version.reinstate(actor=actor)
    if alias is None:
        session.add(Alias(model_id=version.model_id, name=name, version_id=version.id))
    else:
        left, alias.version_id = alias.version_id, version.id
        alias.revision += 1
        alias.updated_at = datetime.now(UTC)
        session.flush()
        _supersede_unnamed(session, left, actor)
    _record_move(session, version, name, actor=actor, reason=reason)


def remove_alias(session: Session, model: Model, name: str, *, actor: str, reason: str) -> None:
    """Have `name` name nothing any more. Raises NotFound."""
    lock_aliases(session)
    alias = session.get(Alias, (model.id, name), populate_existing=True)
    if alias is None:
        raise NotFound
    left = alias.version_id
    session.delete(alias)
    session.flush()
    _supersede_unnamed(session, left, actor)
    events.record(
        session,
        actor=actor,
        action="alias removed",
        entity="Model",
        entity_id=model.id,
        reason=reason,
        alias=name,
    )


def retire(session: Session, model: Model, *, actor: str, reason: str) -> None:
    """Nothing is to be done with the model any more: its jobs are cancelled, its aliases go."""
    refuse_retired(model)
    # Jobs before aliases, as the publisher locks them: the other way round the two would wait for each other.
    jobs.cancel_of_model(session, model.id, actor=actor, reason="the model was retired")
    lock_aliases(session)
    for name in session.scalars(select(Alias.name).where(Alias.model_id == model.id)).all():
        remove_alias(session, model, name, actor=actor, reason=reason)
    model.retired_at = datetime.now(UTC)
    events.record(session, actor=actor, action="retired", entity="Model", entity_id=model.id, reason=reason)


def _check_usable(session: Session, version: ModelVersion) -> None:
    refuse_retired(session.get_one(Model, version.model_id))
    if version.state not in (VersionState.READY, VersionState.SUPERSEDED):
        raise Conflict(f"The version is {version.state}.")
    if not datasets.hold_ready(session, version.dataset_version_id):
        raise Conflict(
            "The data set version that it was trained on is not in force: no deletion would reach it."
        )
    if len(tombstoned_rows_of(session, version)):
        raise Conflict("The version was trained on rows that have been deleted since.")


def _supersede_unnamed(session: Session, version_id: uuid.UUID, actor: str) -> None:
    version = session.get_one(ModelVersion, version_id)
    if not is_aliased(session, version):
        version.supersede(actor=actor)


def _record_move(session: Session, version: ModelVersion, name: str, *, actor: str, reason: str) -> None:
    events.record(
        session,
        actor=actor,
        action="alias moved",
        entity="ModelVersion",
        entity_id=version.id,
        reason=reason,
        alias=name,
    )
    events.emit(
        session,
        "model.alias_moved",
        model_id=str(version.model_id),
        version_id=str(version.id),
        alias=name,
    )


def get_version(session: Session, model: Model, number: int) -> ModelVersion:
    """One version of the model. Raises NotFound."""
    version = session.scalar(select(ModelVersion).filter_by(model_id=model.id, number=number))
    if version is None:
        raise NotFound
    return version


def version_to_name(session: Session, model: Model, number: int) -> ModelVersion:
    """The version an alias should name. Raises Invalid if there is none of this number."""
    version = session.scalar(select(ModelVersion).filter_by(model_id=model.id, number=number))
    if version is None:
        raise Invalid(faults=[Fault(pointer="/version", detail="the model has no such version")])
    return version


def versions_of(
    session: Session, model: Model, *, after: int, limit: int, states: Sequence[VersionState] = ()
) -> Sequence[ModelVersion]:
    """The model's versions in the order they were made; only those in these states, if any are named."""
    query = select(ModelVersion).where(ModelVersion.model_id == model.id, ModelVersion.ordinal > after)
    if states:
        query = query.where(ModelVersion.state.in_(states))
    return session.scalars(query.order_by(ModelVersion.ordinal).limit(limit)).all()
