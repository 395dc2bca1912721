"""SpeedReader: reads measured speeds for decisions, and later only those of jobs that were measured since then."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from orchestrator.perf import InstanceKind, Observation, Program, Series, by_kind, program_of
from orchestrator.store import Tx
from orchestrator.store.rows import Unreadable

Measurements = Mapping[str, Mapping[InstanceKind, Series]]


class SpeedReader:
    """Reads the measurements of jobs, and caches those of the last read. Not thread-safe.

    Unreadable measurements are left out and passed to `unreadable`, because many jobs learn from them. Without it,
    `read` raises RowError.
    """

    def __init__(self, unreadable: Unreadable | None = None) -> None:
        self._unreadable = unreadable
        self._known: dict[str, tuple[object, Mapping[InstanceKind, Series]]] = {}
        self._at_ms = 0
        self._programs: dict[str, Program] = {}

    def read(self, tx: Tx, job_ids: Collection[str] | None, now_ms: int) -> Measurements:
        """The measurements of each of these jobs (None: of all) by `now_ms` (market time); jobs without measurements
        are left out. Raises RowError."""
        if now_ms < self._at_ms:
            self._known = {}  # it may contain measurements that now lie in the future
        marks = tx.perf_marks(job_ids)
        known = {job_id: each for job_id, each in self._known.items() if marks.get(job_id) == each[0]}
        points: dict[str, list[Observation]] = {}
        for row in tx.perf(None if job_ids is None else marks.keys() - known.keys(), self._unreadable):
            if row.at_ms <= now_ms:
                seen = Observation(row.job_id, row.gpu, row.gpu_count, row.steps_per_s, row.steps, row.at_ms)
                points.setdefault(row.job_id, []).append(seen)
            else:
                marks[row.job_id] = None  # read again: some of it lies in the future
        self._known = known | {job_id: (marks[job_id], by_kind(mine)) for job_id, mine in points.items()}
        self._at_ms = now_ms
        return {job_id: series for job_id, (_, series) in self._known.items()}

    def programs(self, tx: Tx, job_ids: Collection[str]) -> Mapping[str, Program]:
        """The programs of these jobs, which never change. Unreadable jobs are left out, since there are many others to
        learn from."""
        known = {job_id: self._programs[job_id] for job_id in job_ids if job_id in self._programs}
        for job in tx.jobs_of([job_id for job_id in job_ids if job_id not in known], unreadable=lambda *_: None):
            known[job.id] = program_of(job.spec.train, job.spec.resources.nodes)
        self._programs = known
        return known
