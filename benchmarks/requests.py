"""How fast large deletion requests are accepted, and in how much memory: a real API, a real PostgreSQL.

    .venv/bin/python -m benchmarks.requests --samples 2000000

Loads several versions of a data set, puts a model trained on the newest into use, and posts one request of
100,000 sample IDs as JSON and one of 1,000,000 as a streamed file. Appends a row to
benchmarks/results/requests.jsonl.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from app.callers import service as callers
from app.callers.service import Scope
from app.config import settings
from app.datasets import rows as row_sets
from app.datasets import service as datasets
from app.datasets.loading import Block, Facts, Loading
from app.datasets.schemas import NewDataset
from app.db import transaction
from app.embedded import Postgres
from app.jobs.policies import Policy
from app.migrate import upgrade
from app.pseudonyms import pseudonyms
from app.registry import service as registry
from app.registry.schemas import NewModel
from app.registry.service import NewVersion
from app.tables import Job, JobKind
from benchmarks.records import Results
from models_store.rows import RowSet

_BLOCK = 100_000
_DIGEST = hashlib.sha256(b"nothing").hexdigest()


def load(samples: int, versions: int) -> uuid.UUID:
    """So many samples in each of so many versions of one data set; the newest version's ID."""
    everything = RowSet(bytes([255]) * (samples // 8))
    for _ in range(versions):
        with transaction() as session:
            new = NewDataset(name="faces", reader="sklearn_digits")
            version, _job = datasets.register(session, new, actor="benchmark")
            loading = Loading(session, version.id, pseudonyms())
            loading.copy(_blocks(samples))
            loading.index()
            facts = Facts(
                num_classes=10,
                image_shape=(8, 8, 1),
                class_names=None,
                roles={"train": everything},
                manifest=_DIGEST,
            )
            version_id = loading.attach(facts, actor="benchmark").id
    return version_id


def _blocks(samples: int) -> Iterator[Block]:
    for start in range(0, samples, _BLOCK):
        rows = range(start, min(start + _BLOCK, samples))
        yield Block(
            ordinals=rows,
            sample_ids=[_name(row) for row in rows],
            labels=[row % 10 for row in rows],
            content_hashes=[hashlib.sha256(row.to_bytes(8, "big")).digest() for row in rows],
            subjects=None,
        )


def _name(row: int) -> str:
    return f"face-{row:08d}"


def put_into_use(version_id: uuid.UUID) -> None:
    """A model whose production version was trained on every row of the data set version."""
    with transaction() as session:
        model = registry.create(session, NewModel(name="net", policy=Policy()), actor="benchmark")
        job = Job(kind=JobKind.TRAIN, model_id=model.id, parameters={}, seed=0, created_by="benchmark")
        session.add(job)
        session.flush()
        version = datasets.get_version(session, version_id)
        new = NewVersion(
            origin="trained",
            job=job,
            parent=None,
            dataset_version_id=version_id,
            rows_digest=row_sets.keep(session, row_sets.of_role(session, version, "train")),
            architecture={},
            recipe={},
            weights=_DIGEST,
            figures={},
        )
        made = registry.add_version(session, model.id, new, actor="benchmark")
        registry.set_alias(session, made, "production", actor="benchmark", reason="benchmark")


@contextmanager
def serving(secret: str) -> Iterator[tuple[httpx.Client, int]]:
    """The API in a process of its own: a client, and the process's ID."""
    port = 18_642
    environment = {**os.environ, "EXPUNGE_PORT": str(port)}
    process = subprocess.Popen([sys.executable, "-m", "app.cli", "api"], env=environment)
    headers = {"Authorization": f"Bearer {secret}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=600) as client:
        while True:
            try:
                client.get("/healthz")
                break
            except httpx.TransportError:
                time.sleep(0.1)
        try:
            yield client, process.pid
        finally:
            process.terminate()
            process.wait()


def resident_mb(pid: int) -> float:
    """The process's resident memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


@contextmanager
def peak_memory(pid: int) -> Iterator[dict[str, float]]:
    """The process's memory before, and the most that was seen meanwhile, looked at fifty times a second."""
    seen = {"before": resident_mb(pid)}
    seen["peak"] = seen["before"]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            seen["peak"] = max(seen["peak"], resident_mb(pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    yield seen
    done.set()
    watcher.join()


def post_json(client: httpx.Client, first: int, count: int, *, copies: bool = False) -> float:
    """Post that many sample IDs (or one, so many times) as JSON; the seconds until the answer."""
    items = [{"sample_id": _name(first if copies else first + number)} for number in range(count)]
    body = json.dumps({"dataset": "faces", "items": items}).encode()
    started = time.perf_counter()
    answer = client.post("/v1/deletion-requests", content=body, headers={"Content-Type": "application/json"})
    seconds = time.perf_counter() - started
    _check(answer, count)
    return seconds


def post_stream(client: httpx.Client, first: int, count: int) -> float:
    """Upload that many sample IDs as NDJSON; the seconds until the answer."""

    def lines() -> Iterator[bytes]:
        for start in range(first, first + count, 10_000):
            end = min(start + 10_000, first + count)
            yield b"".join(b'{"sample_id": "%s"}\n' % _name(row).encode() for row in range(start, end))

    started = time.perf_counter()
    answer = client.post(
        "/v1/deletion-requests/upload",
        params={"dataset": "faces"},
        content=lines(),
        headers={"Content-Type": "application/x-ndjson"},
    )
    seconds = time.perf_counter() - started
    _check(answer, count)
    return seconds


def _check(answer: httpx.Response, count: int) -> None:
    if answer.status_code != 202 or answer.json()["items"]["matched"] != count:
        raise RuntimeError(f"{answer.status_code}: {answer.text[:500]}")
    if len(answer.json()["targets"]) != 1:
        raise RuntimeError("the model was not found to be concerned")


def measure(samples: int, versions: int, count: int, streamed: int) -> dict[str, Any]:
    """All figures, in a new database."""
    with tempfile.TemporaryDirectory(prefix="expunge-benchmark-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with Postgres(folder / "postgres").running() as url:
            os.environ |= {"EXPUNGE_DATABASE_URL": url, "EXPUNGE_VAR": str(folder / "var")}
            settings.cache_clear()
            upgrade(url)
            with transaction() as session:
                _, secret = callers.issue(session, name="benchmark", scopes=[*Scope], actor="benchmark")
            put_into_use(load(samples, versions))
            with serving(secret) as (client, pid):
                post_json(client, samples - 10, 10)  # what is imported and opened at the first call
                few = post_json(client, samples - 20, 10)
                many = post_json(client, 0, count)
                copies = post_json(client, samples - 1000, count // 2, copies=True)
                with peak_memory(pid) as memory:
                    stream = post_stream(client, count, streamed)
    return {
        "seconds": {"10": few, "json": many, "copies": copies, "stream": stream},
        "memory_mb": memory,
        "load_average": os.getloadavg()[0],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--samples", type=int, default=2_000_000, help="in each version of the data set")
    parser.add_argument("--versions", type=int, default=3)
    parser.add_argument("--json", type=int, default=100_000)
    parser.add_argument("--stream", type=int, default=1_000_000)
    parser.add_argument("--no-results", action="store_true")
    given = parser.parse_args()
    figures = measure(given.samples, given.versions, given.json, given.stream)
    print(json.dumps(figures, indent=1))
    if not given.no_results:
        setting = {name: getattr(given, name) for name in ("samples", "versions", "json", "stream")}
        setting |= {"cores": os.cpu_count(), "machine": platform.machine()}
        Results("requests").add({"setting": setting, "figures": figures})


if __name__ == "__main__":
    main()
