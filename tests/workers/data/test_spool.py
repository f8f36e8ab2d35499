"""Copies of rows in a file without a name."""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from app.jobs.params import SklearnDigits
from models_store.rows import RowSet
from workers.data.digits import DigitsReader
from workers.data.manifest import Manifest
from workers.data.reader import DataChanged, DataMissing
from workers.data.spool import NoRoom, Spool, spool
from workers.monitor import Cancelled, Silent

DIGITS = DigitsReader("", SklearnDigits())


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_images_come_back_by_their_places(temporary: Path) -> None:
    """Of any sizes, none among them."""
    images = [b"first", b"", b"third" * 1000, b"last"]
    copy = Spool()
    for image in images:
        copy.append(image)
    assert [copy.image(place) for place in (3, 2, 1, 0)] == images[::-1]


def test_a_copy_leaves_no_file_behind(temporary: Path) -> None:
    """It has no name even while it is used, so nothing is left when the process is killed."""
    copy, _ = spool(DIGITS, RowSet.below(1797), None, Silent())
    assert not list(temporary.iterdir())
    assert len(copy.image(1796)) == 64


def test_wanted_rows_are_copied_with_their_labels() -> None:
    """In the order of their ordinals."""
    wanted = RowSet.of([3, 700, 1796])
    copy, labels = spool(DIGITS, wanted, None, Silent())
    (chunk,) = DIGITS.chunks(wanted)
    assert [copy.image(place) for place in range(3)] == list(chunk.images)
    assert np.array_equal(labels, chunk.labels)


def test_changed_rows_are_all_named() -> None:
    """Every hash is compared in the one pass."""
    hashes = np.zeros((1797, 32), dtype=np.uint8)
    with pytest.raises(DataChanged, match=r"^2 rows .*rows 3, 700"):
        spool(DIGITS, RowSet.of([3, 700]), Manifest(hashes), Silent())


def test_rows_that_are_not_there_are_missing() -> None:
    """The data set may have become shorter."""
    with pytest.raises(DataMissing, match="2 of 3"):
        spool(DIGITS, RowSet.of([3, 1797, 2000]), None, Silent())


def test_copying_can_be_cancelled() -> None:
    """Between two chunks."""

    class Stop(Silent):
        def check_cancelled(self) -> None:
            raise Cancelled

    with pytest.raises(Cancelled):
        spool(DIGITS, RowSet.below(1797), None, Stop())


@contextmanager
def _files_of_at_most(size: int) -> Iterator[None]:
    """No file of this process grows beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_folder_is_said(temporary: Path) -> None:
    """The fault names what the operator can change."""
    copy = Spool()
    with _files_of_at_most(10_000), pytest.raises(NoRoom, match="TMPDIR"):
        copy.append(bytes(20_000))
