"""A validating job: find the rows an uploaded version was trained on, check its weights, measure it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from io import TextIOWrapper
from itertools import count, islice
from typing import Any, TextIO

from sqlalchemy.orm import Session

from app.config import Settings
from app.datasets import rows as row_sets
from app.datasets import service as datasets
from app.datasets.matching import Matches, Named
from app.db import transaction
from app.jobs import service as jobs
from app.jobs.service import Lease
from app.tables import DatasetVersion, Job, ModelVersion
from models_store.blobs import BlobStore
from models_store.rows import RowSet
from workers import pipeline
from workers.assemble import architecture, data_spec, environment
from workers.data.place import place
from workers.data.reader import DataMissing
from workers.monitor import Monitor
from workers.spec import Fault, ValidateSpec, Version

_HEADING = "sample_id"  # may stand in the first line of a file of IDs
_BATCH = 5_000  # lines held at a time
_LONGEST_LINE = 4096
_MOST_LINES = 20  # with faults, named one by one


class _WrongRows(Exception):
    """The rows that were named are not those of the data set version."""


def validate(lease: Lease, config: Settings, store: BlobStore, monitor: Monitor) -> None:
    """Hand in either faults, all that were found, or the rows and the network's figures. Raises LeaseLost."""
    try:
        with transaction() as session:
            spec, rows_digest, quarantined = _spec(session, jobs.held(session, lease), config)
    except _WrongRows as fault:
        outcome: dict[str, Any] = {"faults": [asdict(Fault(at="rows", detail=str(fault)))]}
    else:
        found = pipeline.validate(spec, store, monitor)
        outcome = {"faults": [asdict(fault) for fault in found.faults]}
        outcome |= {"rows_digest": rows_digest, "quarantined": quarantined, "figures": dict(found.figures)}
    with transaction() as session:
        jobs.finish_computing(session, lease, outcome)


def _spec(session: Session, job: Job, config: Settings) -> tuple[ValidateSpec, str, int]:
    """The spec, the digest of the rows, and how many of them were deleted. Raises _WrongRows."""
    version = session.get_one(ModelVersion, job.version_id)
    dataset = datasets.version_of_job(session, job)
    deleted = row_sets.tombstoned(session, dataset.id)
    rows = _rows(session, dataset, job.parameters["rows"])
    if not len(rows):
        raise _WrongRows("there are none: a network is trained on something")
    job.rows_digest = row_sets.keep(session, rows)
    spec = ValidateSpec(
        data=data_spec(session, dataset),
        uploaded=Version(
            architecture=architecture(version.architecture, config), weights=version.weights or ""
        ),
        train=rows - deleted,
        validation=row_sets.of_role(session, dataset, "validation") - deleted - rows,
        test=row_sets.of_role(session, dataset, "test") - deleted - rows,
        seed=job.seed,
        environment=environment(config),
    )
    return spec, job.rows_digest, len(rows & deleted)


def _rows(session: Session, dataset: DatasetVersion, wanted: dict[str, str]) -> RowSet:
    if "role" in wanted:
        return row_sets.of_role(session, dataset, wanted["role"])
    if "digest" in wanted:
        return row_sets.read(session, wanted["digest"])
    return _rows_of_file(session, dataset, wanted["file"])


def _rows_of_file(session: Session, dataset: DatasetVersion, location: str) -> RowSet:
    """The rows of the samples that a file names, one ID a line."""
    matches = Matches(session)
    try:
        with TextIOWrapper(place(datasets.inside_roots(location)).open(), encoding="utf-8-sig") as file:
            names = (Named(number, None, name, None) for number, name in _ids(file))
            while batch := list(islice(names, _BATCH)):
                matches.add(batch)
    except (DataMissing, OSError, ValueError):  # what is no text in UTF-8 is a ValueError, too
        raise _WrongRows("the file of sample IDs cannot be read as UTF-8 text") from None
    matches.find_in([(dataset.id, dataset.dataset_id)])
    unknown, numbers = matches.unmatched(_MOST_LINES)
    if unknown:
        named = ", ".join(map(str, numbers))
        raise _WrongRows(f"the data set version has no such sample, on {unknown} lines of the file: {named}")
    return matches.rows_of(dataset.id)


def _ids(file: TextIO) -> Iterator[tuple[int, str]]:
    """The IDs with the numbers of their lines; empty lines and a heading are passed over."""
    for number in count(1):
        line = file.readline(_LONGEST_LINE + 1)
        if len(line) > _LONGEST_LINE:
            raise ValueError(f"line {number} is too long")
        if not line:
            return
        name = line.strip()
        if name and not (number == 1 and name == _HEADING):
            yield number, name
