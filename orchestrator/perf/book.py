"""PerfBook: steps per second of every job on every kind of hardware, with a 90 % interval and its source.

Without evidence of a job's speed (`PerfBook.evidence`), only its `relative` speeds may be shown.

Sources, best first: measured on this kind (by the job or one with the same program and settings, otherwise in an
imported table under the job's name); predicted from the kinds where it was measured, with ratios known from other
models; modelled from a profile of its step; typical for the models in the tables, which only gives ratios. Rates are
per *market* second, like prices and deadlines.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from orchestrator.model import DEFAULT_PRECISION, Estimate, Evidence, Expected, Job, Sharding
from orchestrator.perf.colocation import ColocationModel
from orchestrator.perf.fitted import FITTED, FITTED_NARROW
from orchestrator.perf.fitted_colocation import FITTED_COLOCATION
from orchestrator.perf.kinds import InstanceKind, kind_name, kind_of, narrow, on_host, relative_to
from orchestrator.perf.measured import Z95, Measured, Observation, Series, by_kind, combined
from orchestrator.perf.pairings import check_shared
from orchestrator.perf.posterior import Posterior
from orchestrator.perf.program import Program, program_of
from orchestrator.perf.ratios import Cell, RatioModel, Row
from orchestrator.perf.sharing import PairBook, PairMisfit, PairObservation, Party, Sharing
from orchestrator.perf.work import Work
from providers.hardware import GPUS, Precision
from providers.offer import Offer

_TABLE_SPREAD = 0.10  # another program, driver and data under the same name
_EXPECTED_SPREAD = 0.5  # stated by a user, perhaps for other hardware
AS_ON_ONE = "assumed: a step on {} machines takes as long as on one"
"""The scaling assumed until it is measured: each process keeps its batch, so steps become larger."""
_MOST_RELATIVES = 24  # at most this many measurements of the program's other jobs are used, the best ones


class PerfBook:
    """Throughput of every job on every kind of hardware, as known at one time."""

    def __init__(
        self,
        measured: Mapping[str, Mapping[InstanceKind, Series]],
        model: RatioModel,
        narrow_model: RatioModel,
        programs: Mapping[str, Program],
        works: Mapping[Program, Work],
        tables: Sequence[Row],
        pairs: Sequence[PairObservation] = (),
        misfits: Sequence[PairMisfit] = (),
        colocation: ColocationModel = FITTED_COLOCATION,
    ) -> None:
        """Use `as_of` instead."""
        self._table: dict[str, dict[InstanceKind, Measured]] = defaultdict(dict)
        for row in tables:
            self._table[row.job][row.kind] = Measured(row.steps_per_s, 0, _TABLE_SPREAD)
        self._model = model
        self._narrow = narrow_model
        self._programs = programs
        self._works = works
        self._of_job = measured
        self._jobs_of: dict[str, list[str]] = defaultdict(list)
        for job_id in sorted(self._of_job):
            if job_id in programs:
                self._jobs_of[programs[job_id].name].append(job_id)
        self._relatives: dict[str, list[Cell]] = {}
        self._known: dict[tuple[object, ...], _Known] = {}
        self._last: tuple[Job, _Known] | None = None
        self._estimates: dict[tuple[object, ...], tuple[Estimate, ...]] = {}
        self._ratios: dict[tuple[object, ...], Estimate] = {}
        self._pairs = self._book_of(pairs, misfits, colocation)

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
        pairs: Iterable[PairObservation] = (),
        misfits: Iterable[PairMisfit] = (),
        colocation: ColocationModel = FITTED_COLOCATION,
    ) -> PerfBook:
        """A book of the observations up to `at_ms` (market ms), in any order.

        `programs` maps job ids to their programs (`program_of`); without it, jobs give no information about each other.
        `works` are profiles of programs. `tables` are rates measured by others: they refine the ratios of `model`, and
        apply to a job of the same name. `model` is for jobs that compute in FP32, `narrow_model` for narrower
        precisions. `pairs` and `misfits` are jobs that shared GPUs or did not fit together; `colocation` predicts other
        pairs.
        """
        of_job: dict[str, list[Observation]] = defaultdict(list)
        for seen in observations:
            if seen.at_ms <= at_ms:
                of_job[seen.job_id].append(seen)
        measured = {job_id: by_kind(mine) for job_id, mine in of_job.items()}
        known = _refined(model, tuple(tables))
        seen_pairs = [pair for pair in pairs if pair.at_ms <= at_ms]
        seen_misfits = [miss for miss in misfits if miss.at_ms <= at_ms]
        return cls(
            measured, known, narrow_model, programs or {}, works or {}, tables, seen_pairs, seen_misfits, colocation
        )

    @classmethod
    def of(
        cls,
        measured: Mapping[str, Mapping[InstanceKind, Series]],
        *,
        programs: Mapping[str, Program],
        works: Mapping[Program, Work],
        tables: Sequence[Row],
    ) -> PerfBook:
        """A book of all these measurements, by job id (`measured.by_kind`); the rest as for `as_of`."""
        return cls(measured, _refined(FITTED, tuple(tables)), FITTED_NARROW, programs, works, tables)

    def estimate(self, job: Job, offer: Offer) -> Estimate:
        """Steps per market second of `job` on as many machines of `offer` as it needs, with its 5th to 95th
        percentile."""
        return self.estimate_kind(job, offer.gpu, offer.gpu_count)

    def estimate_kind(self, job: Job, gpu: str | None, gpu_count: int) -> Estimate:
        """The same for a kind of hardware. Raises KeyError for a GPU that is not in the hardware table."""
        return self.estimate_kinds(job, (kind_of(gpu, gpu_count),))[0]

    def estimate_kinds(self, job: Job, kinds: Sequence[InstanceKind]) -> tuple[Estimate, ...]:
        """The same for many kinds at once, at little more cost than for one."""
        return self._estimated(self._of(job), tuple(kinds))

    def beside(self, job: Job, other: Job, kind: InstanceKind) -> Sharing:
        """The rates of `job` and `other` on the same GPUs of one machine of `kind`, and whether their memory fits.
        Raises ValueError for a job beside itself and for a kind without GPUs, KeyError for an unknown GPU."""
        return self.beside_many([(job, other)], kind)[0]

    def beside_many(self, pairs: Sequence[tuple[Job, Job]], kind: InstanceKind) -> tuple[Sharing, ...]:
        """The same for many pairs at once, at little more cost than for one."""
        for job, other in pairs:
            if job.id == other.id:
                raise ValueError(f"job {job.id} cannot share a GPU with itself")
        check_shared(kind)
        parties = {job.id: self._party(job, kind) for pair in pairs for job in pair}
        return self._pairs.beside([(parties[job.id], parties[other.id]) for job, other in pairs], kind)

    def evidence(self, job: Job, kinds: Iterable[InstanceKind] = ()) -> Evidence:
        """The best evidence of the job's speed on some of these kinds (none given: on any).

        A rate on a CPU or a simulated GPU does not count for real GPUs, nor a rate on a real GPU for the others: the
        ratio between them is known only within a factor of twenty. Other jobs of its program with different settings
        do not count: their steps may be a different amount of work.
        """
        known = self._of(job)
        sides = {_on_host(kind) for kind in kinds} or {False, True}
        measured = [rate for kind, rate in known.measured.items() if _on_host(kind) in sides]
        if measured:
            return "measured" if any(each.steps for each in measured) else "table"
        if known.work is not None:
            return "profile"
        return "none" if known.stated is None or _on_host(_stated_kind(known.stated)) not in sides else "expected"

    def relative(self, job: Job, kind: InstanceKind) -> Estimate:
        """The speed relative to the kind named in the provenance, with the 90 % interval of that ratio."""
        known, other = self._of(job), relative_to(kind)
        key = (known.cells, known.work, known.precision, kind)
        if key not in self._ratios:
            posterior = self._posterior(known, (kind, other))
            mean = float(posterior.mean[0] - posterior.mean[1])
            spread = posterior.spread_between(0, 1)
            reported = (math.exp(mean), math.exp(mean - spread), math.exp(mean + spread))
            self._ratios[key] = Estimate(*reported, kind_name(other))
        return self._ratios[key]

    def joint(self, job: Job, kinds: Sequence[InstanceKind]) -> Posterior:
        """The joint posterior of the log rates on `kinds`, for `policy.probe`."""
        return self._posterior(self._of(job), kinds)

    def measured(self, job: Job, kind: InstanceKind) -> bool:
        """Whether the job, or one with the same program and settings, was measured on this kind."""
        return kind in self._of(job).measured

    def shortfalls(self, job: Job, kinds: Sequence[InstanceKind]) -> tuple[int, ...]:
        """Bytes of memory that one GPU of each kind lacks for the job, by the profile of its step; 0 where it has run.
        Empty if it was not profiled."""
        known = self._of(job)
        if known.work is None:
            return ()
        return tuple(
            0 if kind in known.measured else known.work.shortfall_bytes(kind, job.spec.sharding) for kind in kinds
        )

    def work(self, job: Job) -> Work | None:
        """The profile of the job's program, if there is one."""
        return self._works.get(program_of(job.spec.train))  # profiled on one machine

    def precision(self, job: Job) -> Precision:
        """The job's precision: from its file, otherwise its profile, otherwise the default."""
        return self._of(job).precision

    def _party(self, job: Job, kind: InstanceKind) -> Party:
        own = job.id not in self._programs and job.id in self._sharers
        name, family = (job.id, job.id) if own else _named(program_of(job.spec.train, job.spec.resources.nodes))
        return Party(name, family, *self._alone(self._of(job), (kind,), job.spec.sharding))

    def _book_of(
        self, pairs: Iterable[PairObservation], misfits: Iterable[PairMisfit], model: ColocationModel
    ) -> PairBook:
        """Leaves out pairs on GPUs that are not in the hardware table: they give no information about others, and
        cannot be requested."""
        seen = [pair for pair in pairs if pair.gpu in GPUS]
        missed = [miss for miss in misfits if miss.gpu in GPUS]
        shared: list[PairObservation | PairMisfit] = [*seen, *missed]
        kinds = sorted({kind_of(pair.gpu, pair.gpu_count) for pair in shared}, key=kind_name)
        self._sharers = frozenset(each for pair in shared for each in (pair.job_id, pair.other_id))
        return PairBook(seen, missed, {each: self._sharer(each, kinds) for each in sorted(self._sharers)}, model)

    def _sharer(self, job_id: str, kinds: Sequence[InstanceKind]) -> Party:
        """A job that ran beside another one: only its id, program and measurements are known, not its file."""
        program = self._programs.get(job_id)
        known = self._learn(job_id, program)
        name, family = (job_id, job_id) if program is None else _named(program)
        return Party(name, family, *self._alone(known, kinds, "none"))

    def _alone(
        self, known: _Known, kinds: Sequence[InstanceKind], sharding: Sharding
    ) -> tuple[dict[InstanceKind, Estimate], dict[InstanceKind, int]]:
        """Rates alone and bytes of memory of one GPU (empty: not profiled), by kind."""
        need = {kind: known.work.memory_bytes(kind[1], sharding) for kind in kinds} if known.work else {}
        return dict(zip(kinds, self._estimated(known, tuple(kinds)), strict=True)), need

    def _measured_of(self, job_ids: Iterable[str]) -> dict[InstanceKind, Measured]:
        groups: dict[InstanceKind, list[Series]] = defaultdict(list)
        for each in job_ids:
            for kind, series in self._of_job.get(each, {}).items():
                groups[kind].append(series)
        return {kind: combined(group) for kind, group in groups.items()}

    def _model_of(self, known: _Known) -> RatioModel:
        return self._narrow if narrow(known.precision) else self._model

    def _posterior(self, known: _Known, kinds: Sequence[InstanceKind]) -> Posterior:
        return self._model_of(known).posterior(kinds, known.cells, known.work, precision=known.precision)

    def _estimated(self, known: _Known, wanted: tuple[InstanceKind, ...]) -> tuple[Estimate, ...]:
        unmeasured = tuple(kind for kind in wanted if kind not in known.measured)
        predicted = dict(zip(unmeasured, self._predicted(known, unmeasured), strict=True)) if unmeasured else {}
        return tuple(predicted[kind] if kind in predicted else known.estimate(kind) for kind in wanted)

    def _predicted(self, known: _Known, kinds: tuple[InstanceKind, ...]) -> tuple[Estimate, ...]:
        """Cached: jobs with equal evidence, above all those with none, share the result."""
        provenance = known.provenance(self._model_of(known).families)
        key = (known.cells, known.work, known.precision, kinds, provenance)
        if key not in self._estimates:
            posterior = self._posterior(known, kinds)
            rates = [math.exp(mean) for mean in posterior.mean]
            factors = [math.exp(posterior.spread(index)) for index in range(len(kinds))]
            self._estimates[key] = tuple(
                Estimate(rate, rate / factor, rate * factor, provenance)
                for rate, factor in zip(rates, factors, strict=True)
            )
        return self._estimates[key]

    def _of(self, job: Job) -> _Known:
        # A decision makes many requests about one job after another.
        if self._last is None or self._last[0] is not job:
            self._last = job, self._found(job)
        return self._last[1]

    def _found(self, job: Job) -> _Known:
        program = program_of(job.spec.train, job.spec.resources.nodes)
        key = (job.id, job.name, program, job.spec.precision, job.spec.sharding, job.spec.expected)
        if key not in self._known:
            self._known[key] = self._learn(job.id, program, job)
        return self._known[key]

    def _learn(self, job_id: str, program: Program | None, job: Job | None = None) -> _Known:
        """The evidence about a job from its id and program (None: unknown), and from its file if `job` is given."""
        others = [] if program is None else [each for each in self._jobs_of.get(program.name, ()) if each != job_id]
        twins = [other for other in others if self._programs[other] == program]
        nodes = 1 if program is None else program.nodes
        table = self._table.get(job.name, {}) if job is not None and nodes == 1 else {}  # of single machines
        every = {**table, **self._measured_of((job_id, *twins))}
        measured = {kind: every[kind] for kind in sorted(every, key=kind_name)}
        cells = [Cell(kind, math.log(of.rate), of.log_variance) for kind, of in measured.items() if _listed(kind)]
        stated = None if job is None else job.spec.expected
        if stated is not None:
            kind = _stated_kind(stated)
            if any(_on_host(each) == _on_host(kind) for each in measured if _listed(each)):
                stated = None
            else:
                cells.append(Cell(kind, math.log(stated.steps_per_s), (math.log1p(_EXPECTED_SPREAD) / Z95) ** 2))
        related = [] if program is None else self._related(program.name)
        relatives = [cell for cell in related if cell.job not in {job_id, *twins}]
        cells += relatives[:_MOST_RELATIVES]
        work = None if program is None else self._works.get(replace(program, nodes=1))
        precision = None if job is None else job.spec.precision
        precision = precision or (work.precision if work is not None else None)
        return _Known(measured, tuple(cells), work, len({cell.job for cell in relatives}), precision, stated, nodes)

    def _related(self, name: str) -> list[Cell]:
        """Measurements of the jobs of a program as evidence for another job of it, best first."""
        if name not in self._relatives:
            cells = [
                Cell(kind, math.log(series.alone.rate), series.alone.log_variance, 1, job_id)
                for job_id in self._jobs_of.get(name, ())
                for kind, series in self._of_job[job_id].items()
                if _listed(kind)
            ]
            cells.sort(key=lambda cell: (cell.variance, cell.job, kind_name(cell.kind)))
            self._relatives[name] = cells
        return self._relatives[name]


def _listed(kind: InstanceKind) -> bool:
    """Whether the hardware table has the kind: a rate on other hardware gives no information about others."""
    return kind[0] is None or kind[0] in GPUS


def _on_host(kind: InstanceKind) -> bool:
    """Whether a rate on this kind is one of a processor; a simulated GPU is one."""
    return _listed(kind) and on_host(kind)


def _stated_kind(stated: Expected) -> InstanceKind:
    return kind_of(stated.gpu.name, stated.gpu.count)


def _named(program: Program) -> tuple[str, str]:
    """(name with settings, family) for models of pairs."""
    return f"{program.name} {program.settings} {program.nodes}", program.name


class _Known:
    """All evidence about one job's speed."""

    def __init__(
        self,
        measured: dict[InstanceKind, Measured],
        cells: tuple[Cell, ...],
        work: Work | None,
        relatives: int,
        precision: Precision | None,
        stated: Expected | None,
        nodes: int,
    ) -> None:
        self.measured = measured
        self.cells = cells
        self.work = work
        self.relatives = relatives
        self.precision = precision or DEFAULT_PRECISION
        self.stated = stated
        self.nodes = nodes

    def estimate(self, kind: InstanceKind) -> Estimate:
        """The estimate on a kind where the job was measured."""
        here = self.measured[kind]
        by = f"over {here.steps} steps" if here.steps else "by an imported table"
        provenance = f"measured on {kind_name(kind)} {by}"
        return Estimate(here.rate, here.rate / (1 + here.spread), here.rate * (1 + here.spread), provenance)

    def provenance(self, families: int) -> str:
        """The source of a rate on a kind that was not measured, in words."""
        sources = []
        if self.measured:
            steps = sum(each.steps for each in self.measured.values())
            how = f"measured over {steps} steps" if steps else "in an imported table"
            sources.append(f"{', '.join(map(kind_name, self.measured))} ({how})")
        if self.stated is not None:
            sources.append(f"the speed that its job file states for {kind_name(_stated_kind(self.stated))}")
        if self.relatives:
            sources.append(f"{self.relatives} other job{'s' * (self.relatives > 1)} of this program")
        if self.work is not None:
            sources.append("a profile of its step")
        scaling = f"; {AS_ON_ONE.format(self.nodes)}" if self.nodes > 1 and not self.measured else ""
        ratios = f"the ratios of {families} model families at {self.precision}"
        if sources:
            return f"predicted from {' and '.join(sources)} by {ratios}{scaling}"
        return f"prior: not measured yet; typical of {families} model families at {self.precision}{scaling}"


@lru_cache(maxsize=8)
def _refined(model: RatioModel, tables: tuple[Row, ...]) -> RatioModel:
    return model.learn(tables) if tables else model
