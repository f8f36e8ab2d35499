"""Networks retrained without some of a version's rows, which unlearned ones are measured against.

Of the same rows there may be several, each with a number and a seed of its own. They belong to exactly these
rows: when another one is deleted, other rows remain, and none of these networks is found for those.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import cache, partial
from itertools import count, islice

from sqlalchemy import delete, exists, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.datasets import rows as row_sets
from app.events import service as events
from app.jobs import service as jobs
from app.registry import service
from app.tables import Job, JobKind, ModelVersion, ReferenceNetwork, RowBits
from app.tables.jobs import LIVE
from models_store.rows import RowSet

OUTDATED = "rows that were to remain have been deleted meanwhile"


def find(session: Session, version_id: uuid.UUID, rows_digest: str) -> ReferenceNetwork | None:
    """The first network retrained, by the version's own recipe, on exactly these rows, if there is one."""
    return next(iter(of(session, version_id, rows_digest, most=1)), None)


def of(session: Session, version_id: uuid.UUID, rows_digest: str, *, most: int) -> Sequence[ReferenceNetwork]:
    """The first `most` networks retrained on exactly these rows, in the order of their numbers."""
    query = select(ReferenceNetwork).filter_by(version_id=version_id, rows_digest=rows_digest)
    return session.scalars(query.order_by(ReferenceNetwork.number).limit(most)).all()


def with_weights(session: Session, version_id: uuid.UUID, weights: str) -> ReferenceNetwork | None:
    """The version's network that has these weights, if one has."""
    query = select(ReferenceNetwork).filter_by(version_id=version_id, weights=weights)
    return session.scalars(query.order_by(ReferenceNetwork.number).limit(1)).first()


def ask(session: Session, version: ModelVersion, rows: RowSet, most: int, *, actor: str) -> list[Job]:
    """The jobs that train what is lacking to `most` networks on these rows.

    One that somebody else waits for already is not queued again: the version is locked.
    """
    service.lock_version(session, version.id)
    rows_digest = row_sets.keep(session, rows)
    there = {network.number for network in of(session, version.id, rows_digest, most=most)}
    query = select(Job).filter_by(kind=JobKind.REFERENCE, version_id=version.id, rows_digest=rows_digest)
    live = {job.parameters["number"]: job for job in session.scalars(query.where(Job.state.in_(LIVE)))}
    missing = islice((number for number in count() if number not in there), most - len(there))
    return [
        live.get(number) or jobs.queue(session, _job(version, rows_digest, number, actor))
        for number in missing
    ]


def _job(version: ModelVersion, rows_digest: str, number: int, actor: str) -> Job:
    facts = (version.weights or "", rows_digest, "reference", *([str(number)] if number else ()))
    return Job(
        kind=JobKind.REFERENCE,
        model_id=version.model_id,
        version_id=version.id,
        dataset_version_id=version.dataset_version_id,
        parameters={"architecture": version.architecture, "recipe": version.recipe, "number": number},
        rows_digest=rows_digest,
        seed=jobs.seed_of(*facts),
        created_by=actor,
    )


def keep(session: Session, job: Job) -> None:
    """Keep the result of a reference job for its version, rows and number."""
    outcome = job.outcome or {}
    kept = {
        "id": uuid.uuid4(),
        "version_id": job.version_id,
        "rows_digest": job.rows_digest,
        "number": job.parameters["number"],
        "job_id": job.id,
        "weights": outcome["weights"],
        "seconds": outcome["figures"]["seconds"],
        "figures": outcome["figures"],
    }
    session.execute(insert(ReferenceNetwork).values(kept).on_conflict_do_nothing())


def discard_outdated(session: Session, *, actor: str) -> int:
    """Forget the networks that were trained on a row deleted since; how many.

    Not those of rows that a job is at work on, which may be about to publish one.
    """
    at_work = exists().where(
        Job.version_id == ReferenceNetwork.version_id,
        Job.rows_digest == ReferenceNetwork.rows_digest,
        Job.settled_at.is_(None),
    )
    query = (
        select(ReferenceNetwork.id, ModelVersion, RowBits.bits)
        .join(ModelVersion, ModelVersion.id == ReferenceNetwork.version_id)
        .join(RowBits, RowBits.digest == ReferenceNetwork.rows_digest)
        .where(~at_work)
    )
    deleted = cache(partial(row_sets.tombstoned, session))
    outdated: dict[ModelVersion, list[uuid.UUID]] = {}
    for network_id, version, bits in session.execute(query):
        if len(RowSet(bits) & deleted(version.dataset_version_id)):
            outdated.setdefault(version, []).append(network_id)
    for version, ids in outdated.items():
        session.execute(delete(ReferenceNetwork).where(ReferenceNetwork.id.in_(ids)))
        events.record(
            session,
            actor=actor,
            action="references discarded",
            entity="ModelVersion",
            entity_id=version.id,
            networks=len(ids),
        )
    return sum(map(len, outdated.values()))
