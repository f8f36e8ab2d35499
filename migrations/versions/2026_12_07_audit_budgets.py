"""audit budgets

How much an audit may spend on networks to compare with, where it could only be said whether one is wanted.
On the way back a budget of any size is the wish for one.

Revises: 5d1f3b8c7a20
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "2c7e94d05ab1"
down_revision = "5d1f3b8c7a20"
branch_labels = None
depends_on = None

_POLICIES = (("policy_versions", "body"), ("jobs", "policy"))


def upgrade() -> None:
    op.alter_column("deletion_requests", "reference", new_column_name="audit_budget")
    op.alter_column(
        "deletion_requests", "audit_budget", type_=sa.Integer(), postgresql_using="audit_budget::integer"
    )
    for table, column in _POLICIES:
        budget = f"jsonb_build_object('audit_budget', ({column} ->> 'reference')::boolean::integer)"
        op.execute(
            f"UPDATE {table} SET {column} = ({column} - 'reference') || {budget}"  # noqa: S608 - our own names
            f" WHERE {column} ? 'reference'"
        )


def downgrade() -> None:
    for table, column in _POLICIES:
        wish = f"jsonb_build_object('reference', ({column} ->> 'audit_budget')::integer > 0)"
        op.execute(
            f"UPDATE {table} SET {column} = ({column} - 'audit_budget') || {wish}"  # noqa: S608 - our own names
            f" WHERE {column} ? 'audit_budget'"
        )
    op.alter_column(
        "deletion_requests", "audit_budget", type_=sa.Boolean(), postgresql_using="audit_budget > 0"
    )
    op.alter_column("deletion_requests", "audit_budget", new_column_name="reference")
