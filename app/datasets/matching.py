"""Finding the samples that somebody names, by the million: in the database, set by set.

The names are copied into a table of the session's own, and so are the rows that they match; this process
holds neither. Both tables are empty again after the transaction.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from struct import Struct
from typing import Any, NamedTuple

from sqlalchemy import select, text
from sqlalchemy.orm import Session

from app.datasets.copying import NULL, copy_in, field
from app.tables import DatasetState, DatasetVersion
from models_store.rows import RowSet

_NAMED_ITEMS = """
    CREATE TEMP TABLE IF NOT EXISTS named_items (
        position int NOT NULL, leader int NOT NULL, place int NOT NULL,
        dataset_id uuid, sample_id text COLLATE "C", subject_key bytea
    ) ON COMMIT DELETE ROWS
"""
_MATCHED_ROWS = """
    CREATE TEMP TABLE IF NOT EXISTS matched_rows (
        position int NOT NULL,
        dataset_id uuid NOT NULL, dataset_version_id uuid NOT NULL, ordinal int NOT NULL,
        sample_id text COLLATE "C" NOT NULL, content_hash bytea NOT NULL, subject_key bytea
    ) ON COMMIT DELETE ROWS
"""
_EMPTY = (
    "SET LOCAL work_mem = '128MB'",  # a million names are sorted and grouped in memory
    _NAMED_ITEMS,
    _MATCHED_ROWS,
    "DELETE FROM named_items",
    "DELETE FROM matched_rows",
)
_MATCH = """
    INSERT INTO matched_rows
    SELECT i.position, CAST(:dataset AS uuid), s.dataset_version_id, s.ordinal, s.sample_id, s.content_hash,
           i.subject_key
    FROM named_items i
    JOIN samples s ON s.dataset_version_id = CAST(:version AS uuid) AND s.{column} = i.{column}
    WHERE (i.dataset_id = CAST(:dataset AS uuid) OR i.dataset_id IS NULL) AND i.leader = i.position
"""
# A subject that is named twice is searched once: both items have the first one's rows.
_LEADERS = """
    UPDATE named_items i SET leader = first.position
    FROM (SELECT min(position) AS position, dataset_id, subject_key FROM named_items
          WHERE subject_key IS NOT NULL GROUP BY dataset_id, subject_key) first
    WHERE i.subject_key = first.subject_key AND i.dataset_id IS NOT DISTINCT FROM first.dataset_id
      AND i.position > first.position
"""
_AMBIGUOUS = """
    SELECT i.place, count(*) OVER () FROM matched_rows m JOIN named_items i ON i.position = m.position
    WHERE i.sample_id IS NOT NULL AND i.dataset_id IS NULL
    GROUP BY i.position, i.place HAVING count(DISTINCT m.dataset_id) > 1
"""
_UNMATCHED = """
    SELECT i.place, count(*) OVER () FROM named_items i
    WHERE NOT EXISTS (SELECT FROM matched_rows m WHERE m.position = i.leader)
"""
_NUMBERS = Struct("!hiiiiii")  # 6 columns; position, leader and place
_COLUMNS = "position, leader, place, dataset_id, sample_id, subject_key"
_ANALYZE_FROM = 1000  # names; fewer are found quickly by any plan


class Named(NamedTuple):
    """Something to be found: a sample ID, or a subject's keyed hash; in one data set, or in any.

    `place` is where the caller wrote it: the index of an item, or a line.
    """

    place: int
    dataset_id: uuid.UUID | None
    sample_id: str | None
    subject_key: bytes | None


def _home(dataset_id: uuid.UUID | None) -> bytes:
    return field(dataset_id.bytes if dataset_id is not None else None)


def _sample(sample_id: str | None) -> bytes:
    return field(sample_id.encode() if sample_id is not None else None)


class Matches:
    """Names, in the order given, and the rows found for each. One at a time in a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.count = 0
        # The versions in which there was something, and the data set of each.
        self.homes: dict[uuid.UUID, uuid.UUID] = {}
        self._found: dict[uuid.UUID, int] = {}  # rows, by version
        self._anywhere = self._subjects = self._samples = 0
        for statement in _EMPTY:
            session.execute(text(statement))

    def add(self, names: Sequence[Named]) -> None:
        """Add names to be found."""
        self._anywhere += sum(name.dataset_id is None for name in names)
        samples = sum(name.sample_id is not None for name in names)
        self._samples += samples
        self._subjects += len(names) - samples
        self._copy(
            [name.place for name in names],
            (_home(name.dataset_id) for name in names),
            (_sample(name.sample_id) for name in names),
            (field(name.subject_key) for name in names),
        )

    def add_samples(
        self, dataset_id: uuid.UUID | None, places: Sequence[int], sample_ids: Sequence[str]
    ) -> None:
        """Add samples' IDs to be found, all in one data set, or in any."""
        if dataset_id is None:
            self._anywhere += len(places)
        self._samples += len(places)
        self._copy(places, repeat(_home(dataset_id)), map(_sample, sample_ids), repeat(NULL))

    def _copy(
        self,
        places: Sequence[int],
        homes: Iterable[bytes],
        samples: Iterable[bytes],
        subjects: Iterable[bytes],
    ) -> None:
        """Copy names into `named_items`; what is not a place is a column as COPY has it."""
        pieces: list[bytes] = []
        fields = zip(places, homes, samples, subjects, strict=False)
        for position, (place, home, sample, subject) in enumerate(fields, self.count):
            pieces += (_NUMBERS.pack(6, 4, position, 4, position, 4, place), home, sample, subject)
        self.count += len(places)
        copy_in(self._session, "named_items", _COLUMNS, [b"".join(pieces)])

    @property
    def has_homeless(self) -> bool:
        """Whether some name is to be looked for in every data set."""
        return self._anywhere > 0

    @property
    def rows_each(self) -> int | None:
        """How many rows every name has, if they all are samples of one data set and none is lacking.

        A version has one row of a sample at most, so as many rows as names is a row for each.
        """
        whole = not self._subjects and all(rows == self.count for rows in self._found.values())
        return len(self.homes) if whole and len(set(self.homes.values())) == 1 else None

    def find(self, dataset_ids: Iterable[uuid.UUID]) -> int:
        """Look for the names in every ready version of these data sets; how many rows were found."""
        return self.find_in(self._versions(dataset_ids))

    def find_in(self, versions: Iterable[tuple[uuid.UUID, uuid.UUID]]) -> int:
        """Look for the names in these versions, each with its data set; how many rows were found."""
        if self._subjects > 1:
            self._session.execute(text(_LEADERS))
        if self.count >= _ANALYZE_FROM:
            self._session.execute(text("ANALYZE named_items"))
        found = 0
        for version_id, dataset_id in versions:
            rows = self._find_in(version_id, dataset_id)
            if rows:
                self.homes[version_id], self._found[version_id] = dataset_id, rows
            found += rows
        if found >= _ANALYZE_FROM:
            self._session.execute(text("ANALYZE matched_rows"))
        return found

    def _find_in(self, version_id: uuid.UUID, dataset_id: uuid.UUID) -> int:
        where, found = {"version": version_id, "dataset": dataset_id}, 0
        for column, wanted in (("sample_id", self._samples), ("subject_key", self._subjects)):
            if wanted:
                result: Any = self._session.execute(text(_MATCH.format(column=column)), where)
                found += result.rowcount
        return found

    def _versions(self, dataset_ids: Iterable[uuid.UUID]) -> list[tuple[uuid.UUID, uuid.UUID]]:
        ready = select(DatasetVersion.id, DatasetVersion.dataset_id).where(
            DatasetVersion.state == DatasetState.READY, DatasetVersion.dataset_id.in_(list(dataset_ids))
        )
        return [
            (version_id, home)
            for version_id, home in self._session.execute(ready.order_by(DatasetVersion.id))
        ]

    def ambiguous(self, limit: int) -> tuple[int, list[int]]:
        """The sample IDs, given without a data set, that several data sets have: how many; first places."""
        if not self._anywhere:
            return 0, []
        return self._places(_AMBIGUOUS, limit)

    def unmatched(self, limit: int) -> tuple[int, list[int]]:
        """The names of which nothing was found: how many, and the first places."""
        return self._places(_UNMATCHED, limit)

    def _places(self, query: str, limit: int) -> tuple[int, list[int]]:
        rows = self._session.execute(text(f"{query} ORDER BY place LIMIT {limit}")).all()
        return (rows[0][1] if rows else 0), [place for place, _ in rows]

    def rows_of(self, version_id: uuid.UUID) -> RowSet:
        """The rows found in one data set version."""
        query = text("SELECT ordinal FROM matched_rows WHERE dataset_version_id = :version")
        found = self._session.execute(query, {"version": version_id}, execution_options={"yield_per": 10_000})
        return RowSet.of(found.scalars())

    def places_of(self, version_id: uuid.UUID) -> list[tuple[int, int]]:
        """The place of each name and the row found for it in one data set version, by place."""
        query = text(
            "SELECT place, ordinal FROM matched_rows JOIN named_items USING (position)"
            " WHERE dataset_version_id = :version ORDER BY place"
        )
        return [(place, ordinal) for place, ordinal in self._session.execute(query, {"version": version_id})]

    def kinds(self, places: list[int]) -> Iterator[tuple[int, str]]:
        """What each of these places names: `sample_id` or `subject`."""
        query = (
            "SELECT place, sample_id IS NOT NULL FROM named_items WHERE place = ANY(:places) ORDER BY place"
        )
        rows = self._session.execute(text(query), {"places": places})
        return ((place, "sample_id" if is_sample else "subject") for place, is_sample in rows)
