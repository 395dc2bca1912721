"""Latencies: how long machine starts and job handovers take, as measured or else assumed.

Start times come from runs (from the request for a machine to training on it), handover times from cutover events. The
time of a save grows with the checkpoint: an unmeasured job's follows from the bytes per second of other jobs' saves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from orchestrator.config import Config
from orchestrator.market import Location
from orchestrator.model import Job, Run
from orchestrator.perf import InstanceKind, Latencies, LatencyPrior, learned
from orchestrator.store import Tx
from orchestrator.store.queries.runs import Start
from providers.hardware import GB
from providers.offer import location_of
from providers.traits import traits_of

PlaceAndKind = tuple[Location, InstanceKind]
STARTS = 100  # the newest of a provider predict the next one
HANDOVERS = 50
HANDOVER = "gap_s"  # of the event of a cutover: market seconds for which training stood still

_CLOUD = LatencyPrior(255.0, 2.5, "a cloud machine trains after 3 min (SkyPilot) to 6 min (SkyNomad)")
SAVES = 50  # the newest saves of all jobs show how fast checkpoints are written

_SAVE_WALL_S = 0.3  # one save of a small model; the trainer limits the share of time by tuning its interval
_SAVE_WALL_S_PER_GB = 2.0  # in addition; assumed: a network disk writes half a gigabyte per second
_RESTORE_WALL_S = 0.3
_SETUP_WALL_S = 60.0  # pip downloads and installs a few packages, and torch is loaded once more


def start_prior(provider: str, config: Config) -> LatencyPrior:
    """The assumed time from requesting a machine to training on it, before any was measured."""
    wall_s = traits_of(provider).start_wall_s
    if wall_s is None:
        return _CLOUD
    return LatencyPrior(wall_s * config.providers.clock_factor, 2.0, f"{wall_s:g} s on this machine")


def save_wall_s_per_byte(tx: Tx) -> float:
    """Wall seconds per byte of a checkpoint, in addition to the smallest save: from the newest saves of all jobs,
    weighted by their bytes, since small saves reveal little; the assumed figure counts as one save of a gigabyte."""
    seconds, size_bytes = _SAVE_WALL_S_PER_GB, GB
    for wall_s, saved_bytes in tx.saves(SAVES):
        seconds += max(wall_s - _SAVE_WALL_S, 0.0)
        size_bytes += saved_bytes
    return seconds / size_bytes


def save_s(config: Config, runs: Sequence[Run], size_bytes: int, wall_s_per_byte: float) -> float:
    """Market seconds of one save: the latest measured in the job's `runs` (in order), else the estimate for a
    checkpoint of this size."""
    measured = (run.save_wall_s for run in reversed(runs) if run.save_wall_s is not None)
    return next(measured, _SAVE_WALL_S + size_bytes * wall_s_per_byte) * config.providers.clock_factor


def setup_s(config: Config, job: Job, runs: Sequence[Run]) -> float:
    """Market seconds for setting up a job's environment on its next machine: as on its latest machine (of its `runs`,
    in order), else as declared; 0 without a set-up."""
    if job.spec.train.setup is None:
        return 0.0
    measured = (run.setup_wall_s for run in reversed(runs) if run.setup_wall_s is not None)
    return next(measured, _SETUP_WALL_S) * config.providers.clock_factor


def started(tx: Tx, config: Config) -> dict[str, list[Start]]:
    """The newest starts on machines of each enabled provider."""
    return {name: tx.runs_started(name, STARTS) for name in config.providers.enabled}


def starts(
    observed: Mapping[str, Sequence[Start]], config: Config, kind_at: Callable[[str], InstanceKind | None]
) -> dict[str, Latencies[PlaceAndKind]]:
    """Market seconds from requesting a machine to training on it, by enabled provider and (location, kind), from the
    result of `started`. `kind_at` returns the hardware of an offer by its id."""
    return {
        name: learned(start_prior(name, config), _starts(runs, kind_at, config.providers.clock_factor))
        for name, runs in observed.items()
    }


def handovers(tx: Tx, config: Config) -> Latencies[str]:
    """Market seconds for which training stops during a move (a save, a restore, and coordination), by job id, since
    checkpoints differ in size."""
    prior = LatencyPrior(
        (_SAVE_WALL_S + _RESTORE_WALL_S) * config.providers.clock_factor, 3.0, "one save and one restore", 3.0
    )
    reported = ((job_id, data.get(HANDOVER)) for job_id, data in tx.cutovers(HANDOVERS))
    return learned(prior, ((job_id, gap) for job_id, gap in reported if isinstance(gap, int | float) and gap > 0))


def handover_s(known: Latencies[str], job_id: str, save_s: float) -> float:
    """Market seconds for which training of a job stops during a move: as learned from its own moves, else as for other
    jobs, but at least one save and one restore of its checkpoint."""
    own = known.at.get(job_id)
    return max(known.usual.value, 2 * save_s) if own is None else own.value


def _starts(
    runs: Iterable[Start], kind_at: Callable[[str], InstanceKind | None], factor: float
) -> Iterator[tuple[PlaceAndKind, float]]:
    """Excludes the set-up of environments, which differs by job."""
    for run in runs:
        standby = run.billed_from_ms < run.created_at_ms // 1000 * 1000  # it was up before it was needed
        kind = kind_at(run.offer_id)
        if kind is not None and not standby and run.machine_from_ms is None:
            place: Location = location_of(run.offer_id)
            started_s = (run.training_from_ms - run.created_at_ms) / 1000
            yield (place, kind), max(0.0, started_s - (run.setup_wall_s or 0.0) * factor)
