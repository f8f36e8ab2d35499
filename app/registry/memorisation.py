"""What is known of how far a version has memorised its rows: a proxy, and an estimate from its shadows.

Scores are blobs that workers wrote. They are read here without what computes; rows that have been deleted
since have no score any more.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

from sqlalchemy.orm import Session

from app.datasets import rows as row_sets
from app.datasets import service as datasets
from app.datasets.matching import Matches
from app.errors import Conflict
from app.jobs.params import METHODS
from app.registry import references, service, shadows, uploads
from app.registry.schemas import (
    Basis,
    Estimate,
    MemorisationView,
    Proxy,
    SampleScore,
    SampleScores,
    TierRows,
)
from app.registry.tiers import tier
from app.tables import Job, ModelVersion
from models_store.blobs import BlobDamaged, BlobMissing
from models_store.rows import RowSet
from models_store.vectors import Vectors, read_vectors

_CONFIDENCES = "confidence.safetensors"  # what a retraining leaves behind, by name
# The better one first, and where the middle of its scale is: the proxy's is a scale of its own.
_CENTRES: Mapping[Basis, float | None] = {"estimate": 0.5, "proxy": None}


@dataclass(frozen=True)
class Scores:
    """Scores that grow with memorisation, by row; with the largest standard errors that they can have."""

    values: Mapping[int, float]
    errors: Mapping[int, float]


def scores(session: Session, version: ModelVersion, basis: Basis) -> Scores | None:
    """The scores of the version's rows that have not been deleted; None if there are none of this kind.

    Raises:
        Conflict: they are recorded, but gone from the store.
        StoreUnavailable.
    """
    recorded = version.figures.get("memorisation", {})
    digest = recorded.get("proxy") if basis == "proxy" else recorded.get("estimate", {}).get("scores")
    if digest is None:
        return None
    vectors = _vectors(digest)
    rows, left = row_sets.read(session, vectors.facts["rows"]), shadows.remaining(session, version)
    if basis == "proxy":
        return Scores(_by_row(rows, left, [1 - value for value in vectors.values["confidence"]]), {})
    values, errors = vectors.values["scores"], vectors.values["standard_errors"]
    return Scores(_by_row(rows, left, values), _by_row(rows, left, errors))


def _vectors(digest: str) -> Vectors:
    try:
        return read_vectors(uploads.store().get(digest))
    except (BlobMissing, BlobDamaged):
        raise Conflict("The version's memorisation scores cannot be read from the store any more.") from None


def _by_row(rows: RowSet, left: RowSet, values: Sequence[float]) -> dict[int, float]:
    """The known values of the rows that are left, from those of all rows in order."""
    pairs = zip(rows, values, strict=True)
    return {row: value for row, value in pairs if row in left and not isnan(value)}


def view(session: Session, version: ModelVersion) -> MemorisationView:
    """What there is: the proxy, the estimate in figures, and where the pools stand."""
    recorded = version.figures.get("memorisation", {})
    return MemorisationView(
        proxy=Proxy(version=recorded.get("version", version.number)) if "proxy" in recorded else None,
        estimate=Estimate(**recorded["estimate"]) if "estimate" in recorded else None,
        pools=shadows.pools(session, version),
    )


def look_up(session: Session, version: ModelVersion, sample_ids: Sequence[str]) -> SampleScores:
    """The scores of these samples. Raises as `scores`."""
    home = datasets.get_version(session, version.dataset_version_id).dataset_id
    matches = Matches(session)
    matches.add_samples(home, range(len(sample_ids)), sample_ids)
    matches.find_in([(version.dataset_version_id, home)])
    left = shadows.remaining(session, version)
    rows = {place: row for place, row in matches.places_of(version.dataset_version_id) if row in left}
    none = Scores({}, {})
    estimate = scores(session, version, "estimate") or none
    proxy = scores(session, version, "proxy") or none
    return SampleScores(
        samples=[
            SampleScore(
                sample_id=sample_ids[place],
                estimate=estimate.values.get(row),
                standard_error=estimate.errors.get(row),
                proxy=proxy.values.get(row),
            )
            for place, row in rows.items()
        ],
        unknown_sample_ids=[place for place in range(len(sample_ids)) if place not in rows],
    )


def rows_of_tier(session: Session, version: ModelVersion, wanted: TierRows) -> tuple[RowSet, Basis]:
    """The rows of a tier, and whose scores they were taken by.

    Raises:
        Conflict: there are no such scores.
        NoTiers: they would share rows.
    """
    for basis in [wanted.by] if wanted.by else _CENTRES:
        found = scores(session, version, basis)
        if found is not None:
            break
    else:
        raise Conflict("The version has no such memorisation scores: train it here, or have them estimated.")
    size = max(1, round(wanted.share * len(service.rows_of(session, version))))
    rows = list(found.values)
    random.Random(wanted.seed).shuffle(rows)  # or ties would go to the first rows, which may be of one class
    places = tier([found.values[row] for row in rows], size, wanted.tier, centre=_CENTRES[basis])
    return RowSet.of(rows[place] for place in places), basis


def carried_over(session: Session, job: Job, parent: ModelVersion, weights: str) -> dict[str, Any]:
    """The proxy of a version that an unlearn job made of its parent, as a part of its figures.

    A network that was retrained, whether by the job or as its reference, has its own. One that was changed
    has that of its parent, of which the rows that remain are read.
    """
    return {"memorisation": found} if (found := _carried(session, job, parent, weights)) else {}


def _carried(session: Session, job: Job, parent: ModelVersion, weights: str) -> Mapping[str, Any] | None:
    reference = references.with_weights(session, parent.id, weights)
    if reference is not None:
        return reference.figures.get("memorisation")
    if METHODS[job.parameters["method"]].exact:
        digest = (job.outcome or {})["unlearned"].get("blobs", {}).get(_CONFIDENCES)
        return {"kind": "confidence", "proxy": digest, "rows": job.rows_digest} if digest else None
    inherited = parent.figures.get("memorisation", {})
    if "proxy" not in inherited:
        return None
    kept = {name: value for name, value in inherited.items() if name != "estimate"}
    return {"version": parent.number, **kept}
