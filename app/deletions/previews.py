"""What a request would do, said without doing it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from sqlalchemy import select, text
from sqlalchemy.orm import Session

from app.deletions.matching import match
from app.deletions.schemas import (
    ItemCounts,
    ModelPreview,
    NewRequest,
    Preview,
    ProbeView,
    RungPreview,
    TwinsPreview,
)
from app.deletions.service import naming_of
from app.errors import FAULTS_SHOWN, Faults
from app.jobs import service as jobs
from app.jobs.params import METHODS
from app.jobs.policies import POLICY
from app.pseudonyms import pseudonyms
from app.registry import comparisons, policies
from app.registry import service as registry
from app.tables import Dataset, DatasetVersion, Model, ModelVersion
from models_store.rows import RowSet

_MOST_TWINS = 1000
# Rows like a matched one that are neither matched themselves nor under a tombstone. One data set version at a
# time, so that its partition alone is looked at.
_TWINS = """
    SELECT s.sample_id, count(*) OVER () AS number FROM samples s
    WHERE s.dataset_version_id = CAST(:version AS uuid)
      AND s.content_hash IN (SELECT content_hash FROM matched_rows WHERE dataset_version_id = :version)
      AND NOT EXISTS (SELECT FROM matched_rows m
                      WHERE m.dataset_version_id = s.dataset_version_id AND m.ordinal = s.ordinal)
      AND s.ordinal NOT IN (SELECT unnest(ordinals) FROM tombstoned_rows WHERE dataset_version_id = :version)
    ORDER BY s.ordinal LIMIT :limit
"""


def preview(session: Session, new: NewRequest, *, probing: str | None = None) -> Preview:
    """What `accept` would do with this request. Raises Invalid as it would.

    `probing`: who wants probes; each model concerned that has none for just these rows gets one.
    """
    faults = Faults()
    matches = match(session, naming_of(new), pseudonyms(), faults)
    faults.raise_any()
    unmatched, places = matches.unmatched(FAULTS_SHOWN)
    rows = {version_id: matches.rows_of(version_id) for version_id in matches.homes}
    return Preview(
        items=ItemCounts(total=matches.count, matched=matches.count - unmatched, no_match=unmatched),
        unmatched=places,
        models=_models(session, rows, new.audit_budget, probing),
        twins=[twins for version_id in rows if (twins := _twins(session, version_id)) is not None],
    )


def _models(
    session: Session, rows: Mapping[uuid.UUID, RowSet], budget: int, probing: str | None
) -> list[ModelPreview]:
    """The models in use that were trained on some of the rows, by data set version."""
    concerned: dict[uuid.UUID, list[ModelVersion]] = {}
    for version in registry.aliased_versions(session, list(rows)):
        if len(registry.rows_of(session, version) & rows[version.dataset_version_id]):
            concerned.setdefault(version.model_id, []).append(version)
    return [_model(session, versions, rows, budget, probing) for versions in concerned.values()]


def _model(
    session: Session,
    versions: list[ModelVersion],
    rows: Mapping[uuid.UUID, RowSet],
    budget: int,
    probing: str | None,
) -> ModelPreview:
    model = session.get_one(Model, versions[0].model_id)
    policy = POLICY.validate_python(policies.in_force(session, model.id).body)
    held = {version.id: registry.rows_of(session, version) for version in versions}
    hit = {version.id: held[version.id] & rows[version.dataset_version_id] for version in versions}
    largest = max(hit, key=lambda version_id: len(hit[version_id]))
    return ModelPreview(
        model=model.name,
        versions=[version.number for version in versions],
        rows_to_forget=len(hit[largest]),
        rows=len(held[largest]),
        ladder=[_rung(session, model.id, rung.method) for rung in policy.ladder],
        due_days=policy.due_days,
        audit_budget=max(policy.audit_budget, budget) if any(v.recipe is not None for v in versions) else 0,
        probe=_probe(session, session.get_one(ModelVersion, largest), hit[largest], probing),
    )


def _probe(session: Session, version: ModelVersion, forget: RowSet, asked_by: str | None) -> ProbeView | None:
    """The version's newest probe of these rows that did not fail; a new one, if it is asked for."""
    found = comparisons.probe_of(session, version, forget)
    if found is None and asked_by is not None:
        found = comparisons.start_probe(session, version, forget, actor=asked_by)
    if found is None:
        return None
    return ProbeView(job_id=found.id, state=found.state, guidance=(found.outcome or {}).get("figures"))


def _rung(session: Session, model_id: uuid.UUID, method: str) -> RungPreview:
    seconds, number = jobs.usual_seconds(session, model_id, method, training=METHODS[method].exact)
    return RungPreview(method=method, exact=METHODS[method].exact, seconds=seconds, jobs=number)


def _twins(session: Session, version_id: uuid.UUID) -> TwinsPreview | None:
    found = session.execute(text(_TWINS), {"version": version_id, "limit": _MOST_TWINS}).all()
    if not found:
        return None
    query = select(Dataset.name, DatasetVersion.number).join(
        DatasetVersion, DatasetVersion.dataset_id == Dataset.id
    )
    name, number = session.execute(query.where(DatasetVersion.id == version_id)).one()
    return TwinsPreview(
        dataset=name, version=number, count=found[0].number, sample_ids=[row.sample_id for row in found]
    )
