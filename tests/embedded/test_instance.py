"""A whole instance as a process: nothing of it outlives it, whatever ends it."""

from __future__ import annotations

import os
import pwd
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from app.embedded import redis_url

_PATIENT = Retry(ConstantBackoff(0.05), retries=200, supported_errors=(redis.ConnectionError, psycopg.Error))

StartInstance = Callable[..., Any]
Survivors = Callable[[list[str]], list[str]]


def _numbers(database: str) -> list[tuple[int]]:
    with psycopg.connect(database) as connection:
        return connection.execute("SELECT number FROM kept").fetchall()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_everything(
    start_instance: StartInstance, survivors: Survivors, number: signal.Signals
) -> None:
    """Each signal ends all parts, the job's own session included, and leaves no socket folder."""
    instance = start_instance()
    assert f"stopped by {number.name}" in instance.end(number)
    assert instance.process.returncode == 0
    assert survivors(instance.marks) == []
    assert not any(Path(socket_folder).exists() for socket_folder in instance.marks[1:])


def test_killing_the_supervisor_kills_everything(start_instance: StartInstance, survivors: Survivors) -> None:
    """After kill -9 nothing stays, and the next start has the data of the killed run."""
    instance = start_instance()
    with psycopg.connect(instance.ready["database"].replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
    instance.end(signal.SIGKILL)
    assert survivors(instance.marks) == []
    again = start_instance()
    assert _numbers(again.ready["database"].replace("+psycopg", "")) == [(7,)]


def test_the_next_start_need_not_wait(start_instance: StartInstance) -> None:
    """A start right after kill -9 waits for the old server by itself."""
    start_instance().end(signal.SIGKILL)
    start_instance()


def test_killed_servers_come_back(start_instance: StartInstance) -> None:
    """The same URLs answer again, PostgreSQL with its data."""
    instance = start_instance()
    database = instance.ready["database"].replace("+psycopg", "")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
    postmaster = (instance.folder / "postgres" / "data" / "postmaster.pid").read_text().split()[0]
    with redis.Redis.from_url(redis_url(instance.ready["broker"]), retry=_PATIENT) as broker:
        valkey = broker.info("server")["process_id"]
        for server in (int(postmaster), valkey):
            os.kill(server, signal.SIGKILL)
        assert broker.info("server")["process_id"] != valkey
    assert _PATIENT.call_with_retry(lambda: _numbers(database), lambda _error: None) == [(7,)]


def test_an_interrupt_reaches_a_background_job(start_instance: StartInstance, survivors: Survivors) -> None:
    """A non-interactive shell starts background jobs with SIGINT ignored."""
    earlier = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        instance = start_instance()
    finally:
        signal.signal(signal.SIGINT, earlier)
    assert "stopped by SIGINT" in instance.end(signal.SIGINT)
    assert survivors(instance.marks) == []


def test_two_instances_do_not_meet(
    start_instance: StartInstance, survivors: Survivors, tmp_path: Path
) -> None:
    """One may be killed while the other goes on."""
    one, two = start_instance(tmp_path / "one"), start_instance(tmp_path / "two")
    one.end(signal.SIGKILL)
    assert survivors(one.marks) == []
    with psycopg.connect(two.ready["database"].replace("+psycopg", "")) as connection:
        connection.execute("SELECT 1")


def test_it_works_without_root(
    start_instance: StartInstance, survivors: Survivors, unprivileged: tuple[str, ...]
) -> None:
    """A normal user's instance runs under that user throughout, and dies as completely."""
    with tempfile.TemporaryDirectory() as folder:
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        instance = start_instance(Path(folder, "var"), unprivileged)
        assert Path(folder, "var", "postgres", "data").stat().st_uid == nobody.pw_uid
        instance.end(signal.SIGKILL)
        assert survivors(instance.marks) == []
