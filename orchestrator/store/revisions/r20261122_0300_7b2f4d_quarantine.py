"""Quarantined jobs: the reason and the time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261122_0300_7b2f4d"
down_revision = "20261121_1400_a7d3e5"

QUARANTINED = sa.text("(quarantined_at_ms IS NOT NULL)")


def upgrade() -> None:
    """Adds the columns and an index."""
    op.add_column("job", sa.Column("quarantine", sa.Text()))
    op.add_column("job", sa.Column("quarantined_at_ms", sa.BigInteger()))
    op.create_index("job_quarantined", "job", ["id"], sqlite_where=QUARANTINED, postgresql_where=QUARANTINED)
