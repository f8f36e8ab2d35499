from __future__ import annotations

import hashlib

import numpy as np
import pytest

from app.jobs.params import SklearnDigits
from models_store.blobs import BlobMissing, BlobStore
from models_store.rows import RowSet
from workers.data.digits import DigitsReader
from workers.data.loading import content_hashes, load
from workers.data.manifest import Manifest, open_manifest
from workers.data.reader import DataChanged

DIGITS = DigitsReader("", SklearnDigits())


@pytest.fixture
def store() -> BlobStore:
    return BlobStore("memory://manifests")


@pytest.fixture
def hashes() -> list[bytes]:
    """The hashes of the digits, row by row."""
    return [digest for chunk in DIGITS.chunks() for digest in content_hashes(DIGITS, chunk)]


def _of(hashes: list[bytes]) -> Manifest:
    return Manifest(np.frombuffer(b"".join(hashes), dtype=np.uint8).reshape(-1, 32))


def test_a_manifest_is_read_from_the_store(store: BlobStore, hashes: list[bytes]) -> None:
    """Its file is gone once it is open, its content is not."""
    manifest = open_manifest(store, store.put(b"".join(hashes)))
    assert manifest.hashes.shape == (1797, 32)
    assert manifest.hashes[1796].tobytes() == hashes[1796]


def test_an_absent_manifest_is_missing(store: BlobStore) -> None:
    """There is no data set to check then, and no word of agreement."""
    with pytest.raises(BlobMissing):
        open_manifest(store, hashlib.sha256(b"never stored").hexdigest())


def test_unchanged_rows_are_loaded(hashes: list[bytes]) -> None:
    """Rows that agree with the manifest come as they would without one."""
    wanted = RowSet.of([3, 900, 1796])
    images, labels = load(DIGITS, wanted, (8, 8, 1), _of(hashes))
    unchecked, _ = load(DIGITS, wanted, (8, 8, 1))
    assert np.array_equal(images, unchecked)
    assert len(labels) == 3


def test_changed_rows_are_named_and_counted(hashes: list[bytes]) -> None:
    """The message says how many, which first, and what to do; other rows' changes do not matter."""
    for ordinal in range(100, 112):
        hashes[ordinal] = bytes(32)
    with pytest.raises(
        DataChanged, match=r"^12 rows hold other images .*rows 100, 101, .* 109, ….* new version"
    ):
        load(DIGITS, RowSet.of(range(200)), (8, 8, 1), _of(hashes))
    load(DIGITS, RowSet.of(range(100)), (8, 8, 1), _of(hashes))


def test_rows_beyond_the_manifest_are_changes(hashes: list[bytes]) -> None:
    """A file that grew has rows that were never registered."""
    with pytest.raises(DataChanged, match=r"^2 rows .*rows 1795, 1796"):
        _of(hashes[:-2]).check(np.arange(1797), hashes)
