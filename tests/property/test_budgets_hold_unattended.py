"""Budgets hold in random histories in which the control plane is stopped for minutes to hours, and then continues or is
restarted, while calls to the cloud are slow or fail.

Prices do not more than double, which is a documented exception.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from orchestrator.config.projects import Project, Projects
from orchestrator.model import Job
from providers.fake import Fault
from providers.money import NANO_USD, usd
from providers.offer import CapacityType
from tests.rig import findings, memory_folder
from tests.rig.wires import Delay
from tests.sim.grouped import grouped
from tests.sim.harness import BRISK, CATALOG, CHEAP, EXPENSIVE, SimulatedInstallation, SqliteScratchDatabase

SLOW = (Delay(0.0, 2.0), Delay(2.0), Delay(4.0, 4.0), Delay(0.0, 20.0), Delay(20.0), Delay(0.0, inf), Delay(inf))
GAPS_S = (30, 120, 300, 900, 3600, 7200, 20_000)
ON_DEMAND = tuple(
    (replace(offer, capacity_type=CapacityType.ON_DEMAND), price)
    for offer, price in CATALOG
    if offer in (CHEAP, EXPENSIVE)
)


@pytest.fixture(scope="module")
def database() -> Iterator[tuple[Path, SqliteScratchDatabase]]:
    with memory_folder() as folder:
        for name in ("home", "database"):
            (folder / name).mkdir()
        made = SqliteScratchDatabase(folder / "database")
        yield folder / "home", made
        made.close()


class History:
    """The history of a seed: some jobs with a budget each, or of one project or group with a budget."""

    def __init__(self, seed: int, folder: Path, database: SqliteScratchDatabase) -> None:
        self.rng = rng = random.Random(f"unattended {seed}")
        behaviour = replace(
            BRISK,
            listing_lag_s=rng.choice((0.0, 3.0, 10.0)),
            stop_s=rng.choice((0.0, 1.0, 12.0)),
            boot_s=rng.choice((1.0, 2.0, 20.0)),
        )
        self.spot = rng.random() < 0.5
        catalog = CATALOG if self.spot else ON_DEMAND
        self.offers = [offer.id for offer, _ in catalog]
        stride_s = rng.choice((1.0, 2.0))
        self.home = SimulatedInstallation(
            folder, database, seed=seed, behaviour=behaviour, catalog=catalog, stride_s=stride_s
        )
        self.whole = usd(rng.choice(("0.12", "0.20", "0.30", "0.50", "1.00")))
        self.kind = rng.choice(("job", "project", "group"))
        self.jobs = self._submitted(rng.randint(1, 3), rng.choice((100, 600, 2000)))
        self.machines = 0

    def _submitted(self, count: int, steps: int) -> list[Job]:
        home, names = self.home, "abc"[:count]
        if self.kind == "group":
            jobs = grouped(home, names, budget=f"{self.whole / NANO_USD:.2f}", steps=steps)
            with home.installation.store.write() as tx:
                for job in jobs:
                    tx.set_budget(job.id, self.whole // count)
            return jobs
        if self.kind == "project":
            home.config = replace(home.config, projects=Projects({"vision": Project(budget=self.whole / NANO_USD)}))
            home.start()
        own, project = (None, "vision") if self.kind == "project" else (self.whole, "default")
        return [
            home.submit(
                name,
                steps=steps,
                project=project,
                budget_nano_usd=own,
                standby="warm" if self.rng.random() < 0.3 else "none",
            )
            for name in names
        ]

    def play(self) -> None:
        for _ in range(self.rng.randint(60, 250)):
            self.something()
            self.home.tick()
            self.check()
        home = self.home
        home.wires.rate = 0.0
        home.faults.forget()
        home.until(lambda: not any(each.alive for each in home.cloud.instances()) and not self.unsettled, 40_000.0, 4.0)
        self.check()
        jobs = {job.id for job in self.jobs}
        assert not [each for each in findings(home, paused=True, culprits=jobs) if not each.startswith("lost")]

    @property
    def unsettled(self) -> bool:
        return bool(self.home.read(lambda tx: tx.unsettled_runs()))

    def something(self) -> None:
        home, rng, draw = self.home, self.rng, self.rng.random()
        job = rng.choice(self.jobs)
        machines, self.machines = self.machines, len(home.cloud.instances())
        if 1 < self.machines > machines and rng.random() < 0.3:  # right after a launch
            self.stop()
        elif draw < 0.02:
            home.wires.rate, home.wires.slow = rng.choice((0.0, 0.1, 0.4, 1.0)), SLOW
            home.wires.about = rng.choice(("", "renew", "describe", "launch", "terminate"))
        elif draw < 0.04:
            call = rng.choice(("renew", "renew", "describe", "launch", "terminate", "price_history"))
            fault = rng.choice((Fault.NO_ANSWER, Fault.LOST_REPLY, Fault.THROTTLED))
            home.faults.inject(call, *[fault] * rng.randint(1, 20))
        elif draw < 0.07 and home.job(job).state == "running":
            home.ask("migrate", job, offer_id=rng.choice(self.offers))
        elif draw < 0.09 and home.job(job).state in ("starting", "running"):
            home.ask("pause", job)
        elif draw < 0.12 and home.job(job).state == "paused":
            home.ask("resume", job)
        elif draw < 0.13 and (living := [each.id for each in home.cloud.instances() if each.alive]):
            home.cloud.preempt(rng.choice(living), notice_s=rng.choice((None, 8.0, 30.0)))
        elif draw < 0.14 and self.spot:
            home.cloud.set_price(rng.choice(self.offers[:2]), usd(f"{rng.uniform(0.6, 1.1):.2f}"))
        elif draw < 0.18:
            self.stop()

    def stop(self) -> None:
        """No control plane runs for a while."""
        self.home.clock.advance(self.rng.choice(GAPS_S))
        self.check()
        if self.rng.random() < 0.5:
            self.home.start()

    def check(self) -> None:
        billed: Counter[str] = Counter()
        for bill in self.home.cloud.bills():
            billed[bill.tags["tradewind-job"]] += bill.amount_nano_usd
        if self.kind == "project":
            assert billed.total() <= self.whole
        for job in self.jobs:
            budget = self.home.job(job).spec.budget_nano_usd
            assert budget is None or billed[job.id] <= budget


@pytest.mark.parametrize("seed", range(12))
def test_a_budget_holds_while_the_control_plane_is_stopped_and_continued(
    seed: int, database: tuple[Path, SqliteScratchDatabase]
) -> None:
    History(seed, *database).play()
