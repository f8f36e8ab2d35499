"""Log lines."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from pydantic import BaseModel
from sqlalchemy.exc import IntegrityError

from app import logs

_SECRET = "subject-4711"

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def log_to_file(tmp_path: Path) -> Iterator[Callable[[], Lines]]:
    """A function that sets up logging as `expunge up` has it, and returns one that reads the lines so far."""
    file = tmp_path / "test.log"
    root = logging.getLogger()
    level, ours = root.level, list[logging.Handler]()

    def start() -> Lines:
        logs.configure("test", file=file)
        ours.extend(root.handlers)
        return lambda: [json.loads(line) for line in file.read_text().splitlines()]

    yield start
    for handler in ours:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


@pytest.fixture
def lines(log_to_file: Callable[[], Lines]) -> Lines:
    """A function that reads the lines logged so far."""
    return log_to_file()


def test_an_event_has_its_name_and_fields(lines: Lines) -> None:
    """Fields, bound context, level, time and process are members of one object."""
    with structlog.contextvars.bound_contextvars(job_id="j1"):
        structlog.get_logger("app.x").info("job_started", rows=3)
    (line,) = lines()
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "job_started",
        "rows": 3,
        "job_id": "j1",
        "level": "info",
        "logger": "app.x",
        "process": "test",
    }


def test_libraries_log_the_same_way(lines: Lines) -> None:
    """A message of the standard library's logging gets the same members, the bound context too."""
    with structlog.contextvars.bound_contextvars(job_id="j1"):
        logging.getLogger("celery.worker").warning("%s is back", "broker")
    (line,) = lines()
    assert (line["event"], line["level"], line["job_id"]) == ("broker is back", "warning", "j1")


def test_query_strings_are_not_logged(lines: Lines) -> None:
    """The access line says which path was asked for, and nothing after it."""
    logging.getLogger("uvicorn.access").info(
        '%s - "%s %s HTTP/%s" %d', "127.0.0.1:1", "GET", f"/v1/jobs?cursor={_SECRET}", "1.1", 200
    )
    (line,) = lines()
    assert (line["event"], line["path"], line["status"]) == ("http_request", "/v1/jobs", 200)
    assert _SECRET not in json.dumps(line)


class _Body(BaseModel):
    number: int


def _fail_in_the_database() -> None:
    raise IntegrityError(f"INSERT {_SECRET}", {}, Exception(_SECRET))


def _fail_in_validation() -> None:
    _Body.model_validate({"number": _SECRET})


def _fail_several_times() -> None:
    try:
        _fail_in_validation()
    except ValueError as error:
        raise ExceptionGroup("several", [KeyError("a key"), error]) from error


@pytest.mark.parametrize("fail", [_fail_in_the_database, _fail_in_validation, _fail_several_times])
def test_an_exception_tells_where_but_quotes_no_data(lines: Lines, fail: Callable[[], None]) -> None:
    """The traceback names file and function; texts that repeat a request's or a row's values are left out."""
    try:
        fail()
    except Exception:
        structlog.get_logger("app.x").exception("it_failed")
    (line,) = lines()
    assert fail.__name__ in line["exception"]
    assert "withheld" in line["exception"]
    assert _SECRET not in line["exception"]


def test_an_own_exception_keeps_its_text(lines: Lines) -> None:
    """What our own code and plain errors say stays."""
    try:
        Path("/no/such/file").read_text()
    except OSError:
        logging.getLogger("other").exception("it_failed")
    (line,) = lines()
    assert line["exception"].endswith("No such file or directory: '/no/such/file'")


def test_the_terminal_gets_warnings_as_short_lines(
    log_to_file: Callable[[], Lines], capsys: pytest.CaptureFixture[str]
) -> None:
    """People see what needs attention; the rest is in the file."""
    lines = log_to_file()
    logger = structlog.get_logger("app.embedded.supervisor")
    logger.info("part_started", part="api")
    logger.warning("part_died", part="api", cause="exit code 1")
    assert len(lines()) == 2
    assert capsys.readouterr().err == "api: part died, cause exit code 1\n"
