"""Duration of each run's latest checkpoint save."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261122_1045_e1c86f"
down_revision = "20261122_0955_7a40e6"


def upgrade() -> None:
    """Adds the column."""
    op.add_column("run", sa.Column("save_wall_s", sa.Double()))
