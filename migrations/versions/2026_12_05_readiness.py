"""readiness

Jobs may measure how ready a version is for deletions.

Revises: b8e25f0a4c93
"""

from __future__ import annotations

from alembic import op

revision = "5d1f3b8c7a20"
down_revision = "b8e25f0a4c93"
branch_labels = None
depends_on = None

_KINDS = (
    *("ingest", "validate", "train", "unlearn", "reference", "shadow", "estimate", "audit", "compare"),
    "probe",
)


def upgrade() -> None:
    _set_job_kinds((*_KINDS, "readiness"))


def downgrade() -> None:
    op.execute("DELETE FROM job_progress USING jobs WHERE job_id = jobs.id AND kind = 'readiness'")
    op.execute("DELETE FROM jobs WHERE kind = 'readiness'")
    _set_job_kinds(_KINDS)


def _set_job_kinds(kinds: tuple[str, ...]) -> None:
    listed = ", ".join(f"'{kind}'" for kind in kinds)
    op.drop_constraint(op.f("ck_jobs_jobkind"), "jobs", type_="check")
    op.create_check_constraint("jobkind", "jobs", f"kind IN ({listed})")
