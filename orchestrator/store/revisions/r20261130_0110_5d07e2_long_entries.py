"""An index of the ledger entries whose period is longer than a day: they also count on days long after its start."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261130_0110_5d07e2"
down_revision = "20261129_2300_8e41b7"

_LONG = sa.text("(period_end_ms - period_start_ms > 86400000)")


def upgrade() -> None:
    op.create_index(
        "ledger_entry_long", "ledger_entry", ["period_start_ms"], sqlite_where=_LONG, postgresql_where=_LONG
    )
