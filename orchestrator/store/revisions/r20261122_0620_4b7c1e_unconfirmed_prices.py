"""Which flagged prices wait for a second report, so that nothing is booked from them on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261122_0620_4b7c1e"
down_revision = "20261122_0400_e2a86b"


def upgrade() -> None:
    op.add_column("price_flag", sa.Column("unconfirmed", sa.Boolean(), nullable=False, server_default=sa.false()))
