"""Renames the run state `holding` to `quiesced`."""

from __future__ import annotations

from alembic import op

revision = "20261122_1600_4d7e21"
down_revision = "20261122_1345_b6d20f"


def upgrade() -> None:
    """Renames the state."""
    op.execute("UPDATE run SET state = 'quiesced' WHERE state = 'holding'")
