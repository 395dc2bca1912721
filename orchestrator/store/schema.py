"""Table definitions for queries.

Rules: time (market ms) and money (nano-USD) are integers. Every value that a query filters by is a column; JSON text is
only for documents (a job's spec, a plan, labels, event data). Triggers protect the tables in APPEND_ONLY. Runs,
migrations and commands belong to the project, owner and labels of their job; ledger entries and events keep copies.
"""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from orchestrator.store.backends.types import Measure, Number, Prose, Sequence, Word
from orchestrator.store.schema_base import job_group, metadata

# Conditions of the queries of each tick, verbatim as in their partial indexes, which are not used otherwise.
UNSETTLED = text("(state <> 'ended' OR (instance_id IS NOT NULL AND billed_to_ms IS NULL))")
MIGRATION_OPEN = text("(step NOT IN ('done', 'aborted'))")
COMMAND_OPEN = text("(closed_at_ms IS NULL)")
QUARANTINED = text("(quarantined_at_ms IS NOT NULL)")
FLAG_OPEN = text("(cleared_ms IS NULL)")
FLAG_CLEARED = text("(cleared_ms IS NOT NULL)")
UNCOMPARED = text("(compared_at_ms IS NULL)")
CUTOVER = text("(kind = 'migration.cutover')")
MACHINE_TIME = text("(kind = 'compute')")
BESIDES = text("(kind <> 'compute')")
LONGER_THAN_A_DAY = text("(period_end_ms - period_start_ms > 86400000)")
JOB_OPEN = text("(state NOT IN ('finished', 'failed', 'cancelled'))")

meta = Table("meta", metadata, Column("key", Word, primary_key=True), Column("value", Word, nullable=False))

leader = Table(
    "leader",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("epoch", Number, nullable=False),
    Column("beat", Number, nullable=False),
    Column("holder", Word),  # NULL: no leader
    Column("host", Word),
    Column("realm", Word),  # boot id and pid namespace in which `pid` is valid
    Column("pid", Number),
    Column("pid_start", Number),
    Column("since_ms", Number),
    CheckConstraint("id = 1", name="leader_is_one_row"),
)

job = Table(
    "job",
    metadata,
    Column("id", Word, primary_key=True),
    Column("name", Word, nullable=False),
    Column("project", Word, nullable=False),
    Column("owner", Word, nullable=False),
    Column("submitted_at_ms", Number, nullable=False),
    Column("state", Word, nullable=False),
    Column("spec", Text, nullable=False),
    # JobFacts
    Column("total_steps", Number),
    Column("failures", Integer, nullable=False),
    Column("checkpoint_bytes", Number),
    Column("weights_hash", Word),
    Column("error", Prose),
    Column("finished_at_ms", Number),
    Column("baseline_offer_id", Word),
    Column("next_decision_ms", Number),
    Column("quarantine", Prose),
    Column("quarantined_at_ms", Number),
    Column("compared_at_ms", Number),  # NULL: not compared yet, or entries were added since
    Index("job_state", "state"),
    Column("token", Word),  # chosen by the submitter: a repeated submission with it returns the same job
    Column("group_id", Word, ForeignKey(job_group.c.id)),  # NULL: a job without a group
    Column("weight", Measure, nullable=False, server_default="1"),
    Column("after", Text),  # a document: ids of jobs that must finish first; NULL: none
    Index("job_of_group", "group_id"),
    Index("job_name", "name", "submitted_at_ms", "id"),
    Index("job_submitted", "submitted_at_ms", "id"),
    Index("job_token", "project", "token", unique=True),
    Index("job_quarantined", "id", sqlite_where=QUARANTINED, postgresql_where=QUARANTINED),
    Index("job_finished", "finished_at_ms"),
    Index("job_open", "submitted_at_ms", "id", sqlite_where=JOB_OPEN, postgresql_where=JOB_OPEN),
    Index("job_uncompared", "id", sqlite_where=UNCOMPARED, postgresql_where=UNCOMPARED),
)

job_forecast = Table(  # the forecast of the last decision about a job; `reason`: why there is none
    "job_forecast",
    metadata,
    Column("job_id", Word, ForeignKey("job.id"), primary_key=True),
    Column("at_ms", Number, nullable=False),
    Column("reason", Prose),
    Column("cost_nano_usd", Number),
    Column("cost_low_nano_usd", Number),
    Column("cost_high_nano_usd", Number),
    Column("duration_s", Measure),
    Column("duration_low_s", Measure),
    Column("duration_high_s", Measure),
    Column("evidence", Word),
    sqlite_with_rowid=False,
)

run = Table(
    "run",
    metadata,
    Column("id", Word, primary_key=True),
    Column("job_id", Word, ForeignKey("job.id"), nullable=False),
    Column("generation", Integer, nullable=False),
    Column("offer_id", Word, nullable=False),
    Column("instance_id", Word),
    Column("state", Word, nullable=False),
    Column("created_at_ms", Number, nullable=False),
    Column("billed_from_ms", Number),
    Column("billed_to_ms", Number),
    Column("training_from_ms", Number),
    Column("training_to_ms", Number),
    Column("end", Word),
    Column("start_step", Number, nullable=False),
    Column("last_step", Number, nullable=False),
    Column("last_loss", Measure),
    Column("step_wall_s", Measure),
    Column("save_wall_s", Measure),
    Column("setup_wall_s", Measure),
    Column("repeated_steps", Number, nullable=False),
    Column("useful_s", Measure, nullable=False),
    Column("checkpoint_s", Measure, nullable=False),
    Column("machine_from_ms", Number),
    Column("moved_from", Word),
    Column("moved_bytes", Number),
    Column("kept_bytes", Number),
    Column("saved_step", Number),
    Column("members", Text),  # a document; NULL: one machine
    UniqueConstraint("job_id", "generation", name="run_generation"),
    Index("run_unsettled", "id", sqlite_where=UNSETTLED, postgresql_where=UNSETTLED),
)

migration = Table(
    "migration",
    metadata,
    Column("id", Word, primary_key=True),
    Column("job_id", Word, ForeignKey("job.id"), nullable=False),
    Column("source_run_id", Word, ForeignKey("run.id")),
    Column("target_run_id", Word, ForeignKey("run.id"), nullable=False),
    Column("offer_id", Word, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("reason", Word, nullable=False),
    Column("step", Word, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("token", Word, nullable=False),
    Column("created_at_ms", Number, nullable=False),
    Column("step_at_ms", Number, nullable=False),
    Column("manifest", Word),
    Column("plan_id", Word),
    Column("expected_saving_nano_usd", Number, nullable=False),
    Column("error", Prose),
    Column("disk_gb", Integer),
    Column("to_live_s", Number),
    Column("also", Text),  # a document; NULL: no other offer
    UniqueConstraint("token", name="migration_token"),
    Index("migration_job", "job_id"),
    Index("migration_open", "job_id", sqlite_where=MIGRATION_OPEN, postgresql_where=MIGRATION_OPEN),
)

offer = Table(
    "offer",
    metadata,
    Column("key", Sequence, primary_key=True),  # an integer, because millions of price rows refer to offers
    Column("id", Word, nullable=False),
    Column("provider", Word, nullable=False),
    Column("region", Word, nullable=False),
    Column("zone", Word, nullable=False),
    Column("instance_type", Word, nullable=False),
    Column("gpu", Word),
    Column("gpu_count", Integer, nullable=False),
    Column("vcpu", Integer, nullable=False),
    Column("memory_bytes", Number, nullable=False),
    Column("capacity_type", Word, nullable=False),
    Column("simulated", Boolean, nullable=False),
    Column("listed", Boolean, nullable=False),  # False: its provider no longer lists it
    Column("source", Word, nullable=False),  # whose polls list it: a provider or one of its collectors
    UniqueConstraint("id", name="offer_id"),
)

price_source = Table(
    "price_source",
    metadata,
    Column("key", Sequence, primary_key=True),
    Column("name", Word, nullable=False),
    UniqueConstraint("name", name="price_source_name"),
)

price_point = Table(  # no foreign keys: checking them takes a third of a poll's write on Postgres, and the same write
    "price_point",  # looks both keys up
    metadata,
    Column("offer_key", Number, primary_key=True, autoincrement=False),
    Column("effective_at_ms", Number, primary_key=True, autoincrement=False),
    Column("observed_at_ms", Number, nullable=False),
    Column("nano_usd_per_hour", Number, nullable=False),
    Column("source_key", Number, nullable=False),
    sqlite_with_rowid=False,
)

market_change = Table(  # how many times each part of the market was written
    "market_change",
    metadata,
    Column("part", Word, primary_key=True),
    Column("number", Number, nullable=False),
    sqlite_with_rowid=False,
)

price_now = Table(  # the newest price_point of each offer, updated with every write; read by every tick
    "price_now",
    metadata,
    Column("offer_key", Number, primary_key=True, autoincrement=False),
    Column("effective_at_ms", Number, nullable=False),
    Column("observed_at_ms", Number, nullable=False),
    Column("nano_usd_per_hour", Number, nullable=False),
    Column("source_key", Number, nullable=False),
    Column("changed", Number, nullable=False, server_default="0"),  # number of the last change to this offer's price
    Index("price_now_changed", "changed"),
    sqlite_with_rowid=False,
)

poll = Table(
    "poll",
    metadata,
    Column("seq", Sequence, primary_key=True),
    Column("provider", Word, nullable=False),
    Column("source", Word, nullable=False),
    Column("region", Word, nullable=False),  # "": all regions of the source
    Column("started_ms", Number, nullable=False),
    Column("finished_ms", Number, nullable=False),
    Column("offers_seen", Integer, nullable=False),
    Column("changed", Integer, nullable=False),
    Column("flagged", Integer, nullable=False),
    Column("error", Prose),
    Column("hint", Prose),
    Index("poll_provider", "provider", "seq"),
    Index("poll_started", "started_ms"),
)

poll_state = Table(  # the last poll and the last successful poll of each source and region
    "poll_state",
    metadata,
    Column("source", Word, primary_key=True),
    Column("region", Word, primary_key=True),
    Column("provider", Word, nullable=False),
    Column("started_ms", Number, nullable=False),
    Column("finished_ms", Number, nullable=False),
    Column("offers_seen", Integer, nullable=False),
    Column("flagged", Integer, nullable=False),
    Column("error", Prose),
    Column("hint", Prose),
    Column("failures", Integer, nullable=False),  # since the last successful one
    Column("good_started_ms", Number),
    Column("good_finished_ms", Number),
    Column("newest_ms", Number),  # the newest change that it returned: where the next poll may begin
    Column("suspect", Prose),  # why the last poll is not trusted although it succeeded
    Column("suspect_since_ms", Number),  # since this poll; a second one must confirm it
    Column("passed", Prose),  # number of rows of the last poll that were skipped, by reason
    sqlite_with_rowid=False,
)

price_flag = Table(  # a provider's row that is kept for the record, but whose offer must not be chosen
    "price_flag",
    metadata,
    Column("seq", Sequence, primary_key=True),
    Column("source", Word, nullable=False),
    Column("region", Word, nullable=False),
    Column("flag", Word, nullable=False),
    Column("subject", Prose, nullable=False),
    Column("offer_key", Number, ForeignKey("offer.key")),  # this offer is excluded from opened_ms to cleared_ms
    Column("nano_usd_per_hour", Number),
    Column("effective_at_ms", Number),
    Column("opened_ms", Number, nullable=False),
    Column("seen_ms", Number, nullable=False),
    Column("cleared_ms", Number),
    Column("detail", Prose, nullable=False),
    Column("unconfirmed", Boolean, nullable=False),  # the price awaits a second report; nothing is booked from it
    Index("price_flag_offer", "offer_key", "opened_ms"),
    Index("price_flag_open", "source", "region", sqlite_where=FLAG_OPEN, postgresql_where=FLAG_OPEN),
    Index("price_flag_cleared", "cleared_ms", sqlite_where=FLAG_CLEARED, postgresql_where=FLAG_CLEARED),
)

price_day = Table(  # price_point summarized by past UTC day; `day` counts from 1970-01-01
    "price_day",
    metadata,
    Column("offer_key", Number, ForeignKey("offer.key"), primary_key=True, autoincrement=False),
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("min_nano_usd", Number, nullable=False),
    Column("mean_nano_usd", Number, nullable=False),  # time-weighted
    Column("max_nano_usd", Number, nullable=False),
    Column("last_nano_usd", Number, nullable=False),
    Column("changes", Integer, nullable=False),
    sqlite_with_rowid=False,
)

risk_point = Table(  # a provider's data on the risk of refused or preempted machines
    "risk_point",
    metadata,
    Column("seq", Sequence, primary_key=True),
    Column("kind", Word, nullable=False),
    Column("provider", Word, nullable=False),
    Column("region", Word, nullable=False),
    Column("zone", Word, nullable=False),
    Column("instance_type", Word, nullable=False),
    Column("low", Measure),
    Column("high", Measure),
    Column("effective_at_ms", Number, nullable=False),
    Column("observed_at_ms", Number, nullable=False),
    Column("source", Word, nullable=False),
    Index("risk_point_place", "provider", "region", "zone", "instance_type", "kind", "effective_at_ms"),
)

availability_point = Table(
    "availability_point",
    metadata,
    Column("seq", Sequence, primary_key=True),
    Column("offer_key", Number, ForeignKey("offer.key"), nullable=False),
    Column("at_ms", Number, nullable=False),
    Column("kind", Word, nullable=False),
    Column("run_id", Word),
    Column("detail", Prose, nullable=False),
    Index("availability_at", "at_ms"),
)

perf_point = Table(
    "perf_point",
    metadata,
    Column("seq", Sequence, primary_key=True),
    Column("job_id", Word, ForeignKey("job.id"), nullable=False),
    Column("gpu", Word),
    Column("gpu_count", Integer, nullable=False),
    Column("steps_per_s", Measure, nullable=False),
    Column("steps", Number, nullable=False),
    Column("at_ms", Number, nullable=False),
    Index("perf_job", "job_id"),
)

work_profile = Table(
    "work_profile",
    metadata,
    Column("digest", Word, primary_key=True),  # of the program and its settings
    Column("program", Prose, nullable=False),
    Column("settings", Prose, nullable=False),
    Column("at_ms", Number, nullable=False),
    Column("document", Text, nullable=False),
)

table_rate = Table(
    "table_rate",
    metadata,
    Column("source", Prose, primary_key=True),  # the file from which it was imported
    Column("job", Prose, primary_key=True),
    Column("gpu", Word, primary_key=True),
    Column("gpu_count", Integer, primary_key=True, autoincrement=False),
    Column("family", Prose, nullable=False),
    Column("steps_per_s", Measure, nullable=False),
)

plan = Table(
    "plan",
    metadata,
    Column("seq", Sequence, primary_key=True),
    Column("id", Word, nullable=False),
    Column("at_ms", Number, nullable=False),
    Column("document", Text, nullable=False),  # without its placements, which are in plan_placement
    Column("looked_at", Integer),  # number of jobs considered; NULL: an older plan, with placements in its document
    Column("acting", Integer),  # number of them to place or move
    UniqueConstraint("id", name="plan_id"),
)

plan_placement = Table(
    "plan_placement",
    metadata,
    Column("seq", Sequence, primary_key=True),  # in plan order
    Column("plan_seq", Number, ForeignKey("plan.seq"), nullable=False),
    Column("job_id", Word, nullable=False),
    Column("acted_on", Boolean, nullable=False),
    Column("document", LargeBinary, nullable=False),  # a document; see packed.py
    Index("plan_placement_plan", "plan_seq"),
    Index("plan_placement_job", "job_id", "plan_seq"),
)

plan_job = Table(  # for plans whose documents contain their placements
    "plan_job",
    metadata,
    Column("job_id", Word, primary_key=True),
    Column("plan_seq", Number, ForeignKey("plan.seq"), primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)

event = Table(
    "event",
    metadata,
    Column("seq", Sequence, primary_key=True),
    Column("id", Word, nullable=False),
    Column("at_ms", Number, nullable=False),
    Column("kind", Word, nullable=False),
    Column("message", Prose, nullable=False),
    Column("actor", Word, nullable=False),
    Column("job_id", Word),
    Column("run_id", Word),
    Column("migration_id", Word),
    Column("plan_id", Word),
    Column("data", Text, nullable=False),
    Column("project", Word, nullable=False),
    Column("owner", Word, nullable=False),
    Column("labels", Text, nullable=False),
    UniqueConstraint("id", name="event_id"),
    Index("event_job", "job_id", "seq"),
    Index("event_kind", "job_id", "kind", "seq"),
    Index("event_cutover", "seq", sqlite_where=CUTOVER, postgresql_where=CUTOVER),
)

ledger_entry = Table(
    "ledger_entry",
    metadata,
    Column("seq", Sequence, primary_key=True),
    Column("id", Word, nullable=False),
    Column("run_id", Word, ForeignKey("run.id"), nullable=False),
    Column("job_id", Word, ForeignKey("job.id"), nullable=False),
    Column("period_start_ms", Number, nullable=False),
    Column("period_end_ms", Number, nullable=False),
    Column("kind", Word, nullable=False),
    Column("amount_nano_usd", Number, nullable=False),
    Column("basis", Word, nullable=False),
    Column("offer_id", Word, nullable=False),
    Column("at_ms", Number, nullable=False),
    Column("reverses", Word, nullable=False),  # "": none; not NULL, because NULLs are never equal in a UNIQUE key
    Column("project", Word, nullable=False),
    Column("owner", Word, nullable=False),
    Column("labels", Text, nullable=False),
    UniqueConstraint("id", name="ledger_entry_id"),
    UniqueConstraint("run_id", "period_start_ms", "kind", "reverses", name="ledger_entry_once"),
    Index("ledger_entry_job", "job_id"),
    Index("ledger_entry_period", "period_start_ms"),
    Index("ledger_entry_until", "run_id", "period_end_ms", sqlite_where=MACHINE_TIME, postgresql_where=MACHINE_TIME),
    Index("ledger_entry_besides", "run_id", sqlite_where=BESIDES, postgresql_where=BESIDES),
    Index("ledger_entry_long", "period_start_ms", sqlite_where=LONGER_THAN_A_DAY, postgresql_where=LONGER_THAN_A_DAY),
)

ledger_sum = Table(  # sums of ledger_entry, updated with every new entry
    "ledger_sum",
    metadata,
    Column("job_id", Word, ForeignKey("job.id"), primary_key=True),
    Column("run_id", Word, ForeignKey("run.id"), primary_key=True),
    Column("kind", Word, primary_key=True),
    Column("entries", Number, nullable=False),
    Column("amount_nano_usd", Number, nullable=False),
    sqlite_with_rowid=False,
)

comparison = Table(
    "comparison",
    metadata,
    Column("seq", Sequence, primary_key=True),
    Column("job_id", Word, ForeignKey("job.id"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("baseline", Word, nullable=False),
    Column("at_ms", Number, nullable=False),
    Column("reason", Prose, nullable=False),
    Column("paid_nano_usd", Number, nullable=False),
    Column("entries", Integer, nullable=False),  # number of ledger entries whose sum is the amount paid
    Column("baseline_nano_usd", Number),  # NULL: the job is left out; left_out says why
    Column("left_out", Prose, nullable=False),
    Column("inputs", Text),  # a document; see packed.py
    UniqueConstraint("job_id", "version", "baseline", name="comparison_once"),
)

command = Table(
    "command",
    metadata,
    Column("seq", Sequence, primary_key=True),
    Column("id", Word, nullable=False),
    Column("kind", Word, nullable=False),
    Column("job_id", Word, ForeignKey("job.id")),
    Column("args", Text, nullable=False),
    Column("actor", Word, nullable=False),
    Column("at_ms", Number, nullable=False),
    Column("closed_at_ms", Number),
    Column("result", Prose),
    UniqueConstraint("id", name="command_id"),
    Index("command_open", "seq", sqlite_where=COMMAND_OPEN, postgresql_where=COMMAND_OPEN),
)

APPEND_ONLY = ("price_point", "availability_point", "event", "ledger_entry", "poll", "risk_point", "comparison")
"""Tables whose rows are never changed and, except for ARCHIVED, never deleted."""

ARCHIVED = ("price_point", "poll")
"""Tables whose rows may be deleted once they are older than the instant in `meta` under retention.KEPT_FROM."""
