"""A comparison: every method with every seed, a row each, stored as it comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from app.config import Settings
from app.db import transaction
from app.jobs import service as jobs
from app.jobs.params import method_parameters
from app.jobs.service import Lease
from models_store.blobs import BlobStore
from workers import assemble, auditing, pipeline
from workers.answers import Answers
from workers.audit.comparison import measures, summary
from workers.data.seeds import derived_seed
from workers.methods.curvature import NoStep
from workers.reporting import DatabaseMonitor
from workers.spec import UnlearnSpec
from workers.training.loop import Diverged


class NotComparable(Exception):
    """The comparison cannot be carried out; the message says why."""


def compare(lease: Lease, config: Settings, store: BlobStore, monitor: DatabaseMonitor) -> bool:
    """Carry out what is left of the comparison; False if a reference is needed first.

    Raises:
        NotComparable: rows that were to remain have been deleted since it was asked for.
    """
    with transaction() as session:
        job = jobs.held(session, lease)
        spec = assemble.comparison(session, job, config)
        if spec is None:
            raise NotComparable("rows that were to remain have been deleted meanwhile: ask for it again")
        asked, seed = dict(job.parameters), job.seed
        done = {(row["place"], row["seed"]) for row in (job.outcome or {}).get("rows", ())}
    if spec.reference is None:
        return False
    known = Answers()
    for place, number in _left(asked, done):
        chosen = asked["methods"][place]
        run = replace(
            spec,
            method=chosen["method"],
            parameters=method_parameters(chosen["method"], chosen["parameters"]),
            seed=derived_seed(seed, "comparison", number),
        )
        row = {"place": place, "method": chosen["method"], "seed": number}
        row |= _measured(run, store, monitor, known)
        _keep(lease, row)
    with transaction() as session:
        jobs.finish_computing(session, lease, {"spec": assemble.described(spec)})
    return True


def probe(lease: Lease, config: Settings, store: BlobStore, monitor: DatabaseMonitor) -> None:
    """Measure what forgetting would take. Raises NotComparable as `compare` does."""
    with transaction() as session:
        job = jobs.held(session, lease)
        spec = assemble.comparison(session, job, config)
        steps = int(job.parameters["steps"])
    if spec is None:
        raise NotComparable("rows that were to remain have been deleted meanwhile: ask for it again")
    found = pipeline.probe(spec, steps, store, monitor)
    with transaction() as session:
        jobs.finish_computing(session, lease, {"figures": found})


def _left(asked: Mapping[str, Any], done: set[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Seeds first, so that every method has been run once before any has been run twice."""
    for number, place in product(range(asked["seeds"]), range(len(asked["methods"]))):
        if (place, number) not in done:
            yield place, number


def _measured(
    spec: UnlearnSpec, store: BlobStore, monitor: DatabaseMonitor, known: Answers
) -> dict[str, Any]:
    """One run; a method that fails is part of the result."""
    monitor.bind(assemble.fingerprint(spec))
    try:
        done = pipeline.unlearn(spec, store, monitor)
    except (Diverged, NoStep) as failure:
        return {"failure": str(failure), "measures": None, "figures": None}
    figures = dict(auditing.audit(replace(spec, done=done), store, monitor, known=known).figures)
    return {"failure": None, "measures": measures(figures), "figures": figures}


def _keep(lease: Lease, row: Mapping[str, Any]) -> None:
    with transaction() as session:
        job = jobs.held(session, lease)
        rows = [*(job.outcome or {}).get("rows", ()), dict(row)]
        job.outcome = {**(job.outcome or {}), "rows": rows, "table": summary(rows)}
        job.checkpoint = None
