"""API keys: shown once, kept as digests, checked on every request."""

from __future__ import annotations

import hashlib
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from app.callers import service
from app.callers.service import Scope, Unauthenticated
from app.errors import NotFound
from app.tables import ApiKey
from tests.fixtures.world import World


def _issue(world: World) -> tuple[ApiKey, str]:
    return service.issue(world.session, name="desk", scopes=[Scope.JOBS_READ], actor="test")


def test_a_keys_secret_is_not_stored(world: World) -> None:
    """Only its SHA-256 is; the prefix tells keys apart."""
    key, secret = _issue(world)
    assert key.digest == hashlib.sha256(secret.encode()).digest()
    assert secret.startswith(key.prefix)
    stored = [getattr(key, column.key) for column in ApiKey.__mapper__.column_attrs]
    assert secret not in map(str, stored)


def test_secrets_are_long_and_different(world: World) -> None:
    """256 random bits each."""
    secrets = {_issue(world)[1] for _ in range(10)}
    assert len(secrets) == 10
    assert min(len(secret.split("_", 2)[2]) for secret in secrets) == 43


def test_issuing_is_logged_without_the_secret(world: World) -> None:
    """Who issued which key is on record."""
    key, _ = _issue(world)
    assert world.changes(key.id) == [("test", "issued", None)]


def test_a_secret_identifies_its_caller(world: World) -> None:
    """With the scopes of the key, and by a name that the audit log can show."""
    key, secret = _issue(world)
    caller = service.authenticate(world.session, secret)
    assert (caller.id, caller.scopes) == (key.id, frozenset({"jobs:read"}))
    assert caller.actor == f"desk ({key.prefix})"


@pytest.mark.parametrize("secret", ["", "exp_", "exp_12345678_unknown", "é" * 100])
def test_an_unknown_secret_identifies_nobody(world: World, secret: str) -> None:
    """Nor does its prefix alone."""
    _issue(world)
    with pytest.raises(Unauthenticated):
        service.authenticate(world.session, secret)


def test_a_revoked_key_is_out_of_force_at_once(world: World) -> None:
    """And the revocation is on record, once."""
    key, secret = _issue(world)
    service.authenticate(world.session, secret)
    for _ in range(2):
        service.revoke(world.session, key.id, actor="officer")
    with pytest.raises(Unauthenticated):
        service.authenticate(world.session, secret)
    assert world.changes(key.id).count(("officer", "revoked", None)) == 1


def test_an_expired_key_is_out_of_force(world: World) -> None:
    """It works until its time is over."""
    key, secret = _issue(world)
    key.expires_at = datetime.now(UTC) + timedelta(minutes=1)
    service.authenticate(world.session, secret)
    key.expires_at = datetime.now(UTC)
    with pytest.raises(Unauthenticated):
        service.authenticate(world.session, secret)


def test_the_last_use_of_a_key_is_kept_to_the_minute(world: World) -> None:
    """Not every request writes."""
    key, secret = _issue(world)
    service.authenticate(world.session, secret)
    first = key.last_used_at
    service.authenticate(world.session, secret)
    assert key.last_used_at == first is not None
    key.last_used_at = datetime.now(UTC) - timedelta(minutes=2)
    service.authenticate(world.session, secret)
    assert key.last_used_at > datetime.now(UTC) - timedelta(minutes=1)


def test_revoking_what_is_not_there_is_not_found(world: World) -> None:
    """There is no such key."""
    with pytest.raises(NotFound):
        service.revoke(world.session, uuid.uuid4(), actor="officer")


def test_the_first_start_makes_one_admin_key(world: World) -> None:
    """With every scope, shown this once; later starts make none."""
    secret = service.ensure_admin_key(world.session, None)
    assert secret is not None
    assert service.authenticate(world.session, secret).scopes == set(Scope)
    assert service.ensure_admin_key(world.session, None) is None
    assert world.counts()["api_keys"] == 1


def test_the_operators_own_admin_key_is_made_once(world: World) -> None:
    """The secret of the settings works, also beside keys that are there already."""
    _issue(world)
    for _ in range(2):
        service.ensure_admin_key(world.session, "the operator's own secret")
    assert service.authenticate(world.session, "the operator's own secret").name == "admin"
    assert world.counts()["api_keys"] == 2


def test_a_revoked_admin_key_does_not_come_back(world: World) -> None:
    """A restart with the same setting does not undo a revocation."""
    service.ensure_admin_key(world.session, "the operator's own secret")
    key = world.session.scalars(select(ApiKey)).one()
    service.revoke(world.session, key.id, actor="officer")
    service.ensure_admin_key(world.session, "the operator's own secret")
    with pytest.raises(Unauthenticated):
        service.authenticate(world.session, "the operator's own secret")


def test_keys_are_listed_in_order(world: World) -> None:
    """Oldest first, revoked ones included."""
    keys = [_issue(world)[0].id for _ in range(3)]
    service.revoke(world.session, keys[0], actor="officer")
    assert {key.id for key in service.list_keys(world.session)} == set(keys)
