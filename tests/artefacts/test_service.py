"""Garbage goes; what is young, needed, or wanted again meanwhile stays, and the log says how much went."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.artefacts import service as artefacts
from app.artefacts.service import Begin, NothingNeeded
from app.jobs import service as jobs
from app.registry import service as registry
from app.registry.schemas import Training
from app.tables import Artefact, AuditEntry, JobState, Model, ModelVersion
from models_store.blobs import BlobStore, StoreUnavailable
from tests.fixtures.artefacts import GRACE, Cellar
from tests.fixtures.world import World

_NAMELESS = "named by nothing in the database"


def _logged(world: World) -> list[dict[str, int]]:
    """What the audit log says of collections."""
    query = select(AuditEntry.facts).filter_by(action="garbage removed").order_by(AuditEntry.id)
    return list(world.session.scalars(query))


def test_a_dry_run_changes_nothing(world: World, cellar: Cellar) -> None:
    """It tells what a collection would remove, and the collection removes just that."""
    for number in range(3):
        cellar.keep(f"garbage {number}")
    before = {path: path.stat().st_mtime_ns for path in cellar.root.rglob("*")}, world.counts()
    foreseen = cellar.survey()
    assert ({path: path.stat().st_mtime_ns for path in cellar.root.rglob("*")}, world.counts()) == before
    assert foreseen.garbage.blobs == {_NAMELESS: 3}
    assert foreseen.garbage.bytes == {_NAMELESS: 3 * len("garbage 0")}
    assert foreseen.kept.blobs == {"model versions": 1}
    assert not foreseen.removed.blobs
    found = cellar.collect()
    assert (found.kept, found.garbage, found.removed) == (foreseen.kept, foreseen.garbage, foreseen.garbage)
    assert len(cellar.digests) == 1


def test_a_second_collection_finds_nothing(cellar: Cellar) -> None:
    """What is gone is gone."""
    cellar.keep("garbage")
    cellar.collect()
    again = cellar.collect()
    assert not again.garbage.blobs
    assert again.kept.blobs == {"model versions": 1}


def test_what_was_just_stored_stays(cellar: Cellar) -> None:
    """A blob is written before the transaction that names it, which gets the grace period for it."""
    young, old = cellar.keep("young", days=0.9), cellar.keep("old", days=1.1)
    found = cellar.collect()
    assert young in cellar.digests
    assert old not in cellar.digests
    assert found.kept.blobs["stored within the grace period"] == 1


def test_what_is_stored_again_meanwhile_stays(cellar: Cellar) -> None:
    """Between the look at the database and the removal, somebody stores the same content to name it."""
    wanted, unwanted = cellar.keep("wanted again"), cellar.keep("unwanted")
    opened = 0

    @contextmanager
    def begin() -> Iterator[Session]:
        nonlocal opened
        opened += 1
        with cellar.begin() as session:
            yield session
        if opened == 2:  # the first look is the survey's
            cellar.store.put(b"wanted again")

    found = artefacts.collect(cellar.store, begin, grace=GRACE, actor="gc")
    assert found.garbage.blobs == {_NAMELESS: 2}
    assert found.removed.blobs == {_NAMELESS: 1}
    assert wanted in cellar.digests
    assert unwanted not in cellar.digests


def test_a_kill_between_writing_and_naming_loses_nothing(world: World, cellar: Cellar) -> None:
    """The blob of a job that died before it could hand it in survives until the next attempt names it."""
    model = world.session.scalars(select(Model)).one()
    job = registry.train(world.session, model, Training(dataset="faces"), actor="trainer")
    lease = world.claim(job)
    program = (
        "import os, sys; from models_store.blobs import BlobStore\n"
        "print(BlobStore(sys.argv[1]).put(b'trained'), flush=True); os.kill(os.getpid(), 9)"
    )
    command = [sys.executable, "-c", program, cellar.store.url]
    killed = subprocess.run(command, capture_output=True, text=True, check=False)
    digest = killed.stdout.strip()
    assert killed.returncode == -9
    jobs.give_back(world.session, lease, "its process was ended by SIGKILL", counts=False)
    cellar.collect()
    assert cellar.keep("trained") == digest in cellar.digests
    jobs.finish_computing(world.session, world.claim(job), {"weights": digest, "figures": {"accuracy": {}}})
    cellar.collect()
    assert cellar.store.get(digest) == b"trained"


def test_what_is_known_of_garbage_is_told_and_forgotten(world: World, cellar: Cellar) -> None:
    """Jobs noted what their blobs were: the table says it, and the notes go with the blobs."""
    gone, kept = cellar.keep("gone"), next(iter(cellar.digests - {cellar.keep("gone")}))
    world.request(1)
    assert world.plan() == 1
    job = world.next_job()
    world.compute(job, found=True)
    for digest in (gone, kept):
        jobs.note_artefact(world.session, job, name="weights", digest=digest, rows_digest=None)
    world.settle(job)
    assert job.state is JobState.SUPERSEDED
    assert cellar.survey().garbage.blobs == {"weights of jobs that are superseded": 1}
    following = world.next_job()
    jobs.note_artefact(world.session, following, name="weights", digest=gone, rows_digest=None)
    cellar.collect()
    assert set(world.session.execute(select(Artefact.digest, Artefact.job_id))) == {
        (kept, job.id),
        (gone, following.id),  # it may just be storing it again
    }


def test_the_log_says_how_much_went(world: World, cellar: Cellar) -> None:
    """Numbers alone, from every batch of a large collection, and nothing when nothing went."""
    for number in range(600):
        cellar.keep(f"garbage {number:03d}")
    found = cellar.collect()
    logged = _logged(world)
    assert len(logged) == 2
    assert {fact for entry in logged for fact in entry} == {"blobs", "bytes"}
    assert sum(entry["blobs"] for entry in logged) == found.removed.blobs.total() == 600
    assert sum(entry["bytes"] for entry in logged) == 600 * len("garbage 000")
    cellar.collect()
    assert _logged(world) == logged


def test_an_interrupted_collection_is_on_record(world: World, cellar: Cellar) -> None:
    """When the store fails in the middle, the log has what went before."""
    for number in range(20):
        cellar.keep(f"garbage {number}")
    stubborn = "ff" + "0" * 62
    (cellar.root / "ff" / stubborn).mkdir(parents=True)  # not to be removed as a file
    os.utime(cellar.root / "ff" / stubborn, (0, 0))
    before = cellar.digests
    with pytest.raises(StoreUnavailable):
        cellar.collect()
    removed = len(before - cellar.digests)
    assert sum(entry["blobs"] for entry in _logged(world)) == removed < len(before)


def test_the_store_of_another_database_is_left_alone(session: Session, begin: Begin, cellar: Cellar) -> None:
    """If the database needs nothing of what is there, it is probably the wrong one."""
    for version in session.scalars(select(ModelVersion)):
        version.weights = None
    session.flush()
    cellar.keep("somebody else's")
    before = cellar.digests
    assert cellar.survey().is_all_garbage
    with pytest.raises(NothingNeeded, match="belong together"):
        cellar.collect()
    assert cellar.digests == before


def test_an_empty_store_is_no_reason_to_refuse(begin: Begin, tmp_path: Path) -> None:
    """Before anything was stored there is nothing to find."""
    found = artefacts.collect(BlobStore(str(tmp_path)), begin, grace=GRACE, actor="gc")
    assert not found.kept.blobs
    assert not found.garbage.blobs


def test_abandoned_drafts_go_too(cellar: Cellar) -> None:
    """A dry run counts them; a collection removes them."""
    abandoned = cellar.root / "drafts" / "expunge-draft-of-a-dead-process"
    abandoned.touch()
    os.utime(abandoned, (0, 0))
    assert cellar.survey().drafts == 1
    assert abandoned.exists()
    assert cellar.collect().drafts == 1
    assert not abandoned.exists()


def test_what_is_no_blob_stays(cellar: Cellar) -> None:
    """Other files beside the blobs are not the collector's, such as the journal of requests."""
    other = cellar.root / "journal" / ("ab" * 32)
    other.parent.mkdir()
    other.touch()
    os.utime(other, (0, 0))
    cellar.keep("garbage")
    cellar.collect()
    assert other.exists()


def test_an_object_store_is_collected_alike(world: World, cellar: Cellar, s3_url: str) -> None:
    """On a real S3 server what is needed stays, garbage goes, and what was just stored is spared."""
    store = BlobStore(s3_url)
    needed, garbage = store.put(b"in production"), store.put(b"garbage")
    spared = artefacts.collect(store, cellar.begin, grace=GRACE, actor="gc")
    assert spared.kept.blobs == {"stored within the grace period": 2}
    found = artefacts.collect(store, cellar.begin, grace=-GRACE, actor="gc")
    assert found.kept.blobs == {"model versions": 1}
    assert found.removed.blobs == {_NAMELESS: 1}
    assert store.has(needed)
    assert not store.has(garbage)
