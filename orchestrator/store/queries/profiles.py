"""Profiles of programs and imported throughput tables."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from sqlalchemy import bindparam, delete, select

from orchestrator.formats.codec import Codec
from orchestrator.perf import Program, Row, Work
from orchestrator.store.rows import document, record
from orchestrator.store.schema import table_rate, work_profile
from orchestrator.store.transaction import Transaction, insert_into

_WORK = Codec(Work, "work/1")
_FORGET = delete(work_profile).where(work_profile.c.digest == bindparam("wanted"))
_ALL = select(work_profile.c.program, work_profile.c.settings, work_profile.c.document).order_by(work_profile.c.digest)

_FORGET_TABLE = delete(table_rate).where(table_rate.c.source == bindparam("wanted"))
_RATES = select(
    table_rate.c.job, table_rate.c.family, table_rate.c.gpu, table_rate.c.gpu_count, table_rate.c.steps_per_s
).order_by(table_rate.c.source, table_rate.c.job, table_rate.c.gpu, table_rate.c.gpu_count)


class ProfileRows(Transaction):
    """Reads and writes profiles and imported throughputs."""

    def put_work(self, program: Program, work: Work, at_ms: int) -> None:
        """Stores the profile of a program, replacing one with the same program and settings."""
        digest = hashlib.sha256(f"{program.name}\n{program.settings}".encode(errors="replace")).hexdigest()
        self._connection.execute(_FORGET, {"wanted": digest})
        self._insert(
            work_profile,
            digest=digest,
            program=program.name,
            settings=program.settings,
            at_ms=at_ms,
            document=_WORK.dumps(work),
        )

    def works(self) -> dict[Program, Work]:
        """The profile of every profiled program."""
        rows = self._connection.execute(_ALL).all()
        return {
            Program(row.program, row.settings): document(_WORK, row.document, "work_profile", row.program)
            for row in rows
        }

    def put_rates(self, source: str, rows: Sequence[Row]) -> None:
        """Stores a table, replacing an earlier one of the same `source`."""
        self._connection.execute(_FORGET_TABLE, {"wanted": source})
        newest = {(row.job, row.gpu, row.gpu_count): row for row in rows}
        values = [
            {
                "source": source,
                "job": row.job,
                "family": row.family,
                "gpu": row.gpu,
                "gpu_count": row.gpu_count,
                "steps_per_s": row.steps_per_s,
            }
            for row in newest.values()
        ]
        if values:
            self._connection.execute(insert_into(table_rate), values)

    def rates(self) -> tuple[Row, ...]:
        """The rows of all tables."""
        return tuple(record(Row, "table_rate", row) for row in self._connection.execute(_RATES).all())
