"""The table of periodic tasks has the name that the code and the documents use."""

from __future__ import annotations

from alembic import op

revision = "20261122_2045_3d70be"
down_revision = "20261122_1840_f15a02"


def upgrade() -> None:
    op.rename_table("duty", "periodic_task")
