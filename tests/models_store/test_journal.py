"""Named files of lines beside the blobs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from models_store.blobs import StoreUnavailable
from models_store.journal import Journal

_NAME, _OTHER = uuid.UUID(int=1), uuid.UUID(int=2)


@pytest.fixture(params=["folder", "memory"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Journal:
    """An empty journal, in a folder or among objects."""
    return Journal(str(tmp_path / "store") if request.param == "folder" else f"memory://{uuid.uuid4().hex}")


def test_lines_come_back_as_they_were_written(journal: Journal) -> None:
    """Each file by its name; writing again replaces it."""
    assert journal.names() == set()
    journal.write(_NAME, [b"one", b"", b"three"])
    journal.write(_OTHER, [])
    assert journal.names() == {_NAME, _OTHER}
    assert list(journal.read(_NAME)) == [b"one", b"", b"three"]
    assert list(journal.read(_OTHER)) == []
    journal.write(_NAME, (str(number).encode() for number in range(1000)))
    assert len(list(journal.read(_NAME))) == 1000


def test_a_file_is_removed(journal: Journal) -> None:
    """Removing an absent one changes nothing."""
    journal.write(_NAME, [b"one"])
    journal.remove(_NAME)
    journal.remove(_NAME)
    assert journal.names() == set()


def test_a_file_that_breaks_off_is_not_written(tmp_path: Path) -> None:
    """The one before it stays, and nothing else is left."""
    journal = Journal(str(tmp_path))
    journal.write(_NAME, [b"whole"])

    def broken() -> Iterator[bytes]:
        yield b"half"
        raise RuntimeError("the database is gone")

    with pytest.raises(RuntimeError):
        journal.write(_NAME, broken())
    assert list(journal.read(_NAME)) == [b"whole"]
    assert len(list((tmp_path / "journal").iterdir())) == 1


def test_a_store_that_cannot_be_written_is_said_to_be_that(tmp_path: Path) -> None:
    """Whatever the file system raises."""
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable):
        Journal(str(tmp_path / "file")).write(_NAME, [b"one"])
