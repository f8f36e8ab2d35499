"""An ingest job: read every row of a registered data set, report its faults, or load it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from app.datasets import service as datasets
from app.datasets.loading import LoadedRow, Shape, load
from app.db import transaction
from app.jobs import service as jobs
from app.jobs.params import ROLE_SHARES, RoleShares
from app.jobs.service import Lease
from app.pseudonyms import pseudonyms
from app.tables import DatasetVersion
from workers.data.reader import DataFault, Reader, rows
from workers.data.registry import open_reader
from workers.data.roles import draw_roles
from workers.data.scan import Scan, scan
from workers.monitor import Monitor


@dataclass(frozen=True)
class _Order:
    """What was registered."""

    reader: str
    location: str
    options: dict[str, object]
    shares: RoleShares
    seed: int

    @classmethod
    def of(cls, version: DatasetVersion) -> _Order:
        shares = ROLE_SHARES.validate_python(version.shares)
        return cls(version.reader, version.location, version.options, shares, version.seed)


def ingest(lease: Lease, monitor: Monitor, *, actor: str) -> None:
    """Scan, then load everything in one transaction together with the job's end. Raises LeaseLost."""
    with transaction() as session:
        version = datasets.version_of_job(session, jobs.held(session, lease))
        order, version_id = _Order.of(version), version.id
    try:
        reader = open_reader(order.reader, order.location, order.options)
        found = scan(reader, monitor)
    except DataFault as fault:
        _refuse(lease, [str(fault)], actor)
        return
    if found.faults:
        _refuse(lease, list(found.faults), actor)
        return
    shape = Shape(found.num_classes, found.image_shape, list(found.class_names) or None)
    with transaction() as session:
        jobs.held(session, lease)
        loaded = _loaded_rows(reader, found, order, monitor)
        load(session, version_id, loaded, shape=shape, names=pseudonyms(), actor=actor)
        jobs.finish_computing(session, lease, {"rows": found.count})


def _loaded_rows(reader: Reader, found: Scan, order: _Order, monitor: Monitor) -> Iterator[LoadedRow]:
    roles = draw_roles(found.splits, order.shares, order.seed)
    for row in rows(reader):
        if row.ordinal % 1000 == 0:
            monitor.check_cancelled()
            monitor.progress("loading", row.ordinal, found.count)
        yield LoadedRow(
            row.ordinal, row.sample_id, roles[row.ordinal], row.label, row.content_hash, row.subject
        )


def _refuse(lease: Lease, faults: list[str], actor: str) -> None:
    """Keep the faults with the data set version and fail the job: registering again needs other data."""
    with transaction() as session:
        version = datasets.version_of_job(session, jobs.held(session, lease))
        datasets.refuse(version, faults, actor=actor)
        jobs.fail(session, lease, f"the data has faults: {faults[0]}")
