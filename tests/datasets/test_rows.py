"""Sets of rows in the database."""

from __future__ import annotations

from app.datasets import rows
from app.deletions.schemas import NewItem, NewRequest
from models_store.rows import RowSet
from tests.fixtures.world import HOLDOUT, ROWS, TEST, TRAIN, World


def test_a_set_is_kept_once_and_read_back(world: World) -> None:
    """The same rows have one row of the table, under their digest."""
    wanted = RowSet.of([3, 1, 4])
    digest = rows.keep(world.session, wanted)
    assert rows.keep(world.session, RowSet.of([4, 3, 1])) == digest
    assert rows.read(world.session, digest) == wanted
    assert world.counts()["row_sets"] == 1


def test_rows_are_found_by_their_role(world: World) -> None:
    """Every row has one role."""
    version = world.dataset()
    assert set(rows.of_role(world.session, version, "train")) == set(TRAIN)
    assert set(rows.of_role(world.session, version, "holdout")) == set(HOLDOUT)
    assert set(rows.of_role(world.session, version, "test")) == set(TEST)
    assert len(rows.of_role(world.session, version, "validation")) == 0


def test_a_request_knows_its_rows_by_data_set_version(world: World) -> None:
    """Each version of the data set holds them at places of its own."""
    first, second = world.dataset(), world.dataset()
    request = world.request(8, 2)
    assert rows.of_request(world.session, request.id) == {
        first.id: RowSet.of([2, 8]),
        second.id: RowSet.of([2, 8]),
    }


def test_rows_of_the_same_people_are_found(world: World) -> None:
    """They are rows of those whose training rows are to be forgotten, and of nobody else."""
    version = world.dataset()
    found = rows.kin(world.session, version, RowSet.of([1, 4, 7]))
    assert set(found) == {ordinal for ordinal in range(ROWS) if ordinal % 6 in (1, 4)}


def test_a_person_who_left_still_serves_as_the_comparison(world: World) -> None:
    """The audit of a deletion may read the deleted person's own held-out rows."""
    version = world.dataset()
    world.accept(NewRequest(dataset="faces", items=[NewItem(subject="person-1")]))
    assert len(rows.kin(world.session, version, RowSet.of([1]))) == ROWS // 6


def test_kin_are_found_for_any_number_of_rows_to_forget(world: World) -> None:
    """A request may name more rows than a statement has parameters."""
    version = world.dataset()
    assert len(rows.kin(world.session, version, RowSet.of(range(70_000)))) == ROWS
