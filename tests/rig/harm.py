"""Harm: faults of single jobs, nodes, files and clouds in a history, which must not affect other jobs.

Nodes report nonsense; trainers die, vanish, hang, forge their last report and ignore commands; unexpected exceptions
are raised in steps of the engine; fences, progress files and rows are damaged; providers do not respond or omit
machines. `culprits` are the affected jobs: they must end in a defined state, and every other job must go on.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from orchestrator.engine.compartment import Compartment
from orchestrator.engine.runtime import RunReport
from orchestrator.model import Job
from providers.fake import Fault
from providers.fake.faults import LISTINGS
from tests.rig import agents
from tests.rig.installation import SimulatedInstallation
from tests.rig.wires import never

WORDS: tuple[dict[str, object], ...] = (
    {"step": 10**30},
    {"step": -1},
    {"step": "7"},
    {"step": True},
    {"total_steps": 10**19},
    {"loss": float("nan"), "step": 3.5},
    {"step_wall_s": float("inf")},
    {"step_wall_s": -1.0},
    {"useful_s": 1e308},
    {"manifest": "../../1-2-3"},
    {"manifest": "9-9"},
    {"manifest_step": 2**63},
    {"state": "winning"},
    {"state": None},
    {"error": ["no text"], "state": "failed"},
    {"error": "x" * 10_000_000, "state": "failed"},
    {"weights_hash": "\x1b[31m" * 1000, "state": "finished"},
    {"state": "finished", "weights_hash": "00" * 16, "step": 1},
)
OF_PROVIDERS = (Compartment.COLLECT, Compartment.DESCRIBE, Compartment.RENEW, Compartment.SWEEP)
OF_JOBS = tuple(
    each for each in Compartment if each not in (Compartment.LOOK, *OF_PROVIDERS)
)  # LOOK breaks by `damage`
HARMS = (
    "garbage", "progress file", "fault", "provider fault", "row", "fence", "silence", "omission", "misdeed", "deaf",
    "down", "no secret", "slow call", "silent region", *agents.KINDS,
)  # fmt: skip


def died(report: RunReport, _since_s: float) -> RunReport:
    """A report of a trainer that was killed."""
    return replace(report, error="the trainer was killed by signal 9 (out of memory?)", exit_status=-9)


def vanished(report: RunReport, _since_s: float) -> RunReport:
    """A report of a trainer that is gone."""
    return replace(report, state="absent", error=None)


def stood_still(report: RunReport, since_s: float) -> RunReport:
    """A report of a trainer that makes no progress."""
    return replace(report, state="training", error=None, still_s=since_s)


def forged(report: RunReport, _since_s: float) -> RunReport:
    """A report with a forged result."""
    return replace(report, state="finished", error=None, weights_hash="ab" * 16)


SILENCE_S = 300.0
MISDEEDS = (died, vanished, stood_still, forged)
_ALTERED: tuple[Callable[[bytes], bytes], ...] = (
    lambda data: data[: len(data) // 2],
    lambda _: b"",
    lambda data: data * 4000,
)


class Harm:
    """Injects faults into `home`; `at` schedules later ones. `counted` is their number by kind."""

    def __init__(
        self, home: SimulatedInstallation, rng: random.Random, at: Callable[[float, Callable[[], object]], None]
    ) -> None:
        self._home = home
        self._random = rng
        self._at = at
        self.culprits: set[str] = set()
        self.counted: Counter[str] = Counter()

    def strike(self, job: Job | None, other: Job | None) -> str:
        """Injects a random fault, into `job` if it is a job's. Returns its kind."""
        (what,) = self._random.choices(
            ("garble", "spoil progress", "break", "damage", "spoil", "silence", "omit", "down", "hush"),
            (4, 2, 6, 1, 3, 3, 2, 1, 2),
        )
        if what == "silence":
            self.silence()
        elif what == "omit":
            self.omit()
        elif what == "down":
            self.down()
        elif what == "hush":
            self.hush()
        elif job is not None and what == "garble":
            self.garble(job)
        elif job is not None and what == "spoil progress":
            self.spoil_progress(job)
        elif job is not None and what == "break":
            self.break_a_step(job)
        elif job is not None and what == "damage":
            self._at(0.0, lambda: self.damage(job))  # when nobody sleeps
        elif job is not None and other is not None:
            self.spoil(job, other)
        return what

    def misbehave(self, job: Job) -> None:
        """The job's code fails at some step in a worse way than by an exception, or ignores commands from the start."""
        if self._random.random() < 0.2:
            self._blame(job, "deaf")
            self._home.site.ignore_control(job.id)
            return
        self._blame(job, "misdeed")
        self._home.site.raise_at(job.id, *sorted(self._random.sample(range(5, 90), self._random.choice((1, 1, 4)))))
        self._home.site.misbehave(job.id, self._random.choice(MISDEEDS))

    def garble(self, job: Job) -> None:
        """The job's node reports nonsense, temporarily or permanently."""
        self._blame(job, "garbage")
        self._home.site.garble(job.id, **self._random.choice(WORDS))
        self._at(self._random.choice((2.0, 10.0, 120.0)), lambda: self._home.site.garble(job.id))

    def spoil_progress(self, job: Job) -> None:
        """The job's progress file is corrupted, truncated, emptied, too large or not a file, temporarily or
        permanently."""
        self._blame(job, "progress file")
        bit = self._random.randrange(200 * 8)
        how: Callable[[bytes], bytes] = self._random.choice(
            (lambda data: _flip(data, bit), *_ALTERED, lambda _: b"\0" * 400, lambda _: b"[" * 100_000, lambda _: b"[]")
        )
        self._home.site.spoil_progress(job.id, how)
        self._at(self._random.choice((2.0, 10.0, 120.0)), lambda: self._home.site.spoil_progress(job.id, None))

    def damage(self, job: Job) -> None:
        """The job's row is unreadable for some ticks; then a user repairs it."""
        self._blame(job, "row")
        mend = self._home.spoil_row(job)
        for _ in range(self._random.choice((1, 3, 10))):
            self._home.injector.sleep_at = self._home.injector.sleep_when = None  # who sleeps is woken by who can read
            self._home.tick(self._random.choice((0.3, 1.0, 5.0)))
        mend()

    def break_a_step(self, job: Job) -> None:
        """An exception in a compartment of the job, or in one of the provider."""
        rng = self._random
        late, times = rng.random() < 0.5, rng.choice((1, 2, 2, 20))
        if rng.random() < 0.2:
            self.counted["provider fault"] += 1
            self._home.saboteur.arm(rng.choice(OF_PROVIDERS).value, late=late, times=times)
            return
        self._blame(job, "fault")
        self._home.saboteur.arm(rng.choice(OF_JOBS).value, job.id, late=late, times=times)

    def spoil(self, job: Job, other: Job) -> None:
        """Its newest fence is flipped, cut, emptied, or is another job's; some time later a person puts it right."""
        checkpoints = self._home.checkpoints
        self._home.site.look()  # what trainers saved before, they saved with a sound fence
        sound = checkpoints.fences_made(job.id) and checkpoints.fences_made(other.id)
        if not sound or {job.id, other.id} & checkpoints.spoilt:
            return
        self._blame(job, "fence")
        theirs = checkpoints.newest_fence(other.id)
        how: Callable[[bytes], bytes] = self._random.choice(
            (lambda data: _flip(data, 20 * 8), *_ALTERED, lambda _: theirs)
        )
        self._at(self._random.choice((3.0, 15.0, 60.0)), checkpoints.spoil_fence(job.id, how))

    def silence(self) -> None:
        """A provider does not respond to a kind of call for many calls, but at most `SILENCE_S`: who asks seldom
        would otherwise wait for hours."""
        self.counted["silence"] += 1
        call = self._random.choice(("terminate", "terminate", "describe", "launch", "list_owned", "find", "renew"))
        self._home.faults.inject(call, *[Fault.NO_ANSWER] * self._random.choice((20, 60, 150)))
        self._at(SILENCE_S, lambda: self._home.faults.forget(call))

    def hush(self) -> None:
        """A region, or what concerns them all, does not even refuse: its calls are never answered."""
        self.counted["silent region"] += 1
        region, wires = self._random.choice(("alpha", "alpha", "beta", "beta", "")), self._home.wires
        wires.silent = lambda place, _key: place[1] == region
        self._at(self._random.choice((5.0, 40.0, 150.0)), lambda: setattr(wires, "silent", never))

    def omit(self) -> None:
        """Responses omit machines: any number of descriptions and lists, but not repeated look-ups by token after the
        listing lag, which no provider may do."""
        self.counted["omission"] += 1
        call, times = self._random.choice(LISTINGS), self._random.choice((1, 2, 10))
        omitted = [Fault.PARTIAL, *[None] * 4] if call == "find" else [Fault.PARTIAL] * times
        self._home.faults.inject(call, *omitted)

    def down(self) -> None:
        """`tradewind down`, and later `tradewind up`."""
        self.counted["down"] += 1
        self._home.go_down()
        self._home.clock.advance(self._random.choice((0.0, 5.0, 60.0)))
        self._home.start()

    def _blame(self, job: Job, kind: str) -> None:
        self.culprits.add(job.id)
        self.counted[kind] += 1


def _flip(data: bytes, bit: int) -> bytes:
    """The data with one bit flipped."""
    at = bit // 8 % len(data)
    return bytes([*data[:at], data[at] ^ (1 << bit % 8), *data[at + 1 :]])
