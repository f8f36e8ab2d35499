"""shadow networks

Networks trained on random shares of a version's rows, and jobs that estimate memorisation from them.

Revises: e7b20c6d91f8
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "9f41d3b7c6a0"
down_revision = "e7b20c6d91f8"
branch_labels = None
depends_on = None

_KINDS = ("ingest", "validate", "train", "unlearn", "reference", "shadow", "audit", "compare", "probe")


def upgrade() -> None:
    op.create_table(
        "shadow_networks",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("version_id", sa.Uuid(), nullable=False),
        sa.Column("share", sa.Float(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("rows_digest", sa.Text(), nullable=False),
        sa.Column("candidates_digest", sa.Text(), nullable=False),
        sa.Column("correct_digest", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("weights", sa.Text(), nullable=False),
        sa.Column("figures", postgresql.JSONB(), nullable=False),
        sa.Column(
            "created_at", postgresql.TIMESTAMP(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.ForeignKeyConstraint(
            ["version_id"], ["model_versions.id"], name=op.f("fk_shadow_networks_version_id")
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_shadow_networks_job_id")),
        *(
            sa.ForeignKeyConstraint([name], ["row_sets.digest"], name=op.f(f"fk_shadow_networks_{name}"))
            for name in ("rows_digest", "candidates_digest", "correct_digest")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_shadow_networks")),
    )
    op.create_index(
        op.f("ix_shadow_networks_version_id_share_number"),
        "shadow_networks",
        ["version_id", "share", "number"],
        unique=True,
    )
    _set_job_kinds((*_KINDS, "estimate"))


def downgrade() -> None:
    op.drop_table("shadow_networks")
    for_them = "USING jobs WHERE job_id = jobs.id AND kind IN ('shadow', 'estimate')"
    op.execute(f"DELETE FROM job_progress {for_them}")  # noqa: S608  (no value comes from outside)
    op.execute(f"DELETE FROM artefacts {for_them}")  # noqa: S608  (no value comes from outside)
    op.execute("DELETE FROM jobs WHERE kind IN ('shadow', 'estimate')")
    _set_job_kinds(_KINDS)


def _set_job_kinds(kinds: tuple[str, ...]) -> None:
    listed = ", ".join(f"'{kind}'" for kind in kinds)
    op.drop_constraint(op.f("ck_jobs_jobkind"), "jobs", type_="check")
    op.create_check_constraint("jobkind", "jobs", f"kind IN ({listed})")
