"""An installation in virtual time (tests.rig) as tests want it: three offers, a brisk cloud."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestrator.model import Job, JobSpec, Run, Step, TrainSpec
from providers.base import Provider
from providers.fake import Behaviour
from providers.hardware import GIB
from providers.money import usd
from providers.offer import CapacityType, Offer
from tests import rig
from tests.rig import FaultInjector, ScratchDatabase, SqliteScratchDatabase, Timings, findings, lost_at_most

__all__ = ["FaultInjector", "ScratchDatabase", "SqliteScratchDatabase", "check_truth", "lost_at_most"]

CHEAP, EXPENSIVE, RESERVE = (
    Offer("fake", region, f"{region}-1", "v100.1", "V100", 1, 8, 64 * GIB, kind, simulated=True)
    for region, kind in (
        ("alpha", CapacityType.SPOT),
        ("beta", CapacityType.SPOT),
        ("beta", CapacityType.ON_DEMAND),
    )
)
CATALOG = ((CHEAP, usd("1.00")), (EXPENSIVE, usd("1.60")), (RESERVE, usd("3.00")))
BRISK = Behaviour(boot_s=2.0, listing_lag_s=3.0, stop_s=1.0, late_s=4.0)
PACE = Timings(step_s=1.0, prepare_s=1.0, restore_s=1.0, checkpoint_every_s=5.0)
STRIDE_S, FINE_STRIDE_S, SETTLE_STRIDE_S = 2.0, 1.0, 4.0
"""Seconds between two passes of the control plane: by default; in tests that depend on what happens in between (they
set `stride_s`); and while a test only waits for everything to end."""


def train_spec(steps: int = 20) -> TrainSpec:
    return rig.train_spec(steps)


class SimulatedInstallation(rig.SimulatedInstallation):
    def __init__(
        self,
        folder: Path,
        database: ScratchDatabase,
        *,
        seed: int = 1,
        behaviour: Behaviour = BRISK,
        overrides: dict[str, object] | None = None,
        catalog: Any = CATALOG,
        stride_s: float = STRIDE_S,
        connect: Callable[[rig.SimulatedInstallation], Provider] | None = None,
    ) -> None:
        self.stride_s = stride_s
        settings = {"policy.min_dwell_s": 10.0, **(overrides or {})}
        super().__init__(
            folder,
            database,
            catalog=catalog,
            seed=seed,
            behaviour=behaviour,
            timings=PACE,
            overrides=settings,
            connect=connect,
        )

    def submit(self, name: str = "job", steps: int = 20, **fields: Any) -> Job:
        return self.submit_job(JobSpec(name, train_spec(steps), **fields))

    def tick(self, seconds: float | None = None, down_s: float = 0.0) -> bool:
        return super().tick(self.stride_s if seconds is None else seconds, down_s)

    def reprice(self, offer_id: str, dollars: str) -> None:
        """Of which the control plane hears at once."""
        self.cloud.set_price(offer_id, usd(dollars))
        self.plane._ctx.pacing.pop("collect:fake", None)

    def until(self, condition: Callable[[], bool], limit_s: float = 600.0, stride_s: float | None = None) -> None:
        """Tick until it holds; AssertionError after `limit_s` virtual seconds."""
        deadline = self.clock.monotonic_s() + limit_s
        while not condition():
            assert self.clock.monotonic_s() < deadline, "\n".join(["it did not come to hold", *self.story()])
            self.tick(stride_s)

    def run_for(self, seconds: float) -> None:
        end = self.clock.monotonic_s() + seconds
        self.until(lambda: self.clock.monotonic_s() >= end, limit_s=seconds + self.stride_s)

    def until_state(self, job: Job, state: str) -> None:
        self.until(lambda: self.job(job).state == state)

    def until_step(self, job: Job, step: int) -> Run:
        """Until the job's present run has reported `step`; returns it."""
        self.until(lambda: (run := self.current(job)) is not None and run.last_step >= step)
        found = self.current(job)
        assert found is not None
        return found

    def until_second_move(self, job: Job, step: Step) -> None:
        """Until the job's latest move, which is not the one to its first machine, is at `step`."""
        self.until(lambda: len(found := self.migrations(job)) > 1 and found[-1].step is step)

    def settle(self, limit_s: float = 600.0, stride_s: float = SETTLE_STRIDE_S) -> None:
        """Until every job is in a terminal state or paused and every machine is gone and booked."""
        self.until(lambda: self.settled, limit_s, stride_s)


def check_truth(home: rig.SimulatedInstallation) -> None:
    """What must hold after every history, seen from outside; and what the store tells of repeated steps."""
    assert not (found := findings(home)), "\n".join(found)
    for run in home.read(lambda tx: tx.runs()):
        assert run.repeated_steps <= lost_at_most(home), f"{run.repeated_steps} steps repeated"
