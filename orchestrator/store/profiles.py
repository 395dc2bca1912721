"""What a training step of a program does, as a profile counted it. Must not know how it is counted or used."""

from __future__ import annotations

import hashlib

from sqlalchemy import bindparam, delete, select

from orchestrator.perf import Program, Work
from orchestrator.store.codec import Codec
from orchestrator.store.schema import work_profile
from orchestrator.store.transaction import Transaction

_WORK = Codec(Work, "work", 1)
_FORGET = delete(work_profile).where(work_profile.c.digest == bindparam("wanted"))
_ALL = select(work_profile.c.program, work_profile.c.settings, work_profile.c.document).order_by(work_profile.c.digest)


class ProfileRows(Transaction):
    def put_work(self, program: Program, work: Work, at_ms: int) -> None:
        """Remember the newest count; an older one of the same program and settings goes."""
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
        """The newest count of every program that was profiled."""
        rows = self._connection.execute(_ALL)
        return {Program(row.program, row.settings): _WORK.loads(row.document) for row in rows}
