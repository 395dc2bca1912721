"""The forecast of the last decision about each job, so lists of jobs do not have to decide again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261122_1700_7e9b35"
down_revision = "20261122_1630_b1f0c2"

WORD = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger()


def upgrade() -> None:
    op.create_table(
        "job_forecast",
        sa.Column("job_id", WORD, sa.ForeignKey("job.id"), primary_key=True),
        sa.Column("at_ms", NUMBER, nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("cost_nano_usd", NUMBER),
        sa.Column("cost_low_nano_usd", NUMBER),
        sa.Column("cost_high_nano_usd", NUMBER),
        sa.Column("duration_s", sa.Double()),
        sa.Column("duration_low_s", sa.Double()),
        sa.Column("duration_high_s", sa.Double()),
        sa.Column("evidence", WORD),
        sqlite_with_rowid=False,
    )
    op.create_index("job_finished", "job", ["finished_at_ms"])
