"""The whole service on this machine: servers without a URL, then migrations, scheduler, worker and API."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from app.callers.service import ensure_admin_key
from app.config import Settings
from app.db import DatabaseNotConfigured
from app.embedded.errors import AlreadyRunning, EmbeddedError
from app.embedded.folders import create_private, locked
from app.embedded.postgres import Postgres
from app.embedded.processes import Program
from app.embedded.supervisor import Part, Supervisor
from app.embedded.valkey import Valkey
from app.migrate import upgrade

_BACKLOG = 1024


@dataclass(frozen=True)
class Service:
    """A running service.

    Attributes:
        address: Its URL, without a slash at the end.
        settings: What its parts were started with, URLs filled in.
        admin_key: The secret of the admin key, if this start created one.
    """

    address: str
    settings: Settings
    admin_key: str | None


@contextmanager
def running_service(settings: Settings, supervisor: Supervisor) -> Iterator[Service]:
    """Start everything, and stop it at the end of the block; `supervisor.watch()` restarts what dies.

    Raises:
        AlreadyRunning: The folder or the port is in use; nothing was started.
        PartFailed: A part did not start; the message ends with its log.
        EmbeddedError: Another condition that the message names.
    """
    var = create_private(settings.var)
    create_private(var / "logs")
    with ExitStack() as stack:
        stack.enter_context(locked(var / "lock", f"Expunge already runs on {var}."))
        listener = stack.enter_context(listening(settings.host, settings.port))
        settings, servers = _prepare_servers(stack, settings.model_copy(update={"var": var}))
        stack.enter_context(supervisor)
        for server in servers:
            supervisor.start(server)
        upgrade(str(settings.database_url))
        admin_key = create_admin_key(settings)
        for name in ("scheduler", "worker"):
            supervisor.start(Part(program=_own_program(settings, name)))
        api = _api(settings, listener)
        supervisor.start(api)
        yield Service(api.url, settings, admin_key)


def create_admin_key(settings: Settings) -> str | None:
    """Make the admin key of a database that lacks it; returns its secret only if one was made."""
    secret = settings.admin_key.get_secret_value() if settings.admin_key else None
    engine = create_engine(str(settings.database_url), poolclass=NullPool, hide_parameters=True)
    with Session(engine) as session, session.begin():
        return ensure_admin_key(session, secret)


def database_url(settings: Settings) -> str:
    """The settings' database, or the one of a service that runs on the same folder.

    Raises:
        DatabaseNotConfigured: There is neither.
    """
    url = settings.database_url or Postgres(settings.var / "postgres").url_if_running()
    if url is None:
        raise DatabaseNotConfigured(
            f"EXPUNGE_DATABASE_URL is not set, and no service runs on the folder {settings.var}."
        )
    return url


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A listening TCP socket, held open for the length of the block.

    Raises:
        AlreadyRunning: The port is in use.
        EmbeddedError: The address is none of this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise AlreadyRunning(
                f"Port {port} on {host} is in use. Set EXPUNGE_PORT to another one."
            ) from None
        raise EmbeddedError(f"Cannot listen on {host} port {port}: {error.strerror}.") from error
    with listener:
        yield listener


def _prepare_servers(stack: ExitStack, settings: Settings) -> tuple[Settings, list[Part]]:
    """The parts for which no URL is set, and the settings with their URLs."""
    servers = []
    if settings.database_url is None:
        postgres = Postgres(settings.var / "postgres", log=_log(settings, "postgres"))
        servers.append(stack.enter_context(postgres.prepared()))
        settings = settings.model_copy(update={"database_url": servers[-1].url})
    if settings.broker_url is None:
        valkey = Valkey(settings.var / "valkey", log=_log(settings, "valkey"))
        servers.append(stack.enter_context(valkey.prepared()))
        settings = settings.model_copy(update={"broker_url": servers[-1].url})
    return settings, servers


def _api(settings: Settings, listener: socket.socket) -> Part:
    """The API on a socket that is already open: a restart turns nobody away."""
    host, port = listener.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - the other way round
    return Part(
        program=_own_program(
            settings, "api", f"--listener={listener.fileno()}", inherited=(listener.fileno(),)
        ),
        url=f"http://{_url_host(reachable)}:{port}",
        is_ready=lambda: _is_healthy(reachable, port),
    )


def _own_program(settings: Settings, command: str, *options: str, inherited: tuple[int, ...] = ()) -> Program:
    return Program(
        name=command,
        # -P: a folder named `app` where the caller stands must not be taken for ours.
        arguments=(sys.executable, "-P", "-m", "app.cli", command, *options),
        log=_log(settings, command),
        folder=Path.cwd(),
        environment=_environment(settings),
        inherited=inherited,
    )


def _environment(settings: Settings) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("EXPUNGE_")}
    return kept | settings.environment()


def _log(settings: Settings, name: str) -> Path:
    return settings.var / "logs" / f"{name}.log"


def _url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_healthy(host: str, port: int) -> bool:
    connection = HTTPConnection(host, port, timeout=1)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
