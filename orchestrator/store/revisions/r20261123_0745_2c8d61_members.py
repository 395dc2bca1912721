"""The machines of a run on several machines. Runs on one machine have none here."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261123_0745_2c8d61"
down_revision = "20261122_2045_3d70be"


def upgrade() -> None:
    op.add_column("run", sa.Column("members", sa.Text()))
