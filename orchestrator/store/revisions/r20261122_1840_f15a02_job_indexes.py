"""Indexes of jobs: the newest job with a name, and pages in the order of submission."""

from __future__ import annotations

from alembic import op

revision = "20261122_1840_f15a02"
down_revision = "20261122_1730_c4e81a"


def upgrade() -> None:
    op.drop_index("job_name", "job")
    op.create_index("job_name", "job", ["name", "submitted_at_ms", "id"])
    op.create_index("job_submitted", "job", ["submitted_at_ms", "id"])
