"""probes

Jobs may be probes: what forgetting would take is measured before anything is deleted.

Revises: c3a9e51f0d64
"""

from __future__ import annotations

from alembic import op

revision = "e7b20c6d91f8"
down_revision = "c3a9e51f0d64"
branch_labels = None
depends_on = None

_KINDS = ("ingest", "validate", "train", "unlearn", "reference", "shadow", "audit", "compare")


def upgrade() -> None:
    _set_job_kinds((*_KINDS, "probe"))


def downgrade() -> None:
    op.execute("DELETE FROM job_progress USING jobs WHERE job_id = jobs.id AND kind = 'probe'")
    op.execute("DELETE FROM jobs WHERE kind = 'probe'")
    _set_job_kinds(_KINDS)


def _set_job_kinds(kinds: tuple[str, ...]) -> None:
    listed = ", ".join(f"'{kind}'" for kind in kinds)
    op.drop_constraint(op.f("ck_jobs_jobkind"), "jobs", type_="check")
    op.create_check_constraint("jobkind", "jobs", f"kind IN ({listed})")
