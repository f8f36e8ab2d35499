"""How models and versions are shown, and where a version came from."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.datasets import rows as row_sets
from app.registry import policies, service
from app.registry.schemas import Ancestor, Lineage, ModelView, PolicyView, VersionView
from app.tables import Alias, Job, Model, ModelVersion, RowBits


def view(session: Session, model: Model) -> ModelView:
    """The model as the API shows it."""
    query = (
        select(Alias.name, ModelVersion.number)
        .join(ModelVersion, ModelVersion.id == Alias.version_id)
        .where(Alias.model_id == model.id)
    )
    return ModelView(
        id=model.id,
        name=model.name,
        description=model.description,
        aliases=dict(session.execute(query).all()),
        policy=PolicyView.model_validate(policies.in_force(session, model.id)),
        created_at=model.created_at,
        retired_at=model.retired_at,
    )


def view_versions(session: Session, versions: Sequence[ModelVersion]) -> list[VersionView]:
    """Versions as the API shows them."""
    ids = [version.id for version in versions]
    names: dict[uuid.UUID, list[str]] = {}
    for alias in session.scalars(select(Alias).where(Alias.version_id.in_(ids)).order_by(Alias.name)):
        names.setdefault(alias.version_id, []).append(alias.name)
    digests = {version.rows_digest for version in versions}
    sizes = dict(
        session.execute(select(RowBits.digest, RowBits.size).where(RowBits.digest.in_(digests))).all()
    )
    columns = [column.key for column in ModelVersion.__mapper__.column_attrs]
    deleted = {
        version_id: row_sets.tombstoned(session, version_id)
        for version_id in {version.dataset_version_id for version in versions}
    }
    return [
        VersionView.model_validate(
            {
                **{key: getattr(version, key) for key in columns},
                "rows": sizes.get(version.rows_digest or ""),
                "quarantined": len(service.rows_of(session, version) & deleted[version.dataset_version_id]),
                "aliases": names.get(version.id, []),
            }
        )
        for version in versions
    ]


def lineage(session: Session, version: ModelVersion) -> Lineage:
    """The version and what it came from, and what came of it, in the order of their numbers."""
    of_model = select(ModelVersion).filter_by(model_id=version.model_id).order_by(ModelVersion.number)
    versions = {each.id: each for each in session.scalars(of_model)}
    ancestors = [version]
    while (parent_id := ancestors[-1].parent_id) is not None:
        ancestors.append(versions[parent_id])
    found, descendants = {version.id}, []
    for each in versions.values():  # children have higher numbers than their parents
        if each.parent_id in found:
            found.add(each.id)
            descendants.append(each)
    return Lineage(
        ancestors=[_ancestor(session, each) for each in ancestors],
        descendants=[_ancestor(session, each) for each in descendants],
    )


def _ancestor(session: Session, version: ModelVersion) -> Ancestor:
    job = session.get(Job, version.job_id) if version.job_id is not None else None
    return Ancestor(
        number=version.number,
        origin=version.origin,
        state=version.state,
        rows=len(service.rows_of(session, version)) if version.rows_digest else None,
        method=job.parameters.get("method") if job is not None else None,
        job_id=version.job_id,
        created_at=version.created_at,
    )
