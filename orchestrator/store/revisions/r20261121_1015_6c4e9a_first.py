"""The first tables: jobs, runs, migrations, market, plans, events, ledger, leader. Never changed after a release."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261121_1015_6c4e9a"
down_revision = None

WORD = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
NUMBER = sa.BigInteger()
SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

APPEND_ONLY = ("price_point", "availability_point", "event", "ledger_entry", "poll")


def upgrade() -> None:
    """Creates the tables."""
    op.create_table(
        "duty",
        sa.Column("name", WORD, primary_key=True),
        sa.Column("last_ok_ms", NUMBER, nullable=False),
    )
    op.create_table(
        "event",
        sa.Column("seq", SEQUENCE, primary_key=True),
        sa.Column("id", WORD, nullable=False),
        sa.Column("at_ms", NUMBER, nullable=False),
        sa.Column("kind", WORD, nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("actor", WORD, nullable=False),
        sa.Column("job_id", WORD),
        sa.Column("run_id", WORD),
        sa.Column("migration_id", WORD),
        sa.Column("plan_id", WORD),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("project", WORD, nullable=False),
        sa.Column("owner", WORD, nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.UniqueConstraint("id", name="event_id"),
    )
    op.create_index("event_job", "event", ["job_id", "seq"])
    op.create_table(
        "job",
        sa.Column("id", WORD, primary_key=True),
        sa.Column("name", WORD, nullable=False),
        sa.Column("project", WORD, nullable=False),
        sa.Column("owner", WORD, nullable=False),
        sa.Column("submitted_at_ms", NUMBER, nullable=False),
        sa.Column("state", WORD, nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("total_steps", NUMBER),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("checkpoint_bytes", NUMBER),
        sa.Column("weights_hash", WORD),
        sa.Column("error", sa.Text()),
        sa.Column("finished_at_ms", NUMBER),
        sa.Column("baseline_offer_id", WORD),
        sa.Column("next_decision_ms", NUMBER),
    )
    op.create_index("job_name", "job", ["name"])
    op.create_index("job_state", "job", ["state"])
    op.create_table(
        "leader",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("epoch", NUMBER, nullable=False),
        sa.Column("beat", NUMBER, nullable=False),
        sa.Column("holder", WORD),
        sa.Column("host", WORD),
        sa.Column("realm", WORD),
        sa.Column("pid", NUMBER),
        sa.Column("pid_start", NUMBER),
        sa.Column("since_ms", NUMBER),
        sa.CheckConstraint("id = 1", name="leader_is_one_row"),
    )
    op.create_table(
        "meta",
        sa.Column("key", WORD, primary_key=True),
        sa.Column("value", WORD, nullable=False),
    )
    op.create_table(
        "offer",
        sa.Column("key", SEQUENCE, primary_key=True),
        sa.Column("id", WORD, nullable=False),
        sa.Column("provider", WORD, nullable=False),
        sa.Column("region", WORD, nullable=False),
        sa.Column("zone", WORD, nullable=False),
        sa.Column("instance_type", WORD, nullable=False),
        sa.Column("gpu", WORD),
        sa.Column("gpu_count", sa.Integer(), nullable=False),
        sa.Column("vcpu", sa.Integer(), nullable=False),
        sa.Column("memory_bytes", NUMBER, nullable=False),
        sa.Column("capacity_type", WORD, nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("listed", sa.Boolean(), nullable=False),
        sa.UniqueConstraint("id", name="offer_id"),
    )
    op.create_table(
        "plan",
        sa.Column("seq", SEQUENCE, primary_key=True),
        sa.Column("id", WORD, nullable=False),
        sa.Column("at_ms", NUMBER, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.UniqueConstraint("id", name="plan_id"),
    )
    op.create_table(
        "poll",
        sa.Column("seq", SEQUENCE, primary_key=True),
        sa.Column("provider", WORD, nullable=False),
        sa.Column("started_ms", NUMBER, nullable=False),
        sa.Column("finished_ms", NUMBER, nullable=False),
        sa.Column("offers_seen", sa.Integer(), nullable=False),
        sa.Column("changed", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text()),
    )
    op.create_index("poll_provider", "poll", ["provider", "seq"])
    op.create_table(
        "price_source",
        sa.Column("key", SEQUENCE, primary_key=True),
        sa.Column("name", WORD, nullable=False),
        sa.UniqueConstraint("name", name="price_source_name"),
    )
    op.create_table(
        "availability_point",
        sa.Column("seq", SEQUENCE, primary_key=True),
        sa.Column("offer_key", NUMBER, sa.ForeignKey("offer.key"), nullable=False),
        sa.Column("at_ms", NUMBER, nullable=False),
        sa.Column("kind", WORD, nullable=False),
        sa.Column("run_id", WORD),
        sa.Column("detail", sa.Text(), nullable=False),
    )
    op.create_index("availability_at", "availability_point", ["at_ms"])
    op.create_table(
        "command",
        sa.Column("seq", SEQUENCE, primary_key=True),
        sa.Column("id", WORD, nullable=False),
        sa.Column("kind", WORD, nullable=False),
        sa.Column("job_id", WORD, sa.ForeignKey("job.id")),
        sa.Column("args", sa.Text(), nullable=False),
        sa.Column("actor", WORD, nullable=False),
        sa.Column("at_ms", NUMBER, nullable=False),
        sa.Column("closed_at_ms", NUMBER),
        sa.Column("result", sa.Text()),
        sa.UniqueConstraint("id", name="command_id"),
    )
    op.create_index("command_closed", "command", ["closed_at_ms"])
    op.create_table(
        "perf_point",
        sa.Column("seq", SEQUENCE, primary_key=True),
        sa.Column("job_id", WORD, sa.ForeignKey("job.id"), nullable=False),
        sa.Column("gpu", WORD),
        sa.Column("gpu_count", sa.Integer(), nullable=False),
        sa.Column("steps_per_s", sa.Double(), nullable=False),
        sa.Column("steps", NUMBER, nullable=False),
        sa.Column("at_ms", NUMBER, nullable=False),
    )
    op.create_index("perf_job", "perf_point", ["job_id"])
    op.create_table(
        "plan_job",
        sa.Column("job_id", WORD, primary_key=True),
        sa.Column("plan_seq", NUMBER, sa.ForeignKey("plan.seq"), primary_key=True, autoincrement=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "price_point",
        sa.Column("offer_key", NUMBER, sa.ForeignKey("offer.key"), primary_key=True, autoincrement=False),
        sa.Column("effective_at_ms", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("observed_at_ms", NUMBER, nullable=False),
        sa.Column("nano_usd_per_hour", NUMBER, nullable=False),
        sa.Column("source_key", NUMBER, sa.ForeignKey("price_source.key"), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "run",
        sa.Column("id", WORD, primary_key=True),
        sa.Column("job_id", WORD, sa.ForeignKey("job.id"), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("offer_id", WORD, nullable=False),
        sa.Column("instance_id", WORD),
        sa.Column("state", WORD, nullable=False),
        sa.Column("created_at_ms", NUMBER, nullable=False),
        sa.Column("billed_from_ms", NUMBER),
        sa.Column("billed_to_ms", NUMBER),
        sa.Column("training_from_ms", NUMBER),
        sa.Column("training_to_ms", NUMBER),
        sa.Column("end", WORD),
        sa.Column("start_step", NUMBER, nullable=False),
        sa.Column("last_step", NUMBER, nullable=False),
        sa.Column("last_loss", sa.Double()),
        sa.Column("step_wall_s", sa.Double()),
        sa.Column("repeated_steps", NUMBER, nullable=False),
        sa.Column("useful_s", sa.Double(), nullable=False),
        sa.Column("checkpoint_s", sa.Double(), nullable=False),
        sa.UniqueConstraint("job_id", "generation", name="run_generation"),
    )
    op.create_index("run_state", "run", ["state"])
    op.create_table(
        "ledger_entry",
        sa.Column("seq", SEQUENCE, primary_key=True),
        sa.Column("id", WORD, nullable=False),
        sa.Column("run_id", WORD, sa.ForeignKey("run.id"), nullable=False),
        sa.Column("job_id", WORD, sa.ForeignKey("job.id"), nullable=False),
        sa.Column("period_start_ms", NUMBER, nullable=False),
        sa.Column("period_end_ms", NUMBER, nullable=False),
        sa.Column("kind", WORD, nullable=False),
        sa.Column("amount_nano_usd", NUMBER, nullable=False),
        sa.Column("basis", WORD, nullable=False),
        sa.Column("offer_id", WORD, nullable=False),
        sa.Column("at_ms", NUMBER, nullable=False),
        sa.Column("reverses", WORD, nullable=False),
        sa.Column("project", WORD, nullable=False),
        sa.Column("owner", WORD, nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.UniqueConstraint("id", name="ledger_entry_id"),
        sa.UniqueConstraint("run_id", "period_start_ms", "kind", "reverses", name="ledger_entry_once"),
    )
    op.create_index("ledger_entry_job", "ledger_entry", ["job_id"])
    op.create_index("ledger_entry_period", "ledger_entry", ["period_start_ms"])
    op.create_table(
        "migration",
        sa.Column("id", WORD, primary_key=True),
        sa.Column("job_id", WORD, sa.ForeignKey("job.id"), nullable=False),
        sa.Column("source_run_id", WORD, sa.ForeignKey("run.id")),
        sa.Column("target_run_id", WORD, sa.ForeignKey("run.id"), nullable=False),
        sa.Column("offer_id", WORD, nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("reason", WORD, nullable=False),
        sa.Column("step", WORD, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("token", WORD, nullable=False),
        sa.Column("created_at_ms", NUMBER, nullable=False),
        sa.Column("step_at_ms", NUMBER, nullable=False),
        sa.Column("manifest", WORD),
        sa.Column("plan_id", WORD),
        sa.Column("expected_saving_nano_usd", NUMBER, nullable=False),
        sa.Column("error", sa.Text()),
        sa.UniqueConstraint("token", name="migration_token"),
    )
    op.create_index("migration_job", "migration", ["job_id"])
    op.create_index("migration_step", "migration", ["step"])
    op.execute("INSERT INTO leader (id, epoch, beat) VALUES (1, 0, 0)")
    for table in APPEND_ONLY:
        _protect(table)


def _protect(table: str) -> None:
    """Creates triggers that refuse to change or delete rows of `table`."""
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_refuses_{verb.lower()} BEFORE {verb} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
            )
        return
    op.execute(
        f"CREATE FUNCTION {table}_refuses() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{table} is append-only' USING ERRCODE = 'restrict_violation'; END $$"
    )
    op.execute(
        f"CREATE TRIGGER {table}_refuses_change BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_refuses()"
    )
