"""Plans and measured speeds: what was proposed, and what the proposals rest on. Must not know how a plan is made."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields

from sqlalchemy import bindparam, delete, func, select, update

from orchestrator.errors import NotFoundError
from orchestrator.model import Plan
from orchestrator.store.codec import Codec
from orchestrator.store.rows import record
from orchestrator.store.schema import job, perf_point, plan, plan_job
from orchestrator.store.transaction import Transaction, insert_into

_PLAN = Codec(Plan, "plan", 1)

MAX_PERF_POINTS = 64
"""So many measurements are kept of one job on one kind of hardware: enough to see a scatter, however long it trains."""


@dataclass(frozen=True, slots=True)
class PerfPoint:
    """A measured speed: `steps_per_s` per market second over `steps` steps, on `gpu_count` of `gpu` (None: CPU)."""

    job_id: str
    gpu: str | None
    gpu_count: int
    steps_per_s: float
    steps: int
    at_ms: int


_PERF = select(*(perf_point.c[field.name] for field in fields(PerfPoint))).order_by(perf_point.c.seq)
_PERF_OF_JOBS = _PERF.where(perf_point.c.job_id.in_(bindparam("job_ids", expanding=True)))
_PERF_OF_KIND = (
    select(perf_point.c.seq, perf_point.c.steps_per_s, perf_point.c.steps)
    .where(perf_point.c.job_id == bindparam("of_job"), perf_point.c.gpu_count == bindparam("count"))
    .where(perf_point.c.gpu.is_not_distinct_from(bindparam("kind")))
    .order_by(perf_point.c.seq)
)
_PUT_PERF = update(perf_point).where(perf_point.c.seq == bindparam("of_seq"))
_DROP_PERF = delete(perf_point).where(perf_point.c.seq == bindparam("of_seq"))
_LAST_PERF = select(func.max(perf_point.c.seq)).where(perf_point.c.job_id == job.c.id).correlate(job).scalar_subquery()
_MEASURED_LAST = (
    select(job.c.id).where(func.coalesce(_LAST_PERF, 0) > 0).order_by(_LAST_PERF.desc()).limit(bindparam("limit"))
)
_SEQ = select(plan.c.seq).where(plan.c.id == bindparam("plan_id"))
_DOCUMENT = select(plan.c.document).where(plan.c.id == bindparam("plan_id"))


class PlanRows(Transaction):
    def add_plan(self, new: Plan) -> None:
        """A plan that is there already is left alone: its id is a digest of everything in it."""
        if self._connection.execute(_SEQ, {"plan_id": new.id}).one_or_none() is not None:
            return
        self._insert(plan, id=new.id, at_ms=new.at_ms, document=_PLAN.dumps(new))
        seq = self._connection.execute(_SEQ, {"plan_id": new.id}).scalar_one()
        rows = [{"job_id": job_id, "plan_seq": seq} for job_id in {each.job_id for each in new.placements}]
        if rows:
            self._connection.execute(insert_into(plan_job), rows)

    def plan(self, plan_id: str) -> Plan:
        """Raises NotFoundError."""
        text = self._connection.execute(_DOCUMENT, {"plan_id": plan_id}).scalar_one_or_none()
        if text is None:
            raise NotFoundError(f"there is no plan {plan_id}")
        return _PLAN.loads(text)

    def latest_plan(self, job_id: str | None = None) -> Plan | None:
        """The plan written last, of all or of those that place this job."""
        query = select(plan.c.document).order_by(plan.c.seq.desc()).limit(1)
        if job_id is not None:
            query = query.join(plan_job, plan_job.c.plan_seq == plan.c.seq).where(plan_job.c.job_id == job_id)
        text = self._connection.execute(query).scalar_one_or_none()
        return None if text is None else _PLAN.loads(text)

    def add_perf(
        self, job_id: str, gpu: str | None, gpu_count: int, steps_per_s: float, steps: int, at_ms: int
    ) -> None:
        """Remember a measurement of a job's speed.

        Of more than MAX_PERF_POINTS on one kind of hardware, neighbours are made one: with the steps and the time of
        both, known since the later. The first stays what it was, because it tells of the warm-up.
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
        """Merge neighbours until at most MAX_PERF_POINTS of `points` (seq, rate, steps) are left."""
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
        """The ids of the jobs whose speed was measured last, the newest first."""
        return list(self._connection.execute(_MEASURED_LAST, {"limit": limit}).scalars())

    def perf(self, job_ids: Collection[str] | None = None) -> list[PerfPoint]:
        """All measurements in the order of writing, of all jobs or of these."""
        if job_ids is None:
            rows = self._connection.execute(_PERF).all()
        else:
            rows = self._connection.execute(_PERF_OF_JOBS, {"job_ids": sorted(job_ids)}).all()
        return [record(PerfPoint, "perf_point", row) for row in rows]
