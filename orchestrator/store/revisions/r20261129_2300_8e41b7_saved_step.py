"""The step of the newest checkpoint that a run reported. NULL: unknown, as for all earlier runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261129_2300_8e41b7"
down_revision = "20261127_1705_6b0f19"


def upgrade() -> None:
    op.add_column("run", sa.Column("saved_step", sa.BigInteger()))
