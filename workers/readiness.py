"""A readiness job: measure how hard deletions from a version will be."""

from __future__ import annotations

from app.config import Settings
from app.db import transaction
from app.jobs import service as jobs
from app.jobs.service import Lease
from models_store.blobs import BlobStore
from workers import assemble, pipeline
from workers.monitor import Monitor


def measure(lease: Lease, config: Settings, store: BlobStore, monitor: Monitor) -> None:
    """Hand in the figures. Raises LeaseLost, and as `pipeline.readiness`."""
    with transaction() as session:
        job = jobs.held(session, lease)
        spec = assemble.readiness(session, job, config)
        rows, iterations = int(job.parameters["rows"]), int(job.parameters["iterations"])
    figures = pipeline.readiness(spec, store, monitor, rows=rows, iterations=iterations)
    with transaction() as session:
        jobs.finish_computing(session, lease, {"figures": figures})
