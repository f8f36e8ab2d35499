"""The local Valkey: the message broker, reachable through a Unix socket only, and keeping nothing on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from app.embedded.accounts import Account, account_for
from app.embedded.binaries import valkey_program
from app.embedded.folders import create_private, locked, socket_folder
from app.embedded.processes import Program
from app.embedded.supervisor import Part, Supervisor

_SETTINGS = {
    "port": "0",
    "unixsocketperm": "700",
    # The database is the truth, from which messages are published again: nothing is saved, nothing evicted.
    "maxmemory-policy": "noeviction",
    "save": "",
    "appendonly": "no",
}
_ONCE = Retry(NoBackoff(), retries=0)


class Valkey:
    """A Valkey server that starts empty.

    The URL is in Celery's form, `redis+socket:///path`; `redis.Redis.from_url` wants the same path as
    `unix:///path`, which `redis_url` gives.

    Args:
        folder: The instance's own folder, created if need be.
        log: The server's log file; `valkey.log` in the folder unless given.
    """

    def __init__(self, folder: Path, *, log: Path | None = None) -> None:
        self._folder = folder.absolute()
        self._log = log or self._folder / "valkey.log"

    @contextmanager
    def running(self) -> Iterator[str]:
        """Run the server for the length of the block; yields its URL, for Celery."""
        with self.prepared() as part, Supervisor() as supervisor:
            supervisor.start(part)
            yield part.url

    @contextmanager
    def prepared(self) -> Iterator[Part]:
        """Have everything ready for a supervisor to start the server: lock, program, socket folder.

        Raises:
            AlreadyRunning: Another process uses the folder.
            EmbeddedError: A condition that the message names.
        """
        create_private(self._folder)
        account = account_for(self._folder)
        with (
            locked(self._folder / "lock", f"Another process runs Valkey on {self._folder}."),
            socket_folder(self._folder / "socket", account) as folder,
        ):
            socket = folder / "valkey.sock"
            yield Part(
                program=self._server(valkey_program(account), account, socket),
                url=f"redis+socket://{socket}",
                is_ready=lambda: _answers(socket),
            )

    def _server(self, program: Path, account: Account | None, socket: Path) -> Program:
        settings = _SETTINGS | {"unixsocket": str(socket)}
        options = (part for name, value in settings.items() for part in (f"--{name}", value))
        return Program(
            name="valkey",
            arguments=(str(program), *options),
            log=self._log,
            folder=socket.parent,  # it insists on reading its folder
            environment={"LC_ALL": "C", "TZ": "UTC"},
            account=account,
        )


def redis_url(broker_url: str) -> str:
    """Celery's URL of a broker as redis-py spells it; they differ for Unix sockets only."""
    return broker_url.replace("redis+socket://", "unix://", 1)


def _answers(socket: Path) -> bool:
    with suppress(redis.ConnectionError), redis.Redis(unix_socket_path=str(socket), retry=_ONCE) as client:
        return bool(client.ping())
    return False
