"""Jobs: the replayed work, and its execution on a machine: steps, saves and the setback of a loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from orchestrator.arena.replay.histories import History
from orchestrator.arena.replay.record import Record
from orchestrator.model import CHEAPEST, GpuRequest, Job, JobSpec, Objective, Resources, TrainSpec
from orchestrator.perf import InstanceKind, Observation, PerfBook
from orchestrator.policy import Demand
from orchestrator.policy.ranking.cost import interval_s

HOUR_MS = 3_600_000
HOURS, HOURS_OF_MANY = (5.0, 300.0), (5.0, 60.0)
"""Hours of work on the kind that is cheapest on demand, log-uniform, with one GPU and with several."""
MANY_SHARE = 0.3  # the fraction of jobs that need several GPUs
CHECKPOINT_GB = (1.0, 200.0)  # log-uniform
SLACK = (1.2, 3.0)  # the deadline, in multiples of that work
BUDGET = (0.25, 0.9)  # in multiples of the cost of that work on demand
SCALING = 0.9  # n GPUs of a machine are as fast as n ** 0.9 of one
MODEL_SPREAD = 0.2  # sigma of the true speed on an unmeasured kind, around the expectation of the product's model
MANY_STEPS = 10**9


@dataclass(frozen=True)
class ReplayJob:
    """A job submitted at `start_ms`. `rates` are its steps per second by kind, `work_s` its seconds of training on the
    kind that is cheapest on demand; `save_s` is the time of one save, and of one restore."""

    job: Job
    start_ms: int
    steps: int
    rates: Mapping[InstanceKind, float]
    checkpoint_bytes: int
    save_s: float
    work_s: float

    @property
    def id(self) -> str:
        """The id of the job."""
        return self.job.id

    @property
    def deadline_ms(self) -> int | None:
        """The deadline (market ms); None without one."""
        return self.job.deadline_at_ms

    @cached_property
    def interval_s(self) -> float:
        """Seconds of training between two saves."""
        return interval_s(Demand(self.job, self.steps, checkpoint_s=self.save_s))

    @property
    def observations(self) -> tuple[Observation, ...]:
        """Its exact speeds, as if the product had measured them."""
        return tuple(Observation(self.id, gpu, count, rate, MANY_STEPS, 0) for (gpu, count), rate in self.rates.items())

    def trained(self, seconds: float, rate: float) -> float:
        """Steps done after this many seconds of training and saving."""
        saves, rest_s = divmod(seconds, self.interval_s + self.save_s)
        return rate * (saves * self.interval_s + min(rest_s, self.interval_s))

    def saved(self, seconds: float, rate: float) -> float:
        """The steps of these that are in a complete checkpoint."""
        return rate * (seconds // (self.interval_s + self.save_s)) * self.interval_s

    def seconds_for(self, steps: float, rate: float) -> float:
        """Seconds of training and saving for this many steps, without waiting for the last save."""
        work_s = steps / rate
        return work_s + max(math.ceil(work_s / self.interval_s) - 1, 0) * self.save_s


def jobs(
    record: Record,
    history: History,
    throughputs: Mapping[str, Mapping[str, float]],
    count: int,
    seed: int,
    *,
    objective: Objective = CHEAPEST,
) -> tuple[ReplayJob, ...]:
    """Jobs that start at random times of a record. Every other one has a deadline, and every third a budget, unless the
    objective is not cheapest. `throughputs` are steps per second by model and GPU."""
    chance = np.random.default_rng(1000 + seed)
    models = sorted(name for name, known in throughputs.items() if {"K80", "P100", "V100"} <= known.keys())
    found = []
    for number in range(count):
        model, gpus = models[chance.integers(len(models))], history.counts[int(chance.random() < MANY_SHARE)]
        hours = math.exp(chance.uniform(*np.log(HOURS if gpus == 1 else HOURS_OF_MANY)))
        size_gb = math.exp(chance.uniform(*np.log(CHECKPOINT_GB)))
        slack, noise = chance.uniform(*SLACK), chance.normal(0.0, MODEL_SPREAD, len(history.gpus))
        share = chance.uniform(*BUDGET)
        latest_ms = max(record.end_ms - round(hours * HOUR_MS), record.start_ms)
        start_ms = record.start_ms + round(chance.random() * (latest_ms - record.start_ms) / 60_000) * 60_000
        rates = _rates(throughputs[model], history.gpus, gpus, noise)
        on_demand, rate = _cheapest_on_demand(record, rates, start_ms)
        steps = max(round(hours * 3600 * rate), 1)
        bound = objective == CHEAPEST
        deadline_ms = start_ms + round(slack * hours * HOUR_MS) if bound and number % 2 == 0 else None
        budget = round(share * on_demand * hours) if bound and number % 3 == 2 else None
        spec = JobSpec(
            name=f"job-{number}",
            train=TrainSpec(f"replay:job_{number}", None, {}, "/", {}, (), steps, None),
            resources=Resources(gpus=tuple(GpuRequest(gpu, gpus) for gpu in history.gpus)),
            objective=objective,
            deadline_at_ms=deadline_ms,
            budget_nano_usd=budget,
        )
        size = round(size_gb * 1e9)
        job = Job(f"job_{number:03}", spec, "replay", start_ms, "queued")
        found.append(ReplayJob(job, start_ms, steps, rates, size, save_s(size), hours * 3600))
    return tuple(found)


def save_s(size_bytes: int) -> float:
    """Seconds for one save: five, and 1 GB/s."""
    return 5.0 + size_bytes / 1e9


def _rates(
    measured: Mapping[str, float], gpus: tuple[str, ...], count: int, noise: np.ndarray
) -> dict[InstanceKind, float]:
    """Steps per second by kind: measured, otherwise the expectation of the product's hardware model with `noise`."""
    train = TrainSpec("replay:speed", None, {}, "/", {}, (), MANY_STEPS, None)
    job = Job("speed", JobSpec(name="speed", train=train), "replay", 0, "queued")
    book = PerfBook.as_of(0, [Observation(job.id, gpu, 1, rate, MANY_STEPS, 0) for gpu, rate in measured.items()])
    alone = {
        gpu: measured[gpu] if gpu in measured else book.estimate_kind(job, gpu, 1).value * math.exp(float(off))
        for gpu, off in zip(gpus, noise, strict=True)
    }
    return {(gpu, count): rate * count**SCALING for gpu, rate in alone.items()}


def _cheapest_on_demand(record: Record, rates: Mapping[InstanceKind, float], at_ms: int) -> tuple[int, float]:
    """(nano-USD per hour, steps per second) of the on-demand offer where a step is cheapest."""
    listing = record.listing
    found = []
    for row in range(len(listing)):
        kind = listing.kinds[int(listing.kind[row])]
        price = record.price(row, at_ms)
        if not listing.spot[row] and kind in rates and price is not None:
            found.append((price, rates[kind.gpu, kind.gpu_count]))
    return min(found, key=lambda each: (each[0] / each[1], each[1]))
