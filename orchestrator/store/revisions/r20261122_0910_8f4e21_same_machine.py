"""The time from which a run's machine is billed if an earlier run used it, too."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261122_0910_8f4e21"
down_revision = "20261122_0700_c93d15"


def upgrade() -> None:
    """Adds the column."""
    op.add_column("run", sa.Column("machine_from_ms", sa.BigInteger()))
