"""Successful polls that are not trusted until a second one confirms them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261122_0650_d05e93"
down_revision = "20261122_0620_4b7c1e"


def upgrade() -> None:
    """Adds the columns."""
    op.add_column("poll_state", sa.Column("suspect", sa.Text()))
    op.add_column("poll_state", sa.Column("suspect_since_ms", sa.BigInteger()))
