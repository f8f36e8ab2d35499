"""The rows that an uploaded version was trained on, by role, by a set, or by a file of sample IDs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from app.config import Settings
from app.datasets import rows as row_sets
from models_store.rows import RowSet
from tests.fixtures.world import TRAIN, World
from workers import validate


@pytest.fixture
def write(tmp_path: Path, configure: Callable[..., Settings]) -> Callable[[bytes], dict[str, str]]:
    """A function that puts a file into a data root and says where it is."""
    configure(data_roots=tmp_path)

    def put(content: bytes) -> dict[str, str]:
        (tmp_path / "ids.txt").write_bytes(content)
        return {"file": str(tmp_path / "ids.txt")}

    return put


def test_rows_are_found_by_role_and_by_digest(world: World) -> None:
    """Both stand for a set that is kept already."""
    version = world.dataset()
    assert set(validate._rows(world.session, version, {"role": "train"})) == set(TRAIN)
    digest = row_sets.keep(world.session, RowSet.of([3, 5]))
    assert set(validate._rows(world.session, version, {"digest": digest})) == {3, 5}


@pytest.mark.parametrize(
    "content",
    [
        b"faces-03\nfaces-05\n",
        b"sample_id\r\nfaces-05\r\n\r\nfaces-03",
        b"\xef\xbb\xbffaces-03\n  faces-05  \nfaces-03\n",
    ],
)
def test_rows_are_found_by_a_file(
    world: World, write: Callable[[bytes], dict[str, str]], content: bytes
) -> None:
    """One ID a line; a heading, gaps and repetitions do not matter."""
    version = world.dataset()
    assert set(validate._rows(world.session, version, write(content))) == {3, 5}


def test_ids_that_are_unknown_are_named_by_their_lines(
    world: World, write: Callable[[bytes], dict[str, str]]
) -> None:
    """Not by what they are. Another version's samples count as unknown, too."""
    version = world.dataset()
    with pytest.raises(validate._WrongRows, match="on 2 lines of the file: 2, 4") as found:
        validate._rows(world.session, version, write(b"faces-03\nsecret\nfaces-05\nother\n"))
    assert "secret" not in str(found.value)


@pytest.mark.parametrize("content", [b"\xff\xfe\n", b"a" * 5000 + b"\n"])
def test_a_file_that_is_no_list_is_refused(
    world: World, write: Callable[[bytes], dict[str, str]], content: bytes
) -> None:
    """Neither binary data nor endless lines."""
    version = world.dataset()
    with pytest.raises(validate._WrongRows, match="cannot be read"):
        validate._rows(world.session, version, write(content))


def test_a_file_outside_the_roots_is_not_read(world: World, write: Callable[[bytes], dict[str, str]]) -> None:
    """Although the job's parameters name it."""
    write(b"")
    version = world.dataset()
    with pytest.raises(validate._WrongRows, match="cannot be read"):
        validate._rows(world.session, version, {"file": "/etc/hostname"})


def test_a_pipe_is_not_waited_for(
    world: World, write: Callable[[bytes], dict[str, str]], tmp_path: Path
) -> None:
    """Only a regular file is opened."""
    write(b"")
    os.mkfifo(tmp_path / "pipe")
    version = world.dataset()
    with pytest.raises(validate._WrongRows, match="cannot be read"):
        validate._rows(world.session, version, {"file": str(tmp_path / "pipe")})
