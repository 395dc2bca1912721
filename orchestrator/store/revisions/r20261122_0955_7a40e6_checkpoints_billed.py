"""What each run's machine had of checkpoints: where the one that was brought there lay, and how much room they take.

Of runs from before nothing is known, and nothing of it was billed.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261122_0955_7a40e6"
down_revision = "20261122_0945_5a90d7"

WORD = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("run", sa.Column("moved_from", WORD))
    op.add_column("run", sa.Column("moved_bytes", sa.BigInteger()))
    op.add_column("run", sa.Column("kept_bytes", sa.BigInteger()))
