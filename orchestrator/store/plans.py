"""Plans and measured speeds: what was proposed, and what the proposals rest on. Must not know how a plan is made."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields

from sqlalchemy import bindparam, select

from orchestrator.errors import NotFoundError
from orchestrator.model import Plan
from orchestrator.store.codec import Codec
from orchestrator.store.schema import perf_point, plan, plan_job
from orchestrator.store.transaction import Transaction, insert_into

_PLAN = Codec(Plan, "plan", 1)


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
        """Remember a measurement of a job's speed."""
        self._insert(
            perf_point,
            job_id=job_id,
            gpu=gpu,
            gpu_count=gpu_count,
            steps_per_s=steps_per_s,
            steps=steps,
            at_ms=at_ms,
        )

    def perf(self, job_ids: Collection[str] | None = None) -> list[PerfPoint]:
        """All measurements in the order of writing, of all jobs or of these."""
        if job_ids is None:
            rows = self._connection.execute(_PERF)
        else:
            rows = self._connection.execute(_PERF_OF_JOBS, {"job_ids": sorted(job_ids)})
        return [PerfPoint(*row) for row in rows]
