"""Keyed hashes in place of names."""

from __future__ import annotations

import hashlib
import hmac
import stat
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from app.config import Settings
from app.pseudonyms import Pseudonyms, pseudonyms, read_or_create

HERE = uuid.UUID(int=1)


def test_a_pseudonym_is_an_hmac_of_purpose_and_value() -> None:
    """Whoever has the secret can compute it again; nobody else can."""
    expected = hmac.new(b"secret", b"subject\0alice", hashlib.sha256).digest()
    assert Pseudonyms(b"secret").subject("alice") == expected


def test_the_same_value_has_different_pseudonyms_by_purpose() -> None:
    """A subject's hash does not match a sample's, nor one data set's sample another's."""
    names = Pseudonyms(b"secret")
    found = {
        names.subject("alice"),
        *names.samples(HERE, ["alice"]),
        *names.samples(uuid.UUID(int=2), ["alice"]),
        *names.contents([b"alice"]),
        Pseudonyms(b"other secret").subject("alice"),
    }
    assert len(found) == 5


def test_the_keys_id_tells_secrets_apart_without_revealing_them() -> None:
    """Two secrets have two IDs, and an ID is no hash of a value."""
    names = Pseudonyms(b"secret")
    assert names.key_id == Pseudonyms(b"secret").key_id != Pseudonyms(b"other").key_id
    assert len(names.key_id) == 16
    assert "secret" not in names.key_id


def test_a_secret_of_the_settings_is_used(configure: Callable[..., Settings], config: Settings) -> None:
    """The same setting gives the same pseudonyms on every machine, and writes no file."""
    configure(secret_key="one")
    first = pseudonyms().subject("alice")
    configure(secret_key="two")
    assert pseudonyms().subject("alice") != first
    configure(secret_key="one")
    assert pseudonyms().subject("alice") == first
    assert not (config.var / "keys").exists()


def test_without_a_setting_the_machine_keeps_a_secret(
    configure: Callable[..., Settings], config: Settings
) -> None:
    """In a file that only its owner can read, and that every later start finds."""
    configure(secret_key="")
    first = pseudonyms().subject("alice")
    pseudonyms.cache_clear()
    assert pseudonyms().subject("alice") == first
    path = config.var / "keys" / "secret.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_two_first_starts_at_once_keep_one_secret(tmp_path: Path) -> None:
    """Of several processes one wins, and all use its secret; no draft is left."""
    path = tmp_path / "keys" / "secret.key"
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: read_or_create(path), range(16)))
    assert len(found) == 1
    assert len(found.pop()) == 32
    assert list(path.parent.iterdir()) == [path]
