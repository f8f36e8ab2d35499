"""Loading a registered data set's rows: COPY into a bare table, index, attach as a partition.

All of it happens in one transaction of the caller's. Until `attach` nothing that others see is locked or
changed, however long the rows take; if the transaction ends early, no trace is left.
"""

from __future__ import annotations

import uuid
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from struct import Struct
from typing import Any

from psycopg import Connection, sql
from psycopg.errors import UniqueViolation
from sqlalchemy import any_, literal, select
from sqlalchemy.dialects.postgresql import ARRAY, UUID
from sqlalchemy.orm import Session

from app.datasets import rows as row_sets
from app.datasets import tombstones
from app.datasets.copying import NULL, copy_in, driver
from app.pseudonyms import Pseudonyms
from app.tables import Dataset, DatasetVersion, Tombstones
from models_store.rows import RowSet

_MOST_REPEATS = 20
_SETTINGS = {
    "statement_timeout": "0",  # the rows of one statement may take hours to read
    "maintenance_work_mem": "256MB",
    "max_parallel_maintenance_workers": "2",
}

_ROW_HEAD = Struct("!hi16siii")  # 6 columns, data set version, ordinal, length of the sample ID
_ROW_TAIL = Struct("!ihi32s")  # label, content hash
_KEY = Struct("!i32s")  # subject key


@dataclass(frozen=True)
class Block:
    """Some rows as the reader gave them, column by column; no row has an empty ID or a label of 2^15."""

    ordinals: Sequence[int]
    sample_ids: Sequence[str]
    labels: Sequence[int]
    content_hashes: Sequence[bytes]
    subjects: Sequence[str | None] | None


@dataclass(frozen=True)
class Repeats:
    """Rows whose sample ID an earlier row has: how many, and of the first few both ordinals."""

    count: int = 0
    first: tuple[tuple[int, int], ...] = ()  # (the row, the first row with its ID)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What was found out about the data set while its rows were read."""

    num_classes: int
    image_shape: tuple[int, int, int]
    class_names: Sequence[str] | None
    roles: Mapping[str, RowSet]
    manifest: str
    poisoned: RowSet | None = None  # None: the data set is not to be poisoned


class Loading:
    """The rows of one data set version on their way into the database: `copy`, `index`, `relabel`, `attach`.

    Rows that fall under a tombstone are loaded (a report must be able to name them) but quarantined: they
    are covered by it from the first moment, so nothing ever trains on them.
    """

    def __init__(self, session: Session, version_id: uuid.UUID, names: Pseudonyms) -> None:
        self._session = session
        self._version_id = version_id
        self._names = names
        self._table = f"samples_{version_id.hex}"
        self._dataset_id = session.scalars(
            select(DatasetVersion.dataset_id).where(DatasetVersion.id == version_id)
        ).one()
        self._guard = tombstones.watch(session, self._dataset_id)
        self._covered = _Covered()

    def copy(self, blocks: Iterable[Block]) -> None:
        """Copy all rows into a new table that nobody else sees."""
        with self._driver.cursor() as cursor:
            for name, value in _SETTINGS.items():
                cursor.execute(f"SET LOCAL {name} = '{value}'")
            cursor.execute(
                f"CREATE TABLE {self._table} (LIKE samples INCLUDING DEFAULTS,"
                f" CHECK (dataset_version_id = '{self._version_id}'))"  # attaching need not look at the rows
            )
        columns = "dataset_version_id, ordinal, sample_id, label, content_hash, subject_key"
        copy_in(self._session, self._table, columns, map(self._encoded, blocks), options=", FREEZE")

    def index(self) -> Repeats:
        """Index the table as `samples` is indexed, unless sample IDs are repeated: then say where."""
        try:
            with self._session.begin_nested():
                self._execute(f"ALTER TABLE {self._table} ADD UNIQUE (sample_id, dataset_version_id)")
        except UniqueViolation:
            return self._repeats()
        self._execute(f"ALTER TABLE {self._table} ADD PRIMARY KEY (dataset_version_id, ordinal)")
        self._execute(f"CREATE INDEX ON {self._table} (content_hash)")
        self._execute(f"CREATE INDEX ON {self._table} (subject_key) WHERE subject_key IS NOT NULL")
        self._execute(f"ANALYZE {self._table}")
        return Repeats()

    def labelled(self, label: int) -> RowSet:
        """The rows that have this label."""
        query = sql.SQL("SELECT ordinal FROM {} WHERE label = %s").format(sql.Identifier(self._table))
        with self._driver.cursor() as cursor:
            return RowSet.of(ordinal for (ordinal,) in cursor.stream(query, [label]))

    def relabel(self, rows: RowSet, label: int) -> None:
        """Give these rows this label."""
        statement = sql.SQL("UPDATE {} SET label = %s WHERE ordinal = ANY(%s)")
        self._driver.execute(statement.format(sql.Identifier(self._table)), [label, list(rows)])

    def attach(self, facts: Facts, *, actor: str) -> DatasetVersion:
        """Make the rows part of `samples` and the version ready; its rows by role are counted and kept."""
        session = self._session
        version = session.get_one(DatasetVersion, self._version_id, with_for_update=True)
        self._execute(
            f"ALTER TABLE samples ATTACH PARTITION {self._table} FOR VALUES IN ('{self._version_id}')"
        )
        # Requests accepted from here on wait for this lock and then see the new version.
        session.scalars(select(Dataset.id).where(Dataset.id == self._dataset_id).with_for_update()).one()
        self._cover()
        tombstones.catch_up(session, self._dataset_id, self._version_id, known=self._guard)
        quarantined = row_sets.tombstoned(session, self._version_id)
        version.row_count = sum(map(len, facts.roles.values()))
        version.role_counts = {role: len(rows) for role, rows in facts.roles.items() if len(rows)}
        version.role_counts["quarantined"] = len(quarantined)
        version.role_sets = {role: row_sets.keep(session, rows) for role, rows in facts.roles.items()}
        version.num_classes, version.image_shape = facts.num_classes, list(facts.image_shape)
        version.class_names = list(facts.class_names) if facts.class_names else None
        version.manifest = facts.manifest
        if facts.poisoned is not None:
            rows, count = row_sets.keep(session, facts.poisoned), len(facts.poisoned)
            version.poison = {**(version.poison or {}), "rows": rows, "count": count}
        version.key_id = self._names.key_id
        version.ready_at = datetime.now(UTC)
        version.become_ready(actor=actor)
        return version

    def _encoded(self, block: Block) -> bytes:
        """The rows in the format of COPY; those under a tombstone are noted on the way."""
        keys = self._subject_keys(block)
        if any(self._guard):
            self._note_hits(block, keys)
        version = self._version_id.bytes
        columns = (block.ordinals, block.sample_ids, block.labels, block.content_hashes, keys)
        pieces: list[bytes] = []
        for ordinal, sample_id, label, content_hash, key in zip(*columns, strict=True):
            name = sample_id.encode()
            pieces += (
                _ROW_HEAD.pack(6, 16, version, 4, ordinal, len(name)),
                name,
                _ROW_TAIL.pack(2, label, 32, content_hash),
                NULL if key is None else _KEY.pack(32, key),
            )
        return b"".join(pieces)

    def _subject_keys(self, block: Block) -> Sequence[bytes | None]:
        """Each row's keyed hash; people come many times, and each is hashed once a block."""
        if block.subjects is None:
            return [None] * len(block.ordinals)
        key_of = {name: None if name is None else self._names.subject(name) for name in set(block.subjects)}
        return [key_of[name] for name in block.subjects]

    def _note_hits(self, block: Block, subject_keys: Sequence[bytes | None]) -> None:
        samples = self._names.samples(self._dataset_id, block.sample_ids)
        contents = self._names.contents(block.content_hashes)
        rows = zip(block.ordinals, samples, subject_keys, contents, strict=True)
        for ordinal, sample, subject, content in rows:
            for request_id in self._guard.hits(sample, subject, content):
                self._covered.add(ordinal, request_id)

    def _repeats(self) -> Repeats:
        with self._driver.cursor() as cursor:
            cursor.execute(
                sql.SQL(
                    "SELECT ordinal, first, count(*) OVER () FROM (SELECT ordinal, min(ordinal) OVER"
                    " (PARTITION BY sample_id) AS first FROM {}) AS named"
                    " WHERE ordinal > first ORDER BY ordinal LIMIT {}"
                ).format(sql.Identifier(self._table), _MOST_REPEATS)
            )
            found = cursor.fetchall()
        return Repeats(found[0][2], tuple((ordinal, first) for ordinal, first, _ in found))

    def _cover(self) -> None:
        """Quarantine the rows under tombstones that stand, now that no request of the data set can move."""
        requests = literal(self._covered.requests, ARRAY(UUID))
        standing = set(
            self._session.scalars(
                select(Tombstones.request_id).where(Tombstones.request_id == any_(requests)).distinct()
            )
        )
        pairs = ((ordinal, request_id) for ordinal, request_id in self._covered if request_id in standing)
        row_sets.cover_pairs(self._session, self._version_id, pairs)

    def _execute(self, statement: str) -> None:
        self._driver.execute(statement)

    @property
    def _driver(self) -> Connection[Any]:
        return driver(self._session)


class _Covered:
    """Pairs of a row and a request whose tombstone covers it, in 8 bytes each."""

    def __init__(self) -> None:
        self._numbers: dict[uuid.UUID, int] = {}
        self._ordinals = array("i")
        self._requests = array("i")

    @property
    def requests(self) -> list[uuid.UUID]:
        return list(self._numbers)

    def add(self, ordinal: int, request_id: uuid.UUID) -> None:
        self._ordinals.append(ordinal)
        self._requests.append(self._numbers.setdefault(request_id, len(self._numbers)))

    def __iter__(self) -> Iterator[tuple[int, uuid.UUID]]:
        requests = self.requests
        for ordinal, number in zip(self._ordinals, self._requests, strict=True):
            yield ordinal, requests[number]
