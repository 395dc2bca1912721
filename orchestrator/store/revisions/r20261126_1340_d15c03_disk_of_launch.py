"""The size of the disk that a migration's launch requests. None for migrations whose launch was not tried yet."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261126_1340_d15c03"
down_revision = "20261123_0745_2c8d61"


def upgrade() -> None:
    op.add_column("migration", sa.Column("disk_gb", sa.Integer()))
