"""The metadata that all tables of the store share, and two tables that refer to no other table: groups of jobs and
periodic tasks. The others are in schema.py."""

from __future__ import annotations

from sqlalchemy import Column, Index, MetaData, Table

from orchestrator.store.backends.types import Number, Word

metadata = MetaData()

job_group = Table(
    "job_group",
    metadata,
    Column("id", Word, primary_key=True),
    Column("name", Word, nullable=False),
    Column("policy", Word, nullable=False),
    Column("project", Word, nullable=False),
    Column("owner", Word, nullable=False),
    Column("submitted_at_ms", Number, nullable=False),
    Column("budget_nano_usd", Number),
    Column("deadline_at_ms", Number),
    Column("token", Word),  # as in `job`; a group and a job of a project never share one
    Column("digest", Word),  # of the submission that the token identifies
    Index("job_group_name", "name", "submitted_at_ms", "id"),
    Index("job_group_token", "project", "token", unique=True),
)

periodic_task = Table(
    "periodic_task", metadata, Column("name", Word, primary_key=True), Column("last_ok_ms", Number, nullable=False)
)
