"""The duration of the set-up of each run's environment."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261122_1730_c4e81a"
down_revision = "20261122_1700_7e9b35"


def upgrade() -> None:
    op.add_column("run", sa.Column("setup_wall_s", sa.Double()))
