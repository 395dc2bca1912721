"""An index that finds the latest migrations without reading all events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "20261122_0945_5a90d7"
down_revision = "20261122_0910_8f4e21"

CUTOVER = sa.text("(kind = 'migration.cutover')")


def upgrade() -> None:
    """Creates the index."""
    op.create_index("event_cutover", "event", ["seq"], sqlite_where=CUTOVER, postgresql_where=CUTOVER)
