"""The tables as queries see them.

Rules: integers for time (market ms) and money (nano-USD); a column for everything that a query may ask for, JSON text
only for documents (a job's spec, a plan, labels, the data of an event). Tables of APPEND_ONLY are protected by
triggers. Runs, migrations and commands belong to the project, owner and labels of their job; entries and events carry
them, because they are read without it.
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
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from orchestrator.store.backends.types import Measure, Number, Prose, Sequence, Word

metadata = MetaData()

# What each tick looks for, word for word as in its index: only so does a database see that the index answers the
# question.
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
JOB_OPEN = text("(state NOT IN ('finished', 'failed', 'cancelled'))")

meta = Table("meta", metadata, Column("key", Word, primary_key=True), Column("value", Word, nullable=False))

leader = Table(
    "leader",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("epoch", Number, nullable=False),
    Column("beat", Number, nullable=False),
    Column("holder", Word),  # NULL: nobody leads
    Column("host", Word),
    Column("realm", Word),  # where `pid` means something: boot and pid namespace
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
    Column("compared_at_ms", Number),  # NULL: never, or entries were added since
    Index("job_state", "state"),
    Column("token", Word),  # of the submitter's, so that the same submission again is the same job
    Index("job_name", "name"),
    Index("job_token", "project", "token", unique=True),
    Index("job_quarantined", "id", sqlite_where=QUARANTINED, postgresql_where=QUARANTINED),
    Index("job_finished", "finished_at_ms"),
    Index("job_open", "submitted_at_ms", "id", sqlite_where=JOB_OPEN, postgresql_where=JOB_OPEN),
    Index("job_uncompared", "id", sqlite_where=UNCOMPARED, postgresql_where=UNCOMPARED),
)

job_forecast = Table(  # what the last decision about a job expects of it; `reason`: why nothing
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
    Column("repeated_steps", Number, nullable=False),
    Column("useful_s", Measure, nullable=False),
    Column("checkpoint_s", Measure, nullable=False),
    Column("machine_from_ms", Number),
    Column("moved_from", Word),
    Column("moved_bytes", Number),
    Column("kept_bytes", Number),
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
    UniqueConstraint("token", name="migration_token"),
    Index("migration_job", "job_id"),
    Index("migration_open", "job_id", sqlite_where=MIGRATION_OPEN, postgresql_where=MIGRATION_OPEN),
)

offer = Table(
    "offer",
    metadata,
    Column("key", Sequence, primary_key=True),  # millions of price rows name an offer: an integer, not its long id
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
    Column("listed", Boolean, nullable=False),  # False: its provider no longer names it
    Column("source", Word, nullable=False),  # whose polls name it: a provider, or one of its collectors
    UniqueConstraint("id", name="offer_id"),
)

price_source = Table(
    "price_source",
    metadata,
    Column("key", Sequence, primary_key=True),
    Column("name", Word, nullable=False),
    UniqueConstraint("name", name="price_source_name"),
)

price_point = Table(  # no foreign keys: they take a third of the time of a poll's write on Postgres, and the same write
    "price_point",  # looks both keys up
    metadata,
    Column("offer_key", Number, primary_key=True, autoincrement=False),
    Column("effective_at_ms", Number, primary_key=True, autoincrement=False),
    Column("observed_at_ms", Number, nullable=False),
    Column("nano_usd_per_hour", Number, nullable=False),
    Column("source_key", Number, nullable=False),
    sqlite_with_rowid=False,
)

market_change = Table(  # how often each part of the market was written
    "market_change",
    metadata,
    Column("part", Word, primary_key=True),
    Column("number", Number, nullable=False),
    sqlite_with_rowid=False,
)

price_now = Table(  # of each offer its newest price_point, kept with every write: what a tick asks for
    "price_now",
    metadata,
    Column("offer_key", Number, primary_key=True, autoincrement=False),
    Column("effective_at_ms", Number, nullable=False),
    Column("observed_at_ms", Number, nullable=False),
    Column("nano_usd_per_hour", Number, nullable=False),
    Column("source_key", Number, nullable=False),
    Column("changed", Number, nullable=False, server_default="0"),  # the last change that brought a price of this offer
    Index("price_now_changed", "changed"),
    sqlite_with_rowid=False,
)

poll = Table(
    "poll",
    metadata,
    Column("seq", Sequence, primary_key=True),
    Column("provider", Word, nullable=False),
    Column("source", Word, nullable=False),
    Column("region", Word, nullable=False),  # "": all that the source has
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

poll_state = Table(  # the last poll of each source and region, and the last one that succeeded
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
    Column("failures", Integer, nullable=False),  # since the last one that succeeded
    Column("good_started_ms", Number),
    Column("good_finished_ms", Number),
    Column("newest_ms", Number),  # the newest change that it brought: where the next poll may begin
    Column("suspect", Prose),  # why the last poll is not believed, though it succeeded
    Column("suspect_since_ms", Number),  # since this poll; a second one has to agree
    Column("passed", Prose),  # how many rows of the last poll were none of ours, by reason
    sqlite_with_rowid=False,
)

price_flag = Table(  # a row of a provider that is kept, but whose offer is not to be chosen
    "price_flag",
    metadata,
    Column("seq", Sequence, primary_key=True),
    Column("source", Word, nullable=False),
    Column("region", Word, nullable=False),
    Column("flag", Word, nullable=False),
    Column("subject", Prose, nullable=False),
    Column("offer_key", Number, ForeignKey("offer.key")),  # this offer is left out from opened_ms to cleared_ms
    Column("nano_usd_per_hour", Number),
    Column("effective_at_ms", Number),
    Column("opened_ms", Number, nullable=False),
    Column("seen_ms", Number, nullable=False),
    Column("cleared_ms", Number),
    Column("detail", Prose, nullable=False),
    Column("unconfirmed", Boolean, nullable=False),  # whether the price is payable is to be seen: the books wait
    Index("price_flag_offer", "offer_key", "opened_ms"),
    Index("price_flag_open", "source", "region", sqlite_where=FLAG_OPEN, postgresql_where=FLAG_OPEN),
    Index("price_flag_cleared", "cleared_ms", sqlite_where=FLAG_CLEARED, postgresql_where=FLAG_CLEARED),
)

price_day = Table(  # price_point by UTC days that are over; `day` counts from 1970-01-01
    "price_day",
    metadata,
    Column("offer_key", Number, ForeignKey("offer.key"), primary_key=True, autoincrement=False),
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("min_nano_usd", Number, nullable=False),
    Column("mean_nano_usd", Number, nullable=False),  # weighted by time
    Column("max_nano_usd", Number, nullable=False),
    Column("last_nano_usd", Number, nullable=False),
    Column("changes", Integer, nullable=False),
    sqlite_with_rowid=False,
)

risk_point = Table(  # what a provider says of the risk of a machine being refused or taken back
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
    Column("digest", Word, primary_key=True),  # of program and settings
    Column("program", Prose, nullable=False),
    Column("settings", Prose, nullable=False),
    Column("at_ms", Number, nullable=False),
    Column("document", Text, nullable=False),
)

table_rate = Table(
    "table_rate",
    metadata,
    Column("source", Prose, primary_key=True),  # the file that it was imported from
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
    Column("document", Text, nullable=False),  # without its placements, which are rows of plan_placement
    Column("looked_at", Integer),  # at so many jobs; NULL: a plan of before, whose document has its placements
    Column("acting", Integer),  # so many of them to be placed or moved
    UniqueConstraint("id", name="plan_id"),
)

plan_placement = Table(
    "plan_placement",
    metadata,
    Column("seq", Sequence, primary_key=True),  # in the order of the plan
    Column("plan_seq", Number, ForeignKey("plan.seq"), nullable=False),
    Column("job_id", Word, nullable=False),
    Column("acted_on", Boolean, nullable=False),
    Column("document", LargeBinary, nullable=False),  # JSON, compressed by zlib
    Index("plan_placement_plan", "plan_seq"),
    Index("plan_placement_job", "job_id", "plan_seq"),
)

plan_job = Table(  # of plans whose documents have their placements
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
    Column("reverses", Word, nullable=False),  # "": none. Not NULL, because NULLs are never equal in a UNIQUE key
    Column("project", Word, nullable=False),
    Column("owner", Word, nullable=False),
    Column("labels", Text, nullable=False),
    UniqueConstraint("id", name="ledger_entry_id"),
    UniqueConstraint("run_id", "period_start_ms", "kind", "reverses", name="ledger_entry_once"),
    Index("ledger_entry_job", "job_id"),
    Index("ledger_entry_period", "period_start_ms"),
    Index("ledger_entry_until", "run_id", "period_end_ms", sqlite_where=MACHINE_TIME, postgresql_where=MACHINE_TIME),
    Index("ledger_entry_besides", "run_id", sqlite_where=BESIDES, postgresql_where=BESIDES),
)

ledger_sum = Table(  # of ledger_entry, kept with every entry that is added
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
    Column("entries", Integer, nullable=False),  # of the ledger, whose sum is paid
    Column("baseline_nano_usd", Number),  # NULL: the job is left out, see left_out
    Column("left_out", Prose, nullable=False),
    Column("inputs", Text),
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

duty = Table("duty", metadata, Column("name", Word, primary_key=True), Column("last_ok_ms", Number, nullable=False))

APPEND_ONLY = ("price_point", "availability_point", "event", "ledger_entry", "poll", "risk_point", "comparison")
"""Tables whose rows are never changed, and not deleted either, but for those of ARCHIVED."""

ARCHIVED = ("price_point", "poll")
"""Rows of these may be deleted when they are older than the instant in `meta` under KEPT_FROM."""

KEPT_FROM = "history_kept_from_ms"
