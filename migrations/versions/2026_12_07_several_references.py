"""several references

An audit may have several references of the same rows, and a job may wait for several others. On the way back
the first of each are kept, and a job waits for one of those that it waits for.

Revises: 2c7e94d05ab1
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "8a61f2d3e0c7"
down_revision = "2c7e94d05ab1"
branch_labels = None
depends_on = None

_UNNUMBERED = "ix_reference_networks_version_id_rows_digest"
# Jobs that wait for approval name in their outcome what may be published.
_OUTCOMES_NAME_SEVERAL = """
    UPDATE jobs SET outcome = jsonb_set(outcome #- '{spec,reference}', '{spec,references}',
        CASE WHEN outcome #>> '{spec,reference}' IS NULL THEN '[]'::jsonb
        ELSE jsonb_build_array(outcome #> '{spec,reference}') END)
    WHERE outcome -> 'spec' ? 'reference'
"""
_OUTCOMES_NAME_ONE = """
    UPDATE jobs SET outcome = jsonb_set(outcome #- '{spec,references}', '{spec,reference}',
        coalesce(outcome #> '{spec,references,0}', 'null'::jsonb))
    WHERE outcome -> 'spec' ? 'references'
"""


def upgrade() -> None:
    op.add_column("reference_networks", sa.Column("number", sa.Integer(), server_default="0", nullable=False))
    op.alter_column("reference_networks", "number", server_default=None)
    op.drop_index(op.f(_UNNUMBERED), table_name="reference_networks")
    op.create_index(
        op.f("ix_reference_networks_version_id_rows_digest_number"),
        "reference_networks",
        ["version_id", "rows_digest", "number"],
        unique=True,
    )
    op.execute("UPDATE jobs SET parameters = parameters || '{\"number\": 0}' WHERE kind = 'reference'")
    op.execute(_OUTCOMES_NAME_SEVERAL)
    op.create_table(
        "job_waits",
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("other_id", sa.Uuid(), nullable=False),
        *(
            sa.ForeignKeyConstraint([name], ["jobs.id"], name=op.f(f"fk_job_waits_{name}"))
            for name in ("job_id", "other_id")
        ),
        sa.PrimaryKeyConstraint("job_id", "other_id", name=op.f("pk_job_waits")),
    )
    op.create_index(op.f("ix_job_waits_other_id"), "job_waits", ["other_id"], unique=False)
    op.add_column("jobs", sa.Column("has_waited", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.alter_column("jobs", "has_waited", server_default=None)
    op.execute("INSERT INTO job_waits SELECT id, waits_for FROM jobs WHERE waits_for IS NOT NULL")
    op.execute("UPDATE jobs SET has_waited = true WHERE waits_for IS NOT NULL")
    op.drop_index(op.f("ix_jobs_waits_for"), table_name="jobs")
    op.drop_column("jobs", "waits_for")


def downgrade() -> None:
    op.add_column("jobs", sa.Column("waits_for", sa.Uuid(), nullable=True))
    op.create_foreign_key(op.f("fk_jobs_waits_for"), "jobs", "jobs", ["waits_for"], ["id"])
    op.create_index(op.f("ix_jobs_waits_for"), "jobs", ["waits_for"], unique=False)
    op.execute(
        "UPDATE jobs SET waits_for = (SELECT other.id"
        " FROM job_waits JOIN jobs AS other ON other.id = other_id"
        " WHERE job_id = jobs.id ORDER BY other.settled_at IS NOT NULL, other.ordinal LIMIT 1)"
        " WHERE has_waited"
    )
    op.drop_column("jobs", "has_waited")
    op.drop_table("job_waits")
    op.execute(_OUTCOMES_NAME_ONE)
    op.execute("UPDATE jobs SET parameters = parameters - 'number' WHERE kind = 'reference'")
    op.execute(
        "DELETE FROM reference_networks AS network USING reference_networks AS first"
        " WHERE first.version_id = network.version_id AND first.rows_digest = network.rows_digest"
        " AND first.number < network.number"
    )
    op.drop_index(
        op.f("ix_reference_networks_version_id_rows_digest_number"), table_name="reference_networks"
    )
    op.create_index(op.f(_UNNUMBERED), "reference_networks", ["version_id", "rows_digest"], unique=True)
    op.drop_column("reference_networks", "number")
