"""What a database of the first release holds is carried over by the second migration, and back."""

from __future__ import annotations

import uuid

from sqlalchemy import Connection, text

from models_store.rows import RowSet
from tests.migrations.databases import Move, rows_of

_BEFORE, _AFTER = "b19f259421a4", "5d0c4e8a7b12"
_ROLES = ("train", "holdout", "train", "test", "train", "train", "validation", "train", "holdout", "train")


class _Release1:
    """A data set with ten samples, one request that stands and one that was taken back."""

    def __init__(self, connection: Connection, move: Move) -> None:
        move(_BEFORE)
        self._connection = connection
        self.dataset, self.version, self.caller = uuid.uuid4(), uuid.uuid4(), uuid.uuid4()
        self.standing, self.cancelled = uuid.uuid4(), uuid.uuid4()
        self._add("INSERT INTO datasets (id, name, created_by) VALUES (:dataset, 'faces', 'me')")
        self._add(
            "INSERT INTO dataset_versions"
            " (id, dataset_id, number, state, reader, location, options, shares, seed)"
            " VALUES (:version, :dataset, 1, 'ready', 'npz', '/x', '{}', '{}', 0)"
        )
        partition = f"samples_{self.version.hex}"
        self._add(f"CREATE TABLE {partition} PARTITION OF samples FOR VALUES IN ('{self.version}')")
        for ordinal, role in enumerate(_ROLES):
            self._add(
                "INSERT INTO samples VALUES (:version, :ordinal, :name, :role, 1, :hash, NULL)",
                ordinal=ordinal,
                name=f"face-{ordinal}",
                role=role,
                hash=bytes([ordinal]) * 32,
            )
        self._add(
            "INSERT INTO api_keys (id, name, prefix, digest, scopes, created_by)"
            " VALUES (:caller, 'me', 'x', '\\x00', '{}', 'me')"
        )
        for request, state in ((self.standing, "received"), (self.cancelled, "cancelled")):
            self._add(
                "INSERT INTO deletion_requests"
                " (id, caller_id, regulation, state, reference, item_count, matched_count, due_at)"
                " VALUES (:request, :caller, 'gdpr', :state, false, 1, 1, now())",
                request=request,
                state=state,
            )
        self._bury(self.standing, 0, 4, lifted="NULL")
        self._bury(self.standing, 1, 7, lifted="NULL")
        self._bury(self.cancelled, 0, 5, lifted="now()")
        connection.commit()

    def _bury(self, request: uuid.UUID, position: int, ordinal: int, *, lifted: str) -> None:
        self._add(
            "WITH mark AS (INSERT INTO tombstones"
            " (dataset_id, request_id, position, sample_key, key_id, lifted_at)"
            f" VALUES (:dataset, :request, :position, :key, 'k', {lifted}) RETURNING id)"
            " INSERT INTO tombstoned_rows SELECT :version, :ordinal, id FROM mark",
            request=request,
            position=position,
            ordinal=ordinal,
            key=bytes([ordinal]) * 32,
        )

    def _add(self, statement: str, **values: object) -> None:
        known = {"dataset": self.dataset, "version": self.version, "caller": self.caller}
        self._connection.execute(text(statement), {**known, **values})


def test_roles_become_sets_ofrows_of(connection: Connection, move: Move) -> None:
    """Each role's rows are a bitmap that RowSet reads, kept under its own digest."""
    _Release1(connection, move)
    move(_AFTER)
    sets = connection.scalar(text("SELECT role_sets FROM dataset_versions"))
    assert isinstance(sets, dict)
    for role in set(_ROLES):
        expected = RowSet.of(ordinal for ordinal, had in enumerate(_ROLES) if had == role)
        assert sets[role] == expected.digest
        kept = connection.execute(
            text("SELECT size, bits FROM row_sets WHERE digest = :digest"), {"digest": sets[role]}
        ).one()
        assert (kept.size, kept.bits) == (len(expected), expected.bits)


def test_tombstones_that_stand_go_with_their_request(connection: Connection, move: Move) -> None:
    """Those of a request taken back are gone; the others cover the same rows as before."""
    release = _Release1(connection, move)
    move(_AFTER)
    assert rows_of(connection, "SELECT request_id, number, sample_key FROM tombstones ORDER BY number") == [
        (release.standing, 0, bytes([4]) * 32),
        (release.standing, 1, bytes([7]) * 32),
    ]
    assert rows_of(
        connection, "SELECT dataset_version_id, ordinal, request_id FROM tombstoned_rows ORDER BY 2"
    ) == [
        (release.version, 4, release.standing),
        (release.version, 7, release.standing),
    ]


def test_samples_are_there_without_a_role(connection: Connection, move: Move) -> None:
    """The partition keeps its rows and gets the new indices."""
    release = _Release1(connection, move)
    move(_AFTER)
    assert rows_of(connection, "SELECT sample_id FROM samples ORDER BY ordinal") == [
        (f"face-{ordinal}",) for ordinal in range(10)
    ]
    indexed = rows_of(
        connection,
        f"SELECT indexdef FROM pg_indexes WHERE tablename = 'samples_{release.version.hex}' ORDER BY 1",
    )
    assert len(indexed) == 4
    assert sum("(sample_id, dataset_version_id)" in str(line) for line in indexed) == 1


def test_the_way_back_restores_roles_androws_of(connection: Connection, move: Move) -> None:
    """A downgrade gives every sample the role it had, and covers the same rows."""
    release = _Release1(connection, move)
    move(_AFTER)
    move(_BEFORE)
    assert rows_of(connection, "SELECT role FROM samples ORDER BY ordinal") == [(role,) for role in _ROLES]
    covered = rows_of(
        connection,
        "SELECT ordinal, request_id FROM tombstoned_rows JOIN tombstones ON id = tombstone_id"
        " ORDER BY ordinal",
    )
    assert covered == [(4, release.standing), (7, release.standing)]
