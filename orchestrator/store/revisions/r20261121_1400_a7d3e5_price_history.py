"""Price history: current prices, polls by region, flagged rows, daily summaries, risks; old history can be deleted.

Until now prices and polls could never be deleted. Those older than `history_kept_from_ms` in `meta` now can be;
retention sets it once it has archived them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261121_1400_a7d3e5"
down_revision = "20261121_1350_5e1b7d"

WORD = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger()
SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

ARCHIVED = {"price_point": "effective_at_ms", "poll": "started_ms"}
KEPT_FROM = "SELECT CAST(value AS BIGINT) FROM meta WHERE key = 'history_kept_from_ms'"


def upgrade() -> None:
    """Creates the tables and copies the rows."""
    for table in ARCHIVED:
        _lift(table)
    _drop_foreign_keys()
    op.add_column("offer", sa.Column("source", WORD, nullable=False, server_default=""))
    op.execute("UPDATE offer SET source = provider")
    op.add_column("poll", sa.Column("source", WORD, nullable=False, server_default=""))
    op.add_column("poll", sa.Column("region", WORD, nullable=False, server_default=""))
    op.add_column("poll", sa.Column("flagged", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("poll", sa.Column("hint", sa.Text()))
    op.execute("UPDATE poll SET source = provider")
    op.create_index("poll_started", "poll", ["started_ms"])
    op.create_table(
        "poll_state",
        sa.Column("source", WORD, primary_key=True),
        sa.Column("region", WORD, primary_key=True),
        sa.Column("provider", WORD, nullable=False),
        sa.Column("started_ms", NUMBER, nullable=False),
        sa.Column("finished_ms", NUMBER, nullable=False),
        sa.Column("offers_seen", sa.Integer(), nullable=False),
        sa.Column("flagged", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("hint", sa.Text()),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("good_started_ms", NUMBER),
        sa.Column("good_finished_ms", NUMBER),
        sa.Column("newest_ms", NUMBER),
        sqlite_with_rowid=False,
    )
    op.execute(
        "INSERT INTO poll_state (source, region, provider, started_ms, finished_ms, offers_seen, flagged, error, "
        "failures, good_started_ms, good_finished_ms) "
        "SELECT last.source, '', last.provider, last.started_ms, last.finished_ms, last.offers_seen, 0, last.error, "
        "CASE WHEN last.error IS NULL THEN 0 ELSE 1 END, good.started_ms, good.finished_ms FROM poll AS last "
        "LEFT JOIN poll AS good ON good.seq = "
        "(SELECT max(seq) FROM poll WHERE provider = last.provider AND error IS NULL) "
        "WHERE last.seq IN (SELECT max(seq) FROM poll GROUP BY provider)"
    )
    op.create_table(
        "price_now",
        sa.Column("offer_key", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("effective_at_ms", NUMBER, nullable=False),
        sa.Column("observed_at_ms", NUMBER, nullable=False),
        sa.Column("nano_usd_per_hour", NUMBER, nullable=False),
        sa.Column("source_key", NUMBER, nullable=False),
        sqlite_with_rowid=False,
    )
    op.execute(
        "INSERT INTO price_now (offer_key, effective_at_ms, observed_at_ms, nano_usd_per_hour, source_key) "
        "SELECT newest.offer_key, newest.effective_at_ms, newest.observed_at_ms, newest.nano_usd_per_hour, "
        "newest.source_key FROM offer JOIN price_point AS newest ON newest.offer_key = offer.key "
        "AND newest.effective_at_ms = (SELECT max(effective_at_ms) FROM price_point WHERE offer_key = offer.key)"
    )
    op.create_table(
        "price_flag",
        sa.Column("seq", SEQUENCE, primary_key=True),
        sa.Column("source", WORD, nullable=False),
        sa.Column("region", WORD, nullable=False),
        sa.Column("flag", WORD, nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("offer_key", NUMBER, sa.ForeignKey("offer.key")),
        sa.Column("nano_usd_per_hour", NUMBER),
        sa.Column("effective_at_ms", NUMBER),
        sa.Column("opened_ms", NUMBER, nullable=False),
        sa.Column("seen_ms", NUMBER, nullable=False),
        sa.Column("cleared_ms", NUMBER),
        sa.Column("detail", sa.Text(), nullable=False),
    )
    op.create_index("price_flag_offer", "price_flag", ["offer_key", "opened_ms"])
    where = sa.text("cleared_ms IS NULL")
    op.create_index("price_flag_open", "price_flag", ["source", "region"], sqlite_where=where, postgresql_where=where)
    op.create_table(
        "price_day",
        sa.Column("offer_key", NUMBER, sa.ForeignKey("offer.key"), primary_key=True, autoincrement=False),
        sa.Column("day", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("min_nano_usd", NUMBER, nullable=False),
        sa.Column("mean_nano_usd", NUMBER, nullable=False),
        sa.Column("max_nano_usd", NUMBER, nullable=False),
        sa.Column("last_nano_usd", NUMBER, nullable=False),
        sa.Column("changes", sa.Integer(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "risk_point",
        sa.Column("seq", SEQUENCE, primary_key=True),
        sa.Column("kind", WORD, nullable=False),
        sa.Column("provider", WORD, nullable=False),
        sa.Column("region", WORD, nullable=False),
        sa.Column("zone", WORD, nullable=False),
        sa.Column("instance_type", WORD, nullable=False),
        sa.Column("low", sa.Double()),
        sa.Column("high", sa.Double()),
        sa.Column("effective_at_ms", NUMBER, nullable=False),
        sa.Column("observed_at_ms", NUMBER, nullable=False),
        sa.Column("source", WORD, nullable=False),
    )
    op.create_index(
        "risk_point_place",
        "risk_point",
        ["provider", "region", "zone", "instance_type", "kind", "effective_at_ms"],
    )
    for table, instant in ARCHIVED.items():
        _protect(table, f"OLD.{instant} >= COALESCE(({KEPT_FROM}), 0)")
    _protect("risk_point", None)


def _drop_foreign_keys() -> None:
    """Drops those of price_point: checking them takes a third of a poll's write on Postgres. SQLite needs a new
    table."""
    if not _sqlite():
        for column in ("offer_key", "source_key"):
            op.drop_constraint(f"price_point_{column}_fkey", "price_point", type_="foreignkey")
        return
    op.create_table(
        "price_point_bare",
        sa.Column("offer_key", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("effective_at_ms", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("observed_at_ms", NUMBER, nullable=False),
        sa.Column("nano_usd_per_hour", NUMBER, nullable=False),
        sa.Column("source_key", NUMBER, nullable=False),
        sqlite_with_rowid=False,
    )
    op.execute(
        "INSERT INTO price_point_bare (offer_key, effective_at_ms, observed_at_ms, nano_usd_per_hour, source_key) "
        "SELECT offer_key, effective_at_ms, observed_at_ms, nano_usd_per_hour, source_key FROM price_point"
    )
    op.drop_table("price_point")
    op.rename_table("price_point_bare", "price_point")


def _sqlite() -> bool:
    return bool(op.get_bind().dialect.name == "sqlite")


def _lift(table: str) -> None:
    """Drops the triggers that refuse any change of `table`."""
    if _sqlite():
        op.execute(f"DROP TRIGGER {table}_refuses_update")
        op.execute(f"DROP TRIGGER {table}_refuses_delete")
    else:
        op.execute(f"DROP TRIGGER {table}_refuses_change ON {table}")
        op.execute(f"DROP FUNCTION {table}_refuses()")


def _protect(table: str, young: str | None) -> None:
    """Creates triggers that refuse to change rows of `table` or to delete them; `young` is a condition for the
    latter."""
    words = f"{table} is append-only"
    if _sqlite():
        when = f"WHEN {young} " if young else ""
        stop = f"BEGIN SELECT RAISE(ABORT, '{words}'); END"
        op.execute(f"CREATE TRIGGER {table}_refuses_update BEFORE UPDATE ON {table} {stop}")
        op.execute(f"CREATE TRIGGER {table}_refuses_delete BEFORE DELETE ON {table} {when}{stop}")
        return
    stop = f"RAISE EXCEPTION '{words}' USING ERRCODE = 'restrict_violation'"
    op.execute(f"CREATE FUNCTION {table}_refuses() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {stop}; END $$")
    verbs = "UPDATE OR TRUNCATE" if young else "UPDATE OR DELETE OR TRUNCATE"
    op.execute(
        f"CREATE TRIGGER {table}_refuses_change BEFORE {verbs} ON {table} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_refuses()"
    )
    if young:
        op.execute(
            f"CREATE FUNCTION {table}_young_refuses() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN IF {young} THEN {stop}; END IF; RETURN OLD; END $$"
        )
        op.execute(
            f"CREATE TRIGGER {table}_refuses_delete BEFORE DELETE ON {table} "
            f"FOR EACH ROW EXECUTE FUNCTION {table}_young_refuses()"
        )
