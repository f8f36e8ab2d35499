"""The same key and payload get the same answer; whatever happens, nothing is done twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy.orm import Session

from app.callers.idempotency import Answer, KeyReused, once
from app.callers.service import Caller
from app.db import transaction
from app.tables import IdempotencyKey
from tests.fixtures.concurrency import Others
from tests.fixtures.world import World


class _Order(BaseModel):
    """What is asked for."""

    number: int


class _Counter:
    """A route that counts how often it acted."""

    def __init__(self) -> None:
        self.acted = 0

    def __call__(self) -> Answer:
        self.acted += 1
        return Answer(_Order(number=self.acted), location=f"/orders/{self.acted}")


@pytest.fixture
def act() -> _Counter:
    """A route that has not acted yet."""
    return _Counter()


def _call(
    session: Session, caller: Caller, key: str | None, act: Callable[[], Answer], **changed: Any
) -> JSONResponse:
    terms: dict[str, Any] = {"route": "orders", "payload": _Order(number=7), **changed}
    return once(session, caller, key, act=act, **terms)


def _body(response: JSONResponse) -> Any:
    return json.loads(bytes(response.body))


def test_the_same_key_and_payload_act_once(world: World, act: _Counter) -> None:
    """The second answer is the first one again, and says that it is."""
    caller = world.caller()
    first, second = (_call(world.session, caller, "key", act) for _ in range(2))
    assert act.acted == 1
    assert _body(first) == _body(second) == {"number": 1}
    assert first.status_code == second.status_code == 202
    assert first.headers["Location"] == second.headers["Location"] == "/orders/1"
    assert "Idempotency-Replayed" not in first.headers
    assert second.headers["Idempotency-Replayed"] == "true"
    assert first.headers["Retry-After"] == second.headers["Retry-After"]


@pytest.mark.parametrize("changed", [{"payload": _Order(number=8)}, {"route": "returns"}])
def test_the_same_key_for_something_else_is_refused(
    world: World, act: _Counter, changed: dict[str, Any]
) -> None:
    """Another payload, or another route, under a key that was used is a mistake."""
    caller = world.caller()
    _call(world.session, caller, "key", act)
    with pytest.raises(KeyReused):
        _call(world.session, caller, "key", act, **changed)
    assert act.acted == 1


def test_another_callers_same_key_is_another_key(world: World, act: _Counter) -> None:
    """Callers cannot see nor spoil each other's answers."""
    for caller in (world.caller("one"), world.caller("two")):
        _call(world.session, caller, "key", act)
    assert act.acted == 2


def test_without_a_key_every_call_acts(world: World, act: _Counter) -> None:
    """Nothing is kept."""
    caller = world.caller()
    for _ in range(2):
        _call(world.session, caller, None, act)
    assert act.acted == 2
    assert world.counts()["idempotency_keys"] == 0


def test_a_quoted_key_is_the_same_key(world: World, act: _Counter) -> None:
    """The header is a structured string by its draft; both spellings are in use."""
    caller = world.caller()
    for key in ("key", '"key"'):
        _call(world.session, caller, key, act)
    assert act.acted == 1


def test_a_failed_first_try_leaves_the_key_unused(others: Others, act: _Counter) -> None:
    """The same key may be sent again, even with the fault corrected."""
    with transaction(others.url) as session:
        caller = World(session).caller()

    def fail() -> Answer:
        raise RuntimeError("nothing of it was done")

    with pytest.raises(RuntimeError), transaction(others.url) as session:
        _call(session, caller, "key", fail)
    with transaction(others.url) as session:
        assert _call(session, caller, "key", act, payload=_Order(number=8)).status_code == 202
    assert act.acted == 1


def test_two_calls_at_once_act_once(others: Others, act: _Counter) -> None:
    """The second waits until the first has committed, and then repeats its answer."""
    with transaction(others.url) as session:
        caller = World(session).caller()
    call = partial(_call, caller=caller, key="key", act=act)
    with transaction(others.url) as session:
        first = call(session)
        second = others.stuck(call)
        assert not second.done()
    assert _body(second.result()) == _body(first)
    assert act.acted == 1


def test_the_second_of_two_calls_acts_if_the_first_fails(others: Others, act: _Counter) -> None:
    """A rolled back call has not used its key."""
    with transaction(others.url) as session:
        caller = World(session).caller()
    call = partial(_call, caller=caller, key="key", act=act)
    with transaction(others.url) as session:
        call(session)
        second = others.stuck(call)
        session.rollback()
    assert _body(second.result()) == {"number": 2}
    with transaction(others.url) as session:
        assert session.get_one(IdempotencyKey, (caller.id, "key")).location == "/orders/2"
