"""any data, any network

Roles become sets of rows, so that those of ten million samples are one bitmap; tombstones belong to their
request and go with it; what a request brings by the million has no foreign keys.

Revises: b19f259421a4
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "5d0c4e8a7b12"
down_revision = "b19f259421a4"
branch_labels = None
depends_on = None

_KINDS = ("ingest", "train", "unlearn", "reference", "shadow", "audit", "compare")


def upgrade() -> None:
    op.add_column("dataset_versions", sa.Column("role_sets", postgresql.JSONB(), nullable=True))
    op.add_column("dataset_versions", sa.Column("manifest", sa.Text(), nullable=True))
    _keep_roles_as_sets()
    _arrange_samples()
    _give_tombstones_to_requests()
    for name in ("dataset_id", "request_id"):
        op.drop_constraint(f"fk_deletion_items_{name}", "deletion_items", type_="foreignkey")
    op.add_column(
        "deletion_requests", sa.Column("journaled_at", postgresql.TIMESTAMP(timezone=True), nullable=True)
    )
    op.create_index(
        "ix_deletion_requests_unjournaled",
        "deletion_requests",
        ["ordinal"],
        postgresql_where=sa.text("journaled_at IS NULL"),
    )
    op.add_column("model_versions", sa.Column("faults", postgresql.JSONB(), nullable=True))
    op.alter_column("model_versions", "rows_digest", nullable=True)
    _set_job_kinds((_KINDS[0], "validate", *_KINDS[1:]))


def _keep_roles_as_sets() -> None:
    connection = op.get_bind()
    pairs = connection.execute(sa.text("SELECT DISTINCT dataset_version_id, role FROM samples ORDER BY 1, 2"))
    for version_id, role in pairs.all():
        ordinals = connection.scalars(
            sa.text("SELECT ordinal FROM samples WHERE dataset_version_id = :version AND role = :role"),
            {"version": version_id, "role": role},
        )
        size, bits = _bitmap(ordinals)
        digest = hashlib.sha256(bits).hexdigest()
        connection.execute(
            sa.text("INSERT INTO row_sets VALUES (:digest, :size, :bits) ON CONFLICT DO NOTHING"),
            {"digest": digest, "size": size, "bits": bits},
        )
        connection.execute(
            sa.text(
                "UPDATE dataset_versions SET role_sets = coalesce(role_sets, '{}') ||"
                " jsonb_build_object(CAST(:role AS text), CAST(:digest AS text)) WHERE id = :version"
            ),
            {"role": role, "digest": digest, "version": version_id},
        )


def _bitmap(ordinals: Iterable[int]) -> tuple[int, bytes]:
    """How many there are, and a bitmap with ordinal i at bit i % 8 of byte i // 8."""
    size, bits = 0, bytearray()
    for ordinal in ordinals:
        if ordinal >> 3 >= len(bits):
            bits.extend(bytes((ordinal >> 3) + 1 - len(bits)))
        bits[ordinal >> 3] |= 1 << (ordinal & 7)
        size += 1
    return size, bytes(bits)


def _arrange_samples() -> None:
    op.drop_constraint("uq_samples_dataset_version_id_sample_id", "samples", type_="unique")
    op.drop_index("ix_samples_subject_key", "samples")
    op.drop_column("samples", "role")
    op.execute('ALTER TABLE samples ALTER COLUMN sample_id TYPE text COLLATE "C"')
    op.create_unique_constraint(
        "uq_samples_sample_id_dataset_version_id", "samples", ["sample_id", "dataset_version_id"]
    )
    op.create_index(
        "ix_samples_subject_key",
        "samples",
        ["subject_key"],
        postgresql_where=sa.text("subject_key IS NOT NULL"),
    )
    op.create_index("ix_samples_content_hash", "samples", ["content_hash"])


def _give_tombstones_to_requests() -> None:
    op.rename_table("tombstones", "tombstones_before")
    op.rename_table("tombstoned_rows", "tombstoned_rows_before")
    for table in ("tombstones", "tombstoned_rows"):
        op.execute(f"ALTER TABLE {table}_before RENAME CONSTRAINT pk_{table} TO pk_{table}_before")
    op.create_table(
        "tombstones",
        sa.Column("dataset_id", sa.Uuid(), nullable=False),
        sa.Column("request_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("sample_key", postgresql.BYTEA(), nullable=True),
        sa.Column("subject_key", postgresql.BYTEA(), nullable=True),
        sa.Column("content_key", postgresql.BYTEA(), nullable=True),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("dataset_id", "request_id", "number", name=op.f("pk_tombstones")),
    )
    op.create_table(
        "tombstoned_rows",
        sa.Column("dataset_version_id", sa.Uuid(), nullable=False),
        sa.Column("request_id", sa.Uuid(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint(
            "dataset_version_id", "request_id", "ordinal", name=op.f("pk_tombstoned_rows")
        ),
    )
    op.execute(
        "INSERT INTO tombstones"
        " SELECT dataset_id, request_id, row_number() OVER (PARTITION BY request_id ORDER BY id) - 1,"
        " sample_key, subject_key, content_key, key_id FROM tombstones_before WHERE lifted_at IS NULL"
    )
    op.execute(
        "INSERT INTO tombstoned_rows SELECT DISTINCT r.dataset_version_id, t.request_id, r.ordinal"
        " FROM tombstoned_rows_before r JOIN tombstones_before t ON t.id = r.tombstone_id"
        " WHERE t.lifted_at IS NULL"
    )
    op.drop_table("tombstoned_rows_before")
    op.drop_table("tombstones_before")


def _set_job_kinds(kinds: tuple[str, ...]) -> None:
    listed = ", ".join(f"'{kind}'" for kind in kinds)
    op.drop_constraint(op.f("ck_jobs_jobkind"), "jobs", type_="check")
    op.create_check_constraint("jobkind", "jobs", f"kind IN ({listed})")


def downgrade() -> None:
    """The way back. Lifted tombstones and the time of each are gone; a validating job may not be left."""
    _set_job_kinds(_KINDS)
    op.drop_column("model_versions", "faults")
    op.drop_index("ix_deletion_requests_unjournaled", "deletion_requests")
    op.drop_column("deletion_requests", "journaled_at")
    op.alter_column("model_versions", "rows_digest", nullable=False)
    op.create_foreign_key(
        "fk_deletion_items_dataset_id", "deletion_items", "datasets", ["dataset_id"], ["id"]
    )
    op.create_foreign_key(
        "fk_deletion_items_request_id", "deletion_items", "deletion_requests", ["request_id"], ["id"]
    )
    _give_tombstones_back()
    _arrange_samples_as_before()
    op.drop_column("dataset_versions", "manifest")
    op.drop_column("dataset_versions", "role_sets")


def _give_tombstones_back() -> None:
    for table in ("tombstones", "tombstoned_rows"):
        op.rename_table(table, f"{table}_after")
        op.execute(f"ALTER TABLE {table}_after RENAME CONSTRAINT pk_{table} TO pk_{table}_after")
    op.create_table(
        "tombstones",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("dataset_id", sa.Uuid(), nullable=False),
        sa.Column("request_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("sample_key", postgresql.BYTEA(), nullable=True),
        sa.Column("subject_key", postgresql.BYTEA(), nullable=True),
        sa.Column("content_key", postgresql.BYTEA(), nullable=True),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column(
            "created_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("lifted_at", postgresql.TIMESTAMP(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_tombstones_dataset_id")),
        sa.ForeignKeyConstraint(
            ["request_id"], ["deletion_requests.id"], name=op.f("fk_tombstones_request_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tombstones")),
    )
    op.create_table(
        "tombstoned_rows",
        sa.Column("dataset_version_id", sa.Uuid(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("tombstone_id", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["dataset_version_id"],
            ["dataset_versions.id"],
            name=op.f("fk_tombstoned_rows_dataset_version_id"),
        ),
        sa.ForeignKeyConstraint(
            ["tombstone_id"], ["tombstones.id"], name=op.f("fk_tombstoned_rows_tombstone_id")
        ),
        sa.PrimaryKeyConstraint(
            "dataset_version_id", "ordinal", "tombstone_id", name=op.f("pk_tombstoned_rows")
        ),
    )
    op.execute(
        "INSERT INTO tombstones"
        " (dataset_id, request_id, position, sample_key, subject_key, content_key, key_id)"
        " SELECT dataset_id, request_id, number, sample_key, subject_key, content_key, key_id"
        " FROM tombstones_after ORDER BY request_id, number"
    )
    # Which tombstone covers which row was not kept; each row is given to the first one of its request.
    op.execute(
        "INSERT INTO tombstoned_rows SELECT r.dataset_version_id, r.ordinal, min(t.id)"
        " FROM tombstoned_rows_after r JOIN tombstones t ON t.request_id = r.request_id GROUP BY 1, 2"
    )
    op.drop_table("tombstoned_rows_after")
    op.drop_table("tombstones_after")
    op.create_index(
        "ix_tombstones_live", "tombstones", ["dataset_id"], postgresql_where=sa.text("lifted_at IS NULL")
    )
    op.create_index(op.f("ix_tombstones_request_id"), "tombstones", ["request_id"])
    op.create_index(op.f("ix_tombstoned_rows_tombstone_id"), "tombstoned_rows", ["tombstone_id"])


def _arrange_samples_as_before() -> None:
    op.drop_index("ix_samples_content_hash", "samples")
    op.drop_index("ix_samples_subject_key", "samples")
    op.drop_constraint("uq_samples_sample_id_dataset_version_id", "samples", type_="unique")
    op.execute("ALTER TABLE samples ALTER COLUMN sample_id TYPE text")
    op.add_column("samples", sa.Column("role", sa.Text(), nullable=True))
    op.execute(
        "UPDATE samples s SET role = e.key"
        " FROM dataset_versions v, jsonb_each_text(v.role_sets) e, row_sets b"
        " WHERE v.id = s.dataset_version_id AND b.digest = e.value AND s.ordinal < 8 * length(b.bits)"
        " AND get_bit(b.bits, s.ordinal) = 1"
    )
    op.alter_column("samples", "role", nullable=False)
    op.create_unique_constraint(
        "uq_samples_dataset_version_id_sample_id", "samples", ["dataset_version_id", "sample_id"]
    )
    op.create_index("ix_samples_subject_key", "samples", ["dataset_version_id", "subject_key"])
