"""The local PostgreSQL: its data under one folder, reachable through a Unix socket only."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
from psycopg import sql

from app.embedded import postmaster
from app.embedded.accounts import Account, account_for, give, named_account
from app.embedded.binaries import postgres_programs
from app.embedded.folders import create_private, locked, socket_folder
from app.embedded.processes import Program
from app.embedded.supervisor import Part, Supervisor

ROLE = "expunge"
DATABASE = "expunge"

_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",  # the parts keep a pool each
    "unix_socket_permissions": "0700",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # A failed statement is reported to its client; its text and values have no place in a log.
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}
# Crash recovery replays the write-ahead log, which may take minutes on a slow disk.
_READY_SECONDS = 900.0


class Postgres:
    """A PostgreSQL server whose data survive restarts.

    Connections are trusted: the socket lies in a folder that only the server's user may enter.

    Args:
        folder: The instance's own folder, created if need be.
        log: The server's log file; `postgres.log` in the folder unless given.
        settings: Server settings beyond the defaults, by name.
    """

    def __init__(
        self, folder: Path, *, log: Path | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self._folder = folder.absolute()
        self._data = self._folder / "data"
        self._log = log or self._folder / "postgres.log"
        self._settings = _SETTINGS | dict(settings or {})

    @contextmanager
    def running(self) -> Iterator[str]:
        """Run the server for the length of the block; yields the URL of its database, for SQLAlchemy."""
        with self.prepared() as part, Supervisor() as supervisor:
            supervisor.start(part)
            yield part.url

    def url_if_running(self) -> str | None:
        """The URL of the database if another process runs the server and it answers."""
        try:
            socket = (self._folder / "socket").readlink()
        except FileNotFoundError:
            return None
        return _url(socket) if _accepts(socket) else None

    @contextmanager
    def prepared(self) -> Iterator[Part]:
        """Have everything ready for a supervisor to start the server: lock, programs, data, socket folder.

        Raises:
            AlreadyRunning: Another process uses the folder.
            EmbeddedError: A condition that the message names.
        """
        create_private(self._folder)
        account = account_for(self._data)
        with (
            locked(self._folder / "lock", f"Another process runs PostgreSQL on {self._folder}."),
            socket_folder(self._folder / "socket", account) as socket,
        ):
            programs = postgres_programs(account)
            if not self._data.exists():
                self._create_data(programs / "initdb", account)
            yield Part(
                program=self._server(programs / "postgres", account, socket),
                url=_url(socket),
                before_start=lambda: postmaster.clear(self._data),
                is_ready=lambda: _accepts(socket),
                ready_seconds=_READY_SECONDS,
            )

    def _server(self, program: Path, account: Account | None, socket: Path) -> Program:
        settings = self._settings | {"unix_socket_directories": str(socket)}
        options = (part for name, value in settings.items() for part in ("-c", f"{name}={value}"))
        return Program(
            name="postgres",
            arguments=(str(program), "-D", _data_argument(self._data, account), *options),
            log=self._log,
            folder=self._data,
            environment={"LC_ALL": "C", "TZ": "UTC"},
            account=account,
            # Fast shutdown, then immediate shutdown, which costs a recovery.
            stop_signals=((signal.SIGINT, 60.0), (signal.SIGQUIT, 10.0)),
            death_signal=signal.SIGINT,
        )

    def _create_data(self, initdb: Path, account: Account | None) -> None:
        """All or nothing: the data get their name when they are complete."""
        builder = named_account()
        with tempfile.TemporaryDirectory(dir=self._folder, prefix="new-") as unfinished:
            data = Path(unfinished, "data")
            data.mkdir(mode=0o700)
            if builder is not None:
                give(data, builder)
            with Supervisor() as supervisor:
                supervisor.finish(self._initdb(initdb, data, builder))
            if account is not None:
                give(data, account)
            data.rename(self._data)

    def _initdb(self, initdb: Path, data: Path, account: Account | None) -> Program:
        options = f"-U {ROLE} --auth=trust --encoding=UTF8 --no-instructions --no-locale"
        options += " --locale-provider=builtin --builtin-locale=C.UTF-8"  # the same order on every system
        options += " --no-sync" if self._settings.get("fsync") == "off" else ""
        return Program(
            name="initdb",
            arguments=(str(initdb), "-D", _data_argument(data, account), *options.split()),
            log=self._log,
            folder=data,
            environment={"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/bin:/bin"},
            account=account,
        )


def _data_argument(data: Path, account: Account | None) -> str:
    """How the server is told its folder.

    A root caller's folder often lies below one that no other user may search, such as /root. The process
    enters it before privileges are dropped, and Linux leads /proc/self/cwd there without looking at the
    path.
    """
    return str(data) if account is None else "/proc/self/cwd"


def _url(socket: Path) -> str:
    return f"postgresql+psycopg://{ROLE}@/{DATABASE}?host={socket}"


def _accepts(socket: Path) -> bool:
    """Whether the server answers a query; the first time, it gets its database."""
    with suppress(psycopg.OperationalError):
        with psycopg.connect(
            host=str(socket), user=ROLE, dbname="postgres", autocommit=True, connect_timeout=5
        ) as connection:
            found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
            if found is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
        return True
    return False
