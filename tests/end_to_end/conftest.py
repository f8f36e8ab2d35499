"""A whole service as `expunge up` runs it, real processes and all, and a caller of it."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine, insert, literal, select, text
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from app.embedded.postgres import DATABASE, ROLE
from app.registry import service as registry
from app.registry.service import NewVersion
from app.tables import Dataset, DatasetVersion, Job, JobKind, Model, ModelVersion, Sample

_QUICK = {
    "EXPUNGE_LEASE_SECONDS": "4",
    "EXPUNGE_HEARTBEAT_SECONDS": "0.5",
    "EXPUNGE_SCHEDULER_SECONDS": "0.2",
    "EXPUNGE_REPUBLISH_SECONDS": "3",
    "EXPUNGE_WORKER_THREADS": "1",
}
STEPS = 300
MOST_BYTES = 2_000_000
POLICY = {
    # What is tested is that a method's result goes into use, not how good it is.
    "thresholds": {"auc_margin": 0.49, "forget_margin": 0.99, "utility_margin": 0.99},
    "ladder": [
        {"method": "sharp_minmax", "parameters": {"steps": STEPS, "learning_rate": 0.02}},
        {"method": "retrain"},
    ],
    "batch_window_seconds": 1,
}
RECIPE = {"epochs": 30}
_SAMPLE = ("ordinal", "sample_id", "label", "content_hash", "subject_key")


@dataclass(frozen=True)
class Service:
    """A running service and an admin's way into it."""

    var: Path
    data: Path
    http: httpx.Client

    def until(self, look: Callable[[], Any], what: str, seconds: float = 90) -> Any:
        """Look again until there is something to see."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := look():
                return found
            time.sleep(0.05)
        raise AssertionError(f"waited {seconds} s for {what}")

    def get(self, path: str) -> Any:
        """Read JSON; None while the service does not answer."""
        try:
            response = self.http.get(path)
        except httpx.TransportError:
            return None
        return response.json() if response.is_success else None

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Ask for something that must be granted."""
        response = self.http.post(path, json=body)
        assert response.is_success, response.text
        return response.json()

    def ended(self, job_id: str, seconds: float = 90) -> Any:
        """The job, once it has ended."""
        ends = ("done", "failed", "cancelled", "superseded")

        def look() -> Any:
            job = self.get(f"/v1/jobs/{job_id}")
            return job if job and job["state"] in ends else None

        return self.until(look, "the job's end", seconds)

    def finished(self, request_id: str, seconds: float = 120) -> Any:
        """The request, once it has ended."""

        def look() -> Any:
            request = self.get(f"/v1/deletion-requests/{request_id}")
            return request if request and request["state"] not in ("received", "in_progress") else None

        return self.until(look, "the request's end", seconds)

    def job_of(self, request_id: str) -> str:
        """The job that carries the request's only target out."""

        def look() -> Any:
            return (self.get(f"/v1/deletion-requests/{request_id}") or {})["targets"][0]["job_id"]

        return str(self.until(look, "a job"))

    def processes(self, *words: str) -> list[int]:
        """The service's processes whose command line has all these words."""
        marks = [str(self.var), *(str(link.readlink()) for link in self.var.glob("*/socket"))]
        return [pid for pid, command in _commands(marks) if all(word in command for word in words)]

    def session(self) -> Session:
        """A session on the service's own database; commit it yourself."""
        socket = (self.var / "postgres" / "socket").readlink()
        url = f"postgresql+psycopg://{ROLE}@/{DATABASE}?host={socket}"
        return Session(create_engine(url, poolclass=NullPool))


def _commands(marks: list[str]) -> list[tuple[int, str]]:
    """Every process whose environment or command has one of the marks."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
            environment = (entry / "environ").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if any(mark in environment or mark in command for mark in marks):
            found.append((int(entry.name), command))
    return found


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service that most tests share."""
    with running(tmp_path_factory.mktemp("service")) as service:
        yield service


@contextmanager
def running(folder: Path, **variables: str) -> Iterator[Service]:
    """A service with short leases and these further variables, stopped by SIGTERM at the end."""
    var = folder / "var"
    key = secrets.token_urlsafe(24)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EXPUNGE_")}
    (data := folder / "data").mkdir()
    own = {
        "EXPUNGE_VAR": str(var),
        "EXPUNGE_PORT": "0",
        "EXPUNGE_ADMIN_KEY": key,
        "EXPUNGE_DATA_ROOTS": str(data),
        "EXPUNGE_MAX_BODY_BYTES": str(MOST_BYTES),
    }
    command = [sys.executable, "-m", "app.cli", "up"]
    environment = kept | _QUICK | own | variables
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split("at ", 1)[1].split(",")[0]
            admin = {"Authorization": f"Bearer {key}"}
            with httpx.Client(base_url=address, headers=admin, timeout=30) as http:
                yield Service(var, data, http)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0


@pytest.fixture(scope="session")
def trained(service: Service) -> dict[str, Any]:
    """A version trained on the digits, which other tests copy instead of training again."""
    register_digits(service, "first")
    service.post("/v1/models", {"name": "first", "policy": POLICY})
    training = {"dataset": "first", "recipe": RECIPE}
    job = service.ended(service.post("/v1/models/first/train", training)["job_id"])
    assert job["state"] == "done", job
    versions: list[dict[str, Any]] = service.get("/v1/models/first/versions")
    return versions[0]


@pytest.fixture
def digits_model(service: Service, trained: dict[str, Any]) -> str:
    """The name of a model of its own, with a copy of the trained version, on a data set of its own."""
    name = f"copy-{uuid.uuid4().hex[:8]}"
    copy_digits(service, name)
    copy_version(service, trained, name, name)
    return name


def register_digits(service: Service, name: str) -> None:
    """Register the digits under a name of their own."""
    job = service.post("/v1/datasets", {"name": name, "reader": "sklearn_digits"})["job_id"]
    assert service.ended(job)["state"] == "done"


def copy_digits(service: Service, name: str) -> None:
    """Register the digits again, with all samples of the first registration, without reading them again."""
    with service.session() as session, session.begin():
        digits = select(DatasetVersion).filter_by(reader="sklearn_digits").order_by(DatasetVersion.created_at)
        source = session.scalars(digits.limit(1)).one()
        dataset = Dataset(id=uuid.uuid4(), name=name, created_by="test")
        session.add(dataset)
        session.flush()
        columns = [column.key for column in DatasetVersion.__mapper__.column_attrs]
        facts = {key: getattr(source, key) for key in columns} | {
            "id": uuid.uuid4(),
            "dataset_id": dataset.id,
        }
        version = DatasetVersion(**facts)
        session.add(version)
        session.flush()
        table = f"samples_{version.id.hex}"
        session.execute(text(f"CREATE TABLE {table} PARTITION OF samples FOR VALUES IN ('{version.id}')"))
        rows = select(literal(version.id), *[getattr(Sample, key) for key in _SAMPLE])
        session.execute(
            insert(Sample).from_select(
                ["dataset_version_id", *_SAMPLE], rows.where(Sample.dataset_version_id == source.id)
            )
        )


def copy_version(service: Service, trained: dict[str, Any], name: str, dataset: str) -> None:
    """Register a model whose production version has the trained weights; the rows are the same ones."""
    service.post("/v1/models", {"name": name, "policy": POLICY})
    dataset_id = service.get(f"/v1/datasets/{dataset}")[0]["id"]
    with service.session() as session, session.begin():
        model = session.scalars(select(Model).where(Model.name == name)).one()
        source = session.get_one(ModelVersion, uuid.UUID(trained["id"]))
        job = session.get_one(Job, source.job_id)
        assert job.kind is JobKind.TRAIN
        new = NewVersion(
            origin="trained",
            job=job,
            parent=None,
            dataset_version_id=session.get_one(DatasetVersion, uuid.UUID(dataset_id)).id,
            rows_digest=source.rows_digest or "",
            architecture=source.architecture,
            recipe=source.recipe,
            weights=source.weights or "",
            figures=source.figures,
        )
        version = registry.add_version(session, model.id, new, actor="test")
        registry.set_alias(session, version, "production", actor="test", reason="copied for a test")


def forget_mistakes(service: Service, dataset: str) -> str:
    """Ask for the wrongly labelled rows of a data set to be forgotten; the request's ID."""
    items = [{"subject": f"contributor-{number:02d}"} for number in range(7)]
    return str(service.post("/v1/deletion-requests", {"dataset": dataset, "items": items})["id"])
