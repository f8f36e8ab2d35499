"""Tombstones that were a row each are joined by the third migration, and parted again on the way back."""

from __future__ import annotations

import uuid
from itertools import product

import pytest
from sqlalchemy import Connection, text

from tests.migrations.databases import Move, rows_of

_BEFORE, _AFTER = "5d0c4e8a7b12", "c3a9e51f0d64"
_MARKS, _COVERED = 12_345, range(0, 5_000, 3)


@pytest.fixture
def request_ids(connection: Connection, move: Move) -> list[uuid.UUID]:
    """Two requests with many tombstones each, of samples and of subjects by turns."""
    move(_BEFORE)
    requests = [uuid.uuid4(), uuid.uuid4()]
    dataset, version = uuid.uuid4(), uuid.uuid4()
    for request in requests:
        connection.execute(
            text(
                "INSERT INTO tombstones SELECT :dataset, :request, n,"
                " CASE WHEN n % 5 > 0 THEN sha256(n::text::bytea) END,"
                " CASE WHEN n % 5 = 0 THEN sha256(n::text::bytea) END,"
                " CASE WHEN n % 5 > 0 THEN sha256((-n)::text::bytea) END, 'k'"
                " FROM generate_series(0, :last) AS n"
            ),
            {"dataset": dataset, "request": request, "last": _MARKS - 1},
        )
        connection.execute(
            text("INSERT INTO tombstoned_rows SELECT :version, :request, unnest(CAST(:ordinals AS int[]))"),
            {"version": version, "request": request, "ordinals": list(_COVERED)},
        )
    connection.commit()
    return requests


def _marks(connection: Connection) -> set[tuple[object, ...]]:
    """What is marked, whatever its number."""
    query = "SELECT dataset_id, request_id, sample_key, subject_key, content_key, key_id FROM tombstones"
    return set(rows_of(connection, query))


def test_blocks_hold_what_the_rows_held(
    connection: Connection, move: Move, request_ids: list[uuid.UUID]
) -> None:
    """Few rows, whose keys taken apart are the same; a sample's content key stays beside its own."""
    before = _marks(connection)
    move(_AFTER)
    apart: set[tuple[object, ...]] = set()
    blocks = rows_of(
        connection,
        "SELECT dataset_id, request_id, key_id, sample_keys, subject_keys, content_keys, number"
        " FROM tombstones ORDER BY request_id, number",
    )
    ends = dict.fromkeys(request_ids, 0)
    for dataset_id, request_id, key_id, *joined, number in blocks:
        assert isinstance(request_id, uuid.UUID)
        assert number == ends[request_id]
        count = max(len(keys) for keys in joined if isinstance(keys, bytes)) // 32
        ends[request_id] += count
        for place in range(count):
            keys = [keys[32 * place :][:32] if isinstance(keys, bytes) else None for keys in joined]
            apart.add((dataset_id, request_id, *keys, key_id))
    assert apart == before
    assert list(ends.values()) == [_MARKS] * 2
    assert len(blocks) < 20


def test_covered_rows_are_the_same(connection: Connection, move: Move, request_ids: list[uuid.UUID]) -> None:
    """In blocks of 1,024 ordinals."""
    move(_AFTER)
    covered = rows_of(connection, "SELECT request_id, block, unnest(ordinals) FROM tombstoned_rows")
    expected = [(request, row // 1024, row) for request, row in product(request_ids, _COVERED)]
    assert sorted(covered, key=str) == sorted(expected, key=str)


def test_the_way_back_parts_them(connection: Connection, move: Move, request_ids: list[uuid.UUID]) -> None:
    """A row a mark and a row a covered row, as before."""
    before = _marks(connection)
    move(_AFTER)
    move(_BEFORE)
    assert _marks(connection) == before
    assert len(rows_of(connection, "SELECT number FROM tombstones")) == 2 * _MARKS
    covered = rows_of(connection, "SELECT request_id, ordinal FROM tombstoned_rows")
    assert sorted(covered, key=str) == sorted(product(request_ids, _COVERED), key=str)
