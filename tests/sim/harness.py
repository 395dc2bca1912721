"""A whole installation in virtual time: real store, real engine, the fake cloud and a simulated site."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.config import load_config
from orchestrator.engine.context import Context
from orchestrator.engine.control import ControlPlane
from orchestrator.engine.world import World
from orchestrator.model import TERMINAL, Job, JobSpec, Run, TrainSpec, new_id
from orchestrator.sim import Pace, SimCatalog, SimSite
from orchestrator.store import Store
from providers.base import Provider
from providers.clock import VirtualClock
from providers.fake import Behaviour, FakeCloud, FakeProvider, Faults


def train_spec(steps: int = 300) -> TrainSpec:
    return TrainSpec(
        entry="train:main", script=None, args={}, workdir="/", env={}, secrets=(), steps=steps, epochs=None
    )


@dataclass
class Installation:
    """`cloud` and `site` outlive control planes; `plane` is the present one. Wall and market seconds are the same."""

    folder: Path
    seed: int = 1
    behaviour: Behaviour = field(default_factory=Behaviour)
    pace: Pace = field(default_factory=Pace)
    overrides: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock = VirtualClock()
        self.random = random.Random(self.seed)
        self.cloud = FakeCloud(self.clock, seed=self.seed, behaviour=self.behaviour)
        self.catalog = SimCatalog()
        self.site = SimSite(self.cloud, self.clock, self.catalog, self.pace)
        self.faults = Faults(self.seed)
        self.url = f"sqlite:///{self.folder}/tradewind.db"
        self.start()

    def start(self, wrap: Callable[[Provider], Provider] = lambda provider: provider) -> None:
        """A new control plane, with nothing in its memory."""
        config = load_config(
            {"state_dir": str(self.folder), "providers.enabled": "fake", "store_url": self.url, **self.overrides},
            environ={},
            cwd=self.folder,
        )
        self.store = Store.open(self.url, self.clock, random=self.random)
        provider = wrap(FakeProvider(self.clock, cloud=self.cloud, faults=self.faults))
        self.world = World(config, self.clock, self.store, {"fake": provider})
        leadership = self.store.campaign("test")
        assert leadership is not None
        self.ctx = Context(
            self.world, self.site, self.catalog, self.random, environment={}, leadership=leadership
        )
        self.plane = ControlPlane(self.ctx)

    def submit(self, spec: JobSpec) -> Job:
        job = Job(new_id("job", self.clock.now_ms(), self.random), spec, "me", self.clock.now_ms(), "queued")
        with self.store.write() as tx:
            tx.add_job(job)
        return job

    def job(self, job: Job) -> Job:
        with self.store.read() as tx:
            return tx.job(job.id)

    def runs(self, job: Job) -> list[Run]:
        with self.store.read() as tx:
            return tx.runs(job_id=job.id)

    def until(self, condition: Callable[[], bool], limit_s: float = 7200.0) -> None:
        """Tick until it holds; AssertionError after `limit_s` virtual seconds."""
        deadline = self.clock.monotonic_s() + limit_s
        while not condition():
            assert self.clock.monotonic_s() < deadline, "the condition did not come to hold"
            self.plane.tick()
            self.clock.advance(0.25)

    def settle(self, limit_s: float = 7200.0) -> None:
        """Until every job is in a terminal state or paused and every machine is booked."""

        def settled() -> bool:
            with self.store.read() as tx:
                done = all(job.state in TERMINAL | {"paused"} for job in tx.jobs())
                booked = all(run.billed_to_ms is not None for run in tx.runs() if run.instance_id is not None)
            return done and booked and not any(instance.alive for instance in self.cloud.instances())

        self.until(settled, limit_s)

    def books(self) -> tuple[int, int]:
        """(what the ledger says, what the cloud billed), nano-USD."""
        with self.store.read() as tx:
            ledger = tx.total_nano_usd()
        return ledger, sum(bill.amount_nano_usd for bill in self.cloud.bills())
