"""Finding what a deletion names, and marking it."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select, text
from sqlalchemy.orm import Session

from app.datasets import service as datasets
from app.datasets.matching import Matches, Named
from app.db import transaction
from app.deletions import service as deletions
from app.deletions.schemas import NewItem, NewRequest
from app.pseudonyms import pseudonyms
from app.tables import DatasetVersion, Tombstones
from tests.fixtures.concurrency import Others
from tests.fixtures.world import ROWS, World, invented_rows


def _find(world: World, *items: Named, dataset_ids: list[uuid.UUID] | None = None) -> list[tuple[Any, ...]]:
    """Position, data set version and ordinal of the rows found."""
    matches = Matches(world.session)
    matches.add(items)
    everywhere = datasets.in_force(world.session, None)
    matches.find(everywhere if dataset_ids is None else dataset_ids)
    query = "SELECT position, dataset_version_id, ordinal FROM matched_rows ORDER BY 1, 2, 3"
    return [tuple(row) for row in world.session.execute(text(query))]


def _sample(sample_id: str) -> Named:
    return Named(0, None, sample_id, None)


def _person(subject: str, dataset_id: uuid.UUID | None = None) -> Named:
    return Named(0, dataset_id, None, pseudonyms().subject(subject))


def test_a_sample_is_found_by_its_id(world: World) -> None:
    """One row, with what a tombstone needs to know of it."""
    version = world.dataset()
    assert _find(world, _sample("faces-07")) == [(0, version.id, 7)]
    found = world.session.execute(text("SELECT dataset_id, sample_id, content_hash FROM matched_rows")).one()
    assert tuple(found) == (version.dataset_id, "faces-07", invented_rows("faces")[7].content_hash)


def test_a_subject_is_found_in_every_row_about_them(world: World) -> None:
    """Rows of all roles count: held-out rows are data about somebody, too."""
    version = world.dataset()
    assert _find(world, _person("person-4")) == [(0, version.id, row) for row in range(4, ROWS, 6)]


def test_many_items_are_found_in_their_order(world: World) -> None:
    """What is unknown is left out."""
    version = world.dataset()
    items = (_person("person-0"), _sample("unknown"), _sample("faces-59"), _sample("faces-01"))
    found = _find(world, *items)
    assert found == [
        *((0, version.id, row) for row in range(0, ROWS, 6)),
        (2, version.id, 59),
        (3, version.id, 1),
    ]


def test_a_sample_is_found_in_every_version_in_force(world: World) -> None:
    """Networks may have been trained on either version."""
    first, second = world.dataset(), world.dataset()
    assert {version_id for _, version_id, _ in _find(world, _sample("faces-07"))} == {first.id, second.id}


def test_only_the_data_set_that_was_named_is_searched(world: World) -> None:
    """The same person may stay in another data set."""
    faces = world.dataset("faces")
    world.dataset("other")
    found = _find(world, _person("person-4", faces.dataset_id))
    assert {version_id for _, version_id, _ in found} == {faces.id}


def test_versions_out_of_force_are_not_searched(world: World) -> None:
    """Neither a retired version nor one that is not ready holds anything that could be deleted."""
    faces = world.dataset()
    datasets.retire(world.session, "faces", "contract ended", actor="desk")
    other = world.register("other")
    both = [faces.dataset_id, other.dataset_id]
    assert _find(world, _sample("faces-07"), dataset_ids=both) == []


def test_one_search_does_not_see_the_one_before(world: World) -> None:
    """Several requests may be matched in one transaction."""
    version = world.dataset()
    _find(world, _sample("faces-07"))
    assert _find(world, _sample("faces-08")) == [(0, version.id, 8)]


def test_a_tombstone_holds_keyed_hashes_only(world: World) -> None:
    """Neither the ID nor the content's own hash can be read from it."""
    version = world.dataset()
    request = world.request(7)
    mark = world.session.scalars(select(Tombstones).filter_by(request_id=request.id)).one()
    content = invented_rows("faces")[7].content_hash
    assert [mark.sample_keys] == pseudonyms().samples(version.dataset_id, ["faces-07"])
    assert [mark.content_keys] == pseudonyms().contents([content]) != [content]
    assert mark.key_id == pseudonyms().key_id


def test_both_contents_of_a_sample_that_changed_are_barred(world: World) -> None:
    """A sample whose versions differ may come back under a new ID with neither content."""
    world.dataset()
    changed = [replace(row, content_hash=bytes([row.ordinal]) * 32) for row in invented_rows("faces")]
    world.load(world.register(), changed)
    world.request(7)
    rows = [
        replace(invented_rows("faces")[7], ordinal=0, sample_id="new-0"),
        replace(changed[7], ordinal=1, sample_id="new-1"),
        replace(changed[8], ordinal=2, sample_id="new-2"),
    ]
    assert world.tombstoned(world.load(world.register(), rows)) == {0, 1}


def test_lifting_one_request_leaves_anothers_marks(world: World) -> None:
    """A sample that two requests name stays barred when one of them is taken back."""
    version = world.dataset()
    world.trained()
    first, _second = world.request(1, 2), world.request(2, 3)
    deletions.cancel(world.session, first.id, "a mistake", actor="desk")
    assert world.tombstoned(version) == {2, 3}


@pytest.mark.parametrize("item", [NewItem(sample_id="faces-05"), NewItem(subject="person-5")])
@pytest.mark.parametrize("named", ["faces", None])
def test_a_version_that_becomes_ready_while_a_request_arrives_is_searched(
    others: Others, item: NewItem, named: str | None
) -> None:
    """A request, with or without a data set named, waits for the load that is about to be committed."""
    with transaction(others.url) as session:
        World(session).dataset()
        version_id = World(session).register().id

    def accept(session: Session) -> None:
        World(session).accept(NewRequest(dataset=named, items=[item]))

    with transaction(others.url) as session:
        version = session.get_one(DatasetVersion, version_id)
        World(session).load(version, invented_rows("faces"))
        accepted = others.stuck(accept)
    accepted.result()
    with transaction(others.url) as session:
        version = session.get_one(DatasetVersion, version_id)
        assert 5 in World(session).tombstoned(version)
