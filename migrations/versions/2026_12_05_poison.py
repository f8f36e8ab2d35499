"""poison

Data sets may be poisoned for experiments. On the way back they are read as if they were not.

Revises: 9f41d3b7c6a0
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "b8e25f0a4c93"
down_revision = "9f41d3b7c6a0"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("dataset_versions", sa.Column("poison", postgresql.JSONB(), nullable=True))


def downgrade() -> None:
    op.drop_column("dataset_versions", "poison")
