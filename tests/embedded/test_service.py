"""`expunge up`, with Expunge's own programs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

_SECRET = "a-secret-of-the-operator"

Up = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """A function that starts `expunge up` on a folder, with further settings; its output is to be read."""
    started = []

    def start(var: Path, **settings: str) -> subprocess.Popen[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("EXPUNGE_")}
        chosen = {"EXPUNGE_VAR": str(var), "EXPUNGE_PORT": "0", "EXPUNGE_WORKER_THREADS": "1", **settings}
        process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "up"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=kept | chosen,
            cwd=Path(__file__).parents[2],
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.terminate()
        process.communicate(timeout=60)


@pytest.fixture
def ready() -> Callable[[subprocess.Popen[str]], tuple[str, str]]:
    """A function that waits until an instance is ready and returns its address and what it said."""

    def wait(process: subprocess.Popen[str]) -> tuple[str, str]:
        assert process.stdout is not None
        said = ""
        while "Ctrl-C stops everything" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        return said.split()[3].rstrip(","), said

    return wait


Ready = Callable[[subprocess.Popen[str]], tuple[str, str]]
Survivors = Callable[[list[str]], list[str]]


def test_an_instance_serves_alone_and_stops(
    up: Up, ready: Ready, survivors: Survivors, tmp_path: Path
) -> None:
    """It answers with the key it shows; its folder and port are refused to others; Ctrl-C ends all of it."""
    process = up(tmp_path / "var")
    address, said = ready(process)
    key = said.partition("shown only now: ")[2].split()[0]
    assert httpx.get(f"{address}/docs").status_code == 200
    assert httpx.get(f"{address}/v1/keys", headers={"Authorization": f"Bearer {key}"}).status_code == 200

    same_folder, _ = up(tmp_path / "var").communicate(timeout=30)
    assert same_folder == f"Error: Expunge already runs on {tmp_path / 'var'}.\n"
    port = address.rpartition(":")[2]
    same_port, _ = up(tmp_path / "other", EXPUNGE_PORT=port).communicate(timeout=30)
    assert same_port == f"Error: Port {port} on 127.0.0.1 is in use. Set EXPUNGE_PORT to another one.\n"
    assert not (tmp_path / "other" / "postgres").exists()

    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert (output, process.returncode) == ("Stopped.\n", 0)
    assert survivors([str(tmp_path)]) == []


def test_a_killed_instance_leaves_data_alone(
    up: Up, ready: Ready, survivors: Survivors, tmp_path: Path
) -> None:
    """After kill -9 no part stays; the next start knows the operator's key, which is never shown."""
    process = up(tmp_path, EXPUNGE_ADMIN_KEY=_SECRET)
    _, first = ready(process)
    sockets = [str(link.readlink()) for link in tmp_path.glob("*/socket")]
    process.kill()
    assert survivors([str(tmp_path), *sockets]) == []

    address, second = ready(up(tmp_path))
    assert _SECRET not in first
    assert "shown only now" not in second
    answer = httpx.get(f"{address}/v1/keys", headers={"Authorization": f"Bearer {_SECRET}"})
    assert answer.status_code == 200


def test_wrong_settings_are_named_at_once(up: Up, tmp_path: Path) -> None:
    """One line for each fault, without the values, and no traceback."""
    output, _ = up(tmp_path, EXPUNGE_PORT="4711x", EXPUNGE_WORKER_CONCURRENCY="0").communicate(timeout=30)
    assert output.splitlines() == [
        "Error: The settings are wrong.",
        "  EXPUNGE_PORT: Input should be a valid integer, unable to parse string as an integer",
        "  EXPUNGE_WORKER_CONCURRENCY: Input should be greater than or equal to 1",
    ]


def test_a_database_that_does_not_answer_is_named(up: Up, tmp_path: Path) -> None:
    """A URL that leads nowhere ends the start with the driver's reason, and starts nothing else."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"postgresql+psycopg://u:p@127.0.0.1:{unused.getsockname()[1]}/x"
        output, _ = up(tmp_path, EXPUNGE_DATABASE_URL=url).communicate(timeout=60)
    assert "The database does not answer" in output
    assert "Traceback" not in output
