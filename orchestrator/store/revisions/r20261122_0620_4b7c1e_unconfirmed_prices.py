"""Flagged prices that await a second report; nothing is booked from them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261122_0620_4b7c1e"
down_revision = "20261122_0400_e2a86b"


def upgrade() -> None:
    """Adds the column."""
    op.add_column("price_flag", sa.Column("unconfirmed", sa.Boolean(), nullable=False, server_default=sa.false()))
