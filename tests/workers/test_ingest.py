"""Registering data sets from files into a real database."""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sqlalchemy import select, text

from app.config import Settings, settings
from app.datasets import rows as row_sets
from app.datasets import service as datasets
from app.datasets.schemas import NewDataset
from app.db import transaction
from app.deletions.schemas import NewItem, NewRequest
from app.jobs import service as jobs
from app.jobs.service import Lease, LeaseLost
from app.pseudonyms import pseudonyms
from app.tables import Artefact, DatasetState, DatasetVersion, Job, JobState, RowBits, Sample
from benchmarks.ingest import register, write_npz
from models_store.blobs import BlobStore
from models_store.rows import RowSet
from tests.fixtures.world import World
from workers import ingest, run
from workers.data.manifest import open_manifest
from workers.monitor import Cancelled, Silent

Columns = dict[str, Any]
ROWS = 40


def _columns(rows: int = ROWS) -> Columns:
    """The arrays of a sound .npz file: 2x2 grey images, all different, of four people."""
    return {
        "x": np.arange(rows, dtype="<u4").view(np.uint8).reshape(rows, 2, 2),
        "y": np.arange(rows) % 3,
        "ids": np.array([f"image-{number:02d}" for number in range(rows)]),
        "subjects": np.array([f"person-{number % 4}" for number in range(rows)]),
        "split": np.array(["", "test"] * (rows // 2)),
    }


@dataclass
class Registry:
    """Registers files as versions of one data set, as a worker would."""

    folder: Path
    store: BlobStore

    def register(self, location: Path, reader: str = "npz", **options: Any) -> tuple[Any, Lease]:
        """A new version, whose ingest job a worker has claimed."""
        new = NewDataset(name="faces", reader=reader, location=str(location), options=options)
        with transaction() as session:
            version, job = datasets.register(session, new, actor="test")
            version_id, job_id = version.id, job.id
        with transaction() as session:
            lease = jobs.claim(session, job_id, worker="worker", lease_seconds=600)
        assert lease is not None
        return version_id, lease

    def ingest(self, location: Path, reader: str = "npz", **options: Any) -> tuple[DatasetVersion, Job]:
        """The version and its job after the job has run."""
        version_id, lease = self.register(location, reader, **options)
        ingest.ingest(lease, self.store, Silent(), actor="job")
        with transaction() as session:
            found = session.get_one(DatasetVersion, version_id), session.get_one(Job, lease.job_id)
            session.expunge_all()
        return found

    def save(self, columns: Columns) -> Path:
        """Write the arrays of an .npz file."""
        np.savez(self.folder / "data.npz", **columns)
        return self.folder / "data.npz"


@pytest.fixture
def registry(live_database: str, configure: Callable[..., Settings], tmp_path: Path) -> Registry:
    configure(data_roots=tmp_path)
    return Registry(tmp_path, BlobStore(str(tmp_path / "store")))


def _partitions() -> list[str]:
    with transaction() as session:
        query = "SELECT relname FROM pg_class WHERE relname LIKE 'samples\\_%' AND relkind = 'r'"
        return list(session.scalars(text(query)))


def _hash(pixels: Any) -> bytes:
    return hashlib.sha256(b"2x2x1\0" + pixels.tobytes()).digest()


def test_every_row_is_registered(registry: Registry) -> None:
    """The database has each row as the file has it, and every row has one role."""
    columns = _columns()
    version, job = registry.ingest(registry.save(columns))
    with transaction() as session:
        query = select(Sample).where(Sample.dataset_version_id == version.id).order_by(Sample.ordinal)
        for number, sample in enumerate(session.scalars(query)):
            assert sample.sample_id == columns["ids"][number]
            assert sample.label == columns["y"][number]
            assert sample.content_hash == _hash(columns["x"][number])
            assert sample.subject_key == pseudonyms().subject(str(columns["subjects"][number]))
        assert number == ROWS - 1
        roles = {role: row_sets.of_role(session, version, role) for role in version.role_sets or {}}
    assert roles["test"] == RowSet.of(range(1, ROWS, 2))
    assert sorted(ordinal for rows in roles.values() for ordinal in rows) == list(range(ROWS))
    assert version.role_counts == {"train": 17, "validation": 1, "holdout": 2, "test": 20, "quarantined": 0}
    assert (version.state, version.row_count, version.num_classes) == (DatasetState.READY, ROWS, 3)
    assert job.outcome == {"rows": ROWS, "quarantined": {"count": 0, "rows": []}}


def test_the_manifest_holds_every_hash(registry: Registry) -> None:
    """It is kept in the store as an artefact that all rows went into."""
    columns = _columns()
    version, job = registry.ingest(registry.save(columns))
    assert version.manifest is not None
    manifest = open_manifest(registry.store, version.manifest)
    assert manifest.hashes.tobytes() == b"".join(_hash(pixels) for pixels in columns["x"])
    with transaction() as session:
        artefact = session.scalars(select(Artefact).filter_by(job_id=job.id)).one()
        assert (artefact.name, artefact.digest) == ("manifest", version.manifest)
        assert artefact.rows_digest == RowSet.below(ROWS).digest
        assert session.get_one(RowBits, artefact.rows_digest).bits == RowSet.below(ROWS).bits


def test_faults_of_all_kinds_are_reported_together(registry: Registry) -> None:
    """Each with its row's number, the database's finding among them; nothing is left of the rows."""
    columns = _columns()
    columns["ids"][[5, 9]] = columns["ids"][2]
    columns["ids"][11] = ""
    columns["y"][7] = -4
    columns["y"][9] = 50_000
    columns["split"] = np.array(["dev", *columns["split"][1:]])
    columns["subjects"] = np.array(["a\x07", *columns["subjects"][1:]])
    version, job = registry.ingest(registry.save(columns))
    assert version.faults == [
        "row 0: its split is none of holdout, test, train, validation",
        "row 0: its subject has unprintable characters or more than 512",
        "row 7: its label is missing, not an integer, or negative",
        "row 9: its label is 50000, but the classes end at 9999",
        "row 11: it has no sample ID",
        "row 5: it has the same sample ID as row 2",
        "row 9: it has the same sample ID as row 2",
    ]
    assert (version.state, job.state) == (DatasetState.FAILED, JobState.FAILED)
    assert version.manifest is None
    assert not _partitions()
    assert not list(registry.store.blobs())


def test_many_repeated_ids_are_counted(registry: Registry) -> None:
    """Twenty are listed, and how many more there are."""
    columns = _columns()
    columns["ids"][:] = "secret"
    version, _ = registry.ingest(registry.save(columns))
    assert version.faults is not None
    assert version.faults[0] == "row 1: it has the same sample ID as row 0"
    assert version.faults[20] == "and 19 more faults"
    assert "secret" not in "".join(version.faults)


def _png(pixels: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()


def test_images_with_faults_are_named(registry: Registry) -> None:
    """What is no image, another shape, or far too large is found in its row."""
    images = [_png(np.full((4, 4), number, np.uint8)) for number in range(6)]
    images[1] = b"GIF89a"
    images[3] = _png(np.zeros((4, 5), np.uint8))
    images[4] = _png(np.zeros((1, 60_000), np.uint8))
    table = pa.table({"sample_id": list("abcdef"), "label": [0, 1] * 3, "image": images})
    pq.write_table(table, registry.folder / "data.parquet")
    version, _ = registry.ingest(registry.folder / "data.parquet", "parquet")
    assert version.faults == [
        "row 1: there are no bytes of a BMP, JPEG, PNG or WEBP image",
        "row 3: the image has shape (4, 5, 1), the first one (4, 4, 1)",
        "row 4: the image is larger than 1024 pixels a side",
    ]


def test_a_file_that_breaks_off_is_reported_with_what_came_before(registry: Registry) -> None:
    """The rows that could be read are judged all the same."""
    columns = _columns(20_000)
    columns["y"][3] = -1
    path = registry.save(columns)
    content = bytearray(path.read_bytes())
    content[70_000:70_010] = b"\xff" * 10  # among the images of later rows: the checksum tells
    path.write_bytes(content)
    version, _ = registry.ingest(path)
    assert version.faults == [
        "row 3: its label is missing, not an integer, or negative",
        "array 'x' ends early or is damaged",
    ]
    assert not _partitions()


def test_a_missing_file_fails_the_registration(registry: Registry) -> None:
    """A file that is gone by the time the job runs is a fault of the data set."""
    path = registry.save(_columns())
    version_id, lease = registry.register(path)
    path.unlink()
    ingest.ingest(lease, registry.store, Silent(), actor="job")
    with transaction() as session:
        version = session.get_one(DatasetVersion, version_id)
        assert (version.state, version.faults) == (
            DatasetState.FAILED,
            ["there is no such file at the location"],
        )


class _Stops(Silent):
    """Ends the job in the middle: when the second chunk is about to be loaded, or the indices are."""

    def __init__(self, end: BaseException, phase: str) -> None:
        super().__init__()
        self._end = end
        self._phase = phase

    def progress(self, phase: str, done: int, *_: Any, **_figures: Any) -> None:
        if phase == self._phase and (done or phase == "indexing"):
            raise self._end


@pytest.mark.parametrize("phase", ["reading", "indexing"])
@pytest.mark.parametrize("end", [Cancelled(), KeyboardInterrupt()])
def test_a_job_that_ends_early_leaves_nothing(registry: Registry, end: BaseException, phase: str) -> None:
    """No table, no blob, and the version waits for another attempt, which succeeds."""
    version_id, lease = registry.register(registry.save(_columns(10_000)))
    with pytest.raises(type(end)):
        ingest.ingest(lease, registry.store, _Stops(end, phase), actor="job")
    assert not _partitions()
    assert not list(registry.store.blobs())
    with transaction() as session:
        assert session.get_one(DatasetVersion, version_id).state is DatasetState.PENDING
    ingest.ingest(lease, registry.store, Silent(), actor="job")
    assert len(_partitions()) == 1


def test_a_job_that_lost_its_lease_changes_nothing(registry: Registry) -> None:
    """Somebody else has the job by the time the rows are read: theirs is the result."""
    version_id, lease = registry.register(registry.save(_columns()))

    class Loses(Silent):
        def progress(self, *_: Any, **_figures: Any) -> None:
            with transaction() as session:
                session.get_one(Job, lease.job_id).lease_token = 99

    with pytest.raises(LeaseLost):
        ingest.ingest(lease, registry.store, Loses(), actor="job")
    assert not _partitions()
    with transaction() as session:
        assert session.get_one(DatasetVersion, version_id).state is DatasetState.PENDING


def test_others_are_not_kept_waiting_while_rows_are_read(registry: Registry) -> None:
    """Until the rows are all there, the job's lease can be prolonged and requests are accepted."""
    registry.ingest(registry.save(_columns()))
    _, lease = registry.register(registry.save(_columns()))

    class Meanwhile(Silent):
        def progress(self, phase: str, done: int, *_: Any, **_figures: Any) -> None:
            with transaction() as session:
                session.execute(text("SET LOCAL lock_timeout = '5s'"))
                jobs.heartbeat(session, lease, lease_seconds=600)
                World(session).caller(f"{phase}-{done}")
                item = NewItem(sample_id="image-03")
                World(session).accept(NewRequest(dataset="faces", items=[item]))

    ingest.ingest(lease, registry.store, Meanwhile(), actor="job")
    with transaction() as session:
        assert session.get_one(Job, lease.job_id).outcome == {
            "rows": ROWS,
            "quarantined": {"count": 1, "rows": [3]},
        }


@pytest.mark.parametrize(
    ("item", "changed", "quarantined"),
    [
        (NewItem(sample_id="image-06"), "x", [6]),  # by its ID, whatever it shows now
        (NewItem(sample_id="image-06"), "ids", [6]),  # by its content, whatever it is called now
        (NewItem(subject="person-2"), "both", list(range(2, ROWS, 4))),  # whatever there is of the person
    ],
)
def test_what_was_deleted_is_quarantined_in_changed_data(
    registry: Registry, item: NewItem, changed: str, quarantined: list[int]
) -> None:
    """A second version of the data brings it back; it is registered, reported, and may not train."""
    columns = _columns()
    registry.ingest(registry.save(columns))
    with transaction() as session:
        World(session).accept(NewRequest(dataset="faces", items=[item]))
    if changed in ("x", "both"):
        columns["x"] = 255 - columns["x"]
    if changed in ("ids", "both"):
        columns["ids"] = np.array([f"new-{number}" for number in range(ROWS)])
    if changed == "ids":
        del columns["subjects"]
    version, job = registry.ingest(registry.save(columns))
    assert (job.outcome or {})["quarantined"] == {"count": len(quarantined), "rows": quarantined}
    assert (version.role_counts or {})["quarantined"] == len(quarantined)
    with transaction() as session:
        assert list(row_sets.tombstoned(session, version.id)) == quarantined


def test_a_data_set_of_several_chunks_is_registered_in_order(registry: Registry) -> None:
    """Rows beyond the first chunk are found under their ordinals."""
    columns = _columns(10_000)
    version, _ = registry.ingest(registry.save(columns))
    with transaction() as session:
        for ordinal in (0, 4095, 4096, 9999):
            sample = session.get_one(Sample, (version.id, ordinal))
            assert sample.sample_id == columns["ids"][ordinal]
            assert sample.content_hash == _hash(columns["x"][ordinal])


def test_the_process_of_a_job_registers(registry: Registry) -> None:
    """`workers.run` hands an ingest job its store and its monitor, and says where the rows stand."""
    version_id, lease = registry.register(registry.save(_columns()))
    assert run.execute(lease, settings(), threading.Event()) == 0
    with transaction() as session:
        version = session.get_one(DatasetVersion, version_id)
        assert version.state is DatasetState.READY
        assert BlobStore(settings().store).has(version.manifest or "")
        progress = jobs.progress_of(session, [lease.job_id])[lease.job_id]
        assert (progress.phase, progress.done, progress.total) == ("indexing", 1, 1)


def test_memory_does_not_grow_with_the_rows(registry: Registry) -> None:
    """A process that registers 300,000 rows needs hardly more of it than one that registers 100,000."""
    peaks = []
    for rows in (100_000, 300_000):
        path = registry.folder / "large.npz"
        write_npz(path, rows)
        peaks.append(register("npz", path)["peak_mb"])
    # As text alone the sample IDs of the further rows would take 13 MB, as Python's objects more.
    assert peaks[1] - peaks[0] < 8


def _photos(folder: Path) -> Path:
    """Four images of two classes."""
    for number, name in enumerate(("cats/a.png", "cats/b.png", "dogs/c.png", "dogs/d.png")):
        path = folder / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_png(np.full((4, 4), number, np.uint8)))
    return folder / "photos"


def test_a_folder_of_images_is_registered(registry: Registry) -> None:
    """Its folders are the classes, and its files' hashes are in the manifest."""
    photos = _photos(registry.folder)
    version, _ = registry.ingest(photos, "image_folder")
    assert (version.state, version.row_count, version.class_names) == (
        DatasetState.READY,
        4,
        ["cats", "dogs"],
    )
    assert version.manifest is not None
    hashes = [hashlib.sha256(path.read_bytes()).digest() for path in sorted(photos.rglob("*.png"))]
    assert registry.store.get(version.manifest) == b"".join(hashes)


def test_a_folder_with_faults_leaves_nothing(registry: Registry) -> None:
    """A link that leads out, a bomb and a torn file are named by their rows."""
    photos = _photos(registry.folder)
    (registry.folder / "secret.png").write_bytes((photos / "cats/a.png").read_bytes())
    (photos / "cats/c.png").symlink_to(registry.folder / "secret.png")
    (photos / "dogs/c.png").write_bytes(_png(np.zeros((1, 60_000), np.uint8)))
    (photos / "dogs/d.png").write_bytes((photos / "dogs/d.png").read_bytes()[:20])
    version, _ = registry.ingest(photos, "image_folder")
    assert (version.state, version.faults) == (
        DatasetState.FAILED,
        [
            "row 2: there is no image: it is empty, or its file is missing or cannot be read",
            "row 3: the image is larger than 1024 pixels a side",
            "row 4: there are no bytes of a BMP, JPEG, PNG or WEBP image",
        ],
    )
    assert not _partitions()
