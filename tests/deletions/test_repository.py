"""Queries on requests and targets."""

from __future__ import annotations

import uuid

from app.deletions import repository
from tests.fixtures.world import World


def test_any_number_of_requests_can_be_finished_at_once(world: World) -> None:
    """One job may carry out more requests than a statement has parameters."""
    world.dataset()
    world.trained()
    request = world.request(1)
    ids = [request.id, *(uuid.uuid4() for _ in range(70_000))]
    assert repository.unfinished(world.session, ids) == {request.id}
    assert repository.failed(world.session, ids) == set()
