"""PerfBook: steps per second of every job on every kind of hardware, with a 90 % interval and where it comes from.

Without evidence of a job's speed (`PerfBook.evidence`) only its `relative` speeds may be shown.

Best first: measured on this kind (by the job, or by one of the same program and settings; else in an imported table
under the job's name); predicted from the kinds where it was measured, by the ratios that other models showed; modelled
from a profile of its step; typical of the models in the tables, which only says something about ratios. Rates are per
*market* second, like prices and deadlines.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from orchestrator.model import DEFAULT_PRECISION, Estimate, Evidence, Expected, Job
from orchestrator.perf.fitted import FITTED, FITTED_NARROW
from orchestrator.perf.kinds import InstanceKind, kind_name, kind_of, narrow, relative_to
from orchestrator.perf.measured import Z95, Measured, Observation, aggregate
from orchestrator.perf.posterior import Posterior
from orchestrator.perf.program import Program, program_of
from orchestrator.perf.ratios import Cell, RatioModel, Row
from orchestrator.perf.work import Work
from providers.hardware import Precision
from providers.offer import Offer

_TABLE_SPREAD = 0.10  # somebody else's program, driver and data, under the same name
_EXPECTED_SPREAD = 0.5  # what a user says of the job, who may have seen it elsewhere
_MOST_RELATIVES = 24  # cells of other jobs of the program that are listened to, the best measured ones


class PerfBook:
    """Throughput of every job on every kind of hardware, as known at an instant."""

    def __init__(
        self,
        observations: Sequence[Observation],
        model: RatioModel,
        narrow_model: RatioModel,
        programs: Mapping[str, Program],
        works: Mapping[Program, Work],
        tables: Sequence[Row],
    ) -> None:
        """Use `as_of`."""
        self._table: dict[str, dict[InstanceKind, Measured]] = defaultdict(dict)
        for row in tables:
            self._table[row.job][row.kind] = Measured(row.steps_per_s, 0, _TABLE_SPREAD)
        self._model = model
        self._narrow = narrow_model
        self._programs = programs
        self._works = works
        self._of_job: dict[str, list[Observation]] = defaultdict(list)
        for seen in observations:
            self._of_job[seen.job_id].append(seen)
        self._jobs_of: dict[str, list[str]] = defaultdict(list)
        for job_id in sorted(self._of_job):
            if job_id in programs:
                self._jobs_of[programs[job_id].name].append(job_id)
        self._relatives: dict[str, list[Cell]] = {}
        self._known: dict[tuple[object, ...], _Known] = {}
        self._estimates: dict[tuple[object, ...], tuple[Estimate, ...]] = {}
        self._ratios: dict[tuple[object, ...], Estimate] = {}

    @classmethod
    def as_of(
        cls,
        at_ms: int,
        observations: Iterable[Observation],
        *,
        model: RatioModel = FITTED,
        narrow_model: RatioModel = FITTED_NARROW,
        programs: Mapping[str, Program] | None = None,
        works: Mapping[Program, Work] | None = None,
        tables: Sequence[Row] = (),
    ) -> PerfBook:
        """A book of what was observed up to `at_ms`; the order of observations does not matter.

        `programs` names what jobs run (`program_of`), by job id: without it jobs tell nothing of each other. `works`
        are the profiles of programs. `tables` are rates that others measured: they refine the ratios of `model`, and
        speak for a job of the same name. `model` is for jobs that compute in FP32, `narrow_model` for narrower ones.
        """
        known = [seen for seen in observations if seen.at_ms <= at_ms]
        return cls(known, _refined(model, tuple(tables)), narrow_model, programs or {}, works or {}, tables)

    def estimate(self, job: Job, offer: Offer) -> Estimate:
        """Steps per market second of `job` on one machine of `offer`, with its 5th to 95th percentile."""
        return self.estimate_kind(job, offer.gpu, offer.gpu_count)

    def estimate_kind(self, job: Job, gpu: str | None, gpu_count: int) -> Estimate:
        """The same for a kind of hardware. Raises KeyError for a GPU that is not in the hardware table."""
        return self.estimate_kinds(job, (kind_of(gpu, gpu_count),))[0]

    def estimate_kinds(self, job: Job, kinds: Sequence[InstanceKind]) -> tuple[Estimate, ...]:
        """The same for many kinds at once, which costs hardly more than for one."""
        known, wanted = self._of(job), tuple(kinds)
        unmeasured = tuple(kind for kind in wanted if kind not in known.measured)
        predicted = dict(zip(unmeasured, self._predicted(known, unmeasured), strict=True)) if unmeasured else {}
        return tuple(predicted[kind] if kind in predicted else known.estimate(kind) for kind in wanted)

    def evidence(self, job: Job) -> Evidence:
        """What the speed of the job is known from, the best there is. What other jobs of its program did is none: with
        other settings a step may be another amount of work."""
        known = self._of(job)
        if known.measured:
            return "measured" if any(each.steps for each in known.measured.values()) else "table"
        if known.work is not None:
            return "profile"
        return "none" if job.spec.expected is None else "expected"

    def relative(self, job: Job, kind: InstanceKind) -> Estimate:
        """How many times as fast as on the kind that its provenance names, with the 90 % interval of that ratio."""
        known, other = self._of(job), relative_to(kind)
        key = (known.cells, known.work, known.precision, kind)
        if key not in self._ratios:
            posterior = self._belief(known, (kind, other))
            mean = float(posterior.mean[0] - posterior.mean[1])
            spread = posterior.spread_between(0, 1)
            reported = (math.exp(mean), math.exp(mean - spread), math.exp(mean + spread))
            self._ratios[key] = Estimate(*reported, kind_name(other))
        return self._ratios[key]

    def joint(self, job: Job, kinds: Sequence[InstanceKind]) -> Posterior:
        """What is held of the logarithms of the rates on `kinds` together: for `policy.probe`."""
        return self._belief(self._of(job), kinds)

    def measured(self, job: Job, kind: InstanceKind) -> bool:
        """Whether the job, or one that is its like, has run on this kind."""
        return kind in self._of(job).measured

    def shortfalls(self, job: Job, kinds: Sequence[InstanceKind]) -> tuple[int, ...]:
        """Bytes of memory that one GPU of each kind lacks for the job, by the profile of its step; 0 where it has run.
        Empty when it was not profiled."""
        known = self._of(job)
        if known.work is None:
            return ()
        return tuple(
            0 if kind in known.measured else known.work.shortfall_bytes(kind, job.spec.sharding) for kind in kinds
        )

    def work(self, job: Job) -> Work | None:
        """The profile of the job's program, if there is one."""
        return self._works.get(program_of(job.spec.train))

    def precision(self, job: Job) -> Precision:
        """What the job computes in: as its file says, else as its profile saw it, else the default."""
        return self._of(job).precision

    def _model_of(self, known: _Known) -> RatioModel:
        return self._narrow if narrow(known.precision) else self._model

    def _belief(self, known: _Known, kinds: Sequence[InstanceKind]) -> Posterior:
        return self._model_of(known).posterior(kinds, known.cells, known.work, precision=known.precision)

    def _predicted(self, known: _Known, kinds: tuple[InstanceKind, ...]) -> tuple[Estimate, ...]:
        """Jobs of which the same is known, above all those of which nothing is, share the work."""
        provenance = known.provenance(self._model_of(known).families)
        key = (known.cells, known.work, known.precision, kinds, provenance)
        if key not in self._estimates:
            posterior = self._belief(known, kinds)
            rates = [math.exp(mean) for mean in posterior.mean]
            factors = [math.exp(posterior.spread(index)) for index in range(len(kinds))]
            self._estimates[key] = tuple(
                Estimate(rate, rate / factor, rate * factor, provenance)
                for rate, factor in zip(rates, factors, strict=True)
            )
        return self._estimates[key]

    def _of(self, job: Job) -> _Known:
        program = program_of(job.spec.train)
        key = (job.id, job.name, program, job.spec.precision, job.spec.sharding, job.spec.expected)
        if key not in self._known:
            self._known[key] = self._learn(job, program)
        return self._known[key]

    def _learn(self, job: Job, program: Program) -> _Known:
        others = [other for other in self._jobs_of.get(program.name, ()) if other != job.id]
        twins = [other for other in others if self._programs[other] == program]
        groups = _by_kind([seen for each in (job.id, *twins) for seen in self._of_job.get(each, ())])
        every = {**self._table.get(job.name, {}), **{kind: aggregate(group) for kind, group in groups.items()}}
        measured = {kind: every[kind] for kind in sorted(every, key=kind_name)}
        cells = [Cell(kind, math.log(of.rate), of.log_variance) for kind, of in measured.items()]
        said = None if measured else job.spec.expected
        if said is not None:
            kind = kind_of(said.gpu.name, said.gpu.count)
            cells.append(Cell(kind, math.log(said.steps_per_s), (math.log1p(_EXPECTED_SPREAD) / Z95) ** 2))
        near = {job.id, *twins}
        relatives = [cell for cell in self._related(program.name) if cell.job not in near]
        cells += relatives[:_MOST_RELATIVES]
        work = self._works.get(program)
        precision = job.spec.precision or (work.precision if work is not None else None)
        return _Known(measured, tuple(cells), work, len({cell.job for cell in relatives}), precision, said)

    def _related(self, name: str) -> list[Cell]:
        """What the jobs of the program of that name are for another one of it, the best measured first."""
        if name not in self._relatives:
            cells = [
                Cell(kind, math.log(seen.rate), seen.log_variance, 1, job_id)
                for job_id in self._jobs_of.get(name, ())
                for kind, group in _by_kind(self._of_job[job_id]).items()
                for seen in (aggregate(group),)
            ]
            cells.sort(key=lambda cell: (cell.variance, cell.job, kind_name(cell.kind)))
            self._relatives[name] = cells
        return self._relatives[name]


class _Known:
    """Everything that is known of one job."""

    def __init__(
        self,
        measured: dict[InstanceKind, Measured],
        cells: tuple[Cell, ...],
        work: Work | None,
        relatives: int,
        precision: Precision | None,
        said: Expected | None,
    ) -> None:
        self.measured = measured
        self.cells = cells
        self.work = work
        self.relatives = relatives
        self.precision = precision or DEFAULT_PRECISION
        self.said = said

    def estimate(self, kind: InstanceKind) -> Estimate:
        """On a kind where it was measured."""
        here = self.measured[kind]
        by = f"over {here.steps} steps" if here.steps else "by an imported table"
        provenance = f"measured on {kind_name(kind)} {by}"
        return Estimate(here.rate, here.rate / (1 + here.spread), here.rate * (1 + here.spread), provenance)

    def provenance(self, families: int) -> str:
        """Where a rate on a kind that was not measured comes from."""
        sources = []
        if self.measured:
            steps = sum(each.steps for each in self.measured.values())
            how = f"measured over {steps} steps" if steps else "in an imported table"
            sources.append(f"{', '.join(map(kind_name, self.measured))} ({how})")
        if self.said is not None:
            kind = kind_of(self.said.gpu.name, self.said.gpu.count)
            sources.append(f"what its job file expects of {kind_name(kind)}")
        if self.relatives:
            sources.append(f"{self.relatives} other job{'s' * (self.relatives > 1)} of this program")
        if self.work is not None:
            sources.append("a profile of its step")
        ratios = f"the ratios of {families} model families at {self.precision}"
        if sources:
            return f"predicted from {' and '.join(sources)} by {ratios}"
        return f"prior: not measured yet; typical of {families} model families at {self.precision}"


@lru_cache(maxsize=8)
def _refined(model: RatioModel, tables: tuple[Row, ...]) -> RatioModel:
    return model.learn(tables) if tables else model


def _by_kind(observations: Iterable[Observation]) -> dict[InstanceKind, list[Observation]]:
    groups: dict[InstanceKind, list[Observation]] = defaultdict(list)
    for seen in observations:
        groups[kind_of(seen.gpu, seen.gpu_count)].append(seen)
    return groups
