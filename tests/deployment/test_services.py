"""Every service of the compose file, started as a plain process by its own command, does its work."""

from __future__ import annotations

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from sqlalchemy import create_engine, select
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from app.embedded.binaries import valkey_program
from app.tables import Job
from tests.fixtures import compose

_VAR = "/var/lib/expunge"
_PATIENCE_SECONDS = 90
_PROGRAMS = {
    "expunge": [sys.executable, "-m", "app.cli"],
    "celery": [sys.executable, "-m", "celery"],
    "python": [sys.executable],
}


def _until(look: Any, what: str) -> Any:
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.1)
    raise AssertionError(f"waited {_PATIENCE_SECONDS} s for {what}")


def _free_port() -> int:
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@dataclass
class Deployment:
    """The services as processes of this machine: only hosts, ports and folders differ from the file."""

    folder: Path
    database_url: str
    broker_url: str
    variables: Mapping[str, str]
    port: int = field(default_factory=_free_port)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ready: set[str] = field(default_factory=lambda: {"postgres", "valkey"})

    @property
    def services(self) -> dict[str, dict[str, Any]]:
        """All that the file describes."""
        return compose.services(self.variables)

    def run(self, name: str) -> int:
        """Run a service that ends by itself; its exit code."""
        code = self._start(name).wait(_PATIENCE_SECONDS)
        self.ready |= set() if code else {name}
        return code

    def start(self, name: str) -> None:
        """Start a service and wait until its health check says that it works."""
        self.running[name] = self._start(name)
        check = compose.health_check(self.services[name])
        assert check is not None
        _until(lambda: self._healthy(name, check), f"{name} to become healthy")
        self.ready.add(name)

    def stop(self, name: str) -> int:
        """Stop a service as Docker does; its exit code. Raises TimeoutExpired after its grace period."""
        grace = int(self.services[name]["stop_grace_period"].removesuffix("s"))
        process = self.running[name]
        process.send_signal(signal.SIGTERM)
        code = process.wait(grace)
        del self.running[name]
        return code

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        assert set(self.services[name]["depends_on"]) <= self.ready
        command = self._here(["expunge", *self.services[name]["command"]])
        return subprocess.Popen(command, env=self._environment(name), cwd=compose.ROOT)

    def _healthy(self, name: str, check: list[str]) -> bool:
        assert self.running[name].poll() is None, f"{name} ended"
        done = subprocess.run(
            self._here(check), env=self._environment(name), cwd=compose.ROOT, check=False, capture_output=True
        )
        return done.returncode == 0

    def _here(self, command: list[str]) -> list[str]:
        """The same command with this environment's programs and ports."""
        if command[0] == "sh":
            celery = " ".join(_PROGRAMS["celery"])
            return [*command[:-1], re.sub(r"^celery\b", celery, command[-1])]
        return [*_PROGRAMS[command[0]], *(part.replace(":8642", f":{self.port}") for part in command[1:])]

    def _environment(self, name: str) -> dict[str, str]:
        """What the image and the file set, and what every container has."""
        service = self.services[name]
        given = compose.image_settings(service["build"]["target"]) | service["environment"]
        here = {key: self._local(name, value) for key, value in given.items()}
        machine = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "HOSTNAME": socket.gethostname()}
        return machine | here | {"EXPUNGE_PORT": str(self.port), "OMP_NUM_THREADS": "1"}

    def _local(self, name: str, value: str) -> str:
        """A value of the file with this machine's servers, folders and processor."""
        if "@postgres/" in value:
            return self.database_url
        if value.startswith("redis://valkey:6379"):
            return self.broker_url
        if value == "cuda":
            return "cpu"
        if value == "0.0.0.0":
            return "127.0.0.1"
        return value.replace(_VAR, str(self._var(name))).replace("/data", str(self.folder / "data"))

    def _var(self, name: str) -> Path:
        """The service's own folder, with the volumes that the file mounts in it, and no others."""
        own = self.folder / name
        own.mkdir(exist_ok=True)
        for volume in self.services[name].get("volumes", []):
            source, target, *_ = volume.split(":")
            if target.startswith(f"{_VAR}/"):
                (shared := self.folder / "volumes" / source).mkdir(parents=True, exist_ok=True)
                place = own / Path(target).relative_to(_VAR)
                if not place.exists():
                    place.symlink_to(shared)
        return own


@pytest.fixture
def deployment(tmp_path: Path, fresh_database: str, broker_url: str) -> Iterator[Deployment]:
    """The parts, not yet started; killed afterwards."""
    (tmp_path / "data").mkdir()
    names = ("POSTGRES_PASSWORD", "EXPUNGE_SECRET_KEY", "EXPUNGE_ADMIN_KEY")
    variables = {name: secrets.token_hex(16) for name in names} | {"EXPUNGE_COMPUTE_QUEUE": "gpu"}
    deployment = Deployment(tmp_path, fresh_database, broker_url, variables)
    yield deployment
    for process in deployment.running.values():
        process.kill()
        process.wait()


def _ended(http: httpx.Client, job_id: str) -> Any:
    def look() -> Any:
        job = http.get(f"/v1/jobs/{job_id}").json()
        return job if job["state"] in ("done", "failed", "cancelled") else None

    return _until(look, "the job's end")


def _queue(deployment: Deployment, job_id: str) -> str:
    with Session(create_engine(deployment.database_url, poolclass=NullPool)) as session:
        return session.scalars(select(Job.queue).where(Job.id == uuid.UUID(job_id))).one()


def test_the_services_work_together_and_stop_in_time(deployment: Deployment) -> None:
    """Migrated and healthy; one worker registers a data set, another trains a network and hands one back."""
    assert deployment.run("migrate") == 0
    for name in ("api", "scheduler", "worker", "worker-gpu0"):
        deployment.start(name)
    headers = {"Authorization": f"Bearer {deployment.variables['EXPUNGE_ADMIN_KEY']}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{deployment.port}", headers=headers, timeout=30) as http:
        registered = http.post("/v1/datasets", json={"name": "digits", "reader": "sklearn_digits"}).json()
        assert _ended(http, registered["job_id"])["state"] == "done"
        http.post("/v1/models", json={"name": "net"}).raise_for_status()
        training = {"dataset": "digits", "recipe": {"epochs": 1}}
        trained = http.post("/v1/models/net/train", json=training).json()
        assert _ended(http, trained["job_id"])["state"] == "done"
        endless = http.post("/v1/models/net/train", json=training | {"recipe": {"epochs": 10_000}}).json()
        job = f"/v1/jobs/{endless['job_id']}"
        _until(lambda: (http.get(job).json()["progress"] or {}).get("done"), "the training's first steps")
        _stops_in_time(deployment, "worker-gpu0")
        assert http.get(job).json()["state"] == "queued"
    assert _queue(deployment, registered["job_id"]) == "jobs"
    assert _queue(deployment, trained["job_id"]) == "gpu"
    for name in ("worker", "scheduler", "api"):
        _stops_in_time(deployment, name)


def _stops_in_time(deployment: Deployment, name: str) -> None:
    """It ends in order, before Docker would kill it."""
    # The API shuts down in order, and then ends by the signal that asked for it.
    assert deployment.stop(name) == (-signal.SIGTERM if name == "api" else 0)


def test_every_service_of_ours_is_started_above_or_like_one_that_is(deployment: Deployment) -> None:
    """The second GPU's worker differs from the first one's in its device alone."""
    ours = {name for name, service in deployment.services.items() if "build" in service}
    assert ours == {"migrate", "api", "scheduler", "worker", "worker-gpu0", "worker-gpu1"}
    first, second = (dict(deployment.services[f"worker-gpu{number}"]) for number in (0, 1))
    devices = [
        service.pop("deploy")["resources"]["reservations"]["devices"][0]["device_ids"]
        for service in (first, second)
    ]
    assert devices == [["0"], ["1"]]
    assert first.pop("profiles") == ["gpu", "gpus"]
    assert second.pop("profiles") == ["gpus"]
    assert first == second


def test_valkey_takes_its_options_from_the_file(deployment: Deployment, tmp_path: Path) -> None:
    """The real server is started by the file's own command: it keeps nothing and evicts nothing."""
    program, *options = deployment.services["valkey"]["command"]
    assert program == "valkey-server"
    port = _free_port()
    place = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(tmp_path)]
    process = subprocess.Popen([str(valkey_program(None)), *options, *place], stdout=subprocess.DEVNULL)
    try:
        with redis.Redis(port=port) as client:
            _until(lambda: _answers(client), "Valkey")
            settings = client.config_get("save", "appendonly", "maxmemory-policy")
            assert settings == {"save": "", "appendonly": "no", "maxmemory-policy": "noeviction"}
    finally:
        process.terminate()
        assert process.wait(30) == 0


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False
