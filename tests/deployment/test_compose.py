"""Docker Compose itself reads the file, and as the other tests here do. It needs no Docker for that."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures import compose

pytestmark = pytest.mark.system
_SECRETS = dict.fromkeys(("POSTGRES_PASSWORD", "EXPUNGE_SECRET_KEY", "EXPUNGE_ADMIN_KEY"), "a secret")
_CHOSEN = {
    "COMPOSE_PROFILES": "gpus",
    "EXPUNGE_COMPUTE_QUEUE": "gpu",
    "EXPUNGE_STORE_URL": "s3://bucket/path",
    "EXPUNGE_WORKER_THREADS": "4",
    "AWS_ENDPOINT_URL": "https://s3.example",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the compose file in it."""
    (tmp_path / "docker-compose.yml").write_text((compose.ROOT / "docker-compose.yml").read_text())
    return tmp_path


def _documented(pattern: str) -> str:
    """The one code block of operations.md that begins with this."""
    text = (compose.ROOT / "docs" / "operations.md").read_text()
    (block,) = re.findall(rf"```\w+\n({pattern}.*?)```", text, re.DOTALL)
    return str(block)


def _config(folder: Path, variables: Mapping[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    """Run `docker compose config` in the folder, with these variables in its file `.env`."""
    (folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    return _run(folder, *options)


def _run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    found = find_spec("compose")
    assert found is not None, "`make test-system` installs Docker Compose"
    assert found.origin is not None
    # The package's own command hides the exit code.
    program = Path(found.origin).with_name("docker-compose")
    command = [str(program), *options, "config", "--format", "json"]
    clean = {"PATH": os.environ["PATH"]}
    return subprocess.run(command, cwd=folder, env=clean, check=False, capture_output=True, text=True)


def _services(folder: Path, variables: Mapping[str, str], *options: str) -> dict[str, dict[str, Any]]:
    return _parsed(_config(folder, variables, *options))


def _parsed(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)["services"]
    return found


@pytest.mark.parametrize(
    ("options", "workers"),
    [
        ([], {"worker"}),
        (["--profile", "gpu"], {"worker", "worker-gpu0"}),
        (["--profile", "gpus"], {"worker", "worker-gpu0", "worker-gpu1"}),
    ],
)
def test_each_profile_has_its_workers(folder: Path, options: list[str], workers: set[str]) -> None:
    """The rest is always there."""
    always = {"postgres", "valkey", "migrate", "api", "scheduler"}
    assert set(_services(folder, _SECRETS, *options)) == always | workers


@pytest.mark.parametrize("chosen", [{}, _CHOSEN], ids=["defaults", "chosen"])
def test_compose_reads_what_the_other_tests_read(folder: Path, chosen: dict[str, str]) -> None:
    """Each of our services gets the same command, variables, health check and time to stop."""
    variables = _SECRETS | chosen
    expected = compose.services(variables)
    found = {name: service for name, service in _services(folder, variables).items() if "build" in service}
    assert len(found) == (6 if chosen else 4)
    for name, service in found.items():
        ours = expected[name]
        environment = {key: value for key, value in service["environment"].items() if value is not None}
        assert environment == ours["environment"]
        assert service["command"] == ours["command"]
        assert service.get("stop_grace_period") == ours.get("stop_grace_period")
        for part in ("test", "disable"):
            assert service.get("healthcheck", {}).get(part) == ours.get("healthcheck", {}).get(part)


@pytest.mark.parametrize("missing", sorted(_SECRETS))
def test_compose_refuses_to_start_without_a_secret(folder: Path, missing: str) -> None:
    """It says which one."""
    done = _config(folder, {name: value for name, value in _SECRETS.items() if name != missing})
    assert done.returncode != 0
    assert missing in done.stderr


def test_the_documented_secrets_and_gpu_settings_do(folder: Path) -> None:
    """What an operator pastes makes a `.env` with which Compose starts a worker that waits for GPU jobs."""
    make_secrets = _documented("umask 077").split("docker compose")[0]
    subprocess.run(["bash", "-ec", make_secrets], cwd=folder, check=True)
    with (folder / ".env").open("a") as file:
        file.write(_documented("COMPOSE_PROFILES="))
    services = _parsed(_run(folder))
    assert services["worker-gpu0"]["command"] == ["worker", "--queues", "gpu"]
    assert "worker-gpu1" not in services
    assert services["scheduler"]["environment"]["EXPUNGE_COMPUTE_QUEUE"] == "gpu"
    assert len(services["api"]["environment"]["EXPUNGE_SECRET_KEY"]) == 64


def test_the_documented_override_lets_the_parts_reach_an_object_store(folder: Path) -> None:
    """They keep the inner network, and no server gets a way out."""
    (folder / "docker-compose.override.yml").write_text(_documented("# docker-compose.override.yml"))
    services = _services(folder, _SECRETS | _CHOSEN)
    outside = {name for name, service in services.items() if "outer" in service["networks"]}
    assert outside == {"api", "scheduler", "worker", "worker-gpu0", "worker-gpu1"}
    assert all("inner" in service["networks"] for service in services.values())
