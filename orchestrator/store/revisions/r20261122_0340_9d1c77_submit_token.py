"""Submission tokens: a repeated submission with the same token in the same project returns the same job."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261122_0340_9d1c77"
down_revision = "20261122_0300_7b2f4d"

WORD = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Adds the column and an index."""
    op.add_column("job", sa.Column("token", WORD))
    op.create_index("job_token", "job", ["project", "token"], unique=True)
