"""Registering, finding and retiring data sets."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.config import settings
from app.datasets.schemas import DatasetView, NewDataset
from app.errors import Conflict, Fault, Invalid, NotFound, faults_of
from app.events import service as events
from app.jobs import service as jobs
from app.jobs.params import READERS, plain_data, reader_options
from app.tables import Alias, Dataset, DatasetState, DatasetVersion, Job, JobKind, ModelVersion
from app.urls import is_below, object_url


def register(session: Session, new: NewDataset, *, actor: str) -> tuple[DatasetVersion, Job]:
    """A new version of the data set `new.name`, and the ingest job that will read it. Raises Invalid."""
    options, location = _checked(new)
    dataset_id = _dataset_named(session, new.name, actor)
    last = session.scalar(select(func.max(DatasetVersion.number)).filter_by(dataset_id=dataset_id))
    version = DatasetVersion(
        id=uuid.uuid4(),
        dataset_id=dataset_id,
        number=(last or 0) + 1,
        reader=new.reader,
        location=location,
        options=dict(options),
        shares=asdict(new.shares),
        seed=new.seed,
    )
    if new.poison is not None:
        version.poison = {"parameters": plain_data(new.poison)}
    session.add(version)
    session.flush()
    events.record(
        session,
        actor=actor,
        action="registered",
        entity="DatasetVersion",
        entity_id=version.id,
        number=version.number,
    )
    job = Job(
        kind=JobKind.INGEST, dataset_version_id=version.id, parameters={}, seed=new.seed, created_by=actor
    )
    return version, jobs.queue(session, job)


def _checked(new: NewDataset) -> tuple[Mapping[str, Any], str]:
    """The reader's options with defaults, and the real location; all faults at once."""
    info = READERS.get(new.reader)
    if info is None:
        raise Invalid(faults=[Fault(pointer="/reader", detail=f"must be one of: {', '.join(READERS)}")])
    faults: list[Fault] = []
    options: Mapping[str, Any] = {}
    try:
        options = plain_data(reader_options(new.reader, new.options))
    except ValidationError as error:
        faults += faults_of(error, "/options")
    location = ""
    if info.needs_location:
        try:
            location = _allowed(new.location)
        except ValueError as error:
            faults.append(Fault(pointer="/location", detail=str(error)))
    elif new.location:
        faults.append(Fault(pointer="/location", detail="this reader has no location"))
    if options.get("download"):
        faults += _faults_of_download(new.location)
    if faults:
        raise Invalid(faults=faults)
    return options, location


def _faults_of_download(location: str) -> Iterator[Fault]:
    if not settings().allow_downloads:
        detail = "the operator allows no downloads (EXPUNGE_ALLOW_DOWNLOADS)"
        yield Fault(pointer="/options/download", detail=detail)
    elif "://" in location:
        yield Fault(pointer="/options/download", detail="data sets are downloaded into folders only")


def _allowed(location: str) -> str:
    """The location as its reader is to be given it. Raises ValueError, as below."""
    return inside_urls(location) if "://" in location else inside_roots(location)


def inside_urls(location: str) -> str:
    """The URL, if it lies below one of EXPUNGE_DATA_URLS; whether anything is there is not asked.

    Raises:
        ValueError: saying what is wrong.
    """
    if not settings().data_urls:
        raise ValueError("the operator has allowed no URL of data (EXPUNGE_DATA_URLS)")
    url = object_url(location)
    if not any(is_below(url, prefix) for prefix in settings().data_urls):
        raise ValueError("a URL below one that the operator has allowed is needed")
    return url


def inside_roots(location: str) -> str:
    """The real path of `location`, links followed, if it lies in one of EXPUNGE_DATA_ROOTS.

    Raises:
        ValueError: saying what is wrong, without telling what lies outside the roots.
    """
    roots = [root.resolve() for root in settings().data_roots]
    if not roots:
        raise ValueError("the operator has allowed no folder of data (EXPUNGE_DATA_ROOTS)")
    if not location or "\0" in location:
        raise ValueError("a path inside one of the operator's data roots is needed")
    given = Path(location)
    candidates = [given.resolve()] if given.is_absolute() else [(root / given).resolve() for root in roots]
    inside = [path for path in candidates if any(path.is_relative_to(root) for root in roots)]
    for path in inside:
        if path.exists():
            return str(path)
    raise ValueError("no such file or folder inside the operator's data roots")


def _dataset_named(session: Session, name: str, actor: str) -> uuid.UUID:
    """The ID of the data set with this name, made if need be, locked against another registration."""
    session.execute(
        insert(Dataset).values(id=uuid.uuid4(), name=name, created_by=actor).on_conflict_do_nothing()
    )
    return session.scalars(select(Dataset.id).where(Dataset.name == name).with_for_update()).one()


def id_of(session: Session, name: str) -> uuid.UUID:
    """The ID of the data set of this name. Raises NotFound."""
    found = by_names(session, [name]).get(name)
    if found is None:
        raise NotFound
    return found


def by_names(session: Session, names: Sequence[str]) -> dict[str, uuid.UUID]:
    """The IDs of the data sets with these names."""
    rows = session.execute(select(Dataset.name, Dataset.id).where(Dataset.name.in_(names)))
    return dict(rows.all())


def in_force(session: Session, dataset_ids: Sequence[uuid.UUID] | None) -> set[uuid.UUID]:
    """Those of the data sets (None: of all) that have a ready version.

    None of them gets another version, nor loses one, until this transaction ends.
    """
    wanted = (
        select(Dataset.id) if dataset_ids is None else select(Dataset.id).where(Dataset.id.in_(dataset_ids))
    )
    held = session.scalars(wanted.order_by(Dataset.id).with_for_update(read=True)).all()
    query = select(DatasetVersion.dataset_id).where(
        DatasetVersion.dataset_id.in_(held), DatasetVersion.state == DatasetState.READY
    )
    return set(session.scalars(query))


def hold_ready(session: Session, version_id: uuid.UUID) -> bool:
    """Whether the data set version is ready; if so, it stays that until this transaction ends."""
    dataset_id = session.scalars(
        select(DatasetVersion.dataset_id).where(DatasetVersion.id == version_id)
    ).one()
    in_force(session, [dataset_id])
    state = session.scalars(select(DatasetVersion.state).where(DatasetVersion.id == version_id)).one()
    return state is DatasetState.READY


def newest_ready(session: Session, name: str, number: int | None = None) -> DatasetVersion:
    """The version of the data set to train on: `number`, or the newest ready one. Raises Invalid."""
    query = (
        select(DatasetVersion)
        .join(Dataset, Dataset.id == DatasetVersion.dataset_id)
        .where(Dataset.name == name, DatasetVersion.state == DatasetState.READY)
        .order_by(DatasetVersion.number.desc())
        .limit(1)
    )
    version = session.scalar(query if number is None else query.where(DatasetVersion.number == number))
    if version is None:
        detail = "no version of this data set is ready to train on"
        raise Invalid(faults=[Fault(pointer="/dataset", detail=detail)])
    return version


def get_version(session: Session, version_id: uuid.UUID) -> DatasetVersion:
    """The data set version, which some row of ours refers to."""
    return session.get_one(DatasetVersion, version_id)


def version_of_job(session: Session, job: Job) -> DatasetVersion:
    """The data set version that a job is about."""
    if job.dataset_version_id is None:
        raise ValueError("the job names no data set version")
    return get_version(session, job.dataset_version_id)


def refuse(version: DatasetVersion, faults: Sequence[str], *, actor: str) -> None:
    """The registration found these faults; nothing was loaded."""
    version.faults = list(faults)
    version.fail(f"{len(faults)} faults", actor=actor)


def give_up(session: Session, job: Job, *, actor: str) -> None:
    """The ingest job ended without having read the rows, so its data set version never becomes ready."""
    version = version_of_job(session, job)
    if version.state is DatasetState.PENDING:
        version.fail(f"its job ended: {job.reason}", actor=actor)


def name_of(session: Session, version: DatasetVersion) -> str:
    """The name of the data set that this is a version of."""
    return session.scalars(select(Dataset.name).where(Dataset.id == version.dataset_id)).one()


def versions_of(session: Session, name: str) -> list[DatasetView]:
    """Every version of a data set, newest first. Raises NotFound."""
    dataset = session.scalar(select(Dataset).where(Dataset.name == name))
    if dataset is None:
        raise NotFound
    query = select(DatasetVersion).filter_by(dataset_id=dataset.id).order_by(DatasetVersion.number.desc())
    return [view(version, name) for version in session.scalars(query)]


def list_datasets(session: Session, *, after: int, limit: int) -> Sequence[Dataset]:
    """Data sets in the order they were made."""
    query = select(Dataset).where(Dataset.ordinal > after).order_by(Dataset.ordinal).limit(limit)
    return session.scalars(query).all()


def retire(session: Session, name: str, reason: str, *, actor: str) -> list[DatasetView]:
    """Retire every ready version. Raises NotFound, or Conflict while a model in use was trained on one."""
    dataset = session.scalar(select(Dataset).where(Dataset.name == name).with_for_update())
    if dataset is None:
        raise NotFound
    ready = session.scalars(
        select(DatasetVersion).filter_by(dataset_id=dataset.id, state=DatasetState.READY)
    ).all()
    used = select(Alias.name).join(ModelVersion, ModelVersion.id == Alias.version_id)
    if session.scalar(used.where(ModelVersion.dataset_version_id.in_([v.id for v in ready])).limit(1)):
        raise Conflict("A model in use was trained on this data set; deletions from it must stay possible.")
    for version in ready:
        version.retire(reason, actor=actor)
    session.flush()
    return versions_of(session, name)


def view(version: DatasetVersion, name: str) -> DatasetView:
    """The version as the API shows it."""
    shown = {column.key: getattr(version, column.key) for column in DatasetVersion.__mapper__.column_attrs}
    return DatasetView.model_validate({**shown, "name": name, "version": version.number})
