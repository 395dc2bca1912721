"""The time to live that a migration's launch requests. None for migrations whose launch was not tried yet."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261130_2330_c07b1e"
down_revision = "20261130_0110_5d07e2"


def upgrade() -> None:
    op.add_column("migration", sa.Column("to_live_s", sa.BigInteger()))
