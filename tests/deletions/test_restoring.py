"""A database that was restored from a backup catches up with the journal."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from sqlalchemy import create_engine, make_url, select
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from app.datasets import rows as row_sets
from app.db import engine_for
from app.deletions import journal as journals
from app.deletions import restoring
from app.deletions import service as deletions
from app.deletions.restoring import NotRestorable
from app.deletions.schemas import NewItem, NewRequest
from app.pseudonyms import Pseudonyms, pseudonyms
from app.tables import DatasetVersion, DeletionItem, DeletionRequest, RequestState, Tombstones
from models_store.journal import Journal
from tests.fixtures.world import World

Result = TypeVar("Result")


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """An empty journal."""
    return Journal(str(tmp_path / "store"))


def _copied(url: str, create_database: Callable[[str | None], str]) -> str:
    """A copy of the database as it is now: the backup."""
    engine_for(url).dispose()
    return create_database(make_url(url).database)


def _session(url: str) -> Session:
    return Session(create_engine(url, poolclass=NullPool))


def _happened(url: str, act: Callable[[World], Result], journal: Journal) -> Result:
    """Have something happen in the database, and the scheduler write the journal after it."""
    with _session(url) as session, session.begin():
        result = act(World(session))
        session.flush()
        journals.catch_up(session, journal, limit=10)
    return result


def _request_on_new_data(world: World) -> uuid.UUID:
    world.dataset()
    return world.request(5).id


def _restore(session: Session, journal: Journal) -> int:
    return restoring.restore(session, journal, names=pseudonyms(), actor="operator")


def test_the_journal_shows_what_stands(world: World, journal: Journal) -> None:
    """An accepted request is written down; one that is cancelled or denied is struck out."""
    world.dataset()
    world.trained()
    kept, cancelled, denied = world.request(1), world.request(2), world.request(3)
    assert journals.catch_up(world.session, journal, limit=10) == 3
    assert journal.names() == {kept.id, cancelled.id, denied.id}
    deletions.cancel(world.session, cancelled.id, "a mistake", actor="desk")
    deletions.deny(world.session, denied.id, "not theirs", actor="desk")
    assert journals.catch_up(world.session, journal, limit=10) == 2
    assert journal.names() == {kept.id}
    assert journals.catch_up(world.session, journal, limit=10) == 0


def test_the_journal_holds_no_names(world: World, journal: Journal) -> None:
    """Neither a sample ID nor a subject can be read from it."""
    world.dataset()
    items = [NewItem(sample_id="faces-07"), NewItem(subject="person-3")]
    request = world.accept(NewRequest(dataset="faces", items=items))
    journals.catch_up(world.session, journal, limit=10)
    content = b"\n".join(journal.read(request.id))
    assert b"faces-07" not in content
    assert b"person-3" not in content


@pytest.mark.parametrize("budget", [0, 6])
def test_the_journal_keeps_the_budget(world: World, journal: Journal, budget: int) -> None:
    """A restored request has the one that it was posted with."""
    world.dataset()
    items = [NewItem(sample_id="faces-07")]
    request = world.accept(NewRequest(dataset="faces", items=items, audit_budget=budget))
    journals.catch_up(world.session, journal, limit=10)
    assert journals.read(journal, request.id)[0].audit_budget == budget


@pytest.mark.parametrize(("wanted", "budget"), [(False, 0), (True, 1)])
def test_an_old_journal_can_still_be_read(world: World, journal: Journal, wanted: bool, budget: int) -> None:
    """Its lines were written when it could only be said whether a reference is wanted."""
    world.dataset()
    request = world.request(7)
    journals.catch_up(world.session, journal, limit=10)
    first, *others = journal.read(request.id)
    terms = {name: value for name, value in json.loads(first).items() if name != "audit_budget"}
    journal.write(request.id, [json.dumps({**terms, "reference": wanted}).encode(), *others])
    found, entries = journals.read(journal, request.id)
    assert (found.request_id, found.audit_budget) == (str(request.id), budget)
    assert len(list(entries)) == len(others) == 1


def test_a_restored_database_bars_what_was_deleted_since(
    live_database: str, create_database: Callable[[str | None], str], journal: Journal
) -> None:
    """Rows, items, targets and due dates are as they were; a second replay finds nothing to do."""
    with _session(live_database) as session, session.begin():
        world = World(session)
        world.dataset()
        model_id = world.trained().model_id
    backup = _copied(live_database, create_database)
    with _session(live_database) as session, session.begin():
        items = [NewItem(sample_id="faces-07"), NewItem(subject="person-3"), NewItem(sample_id="unknown")]
        request = World(session).accept(NewRequest(dataset="faces", items=items, external_id="ticket"))
        expected = (request.id, request.external_id, request.due_at)
        covered = row_sets.of_request(session, request.id)
        journals.catch_up(session, journal, limit=10)

    with _session(backup) as session, session.begin():
        assert restoring.gap(session, journal).missing == {expected[0]}
        assert _restore(session, journal) == 1
    with _session(backup) as session, session.begin():
        restored = session.scalars(select(DeletionRequest)).one()
        assert (restored.id, restored.external_id, restored.due_at) == expected
        assert restored.state is RequestState.RECEIVED
        assert row_sets.of_request(session, restored.id) == covered
        assert [target.model_id for target in World(session).targets(restored)] == [model_id]
        named = session.scalars(select(DeletionItem).order_by(DeletionItem.position)).all()
        assert "faces-07" in {item.sample_id for item in named}
        assert World(session).plan() == 1
        assert _restore(session, journal) == 0


def test_a_data_set_that_the_backup_lacks_is_barred_when_it_comes_again(
    live_database: str, create_database: Callable[[str | None], str], journal: Journal
) -> None:
    """Its tombstones wait for it under its name."""
    backup = _copied(live_database, create_database)
    _happened(live_database, _request_on_new_data, journal)
    with _session(backup) as session, session.begin():
        _restore(session, journal)
        world = World(session)
        assert world.tombstoned(world.dataset()) == {5}


def test_what_was_taken_back_since_is_named(
    live_database: str, create_database: Callable[[str | None], str], journal: Journal
) -> None:
    """The restored database would carry it out, so somebody has to take it back again."""

    def request(world: World) -> uuid.UUID:
        world.dataset()
        world.trained()
        return world.request(5).id

    request_id = _happened(live_database, request, journal)
    backup = _copied(live_database, create_database)
    _happened(
        live_database,
        lambda world: deletions.cancel(world.session, request_id, "a mistake", actor="desk"),
        journal,
    )
    with _session(backup) as session, session.begin():
        assert restoring.gap(session, journal).taken_back == {request_id}


def test_another_secret_key_is_noticed(
    live_database: str, create_database: Callable[[str | None], str], journal: Journal
) -> None:
    """Its hashes would match nothing, silently."""
    backup = _copied(live_database, create_database)
    _happened(live_database, _request_on_new_data, journal)
    with _session(backup) as session, session.begin(), pytest.raises(NotRestorable, match="SECRET_KEY"):
        restoring.restore(session, journal, names=Pseudonyms(b"another"), actor="operator")
    with _session(backup) as session:
        assert not session.scalars(select(Tombstones)).all()
        assert not session.scalars(select(DatasetVersion)).all()
