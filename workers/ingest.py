"""An ingest job: read every row of a registered data set once, and load it or report its faults."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from app.datasets import rows as row_sets
from app.datasets import service as datasets
from app.datasets.loading import Block, Facts, Loading, Repeats
from app.db import transaction
from app.jobs import service as jobs
from app.jobs.params import POISON, ROLE_SHARES, BadNets, RoleShares
from app.jobs.service import Lease
from app.pseudonyms import pseudonyms
from app.tables import DatasetVersion
from models_store.blobs import BlobStore, Draft
from models_store.rows import RowSet
from workers.data.loading import content_hashes
from workers.data.poison import draw_poisoned, misfits
from workers.data.reader import DataFault, Reader
from workers.data.registry import fetch, open_reader
from workers.data.roles import draw_roles
from workers.data.scan import Inspection, Scan
from workers.monitor import Monitor

_QUARANTINED_LISTED = 1000  # ordinals in the job's outcome


class _Faulty(Exception):
    """The data set may not be registered; nothing of it is to be left."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__()
        self.faults = faults


@dataclass(frozen=True)
class _Order:
    """What was registered."""

    version_id: uuid.UUID
    reader: str
    location: str
    options: dict[str, object]
    shares: RoleShares
    seed: int
    poison: BadNets | None

    @classmethod
    def of(cls, version: DatasetVersion) -> _Order:
        shares = ROLE_SHARES.validate_python(version.shares)
        given = version.poison and version.poison["parameters"]
        poison = None if given is None else POISON.validate_python(given)
        read = version.reader, version.location, version.options
        return cls(version.id, *read, shares, version.seed, poison)


def ingest(
    lease: Lease, store: BlobStore, monitor: Monitor, *, actor: str, allow_downloads: bool = False
) -> None:
    """Load the data set in one transaction together with the job's end, or fail the job with every fault.

    Raises:
        LeaseLost, Cancelled: nothing is left of what was loaded.
        StoreUnavailable: likewise.
    """
    with transaction() as session:
        order = _Order.of(datasets.version_of_job(session, jobs.held(session, lease)))
    try:
        if allow_downloads:
            fetch(order.reader, order.location, order.options)
        reader = open_reader(order.reader, order.location, order.options)
        _register(lease, order, reader, store, monitor, actor=actor)
    except DataFault as fault:
        _refuse(lease, [str(fault)], actor)
    except _Faulty as faulty:
        _refuse(lease, faulty.faults, actor)


def _register(
    lease: Lease, order: _Order, reader: Reader, store: BlobStore, monitor: Monitor, *, actor: str
) -> None:
    inspection = Inspection(reader)
    with store.draft() as manifest, transaction() as session:
        loading = Loading(session, order.version_id, pseudonyms())
        try:
            loading.copy(_blocks(reader, inspection, manifest, monitor))
        except DataFault as fault:
            raise _Faulty([*inspection.result().faults, str(fault)]) from fault
        monitor.progress("indexing", 0, 1)
        repeats = loading.index()
        monitor.progress("indexing", 1, 1)
        found = _judged(inspection, repeats)
        roles = draw_roles(found.splits, order.shares, order.seed)
        poisoned = _poisoned(loading, order.poison, found, roles["train"])
        facts = Facts(
            num_classes=found.num_classes,
            image_shape=found.image_shape,
            class_names=found.class_names or None,
            roles=roles,
            manifest=manifest.keep(),
            poisoned=poisoned,
        )
        job = jobs.held(session, lease)
        version = loading.attach(facts, actor=actor)
        all_rows = row_sets.keep(session, RowSet.below(found.count))
        jobs.note_artefact(session, job, name="manifest", digest=facts.manifest, rows_digest=all_rows)
        quarantined = row_sets.tombstoned(session, version.id)
        outcome = {
            "rows": found.count,
            "quarantined": {
                "count": len(quarantined),
                "rows": list(islice(quarantined, _QUARANTINED_LISTED)),
            },
        }
        jobs.finish_computing(session, lease, outcome)


def _blocks(reader: Reader, inspection: Inspection, manifest: Draft, monitor: Monitor) -> Iterator[Block]:
    """The rows as they are loaded, each once it was judged; their hashes go into the manifest."""
    for chunk in inspection.rows(monitor):
        hashes = content_hashes(reader, chunk)
        manifest.write(b"".join(hashes))
        yield Block(chunk.ordinals.tolist(), chunk.sample_ids, chunk.labels.tolist(), hashes, chunk.subjects)


def _judged(inspection: Inspection, repeats: Repeats) -> Scan:
    """What was found in the rows, if there is no fault among them."""
    faults = [(row, f"it has the same sample ID as row {first}") for row, first in repeats.first]
    found = inspection.result(faults, repeats.count - len(faults))
    if found.faults:
        raise _Faulty(found.faults)
    return found


def _poisoned(loading: Loading, poison: BadNets | None, found: Scan, train: RowSet) -> RowSet | None:
    """The rows that were drawn to be poisoned, which now have the target for a label. Raises DataFault."""
    if poison is None:
        return None
    if faults := misfits(poison, found.image_shape, found.num_classes):
        raise _Faulty(faults)
    rows = draw_poisoned(poison, train, loading.labelled(poison.target))
    loading.relabel(rows, poison.target)
    return rows


def _refuse(lease: Lease, faults: Sequence[str], actor: str) -> None:
    """Keep the faults with the data set version and fail the job: registering again needs other data."""
    with transaction() as session:
        version = datasets.version_of_job(session, jobs.held(session, lease))
        datasets.refuse(version, faults, actor=actor)
        jobs.fail(session, lease, f"the data has faults: {faults[0]}")
