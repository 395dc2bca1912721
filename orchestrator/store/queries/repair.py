"""Repairs the damaged row of a run, cell by cell, from other rows.

Migrations show where a run is and whether it took over, events show its machine, and the ledger shows the start of its
billing. A cell without such evidence gets the value of a new run; steps of the run may then not count. Only damaged
cells are changed, and each change is returned.
"""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, cast, get_type_hints

from sqlalchemy import bindparam, func, or_, select, update

from orchestrator.errors import UnreadableRowError
from orchestrator.formats.codec import CodecError, decode, encode
from orchestrator.model import Member, Migration, Run, Step
from orchestrator.store.queries.events import EventRows
from orchestrator.store.queries.runs import (
    RunRows,
    can_be_a_generation,
    can_be_moved_from,
    members_in,
    members_text,
    names_a_place,
    sound,
)
from orchestrator.store.rows import by_name, decoded
from orchestrator.store.schema import ledger_entry, migration, run
from providers.offer import provider_of

_COLUMNS = tuple(field.name for field in fields(Run))
_ROWS = select(*(run.c[name] for name in _COLUMNS)).where(
    or_(
        run.c.job_id == bindparam("of_job"),
        run.c.id.in_(select(migration.c.target_run_id).where(migration.c.job_id == bindparam("of_job"))),
    )
)
_OWNER = select(migration.c.job_id).where(migration.c.target_run_id == bindparam("run_id")).limit(1)
_UNKNOWN = {
    "billed_to_ms",
    "training_to_ms",
    "last_loss",
    "step_wall_s",
    "save_wall_s",
    "setup_wall_s",
    "moved_from",
    "moved_bytes",
    "kept_bytes",
    "saved_step",
}
_HAD_ITS_MACHINE = select(func.min(run.c.billed_from_ms), func.max(run.c.billed_to_ms)).where(
    run.c.job_id == bindparam("of_job"),
    run.c.instance_id == bindparam("machine"),
    run.c.generation < bindparam("generation"),
)
_LEFT_ITS_MACHINE = select(func.min(run.c.billed_from_ms)).where(
    run.c.job_id == bindparam("of_job"),
    run.c.instance_id == bindparam("machine"),
    run.c.generation > bindparam("generation"),
)
_BILLED_SINCE = select(func.min(ledger_entry.c.period_start_ms)).where(ledger_entry.c.run_id == bindparam("of_run"))


@dataclass(frozen=True, slots=True)
class RepairedRun:
    """A repaired run and its changed cells, as "name: before -> now"."""

    run: Run
    cells: tuple[str, ...]


class RepairRows(RunRows, EventRows):
    """Repairs rows of runs."""

    def owner_of_run(self, run_id: str) -> str | None:
        """The id of a run's job according to its migration; None without one."""
        found = self._connection.execute(_OWNER, {"run_id": run_id}).scalar_one_or_none()
        return None if found is None else str(found)

    def repair_runs(self, job_id: str, providers: Collection[str]) -> list[RepairedRun]:
        """Repairs the job's runs that are unreadable, belong to another job, or are at none of these providers although
        their migration is. A run with too little evidence stays as it is."""
        moves = self.migrations(job_id=job_id, unreadable=lambda *_: None)
        mended = []
        for row in self._connection.execute(_ROWS, {"of_job": job_id}).all():
            before = _with_members(by_name(row))
            of_run = [move for move in moves if move.target_run_id == before["id"]]
            after = self._whole(before, job_id, of_run, providers)
            changed = {name: after[name] for name in _COLUMNS if after[name] != before[name]}
            if not changed:
                continue
            try:
                whole = sound(decoded(Run, "run", after))
            except UnreadableRowError:
                continue  # too little evidence
            values = {**changed, "members": members_text(whole.members)}
            self._connection.execute(update(run).where(run.c.id == before["id"]).values(values))
            cells = (f"{name}: {reprlib.repr(before[name])} -> {value!r}" for name, value in changed.items())
            mended.append(RepairedRun(whole, tuple(cells)))
        return mended

    def _whole(
        self, row: dict[str, Any], job_id: str, moves: Sequence[Migration], providers: Collection[str]
    ) -> dict[str, Any]:
        """The row's cells, with invalid ones replaced."""
        after = {**row, "job_id": job_id}
        newest = max(moves, key=lambda move: move.generation, default=None)
        took_over = any(move.step in (Step.RELEASE, Step.DONE) and move.reason != "standby" for move in moves)
        bad = {name for name in _COLUMNS if not _can_be(name, row[name])}
        if newest is not None and row["offer_id"] != newest.offer_id:
            where = provider_of(str(row["offer_id"]))
            if where not in providers and provider_of(newest.offer_id) in providers:
                bad.add("offer_id")
        if "end" in bad:
            after["end"] = "lost" if row["state"] == "ended" or row["billed_to_ms"] is not None else None
        if "instance_id" in bad:
            after["instance_id"] = self._machine_of(job_id, row["id"])
        if "members" in bad:
            after["members"] = self._members_of(job_id, after)
        if "billed_from_ms" in bad:
            after["billed_from_ms"] = self._connection.execute(_BILLED_SINCE, {"of_run": row["id"]}).scalar_one()
        if newest is not None:
            reported = {
                "generation": newest.generation,
                "offer_id": newest.offer_id,
                "created_at_ms": newest.created_at_ms,
                "training_from_ms": newest.step_at_ms if took_over else None,
            }
            after |= {name: reported[name] for name in bad & reported.keys()}
        if bad & {"billed_from_ms", "machine_from_ms"}:
            began_ms, left_ms = self._had_its_machine(after)
            after["machine_from_ms"] = began_ms
            after["billed_from_ms"] = left_ms if after["billed_from_ms"] is None else after["billed_from_ms"]
        after |= {name: None for name in bad & _UNKNOWN}
        if "billed_to_ms" in bad and after["end"] is not None:
            after["billed_to_ms"] = self._left_its_machine(after)
        after |= {name: 0 for name in bad & {"start_step", "last_step", "repeated_steps", "useful_s", "checkpoint_s"}}
        living = "training" if took_over else "provisioning" if after["instance_id"] is None else "starting"
        if "state" in bad:
            after["state"] = living if after["end"] is None else "ended"
        if after["end"] is None and after["state"] == "ended" and after["billed_to_ms"] is not None:
            after["end"] = "lost"  # two of the three cells that show whether it has ended
        elif after["end"] is None:
            after["billed_to_ms"] = None
            after["state"] = living if after["state"] == "ended" else after["state"]
        return after

    def _had_its_machine(self, row: Mapping[str, Any]) -> tuple[int | None, int | None]:
        """(start, end) in ms of the billing of earlier runs for this run's machine; None without earlier runs."""
        began, left = self._connection.execute(_HAD_ITS_MACHINE, _at_a_machine(row)).one()
        return (began, left) if isinstance(began, int) and isinstance(left, int) else (None, None)

    def _left_its_machine(self, row: Mapping[str, Any]) -> int | None:
        """The time in ms at which the next run got this run's machine; None without one."""
        left = self._connection.execute(_LEFT_ITS_MACHINE, _at_a_machine(row)).scalar_one()
        return left if isinstance(left, int) else None

    def _machine_of(self, job_id: str, run_id: str) -> str | None:
        """The machine that was rented for a run, according to the audit trail."""
        reported = self.events(job_id=job_id, kinds=("migration.provision", "instance.adopted"))
        ids = [event.data.get("instance_id") for event in reported if event.run_id == run_id]
        return next((found for found in reversed(ids) if isinstance(found, str)), None)

    def _members_of(self, job_id: str, row: Mapping[str, Any]) -> list[Any]:
        """The machines that were rented for a run on several machines, with the run's billed interval; none if it had
        one machine."""
        reported = self.events(job_id=job_id, kinds=("migration.provision",))
        said = [event.data.get("instance_ids") for event in reported if event.run_id == row["id"]]
        ids = str(said[-1]).split() if said and said[-1] else []
        began_ms, ended_ms = (
            at if isinstance(at := row[name], int) else None for name in ("billed_from_ms", "billed_to_ms")
        )
        return [encode(Member(instance_id, began_ms, ended_ms)) for instance_id in ids]


def _with_members(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its machines as JSON values, if they can be read."""
    with suppress(CodecError):
        return {**row, "members": [encode(each) for each in members_in(row["members"])]}
    return row


def _at_a_machine(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"of_job": row["job_id"], "machine": row["instance_id"], "generation": row["generation"]}


def _can_be(name: str, value: object) -> bool:
    """True if a cell has a valid value for its column."""
    try:
        decode(_hints()[name], value)
    except CodecError:
        return False
    if name == "offer_id":
        return names_a_place(cast("str", value))
    if name == "moved_from":
        return can_be_moved_from(cast("str | None", value))
    return name != "generation" or can_be_a_generation(cast("int", value))


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(Run)
