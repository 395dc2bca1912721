"""Savings of ended jobs, kept from the time their books closed.

The next control plane compares jobs that ended before, from the data that is still known.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261122_0700_c93d15"
down_revision = "20261122_0650_d05e93"

WORD = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger()
SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
UNCOMPARED = sa.text("(compared_at_ms IS NULL)")


def upgrade() -> None:
    """Creates the table and an index."""
    op.create_table(
        "comparison",
        sa.Column("seq", SEQUENCE, primary_key=True),
        sa.Column("job_id", WORD, sa.ForeignKey("job.id"), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("baseline", WORD, nullable=False),
        sa.Column("at_ms", NUMBER, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("paid_nano_usd", NUMBER, nullable=False),
        sa.Column("entries", sa.Integer(), nullable=False),
        sa.Column("baseline_nano_usd", NUMBER),
        sa.Column("left_out", sa.Text(), nullable=False),
        sa.Column("inputs", sa.Text()),
        sa.UniqueConstraint("job_id", "version", "baseline", name="comparison_once"),
    )
    _protect("comparison")
    op.add_column("job", sa.Column("compared_at_ms", NUMBER))
    op.create_index("job_uncompared", "job", ["id"], sqlite_where=UNCOMPARED, postgresql_where=UNCOMPARED)


def _protect(table: str) -> None:
    """Creates triggers that refuse to change or delete rows of `table`."""
    words = f"{table} is append-only"
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_refuses_{verb.lower()} BEFORE {verb} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{words}'); END"
            )
        return
    op.execute(
        f"CREATE FUNCTION {table}_refuses() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{words}' USING ERRCODE = 'restrict_violation'; END $$"
    )
    op.execute(
        f"CREATE TRIGGER {table}_refuses_change BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_refuses()"
    )
