"""Networks retrained without some of a version's rows, which unlearned ones are measured against."""

from __future__ import annotations

import uuid

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.tables import Job, ReferenceNetwork


def find(session: Session, version_id: uuid.UUID, rows_digest: str) -> ReferenceNetwork | None:
    """A network retrained, by the version's own recipe, on exactly these rows, if there is one."""
    query = select(ReferenceNetwork).filter_by(version_id=version_id, rows_digest=rows_digest)
    return session.scalar(query)


def keep(session: Session, job: Job) -> None:
    """Keep the result of a reference job for its version and rows, unless another job was faster."""
    outcome = job.outcome or {}
    kept = {
        "id": uuid.uuid4(),
        "version_id": job.version_id,
        "rows_digest": job.rows_digest,
        "job_id": job.id,
        "weights": outcome["weights"],
        "seconds": outcome["figures"]["seconds"],
        "figures": outcome["figures"],
    }
    session.execute(insert(ReferenceNetwork).values(kept).on_conflict_do_nothing())
