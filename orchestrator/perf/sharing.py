"""Sharing: observations of pairs of jobs on the same GPUs, and predictions for any pair. Pure.

`PerfBook.beside` uses it. The product itself never runs two jobs on one GPU: this is for plans and simulations that do.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from orchestrator.model import Estimate
from orchestrator.perf.colocation import ColocationModel, Conditioned
from orchestrator.perf.kinds import InstanceKind, kind_name, kind_of
from orchestrator.perf.measured import Z95, Measured, Observation, Series, combined
from orchestrator.perf.memory_together import Fitted, MemoryTogether
from orchestrator.perf.pairings import PairCell, Pairing

_LEAST_RATE, _MOST_RATE = 1e-12, 1e12
_MOST_CELLS = 1000
"""At most this many rates of measured pairs are used to predict others: the best ones of every job on every kind."""


@dataclass(frozen=True, slots=True)
class PairObservation:
    """Two jobs shared the GPUs of one machine: the steps of each and their rates per market second, recorded at
    `at_ms`. Raises ValueError for a rate that is not from 1e-12 to 1e12, a count that is not positive, and a job that
    is paired with itself."""

    job_id: str
    other_id: str
    gpu: str
    gpu_count: int
    steps_per_s: float
    other_steps_per_s: float
    steps: int
    other_steps: int
    at_ms: int

    def __post_init__(self) -> None:
        _check_pair(self.job_id, self.other_id, self.gpu_count)
        for rate in (self.steps_per_s, self.other_steps_per_s):
            if not _LEAST_RATE <= rate <= _MOST_RATE:
                raise ValueError(f"a rate must be positive, from {_LEAST_RATE:g} to {_MOST_RATE:g} steps/s, not {rate}")
        self.parts()  # an `Observation` refuses counts that are not positive

    def parts(self) -> tuple[Observation, Observation]:
        """The observation of each of the two jobs."""
        gpu, count, at_ms = self.gpu, self.gpu_count, self.at_ms
        return (
            Observation(self.job_id, gpu, count, self.steps_per_s, self.steps, at_ms),
            Observation(self.other_id, gpu, count, self.other_steps_per_s, self.other_steps, at_ms),
        )


@dataclass(frozen=True, slots=True)
class PairMisfit:
    """Two jobs did not fit into the memory of the GPUs of one machine, recorded at `at_ms`. Raises ValueError if a job
    is paired with itself."""

    job_id: str
    other_id: str
    gpu: str
    gpu_count: int
    at_ms: int

    def __post_init__(self) -> None:
        _check_pair(self.job_id, self.other_id, self.gpu_count)


@dataclass(frozen=True, slots=True)
class Sharing:
    """Two jobs on the same GPUs: the steps per market second of each, if they fit, and the probability that their
    memory fits, with its source, which starts with 'unknown' if it is a guess."""

    first: Estimate
    second: Estimate
    fits_probability: float
    fits_source: str


@dataclass(frozen=True, slots=True)
class Party:
    """A job that shares: `name` of the program with its settings, `family` of models, and the rate alone and the memory
    in bytes of one GPU (None: not profiled) by kind."""

    name: str
    family: str
    alone: Mapping[InstanceKind, Estimate]
    memory_bytes: Mapping[InstanceKind, int | None]


class PairBook:
    """The observations of pairs, by the names of the jobs' programs."""

    def __init__(
        self,
        seen: Iterable[PairObservation],
        misfits: Iterable[PairMisfit],
        parties: Mapping[str, Party],
        model: ColocationModel,
    ) -> None:
        """`parties` has every job id in `seen` and `misfits`, with their kinds. Raises KeyError for an unknown GPU."""
        self._model = model
        self._parties = {party.name: party for party in parties.values()}
        series: dict[tuple[str, str, InstanceKind], dict[tuple[str, str], list[Observation]]]
        series = defaultdict(lambda: defaultdict(list))
        self._fitted: list[Fitted] = []
        for pair in seen:
            for each, other in zip(pair.parts(), (pair.other_id, pair.job_id), strict=True):
                names = parties[each.job_id].name, parties[other].name
                series[*names, kind_of(pair.gpu, pair.gpu_count)][each.job_id, other].append(each)
            self._fitted.append(_fitted(parties, pair, fits=True))
        for miss in misfits:
            self._fitted.append(_fitted(parties, miss, fits=False))
        self._measured: dict[tuple[str, str, InstanceKind], Measured] = {
            key: combined([Series(of_jobs[ids]) for ids in sorted(of_jobs)]) for key, of_jobs in sorted(series.items())
        }
        self._pairs_of = Counter(job for job, _, _ in self._measured)

    def beside(self, pairs: Sequence[tuple[Party, Party]], kind: InstanceKind) -> tuple[Sharing, ...]:
        """Each pair on a kind. Uses the pairs' own rates alone and profiles on that kind. The evidence about other
        pairs is the same for every request, so no answer depends on the other requests."""
        both = [each for one, two in pairs for each in ((one, two), (two, one))]
        wanted = [_pairing(one, two, kind) for one, two in both]
        missing = [each for each in wanted if (each.job, each.other, kind) not in self._measured]
        found = self._conditioned.marginals(missing) if missing else None
        logs = iter(zip(found.mean.tolist(), found.spread.tolist(), strict=True) if found else ())
        rates = []
        for one, two in both:
            here, alone = self._measured.get((one.name, two.name, kind)), one.alone[kind]
            rates.append(self._predicted(one, two, alone, *next(logs)) if here is None else _seen(here, alone, kind))
        sharings = []
        for number, (one, two) in enumerate(pairs):
            profiled = one.memory_bytes.get(kind), two.memory_bytes.get(kind)
            fits = self._memory.probability((one.name, one.family), (two.name, two.family), kind, profiled)
            source = self._memory.source(one.name, two.name, kind, profiled)
            sharings.append(Sharing(rates[2 * number], rates[2 * number + 1], fits, source))
        return tuple(sharings)

    def _predicted(self, one: Party, two: Party, alone: Estimate, log: float, spread: float) -> Estimate:
        """Another job makes no job faster: the rate beside it is at most the rate alone. So each percentile of the rate
        beside it is at most that of the rate alone."""
        value = min(math.exp(log), alone.value)
        low, high = min(math.exp(log - spread), alone.low), min(math.exp(log + spread), alone.high)
        return Estimate(value, low, high, self._provenance(one, two))

    @cached_property
    def _conditioned(self) -> Conditioned:
        return self._model.given(self._cells())

    def _cells(self) -> list[PairCell]:
        cells = [
            PairCell(_pairing(self._parties[job], self._parties[other], kind), math.log(of.rate), of.log_variance)
            for (job, other, kind), of in self._measured.items()
        ]
        cells.sort(key=lambda cell: (cell.variance, repr(cell.of)))
        better: Counter[tuple[str, InstanceKind]] = Counter()
        place = []
        for number, cell in enumerate(cells):
            place.append((better[cell.of.job, cell.of.kind], number))
            better[cell.of.job, cell.of.kind] += 1
        return [cells[number] for _, number in sorted(place)[:_MOST_CELLS]]

    @cached_property
    def _memory(self) -> MemoryTogether:
        kinds = {row.kind for row in self._fitted}
        needs = {(party.name, each): party.memory_bytes.get(each) for party in self._parties.values() for each in kinds}
        return MemoryTogether(self._fitted, {key: need for key, need in needs.items() if need is not None})

    def _provenance(self, one: Party, two: Party) -> str:
        own, its = self._pairs_of[one.name], self._pairs_of[two.name]
        families = f"{self._model.families} model families"
        if not own and not its:
            return f"typical of {families} that shared a GPU; neither job has shared one"
        of = [f"{own} co-locations of this job"] * bool(own) + [f"{its} of the other"] * bool(its)
        return f"predicted from {' and '.join(of)}, and {families}"


def _check_pair(job_id: str, other_id: str, gpu_count: int) -> None:
    if job_id == other_id:
        raise ValueError(f"job {job_id} cannot share a GPU with itself")
    if gpu_count <= 0:
        raise ValueError(f"the number of GPUs must be positive, and is {gpu_count}")


def _seen(here: Measured, alone: Estimate, kind: InstanceKind) -> Estimate:
    """A measured rate. A rate that is surely faster than the rate alone contradicts it; its low end is then that of the
    rate alone."""
    low, high = here.rate / (1 + here.spread), here.rate * (1 + here.spread)
    words = f"measured together on {kind_name(kind)} over {here.steps} steps"
    if low > alone.high:
        return Estimate(here.rate, alone.low, high, f"{words}; in doubt: faster than alone")
    return Estimate(here.rate, low, high, words)


def _fitted(parties: Mapping[str, Party], pair: PairObservation | PairMisfit, *, fits: bool) -> Fitted:
    one, two = sorted((parties[pair.job_id], parties[pair.other_id]), key=lambda party: party.name)
    return Fitted(one.name, one.family, two.name, two.family, kind_of(pair.gpu, pair.gpu_count), fits, pair.at_ms)


def _pairing(one: Party, two: Party, kind: InstanceKind) -> Pairing:
    alone, other = one.alone[kind], two.alone[kind]
    variance = (math.log(alone.high / alone.low) / 2 / Z95) ** 2
    return Pairing(
        one.name, one.family, two.name, two.family, kind, math.log(alone.value), math.log(other.value), variance
    )
