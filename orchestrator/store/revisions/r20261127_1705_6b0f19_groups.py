"""Groups of jobs. A job may belong to one, with a weight and with jobs of the group that it waits for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261127_1705_6b0f19"
down_revision = "20261127_1150_a150f0"

WORD = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Adds the table, the columns and their indexes. Existing jobs belong to no group."""
    op.create_table(
        "job_group",
        sa.Column("id", WORD, primary_key=True),
        sa.Column("name", WORD, nullable=False),
        sa.Column("policy", WORD, nullable=False),
        sa.Column("project", WORD, nullable=False),
        sa.Column("owner", WORD, nullable=False),
        sa.Column("submitted_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("budget_nano_usd", sa.BigInteger()),
        sa.Column("deadline_at_ms", sa.BigInteger()),
        sa.Column("token", WORD),
        sa.Column("digest", WORD),
    )
    op.create_index("job_group_name", "job_group", ["name", "submitted_at_ms", "id"])
    op.create_index("job_group_token", "job_group", ["project", "token"], unique=True)
    if op.get_bind().dialect.name == "sqlite":  # accepts a foreign key only together with its new column
        op.execute("ALTER TABLE job ADD COLUMN group_id TEXT REFERENCES job_group (id)")
    else:
        op.add_column("job", sa.Column("group_id", WORD))
        op.create_foreign_key(None, "job", "job_group", ["group_id"], ["id"])
    op.add_column("job", sa.Column("weight", sa.Double(), nullable=False, server_default="1"))
    op.add_column("job", sa.Column("after", sa.Text()))
    op.create_index("job_of_group", "job", ["group_id"])
