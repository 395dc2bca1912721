"""Sums of the ledger by run and kind, updated with every entry, and indexes for queries of one job per tick."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261122_1610_3fd8a1"
down_revision = "20261122_1600_4d7e21"

WORD = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger()
MACHINE_TIME = sa.text("(kind = 'compute')")
BESIDES = sa.text("(kind <> 'compute')")
JOB_OPEN = sa.text("(state NOT IN ('finished', 'failed', 'cancelled'))")


def upgrade() -> None:
    """Creates the table and the indexes."""
    op.create_table(
        "ledger_sum",
        sa.Column("job_id", WORD, sa.ForeignKey("job.id"), primary_key=True),
        sa.Column("run_id", WORD, sa.ForeignKey("run.id"), primary_key=True),
        sa.Column("kind", WORD, primary_key=True),
        sa.Column("entries", NUMBER, nullable=False),
        sa.Column("amount_nano_usd", NUMBER, nullable=False),
        sqlite_with_rowid=False,
    )
    op.execute(
        "INSERT INTO ledger_sum (job_id, run_id, kind, entries, amount_nano_usd) "
        "SELECT job_id, run_id, kind, count(*), sum(amount_nano_usd) FROM ledger_entry GROUP BY job_id, run_id, kind"
    )
    op.create_index(
        "ledger_entry_until",
        "ledger_entry",
        ["run_id", "period_end_ms"],
        sqlite_where=MACHINE_TIME,
        postgresql_where=MACHINE_TIME,
    )
    op.create_index("ledger_entry_besides", "ledger_entry", ["run_id"], sqlite_where=BESIDES, postgresql_where=BESIDES)
    op.create_index("event_kind", "event", ["job_id", "kind", "seq"])
    op.create_index("job_open", "job", ["submitted_at_ms", "id"], sqlite_where=JOB_OPEN, postgresql_where=JOB_OPEN)
