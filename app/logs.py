"""Logs: one JSON object a line, the event's fixed name and its fields; ours and those of libraries alike."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

# Messages of these libraries' exceptions quote what was sent: values of rows, bodies of requests.
_QUOTING = {"sqlalchemy", "psycopg", "pydantic", "pydantic_core", "pydantic_settings"}
# Their routine messages carry whole URLs, or a line for each step of something that works.
_QUIET = ("httpx", "httpcore", "alembic", "kombu", "amqp", "fsspec", "matplotlib", "PIL")


def configure(process: str, *, file: Path | None = None) -> None:
    """Set up logging for this process.

    Args:
        process: The name of the program, in every line.
        file: Where the JSON lines go; stderr unless given. With a file, stderr gets warnings as short lines.
    """
    shared = _shared_processors(process)
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    machine = logging.StreamHandler(sys.stderr) if file is None else logging.FileHandler(file, delay=True)
    machine.setFormatter(_formatter(shared, _render_exception, structlog.processors.JSONRenderer()))
    handlers: list[logging.Handler] = [machine]
    if file is not None:
        people = logging.StreamHandler(sys.stderr)
        people.setLevel(logging.WARNING)
        people.setFormatter(_formatter(shared, _shorten))
        handlers.append(people)
    root = logging.getLogger()
    root.handlers[:] = handlers
    root.setLevel(logging.INFO)
    logging.captureWarnings(capture=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def _shared_processors(process: str) -> list[Processor]:
    def name_process(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["process"] = process
        return event

    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        name_process,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _name_access,
    ]


def _formatter(shared: list[Processor], *last: Processor) -> ProcessorFormatter:
    return ProcessorFormatter(
        foreign_pre_chain=shared,
        pass_foreign_args=True,
        processors=[ProcessorFormatter.remove_processors_meta, *last],
    )


def _name_access(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """uvicorn's access line as fields, without the query string, which may hold anything."""
    arguments = event.pop("positional_args", ())
    if event.get("logger") == "uvicorn.access":
        client, method, target, _, status = arguments
        event.update(event="http_request", client=client, method=method, status=status)
        event["path"] = str(target).partition("?")[0]
    return event


def _render_exception(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """The traceback of `exc_info`: frames and source lines, no values of variables."""
    found = event.pop("exc_info", None)
    error = found[1] if isinstance(found, tuple) else found if isinstance(found, BaseException) else None
    if found and error is None:
        error = sys.exception()
    if error is not None:
        event["exception"] = "\n".join(_describe(error))
    return event


def _describe(error: BaseException) -> Iterator[str]:
    """An exception, its causes and its members, in the order in which Python prints them."""
    origin = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if origin is not None:
        yield from _describe(origin)
        yield "which led to:"
    yield from (line.rstrip() for line in traceback.format_tb(error.__traceback__))
    quotes = any(kind.__module__.partition(".")[0] in _QUOTING for kind in type(error).__mro__)
    yield f"{type(error).__qualname__}: " + ("(withheld, as it may quote data)" if quotes else str(error))
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _describe(member)


def _shorten(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    """An event as a short line: what it is about, what happened, the fields that matter to people."""
    hidden = {"timestamp", "logger", "level", "exc_info", "pid", "event", "process", "part"}
    fields = "".join(f", {name} {value}" for name, value in event.items() if name not in hidden)
    return f"{event.get('part', event['process'])}: {str(event['event']).replace('_', ' ')}{fields}"
