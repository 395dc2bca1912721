"""Checkpoints on each run's machine: the origin of the transferred one, and the disk space that they take.

Both are unknown for existing runs, and nothing was billed for them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261122_0955_7a40e6"
down_revision = "20261122_0945_5a90d7"

WORD = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Adds the columns."""
    op.add_column("run", sa.Column("moved_from", WORD))
    op.add_column("run", sa.Column("moved_bytes", sa.BigInteger()))
    op.add_column("run", sa.Column("kept_bytes", sa.BigInteger()))
