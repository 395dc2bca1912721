"""Partial indexes for open work, which the control plane queries several times a second: a handful of rows among all.

They replace indexes that no query used.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261121_1130_c81f02"
down_revision = "20261121_1015_6c4e9a"


def upgrade() -> None:
    """Replaces the indexes."""
    op.drop_index("run_state", "run")
    op.drop_index("migration_step", "migration")
    op.drop_index("command_closed", "command")
    _create("run_unsettled", "run", "state <> 'ended' OR (instance_id IS NOT NULL AND billed_to_ms IS NULL)", "id")
    _create("migration_open", "migration", "step NOT IN ('done', 'aborted')", "job_id")
    _create("command_open", "command", "closed_at_ms IS NULL", "seq")


def _create(name: str, table: str, condition: str, column: str) -> None:
    where = sa.text(condition)
    op.create_index(name, table, [column], sqlite_where=where, postgresql_where=where)
