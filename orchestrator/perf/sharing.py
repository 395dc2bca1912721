"""Sharing: what was seen of pairs of jobs on the same GPUs, and what follows for any pair. Pure.

`PerfBook.beside` asks. Nothing in the product runs two jobs on one GPU: this serves plans and simulations that do.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.model import Estimate
from orchestrator.perf.colocation import ColocationModel
from orchestrator.perf.kinds import InstanceKind, kind_name, kind_of
from orchestrator.perf.measured import Z95, Measured, Observation, Series, combined
from orchestrator.perf.memory_together import Fitted, MemoryTogether
from orchestrator.perf.pairings import PairCell, Pairing

_MOST_CELLS = 500  # at most this many measured pairs are used, those of the asked jobs first


@dataclass(frozen=True, slots=True)
class PairObservation:
    """Two jobs shared the GPUs of one machine and made so many steps, at so many per market second, recorded at
    `at_ms`. Raises ValueError if a rate or a count is not positive, or a job is paired with itself."""

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
        self.parts()  # an `Observation` refuses what is not positive

    def parts(self) -> tuple[Observation, Observation]:
        """What each of the two did."""
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
    memory fits, with its source; 'unknown' comes first where that is a guess."""

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
    """What was seen of pairs, by the names of the jobs' programs."""

    def __init__(
        self,
        seen: Iterable[PairObservation],
        misfits: Iterable[PairMisfit],
        parties: Mapping[str, Party],
        model: ColocationModel,
    ) -> None:
        """`parties` has every job id in `seen` and `misfits`. Raises KeyError for an unknown GPU."""
        self._model = model
        self._parties = {party.name: party for party in parties.values()}
        series: dict[tuple[str, str, InstanceKind], dict[tuple[str, str], list[Observation]]]
        series = defaultdict(lambda: defaultdict(list))
        self._fitted: set[Fitted] = set()
        for pair in seen:
            for each, other in zip(pair.parts(), (pair.other_id, pair.job_id), strict=True):
                names = parties[each.job_id].name, parties[other].name
                series[*names, kind_of(pair.gpu, pair.gpu_count)][each.job_id, other].append(each)
            self._fitted.add(_fitted(parties[pair.job_id], parties[pair.other_id], pair.gpu, pair.gpu_count, True))
        for miss in misfits:
            self._fitted.add(_fitted(parties[miss.job_id], parties[miss.other_id], miss.gpu, miss.gpu_count, False))
        self._measured: dict[tuple[str, str, InstanceKind], Measured] = {
            key: combined([Series(of_jobs[ids]) for ids in sorted(of_jobs)]) for key, of_jobs in sorted(series.items())
        }

    @property
    def kinds(self) -> tuple[InstanceKind, ...]:
        """On which pairs were measured."""
        return tuple(sorted({kind for _, _, kind in self._measured}, key=kind_name))

    def beside(self, pairs: Sequence[tuple[Party, Party]], kind: InstanceKind) -> tuple[Sharing, ...]:
        """Each pair on a kind. Their rates alone count instead of those of `parties` with the same name."""
        known = {**self._parties, **{party.name: party for pair in pairs for party in pair}}
        both = [each for one, two in pairs for each in ((one, two), (two, one))]
        wanted = [_pairing(one, two, kind) for one, two in both]
        missing = [each for each in wanted if (each.job, each.other, kind) not in self._measured]
        posterior = self._model.posterior(missing, self._cells(known, missing)) if missing else None
        at = {(each.job, each.other): number for number, each in enumerate(missing)}
        rates = []
        for one, two in both:
            here = self._measured.get((one.name, two.name, kind))
            if here is not None:
                words = f"measured together on {kind_name(kind)} over {here.steps} steps"
                rates.append(Estimate(here.rate, here.rate / (1 + here.spread), here.rate * (1 + here.spread), words))
                continue
            assert posterior is not None
            number, alone = at[one.name, two.name], one.alone[kind]
            log, spread = float(posterior.mean[number]), posterior.spread(number)
            value = min(math.exp(log), alone.value)  # another job makes none faster
            low, high = min(math.exp(log - spread), value), min(math.exp(log + spread), alone.high)
            rates.append(Estimate(value, low, max(high, value), self._provenance(one, two)))
        memory = self._memory(known, kind)
        return tuple(
            Sharing(
                rates[2 * number],
                rates[2 * number + 1],
                memory.probability((one.name, one.family), (two.name, two.family), kind),
                memory.source(one.name, two.name, kind),
            )
            for number, (one, two) in enumerate(pairs)
        )

    def _cells(self, known: Mapping[str, Party], wanted: Sequence[Pairing]) -> list[PairCell]:
        names = {name for each in wanted for name in (each.job, each.other)}
        families = {name for each in wanted for name in (each.family, each.other_family)}
        cells = [
            PairCell(_pairing(known[job], known[other], kind), math.log(of.rate), of.log_variance)
            for (job, other, kind), of in self._measured.items()
        ]

        def distance(cell: PairCell) -> tuple[bool, bool, float, str]:
            of = cell.of
            far = {of.job, of.other}.isdisjoint(names), {of.family, of.other_family}.isdisjoint(families)
            return (*far, cell.variance, repr(of))

        return sorted(cells, key=distance)[:_MOST_CELLS]

    def _memory(self, known: Mapping[str, Party], kind: InstanceKind) -> MemoryTogether:
        kinds = {kind, *(row.kind for row in self._fitted)}
        needs = {(party.name, each): party.memory_bytes.get(each) for party in known.values() for each in kinds}
        return MemoryTogether(tuple(self._fitted), {key: need for key, need in needs.items() if need is not None})

    def _provenance(self, one: Party, two: Party) -> str:
        own, its = (sum(key[0] == name for key in self._measured) for name in (one.name, two.name))
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


def _fitted(one: Party, two: Party, gpu: str, gpu_count: int, fits: bool) -> Fitted:
    return Fitted(one.name, one.family, two.name, two.family, kind_of(gpu, gpu_count), fits)


def _pairing(one: Party, two: Party, kind: InstanceKind) -> Pairing:
    alone, other = one.alone[kind], two.alone[kind]
    variance = (math.log(alone.high / alone.low) / 2 / Z95) ** 2
    return Pairing(
        one.name, one.family, two.name, two.family, kind, math.log(alone.value), math.log(other.value), variance
    )
