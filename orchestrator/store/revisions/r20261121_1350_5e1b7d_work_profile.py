"""Work of one training step, as measured by `tradewind profile`, and throughputs imported from published tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261121_1350_5e1b7d"
down_revision = "20261121_1130_c81f02"

WORD = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Creates the tables."""
    op.create_table(
        "work_profile",
        sa.Column("digest", WORD, primary_key=True),
        sa.Column("program", sa.Text(), nullable=False),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
    )
    op.create_table(
        "table_rate",
        sa.Column("source", sa.Text(), primary_key=True),
        sa.Column("job", sa.Text(), primary_key=True),
        sa.Column("gpu", WORD, primary_key=True),
        sa.Column("gpu_count", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("steps_per_s", sa.Double(), nullable=False),
    )
