"""PerfBook: steps per second of every job on every kind of hardware, with a 90 % interval and where it comes from.

Best first: measured on this kind (by the job, or by one of the same program and settings); predicted from the kinds
where it was measured, by the ratios that other models showed; modelled from a profile of its step; typical of the
models in the tables, which only says something about ratios. Rates are per *market* second, like prices and deadlines.

Must not know: prices, availability, where the observations are stored.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from orchestrator.model import Estimate, Job
from orchestrator.perf.belief import Belief
from orchestrator.perf.fitted import FITTED
from orchestrator.perf.kinds import Kind, kind_name, kind_of
from orchestrator.perf.measured import Measured, Observation, aggregate
from orchestrator.perf.program import Program, program_of
from orchestrator.perf.ratios import Cell, RatioModel
from orchestrator.perf.work import Work
from providers.offer import Offer

_MOST_RELATIVES = 24  # cells of other jobs of the program that are listened to, the best measured ones


class PerfBook:
    """Throughput of every job on every kind of hardware, as known at an instant."""

    def __init__(
        self,
        observations: Sequence[Observation],
        model: RatioModel,
        programs: Mapping[str, Program],
        works: Mapping[Program, Work],
    ) -> None:
        """Use `as_of`."""
        self._model = model
        self._programs = programs
        self._works = works
        self._of_job: dict[str, list[Observation]] = defaultdict(list)
        for seen in observations:
            self._of_job[seen.job_id].append(seen)
        self._jobs_of: dict[str, list[str]] = defaultdict(list)
        for job_id in sorted(self._of_job):
            if job_id in programs:
                self._jobs_of[programs[job_id].name].append(job_id)
        self._known: dict[tuple[str, Program], _Known] = {}
        self._beliefs: dict[tuple[tuple[Cell, ...], Work | None, tuple[Kind, ...]], Belief] = {}

    @classmethod
    def as_of(
        cls,
        at_ms: int,
        observations: Iterable[Observation],
        *,
        model: RatioModel = FITTED,
        programs: Mapping[str, Program] | None = None,
        works: Mapping[Program, Work] | None = None,
    ) -> PerfBook:
        """A book of what was observed up to `at_ms`; the order of observations does not matter.

        `programs` names what jobs run (`program_of`), by job id: without it jobs tell nothing of each other. `works`
        are the profiles of programs.
        """
        return cls([seen for seen in observations if seen.at_ms <= at_ms], model, programs or {}, works or {})

    def estimate(self, job: Job, offer: Offer) -> Estimate:
        """Steps per market second of `job` on one machine of `offer`, with its 5th to 95th percentile."""
        return self.estimate_kind(job, offer.gpu, offer.gpu_count)

    def estimate_kind(self, job: Job, gpu: str | None, gpu_count: int) -> Estimate:
        """The same for a kind of hardware. Raises KeyError for a GPU that is not in the hardware table."""
        kind, known = kind_of(gpu, gpu_count), self._of(job)
        if kind in known.measured:
            here = known.measured[kind]
            provenance = f"measured on {kind_name(kind)} over {here.steps} steps"
            return Estimate(here.rate, here.rate / (1 + here.spread), here.rate * (1 + here.spread), provenance)
        belief = self._belief(known, (kind,))
        rate, factor = math.exp(belief.mean[0]), math.exp(belief.spread(0))
        return Estimate(rate, rate / factor, rate * factor, known.provenance(self._model.families))

    def joint(self, job: Job, kinds: Sequence[Kind]) -> Belief:
        """What is held of the logarithms of the rates on `kinds` together: for `policy.probe`."""
        return self._belief(self._of(job), tuple(kinds))

    def measured(self, job: Job, kind: Kind) -> bool:
        """Whether the job, or one that is its like, has run on this kind."""
        return kind in self._of(job).measured

    def work(self, job: Job) -> Work | None:
        """The profile of the job's program, if there is one."""
        return self._works.get(program_of(job.spec.train))

    def _belief(self, known: _Known, kinds: tuple[Kind, ...]) -> Belief:
        key = (known.cells, known.work, kinds)
        if key not in self._beliefs:
            self._beliefs[key] = self._model.belief(kinds, known.cells, known.work)
        return self._beliefs[key]

    def _of(self, job: Job) -> _Known:
        program = program_of(job.spec.train)
        key = (job.id, program)
        if key not in self._known:
            self._known[key] = self._learn(job.id, program)
        return self._known[key]

    def _learn(self, job_id: str, program: Program) -> _Known:
        others = [other for other in self._jobs_of.get(program.name, ()) if other != job_id]
        twins = [other for other in others if self._programs[other] == program]
        groups = _by_kind([seen for each in (job_id, *twins) for seen in self._of_job.get(each, ())])
        measured = {kind: aggregate(groups[kind]) for kind in sorted(groups, key=kind_name)}
        cells = [Cell(kind, math.log(of.rate), of.log_variance) for kind, of in measured.items()]
        relatives = []
        for other in others:
            if other not in twins:
                for kind, group in _by_kind(self._of_job[other]).items():
                    seen = aggregate(group)
                    relatives.append(Cell(kind, math.log(seen.rate), seen.log_variance, 1, other))
        relatives.sort(key=lambda cell: (cell.variance, cell.job, kind_name(cell.kind)))
        cells += relatives[:_MOST_RELATIVES]
        return _Known(measured, tuple(cells), self._works.get(program), len({cell.job for cell in relatives}))


class _Known:
    """Everything that is known of one job."""

    def __init__(
        self, measured: dict[Kind, Measured], cells: tuple[Cell, ...], work: Work | None, relatives: int
    ) -> None:
        self.measured = measured
        self.cells = cells
        self.work = work
        self.relatives = relatives

    def provenance(self, families: int) -> str:
        """Where a rate on a kind that was not measured comes from."""
        sources = []
        if self.measured:
            steps = sum(each.steps for each in self.measured.values())
            sources.append(f"{', '.join(map(kind_name, self.measured))} (measured over {steps} steps)")
        if self.relatives:
            sources.append(f"{self.relatives} other job{'s' * (self.relatives > 1)} of this program")
        if self.work is not None:
            sources.append("a profile of its step")
        ratios = f"the ratios of {families} model families"
        if sources:
            return f"predicted from {' and '.join(sources)} by {ratios}"
        return f"prior: not measured yet; typical of {families} model families"


def _by_kind(observations: Iterable[Observation]) -> dict[Kind, list[Observation]]:
    groups: dict[Kind, list[Observation]] = defaultdict(list)
    for seen in observations:
        groups[kind_of(seen.gpu, seen.gpu_count)].append(seen)
    return groups
