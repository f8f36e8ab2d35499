"""The local PostgreSQL."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DataError
from sqlalchemy.pool import NullPool

from app.embedded import AlreadyRunning, PartFailed, Postgres
from app.embedded.folders import socket_folder
from app.embedded.processes import Process

_FAST = {"fsync": "off"}


@pytest.fixture
def query() -> Callable[[str, str], list[object]]:
    """A function that runs one statement on a URL and returns the first column."""

    def run(url: str, statement: str) -> list[object]:
        engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            result = connection.execute(text(statement))
            return [row[0] for row in result] if result.returns_rows else []

    return run


Query = Callable[[str, str], list[object]]


def test_data_survive_a_restart(tmp_path: Path, query: Query) -> None:
    """What one run committed, the next run has."""
    with Postgres(tmp_path, settings=_FAST).running() as url:
        query(url, "CREATE TABLE kept AS SELECT 7 AS number")
    with Postgres(tmp_path, settings=_FAST).running() as url:
        assert query(url, "SELECT number FROM kept") == [7]


def test_two_folders_are_two_servers(tmp_path: Path, query: Query) -> None:
    """Side by side, neither sees the other's tables."""
    one, two = Postgres(tmp_path / "one", settings=_FAST), Postgres(tmp_path / "two", settings=_FAST)
    with one.running() as first, two.running() as second:
        query(first, "CREATE TABLE mine (number int)")
        assert query(second, "SELECT count(*) FROM pg_tables WHERE tablename = 'mine'") == [0]


def test_a_folder_has_one_user(tmp_path: Path) -> None:
    """A second server on the same folder is refused, and the first goes on."""
    with Postgres(tmp_path, settings=_FAST).running() as url:
        with pytest.raises(AlreadyRunning, match=str(tmp_path)), Postgres(tmp_path).running():
            pass
        with psycopg.connect(url.replace("+psycopg", "")) as connection:
            connection.execute("SELECT 1")


def test_others_find_it_while_it_runs(tmp_path: Path, query: Query) -> None:
    """The folder tells another program where the database is, and nothing when there is none."""
    assert Postgres(tmp_path).url_if_running() is None
    with Postgres(tmp_path, settings=_FAST).running() as url:
        assert Postgres(tmp_path).url_if_running() == url
    assert Postgres(tmp_path).url_if_running() is None


def test_only_its_user_may_reach_it(tmp_path: Path, query: Query) -> None:
    """No TCP port; sockets and data lie in folders closed to others; the folders above stay as they were."""
    folder = tmp_path / "closed" / "postgres"
    folder.parent.mkdir(mode=0o700)
    with Postgres(folder, settings=_FAST).running() as url:
        assert query(url, "SHOW listen_addresses") == [""]
        for private in (folder, folder / "data", (folder / "socket").readlink()):
            assert stat.S_IMODE(private.stat().st_mode) == 0o700
        assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
        assert (folder / "data").stat().st_uid != 0


def test_a_long_path_works(tmp_path: Path, query: Query) -> None:
    """The path of the folder may be longer than the address of a socket can be."""
    folder = tmp_path / ("long" * 40) / ("longer" * 20)
    with Postgres(folder, settings=_FAST).running() as url:
        assert query(url, "SELECT 1") == [1]


def test_the_socket_folder_goes_with_the_server(tmp_path: Path) -> None:
    """Neither the folder nor the link to it stays, not even those of a killed run."""
    with socket_folder(tmp_path / "socket", None) as left:
        (tmp_path / "socket").rename(tmp_path / "kept")
    (tmp_path / "kept").rename(tmp_path / "socket")
    with Postgres(tmp_path, settings=_FAST).running():
        current = (tmp_path / "socket").readlink()
        assert not left.exists()
    assert not current.exists()
    assert not (tmp_path / "socket").is_symlink()


def test_a_copied_link_removes_nothing(tmp_path: Path) -> None:
    """A copy of an instance's folder is another instance: it leaves the first one's socket alone."""
    with socket_folder(tmp_path / "first", None) as first:
        (tmp_path / "copy").symlink_to(first)
        with socket_folder(tmp_path / "copy", None) as second:
            assert second != first
        assert first.exists()


def test_a_stale_pid_file_harms_nobody(tmp_path: Path, query: Query) -> None:
    """A PID file that names an unrelated process neither stops the start nor costs that process its life."""
    with Postgres(tmp_path, settings=_FAST).running():
        recorded = (tmp_path / "data" / "postmaster.pid").read_text().splitlines()
    owner = (tmp_path / "data").stat()
    with subprocess.Popen(["sleep", "60"], user=owner.st_uid if os.geteuid() == 0 else None) as unrelated:
        stale = tmp_path / "data" / "postmaster.pid"
        stale.write_text("\n".join([str(unrelated.pid), *recorded[1:]]) + "\n")
        os.chown(stale, owner.st_uid, owner.st_gid)
        with Postgres(tmp_path, settings=_FAST).running() as url:
            assert query(url, "SELECT 1") == [1]
        assert unrelated.poll() is None
        unrelated.kill()


def test_an_orphaned_server_is_succeeded(tmp_path: Path) -> None:
    """A server that outlived its supervisor is stopped before a new one starts on its data."""
    with Postgres(tmp_path, settings=_FAST).prepared() as part:
        orphan = Process(part.program)
        try:
            while not part.is_ready():
                time.sleep(0.02)
            part.before_start()
            assert orphan.exit_code() == 0
        finally:
            orphan.stop()


def test_a_failed_start_shows_the_log(tmp_path: Path) -> None:
    """The message ends with what the server itself said."""
    server = Postgres(tmp_path, settings={"no_such_setting": "1"})
    with pytest.raises(PartFailed, match="unrecognized configuration parameter"), server.running():
        pass


def test_values_of_failed_statements_are_not_logged(tmp_path: Path, query: Query) -> None:
    """Neither the statement nor its values reach the log."""
    with Postgres(tmp_path, settings=_FAST).running() as url, pytest.raises(DataError):
        query(url, "SELECT 'subject-4711'::int")
    assert "4711" not in (tmp_path / "postgres.log").read_text()


def test_a_killed_server_recovers(tmp_path: Path, query: Query) -> None:
    """After SIGKILL of the server, committed rows are there at the next start."""
    with Postgres(tmp_path, settings=_FAST).running() as url:
        query(url, "CREATE TABLE kept AS SELECT 7 AS number")
        os.kill(int((tmp_path / "data" / "postmaster.pid").read_text().splitlines()[0]), signal.SIGKILL)
    with Postgres(tmp_path, settings=_FAST).running() as url:
        assert query(url, "SELECT number FROM kept") == [7]
