"""Change counters for the market, so that readers fetch only what changed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261122_1630_b1f0c2"
down_revision = "20261122_1610_3fd8a1"

WORD = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger()
WAS_OPEN = sa.text("(cleared_ms IS NOT NULL)")


def upgrade() -> None:
    """Creates the table and adds the columns."""
    op.create_table(
        "market_change",
        sa.Column("part", WORD, primary_key=True),
        sa.Column("number", NUMBER, nullable=False),
        sqlite_with_rowid=False,
    )
    op.add_column("price_now", sa.Column("changed", NUMBER, nullable=False, server_default="0"))
    op.create_index("price_now_changed", "price_now", ["changed"])
    op.create_index(
        "price_flag_cleared", "price_flag", ["cleared_ms"], sqlite_where=WAS_OPEN, postgresql_where=WAS_OPEN
    )
