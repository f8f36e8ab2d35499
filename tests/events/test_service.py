"""The audit log and the outbox."""

from __future__ import annotations

from sqlalchemy import select

from app.db import transaction
from app.events import service
from app.tables import AuditEntry, OutboxMessage
from tests.fixtures.concurrency import Others
from tests.fixtures.world import World


def test_a_change_is_recorded_with_its_facts(world: World) -> None:
    """Who did what to which row, why, and what else is worth knowing."""
    service.record(
        world.session, actor="desk", action="sealed", entity="Box", entity_id="7", reason="full", size=3
    )
    world.session.flush()
    entry = world.session.scalars(select(AuditEntry)).one()
    assert (entry.actor, entry.action, entry.entity, entry.entity_id) == ("desk", "sealed", "Box", "7")
    assert (entry.reason, entry.facts) == ("full", {"size": 3})
    assert entry.at is not None


def test_messages_are_relayed_in_their_order(world: World) -> None:
    """Oldest first, as many as are asked for, each until it is marked."""
    for number in range(5):
        service.emit(world.session, "counted", number=number)
    first = service.unpublished(world.session, 3)
    assert [message.payload["number"] for message in first] == [0, 1, 2]
    for message in first:
        service.mark_published(message)
    assert [message.payload["number"] for message in service.unpublished(world.session, 3)] == [3, 4]


def test_two_relays_never_hold_the_same_message(others: Others) -> None:
    """The second takes what the first has not locked."""
    with transaction(others.url) as session:
        for number in range(4):
            service.emit(session, "counted", number=number)

    with transaction(others.url) as session:
        held = {message.id for message in service.unpublished(session, 2)}
        others_held = others.start(
            lambda other: {message.id for message in service.unpublished(other, 10)}
        ).result()
    assert len(held) == 2
    assert len(others_held) == 2
    assert held.isdisjoint(others_held)


def test_a_rolled_back_change_tells_nobody(live_database: str) -> None:
    """Neither the log nor the outbox knows of what has not happened."""
    with transaction(live_database) as session:
        service.emit(session, "happened")
        service.record(session, actor="desk", action="did", entity="Box", entity_id="7")
        session.flush()
        session.rollback()
    with transaction(live_database) as session:
        assert session.scalars(select(OutboxMessage)).all() == []
        assert session.scalars(select(AuditEntry)).all() == []
