"""Placements of a plan as compressed rows, which can be deleted when the plan had no effect.

Existing plans stay as they are; their `looked_at` is NULL.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261122_0400_e2a86b"
down_revision = "20261122_0340_9d1c77"

WORD = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Adds the columns and the table."""
    op.add_column("plan", sa.Column("looked_at", sa.Integer()))
    op.add_column("plan", sa.Column("acting", sa.Integer()))
    op.create_table(
        "plan_placement",
        sa.Column("seq", SEQUENCE, primary_key=True),
        sa.Column("plan_seq", sa.BigInteger(), sa.ForeignKey("plan.seq"), nullable=False),
        sa.Column("job_id", WORD, nullable=False),
        sa.Column("acted_on", sa.Boolean(), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
    )
    op.create_index("plan_placement_plan", "plan_placement", ["plan_seq"])
    op.create_index("plan_placement_job", "plan_placement", ["job_id", "plan_seq"])
