"""Plans, and the measured speeds on which they are based."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import astuple, dataclass, fields, replace
from types import NoneType
from typing import Any

from sqlalchemy import Row, bindparam, delete, func, select, update

from orchestrator.errors import NotFoundError, UnreadableRowError
from orchestrator.formats.codec import Codec
from orchestrator.model import Placement, Plan
from orchestrator.store.backends.types import Number
from orchestrator.store.market.offers import batches
from orchestrator.store.packed import packed, unpacked
from orchestrator.store.rows import EARLIEST_MS, LATEST_MS, Unreadable, document, quickly, record, values_of
from orchestrator.store.schema import perf_point, plan, plan_job, plan_placement
from orchestrator.store.transaction import Transaction, insert_into
from providers.hardware import GPUS

_PLAN = Codec(Plan, "plan/1")
_PLACEMENT = Codec(Placement, "placement/1")

MAX_PERF_POINTS = 64
"""The number of measurements kept per job and kind of hardware: enough for a variance, even of a long training."""


@dataclass(frozen=True, slots=True)
class PerfPoint:
    """A measured speed: `steps_per_s` per market second over `steps` steps, on `gpu_count` of `gpu` (None: CPU)."""

    job_id: str
    gpu: str | None
    gpu_count: int
    steps_per_s: float
    steps: int
    at_ms: int


_PERF_SHAPES = frozenset((str, gpu, int, float, int, int) for gpu in (str, NoneType))
_PERF = select(*(perf_point.c[field.name] for field in fields(PerfPoint))).order_by(perf_point.c.seq)
_PERF_OF_JOBS = _PERF.where(perf_point.c.job_id.in_(bindparam("job_ids", expanding=True)))
_PERF_MARKS = select(
    perf_point.c.job_id, func.count(), func.sum(perf_point.c.steps), func.max(perf_point.c.seq)
).group_by(perf_point.c.job_id)
_PERF_MARKS_OF_JOBS = _PERF_MARKS.where(perf_point.c.job_id.in_(bindparam("job_ids", expanding=True)))
_PERF_OF_KIND = (
    select(perf_point.c.seq, perf_point.c.steps_per_s, perf_point.c.steps)
    .where(perf_point.c.job_id == bindparam("of_job"), perf_point.c.gpu_count == bindparam("count"))
    .where(perf_point.c.gpu.is_not_distinct_from(bindparam("kind")))
    .order_by(perf_point.c.seq)
)
_PUT_PERF = update(perf_point).where(perf_point.c.seq == bindparam("of_seq"))
_DROP_PERF = delete(perf_point).where(perf_point.c.seq == bindparam("of_seq"))
_MEASURED_BEFORE = (
    select(perf_point.c.seq, perf_point.c.job_id)
    .where(perf_point.c.seq < bindparam("below", type_=Number))
    .order_by(perf_point.c.seq.desc())
    .limit(bindparam("at_once"))
)
LARGEST = 2**63 - 1
_SEQ = select(plan.c.seq).where(plan.c.id == bindparam("plan_id"))
_STORED = select(plan.c.seq, plan.c.id, plan.c.document, plan.c.looked_at, plan.c.acting).where(
    plan.c.id == bindparam("plan_id")
)
_IDS = select(plan.c.id).order_by(plan.c.seq)
_NEWEST = select(plan.c.id).order_by(plan.c.seq.desc()).limit(1)
_PLACEMENTS = (
    select(plan_placement.c.document)
    .where(plan_placement.c.plan_seq == bindparam("of_plan"))
    .order_by(plan_placement.c.seq)
)
_NEWEST_OF_JOB = (
    select(plan.c.id, plan.c.document, plan.c.looked_at, plan_placement.c.document.label("placement"))
    .join(plan_placement, plan_placement.c.plan_seq == plan.c.seq)
    .where(plan_placement.c.job_id == bindparam("of_job"))
    .order_by(plan_placement.c.plan_seq.desc())
    .limit(1)
)
_ABOUT_JOB = (
    select(plan.c.id, plan.c.document, plan.c.looked_at, plan_placement.c.document.label("placement"))
    .join(plan_placement, plan_placement.c.plan_seq == plan.c.seq)
    .where(plan_placement.c.job_id == bindparam("of_job"))
    .order_by(plan_placement.c.plan_seq)
)
_NEWEST_WHOLE_OF_JOB = (
    select(plan.c.id, plan.c.document)
    .join(plan_job, plan_job.c.plan_seq == plan.c.seq)
    .where(plan_job.c.job_id == bindparam("of_job"))
    .order_by(plan.c.seq.desc())
    .limit(1)
)
_OF_JOBS = plan_placement.c.job_id.in_(bindparam("jobs", expanding=True))
_FORGET_SUPERSEDED = delete(plan_placement).where(_OF_JOBS, ~plan_placement.c.acted_on)
_KEEP = update(plan_placement).where(plan_placement.c.plan_seq == bindparam("of_plan"), _OF_JOBS).values(acted_on=True)


class PlanRows(Transaction):
    """Reads and writes plans and measured speeds."""

    def add_plan(self, new: Plan, *, acted_on: Collection[str] = ()) -> None:
        """Stores a plan. Its decisions about the jobs `acted_on` are kept permanently, those about other jobs until a
        newer plan considers them: otherwise each placement would store a decision for every waiting job.

        A plan that is already stored keeps its decisions; its id is a digest of its content.
        """
        if self._connection.execute(_SEQ, {"plan_id": new.id}).one_or_none() is None:
            self._insert(
                plan,
                id=new.id,
                at_ms=new.at_ms,
                document=_PLAN.dumps(replace(new, placements=())),
                looked_at=len(new.placements),
                acting=sum(each.action in ("place", "move") for each in new.placements),
            )
            self._add_placements(new)
        if acted_on:
            seq = self._connection.execute(_SEQ, {"plan_id": new.id}).scalar_one()
            self._connection.execute(_KEEP, {"of_plan": seq, "jobs": sorted(acted_on)})

    def _add_placements(self, new: Plan) -> None:
        seq = self._connection.execute(_SEQ, {"plan_id": new.id}).scalar_one()
        rows = [
            {"plan_seq": seq, "job_id": each.job_id, "acted_on": False, "document": _compressed(each)}
            for each in new.placements
        ]
        for batch in batches({each.job_id for each in new.placements}):
            self._connection.execute(_FORGET_SUPERSEDED, {"jobs": batch})
        if rows:
            self._connection.execute(insert_into(plan_placement), rows)

    def plan(self, plan_id: str) -> Plan:
        """A plan with its stored decisions: those acted on, and those that no newer plan has replaced.

        Raises NotFoundError, RowError.
        """
        row = self._connection.execute(_STORED, {"plan_id": plan_id}).one_or_none()
        if row is None:
            raise _no_plan(plan_id)
        found = self._connection.execute(_PLACEMENTS, {"of_plan": row.seq}).scalars().all()
        return _with_placements(row.id, row.document, row.looked_at, found)

    def plan_ids(self) -> list[str]:
        """The ids of all plans in the order of writing."""
        return values_of(plan.c.id, self._connection.execute(_IDS).scalars(), str)

    def plan_tally(self, plan_id: str) -> tuple[int, int]:
        """(jobs considered, jobs to place or move) of a plan. Raises NotFoundError, RowError."""
        row = self._connection.execute(_STORED, {"plan_id": plan_id}).one_or_none()
        if row is None:
            raise _no_plan(plan_id)
        if row.looked_at is not None and row.acting is not None:
            return row.looked_at, row.acting
        placements = document(_PLAN, row.document, "plan", plan_id).placements
        return len(placements), sum(each.action in ("place", "move") for each in placements)

    def latest_plan(self, job_id: str | None = None) -> Plan | None:
        """The latest plan; or the latest that considered this job, with only its decision about it. Raises RowError."""
        if job_id is None:
            newest = self._connection.execute(_NEWEST).scalar_one_or_none()
            return None if newest is None else self.plan(newest)
        row = self._connection.execute(_NEWEST_OF_JOB, {"of_job": job_id}).one_or_none()
        if row is not None:
            return _with_placements(row.id, row.document, row.looked_at, [row.placement])
        before = self._connection.execute(_NEWEST_WHOLE_OF_JOB, {"of_job": job_id}).one_or_none()
        return None if before is None else document(_PLAN, before.document, "plan", before.id)

    def plans_about(self, job_id: str) -> list[Plan]:
        """The plans with a stored decision about a job, oldest first, each with only that decision. Raises RowError."""
        rows = self._connection.execute(_ABOUT_JOB, {"of_job": job_id})
        return [_with_placements(row.id, row.document, row.looked_at, [row.placement]) for row in rows]

    def add_perf(
        self, job_id: str, gpu: str | None, gpu_count: int, steps_per_s: float, steps: int, at_ms: int
    ) -> None:
        """Stores a measured speed of a job, in steps per market second.

        Above MAX_PERF_POINTS on one kind of hardware, neighbours are merged: steps and time are added, the later time
        of observation counts. The first point is never merged, because it shows the warm-up.
        """
        self._insert(
            perf_point,
            job_id=job_id,
            gpu=gpu,
            gpu_count=gpu_count,
            steps_per_s=steps_per_s,
            steps=steps,
            at_ms=at_ms,
        )
        kept = list(self._connection.execute(_PERF_OF_KIND, {"of_job": job_id, "kind": gpu, "count": gpu_count}))
        if len(kept) > MAX_PERF_POINTS:
            self._coarsen([(row.seq, row.steps_per_s, row.steps) for row in kept])

    def _coarsen(self, points: list[tuple[int, float, int]]) -> None:
        """Merges neighbours until at most MAX_PERF_POINTS of `points` (seq, rate, steps) are left."""
        gone: list[int] = []
        while len(points) > MAX_PERF_POINTS:
            first, rest = points[0], points[1:]
            points = [first]
            for (seq, rate, steps), (later_seq, later_rate, later_steps) in zip(rest[::2], rest[1::2], strict=False):
                gone.append(seq)
                both = steps + later_steps
                points.append((later_seq, both / (steps / rate + later_steps / later_rate), both))
            points += rest[len(rest) // 2 * 2 :]
        self._connection.execute(_DROP_PERF, [{"of_seq": seq} for seq in gone])
        merged = [{"of_seq": seq, "steps_per_s": rate, "steps": steps} for seq, rate, steps in points]
        self._connection.execute(_PUT_PERF, merged)

    def measured_last(self, limit: int) -> list[str]:
        """The ids of the `limit` jobs with the latest speed measurements, newest first."""
        found: dict[str, None] = {}  # in order
        below = LARGEST
        while len(found) < limit:
            rows = self._connection.execute(_MEASURED_BEFORE, {"below": below, "at_once": limit}).all()
            if not rows:
                break
            found.update(dict.fromkeys(values_of(perf_point.c.job_id, (row.job_id for row in rows), str)))
            below = rows[-1].seq
        return list(found)[:limit]

    def perf_marks(self, job_ids: Collection[str] | None = None) -> dict[str, object]:
        """For each of these jobs (None: all) that was measured, a value that changes with each new measurement."""
        if job_ids is None:
            rows = self._connection.execute(_PERF_MARKS).all()
        else:
            rows = self._connection.execute(_PERF_MARKS_OF_JOBS, {"job_ids": sorted(job_ids)}).all()
        return {str(row[0]): tuple(row[1:]) for row in rows}

    def perf(self, job_ids: Collection[str] | None = None, unreadable: Unreadable | None = None) -> list[PerfPoint]:
        """All measurements in the order of writing, of all jobs or of these. `unreadable` is called for unreadable
        ones, which are skipped; without it, RowError is raised."""
        if job_ids is None:
            rows = self._connection.execute(_PERF).all()
        else:
            rows = self._connection.execute(_PERF_OF_JOBS, {"job_ids": sorted(job_ids)}).all() if job_ids else []

        def read(row: Row[Any]) -> PerfPoint | None:
            try:
                return _perf(row)
            except UnreadableRowError as error:
                if unreadable is None:
                    raise
                unreadable(str(row.job_id), error)
                return None

        found = quickly(rows, _PERF_SHAPES, _measured, read)
        return [each for each in found if each is not None]


def _measured(job_id: str, gpu: str | None, gpu_count: int, steps_per_s: float, steps: int, at_ms: int) -> PerfPoint:
    """Raises ValueError for impossible measurements."""
    if (gpu is not None and gpu not in GPUS) or gpu_count < (gpu is not None):
        raise ValueError(f"gpu, gpu_count: {gpu!r}, {gpu_count} are not known hardware")
    if not (0.0 < steps_per_s < math.inf and steps > 0 and EARLIEST_MS <= at_ms <= LATEST_MS):
        raise ValueError(f"steps_per_s, steps, at_ms: {steps_per_s}, {steps}, {at_ms} are out of range")
    return PerfPoint(job_id, gpu, gpu_count, steps_per_s, steps, at_ms)


def _perf(row: Row[Any]) -> PerfPoint:
    """Raises UnreadableRowError."""
    found = record(PerfPoint, "perf_point", row, of=f"of {row.job_id}")
    try:
        return _measured(*astuple(found))
    except ValueError as error:
        raise UnreadableRowError("perf_point", f"of {found.job_id}", str(error)) from error


def _with_placements(plan_id: str, text: str, looked_at: int | None, placements: Sequence[Any]) -> Plan:
    stored = document(_PLAN, text, "plan", plan_id)
    if looked_at is None:
        return stored
    return replace(stored, placements=tuple(_placement(plan_id, each) for each in placements))


def _compressed(placement: Placement) -> bytes:
    return packed(_PLACEMENT.dumps(placement))


def _placement(plan_id: str, compressed: Any) -> Placement:
    try:
        text = unpacked(compressed)
    except ValueError as error:
        raise UnreadableRowError("plan_placement of", plan_id, str(error)) from error
    return document(_PLACEMENT, text, "plan_placement of", plan_id)


def _no_plan(plan_id: str) -> NotFoundError:
    hint = "a plan that was only shown is not stored; see tradewind plan FILE --why, or tradewind explain JOB"
    return NotFoundError(f"there is no plan {plan_id}", hint=hint)
