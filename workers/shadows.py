"""A version's shadows: training one and trying it on all rows, and what a pool says of memorisation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from sqlalchemy.orm import Session

from app.config import Settings
from app.datasets import rows as row_sets
from app.db import transaction
from app.errors import Conflict
from app.jobs import service as jobs
from app.jobs.service import Lease
from app.registry import memorisation as registered
from app.registry import shadows
from app.registry.shadows import Shadow
from app.tables import ModelVersion
from models_store.blobs import BlobStore
from models_store.checkpoints import pack
from models_store.rows import RowSet
from workers import assemble, pipeline
from workers.audit.memorisation import Memorisation, memorisation, subset
from workers.audit.outputs import BoolArray, FloatArray, IntArray
from workers.data.seeds import derived_seed
from workers.reporting import DatabaseMonitor

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
_BOUNDS = (0.25, 0.5)


class PoolTooSmall(Exception):
    """Too few rows or networks are left; the message says which."""


def train(lease: Lease, config: Settings, store: BlobStore, monitor: DatabaseMonitor) -> None:
    """Train one network on a random share of the version's rows and the held-out ones that are left.

    Raises:
        PoolTooSmall: no row would be inside, or none outside.
    """
    with transaction() as session:
        job = jobs.held(session, lease)
        candidates = shadows.candidates(session, shadows.version_of(session, job))
        rows = _drawn(candidates, job.parameters["share"], job.seed)
        if job.rows_digest != rows.digest:
            job.checkpoint = None
        job.rows_digest = row_sets.keep(session, rows)
        spec = assemble.reference(session, job, config)
    monitor.bind(assemble.fingerprint(spec))
    outcome = pipeline.shadow(spec, candidates, store, monitor)
    with transaction() as session:
        result = {
            "weights": outcome.weights,
            "candidates": row_sets.keep(session, candidates),
            "correct": row_sets.keep(session, outcome.correct),
            "figures": dict(outcome.figures),
            "spec": assemble.described(spec),
        }
        job = jobs.finish_computing(session, lease, result)
        jobs.note_artefact(session, job, name="weights", digest=outcome.weights, rows_digest=rows.digest)


def _drawn(candidates: RowSet, share: float, seed: int) -> RowSet:
    try:
        places = subset(len(candidates), share, derived_seed(seed, "subset"))
    except ValueError as reason:
        raise PoolTooSmall(str(reason)) from None
    return RowSet.of(_ordinals(candidates)[places].tolist())


def estimate(lease: Lease, store: BlobStore) -> None:
    """Estimate memorisation from the networks that the pool has at this moment.

    Raises:
        PoolTooSmall: no row was inside one of them and outside another.
    """
    with transaction() as session:
        job = jobs.held(session, lease)
        version_id, share = shadows.version_of(session, job).id, job.parameters["share"]
    with transaction() as session:  # without the job's lock: reading a large pool may outlast a heartbeat
        version = session.get_one(ModelVersion, version_id)
        kept = shadows.networks(session, version, share)
        name = shadows.pool_name(kept)
        pool = [shadows.opened(session, network) for network in kept]
        rows = reduce(and_, (shadow.candidates for shadow in pool), shadows.remaining(session, version))
        proxy = _proxy(session, version, rows)
    found = _estimated(pool, _ordinals(rows))
    if np.isnan(found.scores).all():
        raise PoolTooSmall("no row was inside one network of the pool and outside another")
    blob = store.put(_packed(found, rows))
    with transaction() as session:
        facts = {"scores": blob, "pool": name, "share": share, "networks": len(pool)}
        result = {"estimate": facts | summary_of(found, proxy)}
        job = jobs.finish_computing(session, lease, result)
        digest = row_sets.keep(session, rows)
        jobs.note_artefact(session, job, name="memorisation.safetensors", digest=blob, rows_digest=digest)


def _proxy(session: Session, version: ModelVersion, rows: RowSet) -> FloatArray | None:
    """The proxy of these rows, in their order; None if there is none, or it is lost."""
    try:
        found = registered.scores(session, version, "proxy")
    except Conflict:
        return None
    return None if found is None else np.array([found.values.get(row, np.nan) for row in rows])


def _estimated(pool: Sequence[Shadow], ordinals: IntArray) -> Memorisation:
    return memorisation(
        _matrix([shadow.rows for shadow in pool], ordinals),
        _matrix([shadow.correct for shadow in pool], ordinals),
    )


def _matrix(sets: Sequence[RowSet], ordinals: IntArray) -> BoolArray:
    """Which set holds which row: bool [sets, rows]."""
    found = np.zeros((len(sets), len(ordinals)), dtype=bool)
    size = int(ordinals[-1]) // 8 + 1 if len(ordinals) else 0
    for place, rows in enumerate(sets):
        bits = np.frombuffer(rows.bits[:size].ljust(size, b"\0"), dtype=np.uint8)
        found[place] = np.unpackbits(bits, bitorder="little")[ordinals]
    return found


def _ordinals(rows: RowSet) -> IntArray:
    return np.fromiter(rows, dtype=np.int64, count=len(rows))


def _packed(found: Memorisation, rows: RowSet) -> bytes:
    tensors = {"scores": found.scores, "standard_errors": found.standard_errors}
    return pack({name: torch.from_numpy(values) for name, values in tensors.items()}, {"rows": rows.digest})


def summary_of(found: Memorisation, proxy: FloatArray | None) -> dict[str, Any]:
    """An estimate in figures, of the rows that have a score: how many, error, quantiles, shares above bounds.

    `proxy`: float64 [n] of the same rows, NaN where it is not known.
    """
    known = ~np.isnan(found.scores)
    values = found.scores[known]
    return {
        "rows": len(values),
        "standard_error": float(np.median(found.standard_errors[known])),
        "quantiles": {str(q): float(np.quantile(values, q)) for q in _QUANTILES},
        "shares_above": {str(bound): float((values > bound).mean()) for bound in _BOUNDS},
        "spearman_with_proxy": None if proxy is None else _spearman(values, proxy[known]),
    }


def _spearman(one: FloatArray, other: FloatArray) -> float | None:
    """Their rank correlation over the rows that have both; None where one of them is the same everywhere."""
    both = ~np.isnan(other)
    one, other = one[both], other[both]
    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return None
    return float(spearmanr(one, other).statistic)
