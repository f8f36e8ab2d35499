"""How fast large data sets register, and in how much memory: the real job against a real PostgreSQL.

    .venv/bin/python -m benchmarks.ingest --rows 1000000 10000000

Writes a data set of tiny images into a temporary folder, registers it, and lets a process of its own run the
ingest job. Ten million rows take about a minute and 6 GB of disk. Each run appends a row to
benchmarks/results/ingest.jsonl; `--no-results` leaves that out.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import uuid
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.lib import format as npy
from PIL import Image
from sqlalchemy import text

from app.config import settings
from app.datasets import service as datasets
from app.datasets.schemas import NewDataset
from app.db import transaction
from app.embedded import Postgres
from app.jobs import service as jobs
from app.jobs.service import Lease
from app.migrate import upgrade
from app.tables import Job
from benchmarks.records import Results
from models_store.blobs import BlobStore
from workers import ingest
from workers.monitor import Silent

_BLOCK = 100_000  # rows that are generated at once
_PICTURES = 256  # different ones in a parquet file


def write_npz(path: Path, rows: int) -> None:
    """Random 4x4 grey images, all different, with text IDs and ten classes."""
    pixels = np.random.default_rng(0)
    with zipfile.ZipFile(path, "w") as archive:
        _write(archive, "x", ("|u1", rows, 4, 4), (pixels.bytes(16 * len(block)) for block in _blocks(rows)))
        _write(archive, "y", ("<i8", rows), ((np.array(block) % 10).tobytes() for block in _blocks(rows)))
        names = (np.array([_name(row) for row in block]).tobytes() for block in _blocks(rows))
        _write(archive, "ids", ("<U15", rows), names)


def _write(
    archive: zipfile.ZipFile, name: str, header: tuple[str | int, ...], blocks: Iterable[bytes]
) -> None:
    descr, *shape = header
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        npy.write_array_header_1_0(member, {"descr": descr, "fortran_order": False, "shape": tuple(shape)})
        for block in blocks:
            member.write(block)


def write_parquet(path: Path, rows: int) -> None:
    """4x4 PNG images, of which there are a few hundred, with text IDs and ten classes."""
    random = np.random.default_rng(0)
    pictures = pa.array([_png(random.integers(0, 256, (4, 4), dtype=np.uint8)) for _ in range(_PICTURES)])
    schema = pa.schema({"sample_id": pa.string(), "label": pa.int32(), "image": pa.binary()})
    with pq.ParquetWriter(path, schema, compression="none") as writer:
        for block in _blocks(rows):
            numbers = np.array(block)
            columns = [
                pa.array([_name(row) for row in block]),
                pa.array(numbers % 10, type=pa.int32()),
                pictures.take(pa.array(numbers % _PICTURES)),
            ]
            writer.write_table(pa.table(columns, schema=schema))


def _png(pixels: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()


def _blocks(rows: int) -> Iterator[range]:
    return (range(start, min(start + _BLOCK, rows)) for start in range(0, rows, _BLOCK))


def _name(row: int) -> str:
    return f"sample-{row:08d}"


WRITERS = {"npz": write_npz, "parquet": write_parquet}


class Clock(Silent):
    """Notes when each phase of the job begins."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: dict[str, float] = {}

    def progress(self, phase: str, *_: Any, **_figures: Any) -> None:
        """The first word of a phase is its beginning."""
        self.begun.setdefault(phase, time.perf_counter())

    def seconds(self) -> dict[str, float]:
        """How long each phase lasted, if the last one ends now."""
        ends = [*self.begun.values(), time.perf_counter()][1:]
        return {name: end - begin for (name, begin), end in zip(self.begun.items(), ends, strict=True)}


def run_job(job_id: str, token: str) -> None:
    """Run a claimed ingest job in this process; print its seconds by phase and this process's peak memory."""
    clock = Clock()
    ingest.ingest(Lease(uuid.UUID(job_id), int(token)), BlobStore(settings().store), clock, actor="benchmark")
    # Not getrusage, whose peak begins with that of the process which started this one.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peak_kb = int(status["VmHWM"].split()[0])
    print(json.dumps({"seconds": clock.seconds(), "peak_mb": peak_kb / 1024}))


def register(reader: str, location: Path) -> dict[str, Any]:
    """Register the data set in the settings' database; the figures that `run_job` prints."""
    with transaction() as session:
        new = NewDataset(name=f"set-{uuid.uuid4().hex[:8]}", reader=reader, location=str(location))
        version, job = datasets.register(session, new, actor="benchmark")
        version_id, job_id = version.id, job.id
    with transaction() as session:
        lease = jobs.claim(session, job_id, worker="benchmark", lease_seconds=3600)
    if lease is None:
        raise RuntimeError("the job was not there to be claimed")
    command = [sys.executable, "-m", "benchmarks.ingest", "job", str(job_id), str(lease.token)]
    started = time.perf_counter()
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=Path(__file__).parent.parent
    )
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    figures["seconds"]["process"] = time.perf_counter() - started
    with transaction() as session:
        outcome = session.get_one(Job, job_id).outcome
        if outcome is None:
            raise RuntimeError(f"the data set was refused: {session.get_one(Job, job_id).reason}")
        figures["rows"] = outcome["rows"]
        size = text("SELECT pg_total_relation_size(CAST(:table AS regclass))")
        figures["database_mb"] = session.scalar(size, {"table": f"samples_{version_id.hex}"}) / 2**20
    phases = figures["seconds"]["reading"] + figures["seconds"]["indexing"]
    figures["rows_per_second"] = figures["rows"] / phases
    return figures


def measure(reader: str, rows: int) -> dict[str, Any]:
    """Generate a data set in a temporary folder and register it in a new database there."""
    with tempfile.TemporaryDirectory(prefix="expunge-benchmark-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        location = folder / f"data.{reader}"
        WRITERS[reader](location, rows)
        with Postgres(folder / "postgres").running() as url:
            os.environ |= {
                "EXPUNGE_DATABASE_URL": url,
                "EXPUNGE_DATA_ROOTS": name,
                "EXPUNGE_VAR": str(folder / "var"),
                "EXPUNGE_LOG_LEVEL": "warning",
            }
            settings.cache_clear()
            upgrade(url)
            figures = register(reader, location)
            figures["load_average"] = os.getloadavg()[0]
    return figures


def main() -> None:
    """Measure each size and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--reader", choices=sorted(WRITERS), default="npz")
    parser.add_argument("--no-results", action="store_true")
    given = parser.parse_args()
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    for rows in given.rows:
        figures = measure(given.reader, rows)
        print(json.dumps(figures, indent=1))
        if not given.no_results:
            setting = {"reader": given.reader, "rows": rows, **machine}
            Results("ingest").add({"setting": setting, "figures": figures})


if __name__ == "__main__":
    if sys.argv[1:2] == ["job"]:
        run_job(*sys.argv[2:4])
    else:
        main()
