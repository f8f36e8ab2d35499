"""tombstones in blocks

A request's tombstones, and the rows that they cover, are kept many to a row: they are only read together.

Revises: 5d0c4e8a7b12
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "c3a9e51f0d64"
down_revision = "5d0c4e8a7b12"
branch_labels = None
depends_on = None

_KEYS = ("sample_key", "subject_key", "content_key")
# Marks that have the same kinds of keys are one block, 5,000 at most; each request numbers its marks through.
_JOIN_MARKS = """
    INSERT INTO tombstones
    WITH marks AS (
        SELECT *, num_nulls(sample_key) AS a, num_nulls(subject_key) AS b, num_nulls(content_key) AS c,
               row_number() OVER (
                   PARTITION BY request_id
                   ORDER BY dataset_id, key_id, num_nulls(sample_key), num_nulls(subject_key),
                            num_nulls(content_key), number
               ) - 1 AS place
        FROM tombstones_single
    )
    SELECT dataset_id, request_id, min(place), string_agg(sample_key, '' ORDER BY place),
           string_agg(subject_key, '' ORDER BY place), string_agg(content_key, '' ORDER BY place), key_id
    FROM marks GROUP BY dataset_id, request_id, key_id, a, b, c, place / 5000
"""
# A key is 32 bytes.
_PART_MARKS = """
    INSERT INTO tombstones
    SELECT dataset_id, request_id, number + place,
           substring(sample_keys FROM place * 32 + 1 FOR 32),
           substring(subject_keys FROM place * 32 + 1 FOR 32),
           substring(content_keys FROM place * 32 + 1 FOR 32), key_id
    FROM tombstones_joined CROSS JOIN generate_series(
        0, greatest(length(sample_keys), length(subject_keys), length(content_keys)) / 32 - 1
    ) AS place
"""


def upgrade() -> None:
    _set_aside("single")
    _create_tombstones([f"{name}s" for name in _KEYS])
    _create_tombstoned_rows("block", sa.Column("ordinals", postgresql.ARRAY(sa.Integer()), nullable=False))
    op.execute(_JOIN_MARKS)
    op.execute(
        "INSERT INTO tombstoned_rows"
        " SELECT dataset_version_id, request_id, ordinal / 1024, array_agg(ordinal ORDER BY ordinal)"
        " FROM tombstoned_rows_single GROUP BY dataset_version_id, request_id, ordinal / 1024"
    )
    _drop("single")


def downgrade() -> None:
    _set_aside("joined")
    _create_tombstones(_KEYS)
    _create_tombstoned_rows("ordinal")
    op.execute(_PART_MARKS)
    op.execute(
        "INSERT INTO tombstoned_rows"
        " SELECT dataset_version_id, request_id, unnest(ordinals) FROM tombstoned_rows_joined"
    )
    _drop("joined")


def _set_aside(suffix: str) -> None:
    for table in ("tombstones", "tombstoned_rows"):
        op.rename_table(table, f"{table}_{suffix}")
        op.execute(f"ALTER TABLE {table}_{suffix} RENAME CONSTRAINT pk_{table} TO pk_{table}_{suffix}")


def _drop(suffix: str) -> None:
    for table in ("tombstones", "tombstoned_rows"):
        op.drop_table(f"{table}_{suffix}")


def _create_tombstones(keys: list[str] | tuple[str, ...]) -> None:
    op.create_table(
        "tombstones",
        sa.Column("dataset_id", sa.Uuid(), nullable=False),
        sa.Column("request_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        *(sa.Column(name, postgresql.BYTEA(), nullable=True) for name in keys),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("dataset_id", "request_id", "number", name=op.f("pk_tombstones")),
    )


def _create_tombstoned_rows(last: str, *more: sa.Column[object]) -> None:
    op.create_table(
        "tombstoned_rows",
        sa.Column("dataset_version_id", sa.Uuid(), nullable=False),
        sa.Column("request_id", sa.Uuid(), nullable=False),
        sa.Column(last, sa.Integer(), nullable=False),
        *more,
        sa.PrimaryKeyConstraint("dataset_version_id", "request_id", last, name=op.f("pk_tombstoned_rows")),
    )
