"""The command `expunge`."""

from __future__ import annotations

import os
import socket
import sys
import uuid
from datetime import timedelta
from functools import partial
from importlib.metadata import version as installed_version
from typing import Annotated, Any

import typer
import uvicorn
from pydantic import ValidationError
from pydantic_settings import SettingsError
from sqlalchemy.exc import OperationalError
from typer.core import TyperGroup

from app import logs
from app import scheduler as scheduler_loop
from app.artefacts import service as artefacts
from app.artefacts.service import NothingNeeded
from app.artefacts.table import amount, table
from app.config import Settings
from app.db import DatabaseNotConfigured, transaction
from app.deletions import restoring
from app.deletions.restoring import NotRestorable
from app.demo.client import DemoFailed
from app.demo.console import Console
from app.demo.story import Demo
from app.embedded import EmbeddedError, Supervisor
from app.embedded.folders import create_private
from app.embedded.service import Service, create_admin_key, database_url, listening, running_service
from app.embedded.signals import StopRequested, stop_signals
from app.errors import NotFound
from app.migrate import upgrade
from app.pseudonyms import pseudonyms
from app.queue import BrokerNotConfigured
from app.registry import references, shadows
from app.reports import comparisons
from app.tables import Job
from models_store.blobs import BlobStore, StoreUnavailable
from models_store.journal import Journal

_STARTUP_FAILED = 3
# Seconds that open event streams get to end when the API stops.
_GRACE_SECONDS = 5


class _WrongSettings(Exception):
    """The environment does not make valid settings; the message names every fault and no value."""


class _Commands(TyperGroup):
    def invoke(self, context: Any) -> Any:  # noqa: ANN401 - typer's context class differs between its versions
        """Show what the operator can act on as a message; all else is a defect and keeps its traceback."""
        try:
            return super().invoke(context)
        except (
            DemoFailed,
            EmbeddedError,
            DatabaseNotConfigured,
            BrokerNotConfigured,
            NothingNeeded,
            NotRestorable,
            StoreUnavailable,
            _WrongSettings,
        ) as error:
            message = str(error)
        except OperationalError as error:
            message = f"The database does not answer: {str(error.orig).strip()}"
        typer.echo(f"Error: {message}", err=True)
        raise typer.Exit(1)


app = typer.Typer(
    cls=_Commands,
    help="Unlearning as a service.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.command()
def up() -> None:
    """Run the whole service on this machine, with a database and a broker of its own unless URLs are set."""
    settings = _settings()
    logs.configure("up", file=settings.var / "logs" / "up.log")
    with stop_signals() as pause:
        supervisor = Supervisor(pause, adopts=True)
        try:
            with running_service(settings, supervisor) as service:
                _welcome(service, settings)
                supervisor.watch()
        except StopRequested:
            typer.echo("Stopped.")


@app.command()
def demo() -> None:
    """Delete real samples from a real network on a service of its own, and print the audit report."""
    settings = _settings()
    results = create_private(create_private(settings.var) / "demo")
    logs.configure("demo", file=results / "demo.log")
    console = Console(write=lambda text: typer.echo(text, nl=False), is_terminal=sys.stdout.isatty())
    with stop_signals() as pause:
        try:
            Demo(settings, results, console, pause, program=_program_name()).run()
        except StopRequested:
            typer.echo("Stopped.")
            raise typer.Exit(130) from None


@app.command()
def api(listener: Annotated[int | None, typer.Option(hidden=True)] = None) -> None:
    """Serve the HTTP API."""
    settings = _settings()
    logs.configure("api")
    server = uvicorn.Server(
        uvicorn.Config(
            "app.main:create_app",
            factory=True,
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
    )
    opened = listening(settings.host, settings.port) if listener is None else socket.socket(fileno=listener)
    with opened as open_socket:
        server.run(sockets=[open_socket])
    if not server.started:
        raise typer.Exit(_STARTUP_FAILED)


@app.command()
def worker(
    queues: Annotated[str, typer.Option(help="Queues to take jobs from, separated by commas.")] = "jobs",
) -> None:
    """Run jobs from the queue."""
    settings = _settings()
    if settings.broker_url is None:
        raise BrokerNotConfigured(BrokerNotConfigured.__doc__)
    options = f"--pool threads --concurrency {settings.worker_concurrency} --queues {queues}"
    options += " --loglevel INFO --without-gossip --without-mingle"
    # The workers' code is another program, which replaces this process. On SIGTERM Celery waits for its
    # tasks, which hand their jobs back and end at once.
    os.execv(  # noqa: S606 - no shell is wanted
        sys.executable,
        [sys.executable, "-P", "-m", "celery", "-q", "-A", "workers.celery_app", "worker", *options.split()],
    )


@app.command()
def scheduler(
    healthy: Annotated[
        bool, typer.Option("--healthy", help="Only say, by the exit code, whether one runs here.")
    ] = False,
) -> None:
    """Sweep, plan, publish and relay; of several, one works and the others stand by."""
    settings = _settings()
    if healthy:
        raise typer.Exit(0 if scheduler_loop.is_alive(settings) else 1)
    logs.configure("scheduler")
    scheduler_loop.main()


@app.command()
def migrate() -> None:
    """Bring the database to the newest schema, and create the admin key that EXPUNGE_ADMIN_KEY holds."""
    settings = _settings()
    logs.configure("migrate")
    if settings.database_url is None:
        raise DatabaseNotConfigured(DatabaseNotConfigured.__doc__)
    upgrade(settings.database_url)
    if settings.admin_key is not None:
        create_admin_key(settings)


@app.command()
def restore_tombstones(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what is missing.")] = False,
) -> None:
    """After a restore of the database: accept again, from the store's journal, what came after the backup."""
    settings = _settings()
    logs.configure("restore-tombstones")
    journal = Journal(settings.store)
    with transaction(database_url(settings)) as session:
        gap = restoring.gap(session, journal)
        if not dry_run:
            restoring.restore(session, journal, names=pseudonyms(), actor="restore-tombstones")
    done = "would be accepted" if dry_run else "were accepted"
    typer.echo(f"{len(gap.missing)} requests that the database lacked {done} again.")
    if gap.taken_back:
        typer.echo("These stand in the database but not in the journal; cancel or deny them again:")
        typer.echo("\n".join(f"  {request_id}" for request_id in sorted(gap.taken_back)))


@app.command()
def compare(
    job: Annotated[uuid.UUID, typer.Argument(help="The comparison's job.")],
) -> None:
    """Print what a comparison of methods has come to so far."""
    settings = _settings()
    logs.configure("compare")
    with transaction(database_url(settings)) as session:
        try:
            found = comparisons.view(session, session.get(Job, job))
        except NotFound:
            raise typer.BadParameter("there is no such comparison") from None
        typer.echo(comparisons.table(found))


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def drill(context: typer.Context) -> None:
    """Try the audit on networks of which it is known whether they have forgotten."""
    # The workers' code is another program, which replaces this process and reads the options.
    os.execv(  # noqa: S606 - no shell is wanted
        sys.executable, [sys.executable, "-P", "-m", "workers.drill", *context.args]
    )


@app.command()
def gc(
    delete: Annotated[
        bool, typer.Option("--delete", help="Remove the garbage; else nothing changes.")
    ] = False,
) -> None:
    """Show what the artefact store holds, and which of it nothing needs any more."""
    settings = _settings()
    logs.configure("gc")
    store, grace = BlobStore(settings.store), timedelta(hours=settings.gc_grace_hours)
    begin = partial(transaction, database_url(settings))
    if not delete:
        findings = artefacts.survey(store, begin, grace=grace)
        typer.echo(f"{table(findings)}\nNothing was removed; --delete removes {amount(findings.garbage)}.")
    else:
        with begin() as session:
            shadows.discard_replaced(session, actor="gc")
            references.discard_outdated(session, actor="gc")
        findings = artefacts.collect(store, begin, grace=grace, actor="gc")
        typer.echo(f"{table(findings)}\nRemoved: {amount(findings.removed)}.")


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(installed_version("expunge"))


def _welcome(service: Service, settings: Settings) -> None:
    typer.echo(f"Expunge runs at {service.address}, its API documentation at {service.address}/docs")
    if service.admin_key is not None and settings.admin_key is None:
        typer.echo(f"The admin API key, shown only now: {service.admin_key}")
    typer.echo(f"Logs are in {service.settings.var / 'logs'}. Ctrl-C stops everything.")


def _program_name() -> str:
    """How the user called this program."""
    return sys.argv[0] if os.sep in sys.argv[0] else "expunge"


def _settings() -> Settings:
    try:
        return Settings()
    except ValidationError as error:
        faults = error.errors(include_input=False)
        lines = [f"  EXPUNGE_{str(fault['loc'][0]).upper()}: {fault['msg']}" for fault in faults]
        raise _WrongSettings("\n".join(["The settings are wrong.", *lines])) from None
    except SettingsError as error:
        raise _WrongSettings(str(error)) from None


if __name__ == "__main__":
    app()
