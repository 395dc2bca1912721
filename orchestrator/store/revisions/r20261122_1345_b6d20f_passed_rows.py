"""Number of skipped rows of the last poll, by reason."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261122_1345_b6d20f"
down_revision = "20261122_1045_e1c86f"


def upgrade() -> None:
    """Adds the column."""
    op.add_column("poll_state", sa.Column("passed", sa.Text()))
