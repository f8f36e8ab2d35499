from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from models_store.blobs import BlobDamaged, BlobMissing, BlobStore


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(str(tmp_path / "store"))


def test_content_comes_back_under_its_digest(store: BlobStore) -> None:
    """A blob is named by the SHA-256 of its content, and storing it twice changes nothing."""
    digest = store.put(b"weights")
    assert digest == hashlib.sha256(b"weights").hexdigest()
    assert store.put(b"weights") == digest
    assert store.get(digest) == b"weights"
    assert store.has(digest)


def test_drafts_are_moved_not_left(store: BlobStore, tmp_path: Path) -> None:
    """After a put the store holds the blob alone, no draft of it."""
    digest = store.put(b"x")
    root = tmp_path / "store"
    assert {path for path in root.rglob("*") if path.is_file()} == {root / digest[:2] / digest, root / "lock"}


def test_changed_content_is_noticed(store: BlobStore, tmp_path: Path) -> None:
    """A blob whose bytes were altered is refused on reading."""
    digest = store.put(b"weights")
    (tmp_path / "store" / digest[:2] / digest).write_bytes(b"weightz")
    with pytest.raises(BlobDamaged):
        store.get(digest)


def test_absent_and_deleted_blobs_are_missing(store: BlobStore) -> None:
    """Reading what is not there says so; deleting it again is no fault."""
    digest = store.put(b"x")
    store.delete(digest)
    store.delete(digest)
    assert not store.has(digest)
    with pytest.raises(BlobMissing):
        store.get(digest)


@pytest.mark.parametrize("name", ["../../etc/passwd", "A" * 64, "ab"])
def test_only_digests_name_blobs(store: BlobStore, name: str) -> None:
    """A name that is not 64 lower-case hexadecimal digits never reaches the file system."""
    with pytest.raises(ValueError, match="64 lower-case"):
        store.get(name)


def test_any_fsspec_url_is_a_store() -> None:
    """The same calls work on another file system than the local one."""
    store = BlobStore("memory://blobs-test")
    digest = store.put(b"x")
    assert store.get(digest) == b"x"
    store.delete(digest)
    assert not store.has(digest)
