"""The offers that a migration's launch may take besides its own. NULL: none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261127_1150_a150f0"
down_revision = "20261126_1340_d15c03"


def upgrade() -> None:
    op.add_column("migration", sa.Column("also", sa.Text()))
