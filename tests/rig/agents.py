"""Agents: what happens to the agents of rented machines in a history. They lie, fall silent for shorter or longer than
their lease, and sleep with their whole machine; of several machines of a run, any one lies.

Lies are well-formed: values that a report may have, but that are not true. `rig.harm` has those that it may not have.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping

from orchestrator.model import Job
from tests.rig.installation import SimulatedInstallation

Said = Mapping[str, object]
Lie = Callable[[Said], Said]

STATES = (
    "absent", "silent", "starting", "prepared", "restored", "training", "quiesced", "checkpointed_and_stopped",
    "finished", "failed", "fenced",
)  # fmt: skip
NUMBERS: Mapping[str, tuple[object, ...]] = {
    "step": (0, 1, 39, 2**53),
    "total_steps": (0, 1, 2**53),
    "loss": (-1e308, 5e-324),
    "step_wall_s": (0.0, 5e-324, 1e-9, 1e12),
    "start_step": (0, 7, 2**53),
    "manifest": ("1-5-1", "1-40-1", "999999-999999-1"),
    "manifest_step": (0, 40, 2**53),
    "useful_s": (0.0, 1e12),
    "checkpoint_s": (0.0, 1e12),
    "weights_hash": ("0" * 32,),
    "error": ("no reason",),
    "silent_s": (19.0, 1e12),
    "exit_status": (0, 1, 137, -9, 255),
    "still_s": (0.0, 16.0, 1e12),
    "awaited": ("begin", "save", "end"),
    "save_wall_s": (5e-324, 1e12),
    "not_finite_step": (0, 2**53),
    "stopped_early": (True,),
    "permanent": (True,),
    "setup_failed": (True,),
    "setup_s": (5e-324, 1e12),
    "peer_lost": (True,),
}
KINDS = ("lie", "silent agent", "sleeping machine")
OFTEN_S = 15.0
LEASES = (0.1, 0.5, 0.95, 1.05, 1.5, 4.0)


class Agents:
    """Troubles the agents of `home`; `at` schedules what ends a trouble. Jobs that may fail because of one become
    `culprits`."""

    def __init__(
        self,
        home: SimulatedInstallation,
        rng: random.Random,
        at: Callable[[float, Callable[[], object]], None],
        culprits: set[str],
    ) -> None:
        self._home, self._random, self._at, self._culprits = home, rng, at, culprits
        self._next_s = rng.expovariate(1 / OFTEN_S)
        self.counted: Counter[str] = Counter()

    def act(self, jobs: list[Job]) -> None:
        """Trouble one of these jobs' agents if it is time."""
        now_s = self._home.clock.monotonic_s()
        if now_s < self._next_s or not jobs:
            return
        self._next_s = now_s + self._random.expovariate(1 / OFTEN_S)
        job, kind = self._random.choice(jobs), self._random.choices(KINDS, (2, 1, 1))[0]
        if kind == "lie":
            self.lie(job)
        elif (run := self._home.current(job)) is not None and self._home.site.speaks(run.id):
            for_s = self._home.config.lease_s * self._random.choice(LEASES)
            if kind == "silent agent":
                self._at(for_s, self._home.site.fall_silent(run.id))
            else:
                renewed = self._random.random() < 0.3
                self._home.site.put_to_sleep(run.id)
                self._at(for_s, lambda: self._home.site.wake(run.id, renewed=renewed))
        else:
            return
        self.counted[kind] += 1

    def lie(self, job: Job) -> None:
        """One of its machines lies about some things, for some time."""
        rng, site = self._random, self._home.site
        rank, how = rng.randrange(job.spec.resources.nodes), lie_of(rng)
        self._culprits.add(job.id)
        site.lie(job.id, rank, how)
        self._at(rng.choice((0.5, 3.0, 15.0, 120.0, 600.0)), lambda: site.lie(job.id, rank, None))


def lie_of(rng: random.Random) -> Lie:
    """A lie about the state, about up to three numbers, or about how far the run is."""
    kind = rng.choice(("state", "numbers", "both", "both", "behind"))
    claimed: dict[str, object] = {}
    if kind in ("state", "both"):
        claimed["state"] = rng.choice(STATES)
    if kind in ("numbers", "both"):
        claimed |= {name: rng.choice(NUMBERS[name]) for name in rng.sample(sorted(NUMBERS), rng.randint(1, 3))}
    if kind == "behind":
        return lambda truth: {**truth, "step": int(str(truth["step"])) // 2}
    return lambda truth: {**truth, **claimed}
