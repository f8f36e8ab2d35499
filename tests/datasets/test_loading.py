"""Loading rows, and keeping out those that were deleted before or meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from app.datasets import rows as row_sets
from app.datasets.loading import Block, Loading
from app.db import transaction
from app.deletions import service as deletions
from app.deletions.schemas import NewItem, NewRequest
from app.pseudonyms import pseudonyms
from app.tables import DatasetState, DatasetVersion, Sample
from models_store.rows import RowSet
from tests.fixtures.concurrency import Others
from tests.fixtures.world import ROWS, TRAIN, InventedRow, World, block_of, invented_rows


def _renamed(rows: list[InventedRow]) -> list[InventedRow]:
    """The same contents under new IDs and without people."""
    return [replace(row, sample_id=f"new-{row.ordinal}", subject=None) for row in rows]


def _repainted(rows: list[InventedRow]) -> list[InventedRow]:
    """Other contents under the same IDs, about the same people."""
    return [replace(row, content_hash=bytes([row.ordinal]) * 32) for row in rows]


def _samples(session: Session, version: DatasetVersion) -> int:
    query = select(func.count()).select_from(Sample).where(Sample.dataset_version_id == version.id)
    return session.scalars(query).one()


def test_loaded_rows_are_the_samples_of_the_version(world: World) -> None:
    """Every row is stored as the reader gave it, its subject as a keyed hash only."""
    version = world.dataset()
    row = invented_rows("faces")[7]
    kept = world.session.get_one(Sample, (version.id, 7))
    assert _samples(world.session, version) == ROWS
    assert (kept.sample_id, kept.label) == (row.sample_id, row.label)
    assert kept.content_hash == row.content_hash
    assert kept.subject_key == pseudonyms().subject("person-1")


def test_a_loaded_version_is_ready_and_says_what_it_holds(world: World) -> None:
    """Rows by role, classes and shape stand with the version."""
    version = world.dataset()
    assert version.state is DatasetState.READY
    assert version.row_count == ROWS
    assert version.role_counts == {"train": 40, "holdout": 10, "test": 10, "quarantined": 0}
    assert (version.num_classes, version.image_shape) == (10, [8, 8, 1])


def test_a_deleted_sample_is_quarantined_by_its_id(world: World) -> None:
    """A new version that brings a deleted sample back, even with another content, may not train on it."""
    world.dataset()
    world.request(3, 4)
    again = world.load(world.register(), _repainted(invented_rows("faces")))
    assert world.tombstoned(again) == {3, 4}
    assert again.role_counts is not None
    assert again.role_counts["quarantined"] == 2


def test_a_deleted_sample_is_quarantined_by_its_content(world: World) -> None:
    """A new ID does not bring a deleted picture back."""
    world.dataset()
    world.request(3, 4)
    again = world.load(world.register(), _renamed(invented_rows("faces")))
    assert world.tombstoned(again) == {3, 4}


def test_a_deleted_subject_stays_out_with_new_samples_too(world: World) -> None:
    """Samples about a deleted person that were never seen before are quarantined."""
    world.dataset()
    world.accept(NewRequest(dataset="faces", items=[NewItem(subject="person-2")]))
    rows = [
        replace(row, sample_id=f"new-{row.ordinal}", content_hash=bytes([row.ordinal]) * 32)
        for row in invented_rows("faces")
    ]
    again = world.load(world.register(), rows)
    assert world.tombstoned(again) == set(range(2, ROWS, 6))


def test_a_sample_deleted_by_id_does_not_bar_its_subject(world: World) -> None:
    """Somebody who had one picture deleted did not ask for all."""
    world.dataset()
    world.request(2)
    again = world.load(world.register(), invented_rows("faces"))
    assert world.tombstoned(again) == {2}


def test_another_data_sets_deletions_do_not_count(world: World) -> None:
    """IDs are unique within their data set only."""
    world.dataset()
    world.request(3)
    assert world.tombstoned(world.load(world.register("other"), invented_rows("faces"))) == set()


def test_a_cancelled_request_bars_nothing(world: World) -> None:
    """Tombstones that were lifted do not quarantine."""
    world.dataset()
    world.trained()
    request = world.request(3)
    deletions.cancel(world.session, request.id, "a mistake", actor="desk")
    assert world.tombstoned(world.load(world.register(), invented_rows("faces"))) == set()


@pytest.mark.parametrize(
    ("item", "barred"),
    [
        (NewItem(sample_id="faces-03"), {3}),
        (NewItem(subject="person-3"), set(range(3, ROWS, 6))),
    ],
)
@pytest.mark.parametrize("change", [_repainted, _renamed, list])
def test_a_deletion_that_arrives_while_rows_load_is_not_missed(
    live_database: str, item: NewItem, barred: set[int], change: type[list[InventedRow]]
) -> None:
    """The new version is covered although its rows were read before the request was accepted."""
    with transaction(live_database) as session:
        World(session).dataset()
        version_id = World(session).register().id

    def arrive() -> None:
        with transaction(live_database) as other:
            World(other).accept(NewRequest(dataset="faces", items=[item]))

    with transaction(live_database) as session:
        world = World(session)
        rows = change(invented_rows("faces"))
        version = world.load(session.get_one(DatasetVersion, version_id), rows, meanwhile=arrive)
        assert world.tombstoned(version) == barred


def test_a_request_taken_back_while_rows_load_bars_nothing(live_database: str) -> None:
    """Its rows were noted while they were read, but it stands no more when they are attached."""
    with transaction(live_database) as session:
        world = World(session)
        world.dataset()
        world.trained()
        request_id, version_id = world.request(3).id, world.register().id

    def cancel() -> None:
        with transaction(live_database) as other:
            deletions.cancel(other, request_id, "a mistake", actor="desk")

    with transaction(live_database) as session:
        world = World(session)
        version = session.get_one(DatasetVersion, version_id)
        assert not world.tombstoned(world.load(version, invented_rows("faces"), meanwhile=cancel))


def test_a_request_taken_back_while_rows_are_attached_bars_nothing(
    live_database: str, others: Others
) -> None:
    """It waits for the new version, and then lifts its tombstones from that one too."""
    with transaction(live_database) as session:
        world = World(session)
        world.dataset()
        world.trained()
        request_id, version_id = world.request(3).id, world.register().id
    with transaction(live_database) as session:
        version = session.get_one(DatasetVersion, version_id)
        World(session).load(version, invented_rows("faces"))
        cancelled = others.stuck(
            lambda other: deletions.cancel(other, request_id, "a mistake", actor="desk").id
        )
        assert not cancelled.done()
    assert cancelled.result() == request_id
    with transaction(live_database) as session:
        assert not row_sets.tombstoned(session, version_id)


def test_a_loaded_version_is_indexed_as_all_samples_are(world: World) -> None:
    """Attaching built no index: each one of the table's stands for one of `samples`."""
    version = world.dataset()
    attached = text(
        "SELECT count(*), bool_and(i.indisvalid)"
        " FROM pg_index i JOIN pg_inherits h ON h.inhrelid = i.indexrelid"
        " WHERE i.indrelid = CAST(:partition AS regclass)"
    )
    indices = text("SELECT count(*) FROM pg_index WHERE indrelid = CAST(:partition AS regclass)")
    partition = {"partition": f"samples_{version.id.hex}"}
    assert world.session.execute(attached, partition).one() == (4, True)
    assert world.session.scalar(indices, partition) == 4
    assert world.session.scalar(indices, {"partition": "samples"}) == 4


def test_a_load_that_breaks_off_can_be_repeated(live_database: str) -> None:
    """Nothing of a broken load is left in the way of the next."""
    with transaction(live_database) as session:
        version_id = World(session).register().id

    def broken() -> Iterator[Block]:
        yield block_of(invented_rows("faces")[:10])
        raise RuntimeError("the machine goes away")

    with pytest.raises(RuntimeError), transaction(live_database) as session:
        Loading(session, version_id, pseudonyms()).copy(broken())
    with transaction(live_database) as session:
        version = session.get_one(DatasetVersion, version_id)
        World(session).load(version, invented_rows("faces"))
        assert _samples(session, version) == ROWS


def test_repeated_ids_are_named_by_their_rows(world: World) -> None:
    """The later rows and the first one with their ID, however far apart."""
    rows = invented_rows("faces")
    twins = [replace(row, sample_id="faces-03") if row.ordinal in (9, 40) else row for row in rows]
    load = Loading(world.session, world.register().id, pseudonyms())
    load.copy([block_of(twins)])
    repeats = load.index()
    assert (repeats.count, repeats.first) == (2, ((9, 3), (40, 3)))


def test_rows_are_relabelled_before_they_are_attached(world: World) -> None:
    """Those that were named, and no other; which rows have a label is told of them as they are then."""
    version = world.register()
    load = Loading(world.session, version.id, pseudonyms())
    load.copy([block_of(invented_rows("faces"))])
    assert load.index().count == 0
    assert set(load.labelled(3)) == set(range(3, ROWS, 10))
    load.relabel(RowSet.of([4, 5, 13]), 3)
    assert set(load.labelled(3)) == {*range(3, ROWS, 10), 4, 5}
    assert set(load.labelled(4)) == set(range(14, ROWS, 10))


def test_a_version_keeps_its_roles_as_sets(world: World) -> None:
    """Which rows train is read as one bitmap."""
    version = world.dataset()
    assert set(row_sets.of_role(world.session, version, "train")) == set(TRAIN)
    assert set(version.role_sets or {}) == {"train", "holdout", "test"}
