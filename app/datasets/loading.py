"""Loading a registered data set's rows: COPY into a bare table, index, attach as a partition."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from psycopg import Connection
from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from app.datasets import tombstones
from app.datasets.tombstones import Watch
from app.pseudonyms import Pseudonyms
from app.tables import Dataset, DatasetVersion, TombstonedRow


@dataclass(frozen=True)
class LoadedRow:
    """One row as the reader gave it, and the role it was drawn for."""

    ordinal: int
    sample_id: str
    role: str
    label: int
    content_hash: bytes
    subject: str | None


@dataclass(frozen=True)
class Shape:
    """What was found out about the data set while its rows were read."""

    num_classes: int
    image_shape: tuple[int, int, int]
    class_names: list[str] | None


def load(
    session: Session,
    version_id: uuid.UUID,
    rows: Iterable[LoadedRow],
    *,
    shape: Shape,
    names: Pseudonyms,
    actor: str,
) -> DatasetVersion:
    """Load all rows and make the version ready, in the caller's transaction; repeatable after a crash.

    Rows that fall under a tombstone are loaded (a report must be able to name them) but quarantined: they
    are covered by it from the first moment, so nothing ever trains on them.
    """
    version = session.scalars(
        select(DatasetVersion).where(DatasetVersion.id == version_id).with_for_update()
    ).one()
    guard = tombstones.watch(session, version.dataset_id)
    roles: Counter[str] = Counter()
    covered: list[dict[str, Any]] = []
    table = f"samples_{version_id.hex}"
    _copy(session, table, _prepared(version, rows, names, guard, roles, covered))
    _attach(session, table, version_id)
    if covered:
        session.execute(insert(TombstonedRow), covered)
    # Requests accepted from here on wait for this lock and then see the new version.
    session.scalars(select(Dataset.id).where(Dataset.id == version.dataset_id).with_for_update()).one()
    tombstones.catch_up(session, version.dataset_id, version.id, known=guard)
    version.row_count = roles.total()
    version.role_counts = {**roles, "quarantined": len({row["ordinal"] for row in covered})}
    version.num_classes, version.image_shape = shape.num_classes, list(shape.image_shape)
    version.class_names = list(shape.class_names) if shape.class_names else None
    version.key_id = names.key_id
    version.ready_at = datetime.now(UTC)
    version.become_ready(actor=actor)
    return version


def _prepared(
    version: DatasetVersion,
    rows: Iterable[LoadedRow],
    names: Pseudonyms,
    guard: Watch,
    roles: Counter[str],
    covered: list[dict[str, Any]],
) -> Iterable[tuple[Any, ...]]:
    """The rows as COPY wants them; counts roles and notes the rows under tombstones on the way."""
    unguarded = not guard.ids
    for row in rows:
        subject = names.subject(row.subject) if row.subject is not None else None
        roles[row.role] += 1
        if not unguarded:
            sample, content = names.sample(version.dataset_id, row.sample_id), names.content(row.content_hash)
            covered += [
                {"dataset_version_id": version.id, "ordinal": row.ordinal, "tombstone_id": mark}
                for mark in guard.hits(sample, subject, content)
            ]
        yield (version.id, row.ordinal, row.sample_id, row.role, row.label, row.content_hash, subject)


def _copy(session: Session, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
    with _driver(session).cursor() as cursor:
        cursor.execute(f"CREATE TABLE {table} (LIKE samples INCLUDING DEFAULTS)")
        with cursor.copy(f"COPY {table} FROM STDIN WITH (FORMAT BINARY)") as copy:
            copy.set_types(["uuid", "int4", "text", "text", "int2", "bytea", "bytea"])
            for row in rows:
                copy.write_row(row)


def _attach(session: Session, table: str, version_id: uuid.UUID) -> None:
    """Index the loaded table as `samples` is indexed, then attach it without another scan."""
    with _driver(session).cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} ADD PRIMARY KEY (dataset_version_id, ordinal)")
        cursor.execute(f"ALTER TABLE {table} ADD UNIQUE (dataset_version_id, sample_id)")
        cursor.execute(f"CREATE INDEX ON {table} (dataset_version_id, subject_key)")
        cursor.execute(f"ALTER TABLE {table} ADD CHECK (dataset_version_id = '{version_id}')")
        cursor.execute(f"ALTER TABLE samples ATTACH PARTITION {table} FOR VALUES IN ('{version_id}')")
        cursor.execute(f"ANALYZE {table}")


def _driver(session: Session) -> Connection[Any]:
    """The psycopg connection beneath the session, for COPY."""
    driver = session.connection().connection.dbapi_connection
    if not isinstance(driver, Connection):
        raise TypeError("the database driver is psycopg")
    return driver
