"""The demo's market in virtual time: the whole engine, and the fake cloud with the prices, capacity and preemptions of
the `local` provider's market of a seed. Start-up, restore and speed of machines vary as on real machines.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from functools import partial
from pathlib import Path

from orchestrator.model import CheckpointSpec, Job, JobSpec, TrainSpec
from orchestrator.perf import InstanceKind
from providers.base import Landed, LaunchSpec
from providers.clock import Clock, VirtualClock
from providers.fake import Behaviour, FakeCloud
from providers.hardware import GPUS
from providers.local import LocalMarket
from tests.rig import ScratchDatabase, SimulatedInstallation, Timings

DAY_MS = 86_400_000
NOTICE_S = 120.0
BEFORE_DAYS = 7.0  # days of prices before the installation
KINDS: tuple[InstanceKind, ...] = (("SIM-S", 1), ("SIM-M", 1), ("SIM-L", 1))
# Market seconds (60 per real second): on this host a Ray node and a trainer with torch start in 5 s. Some machines are
# slower than others, and every start differs a little.
STARTUP_S, STARTUP_OF_OFFER, STARTUP_OF_LAUNCH = 270.0, 0.25, 0.15
RESTORE_S, RESTORE_SPREAD = 30.0, 0.3
# A trainer saves as often as its overhead budget allows (trainers.loop.cadence), so saves use all of it.
SAVING = CheckpointSpec().max_overhead
SPEED_ERROR = 0.02  # between the measured speed and the program's current speed
MEASURED_STEPS = 400


class DemoCloud(FakeCloud):
    """A fake cloud with the offers of the `local` provider of a seed, for `days`."""

    def __init__(self, clock: Clock, seed: int, days: float) -> None:
        self._market = LocalMarket(seed)
        self._local = {replace(offer, provider="fake").id: offer.id for offer in self._market.offers}
        opened, until = clock.now_ms(), clock.now_ms() + int(days * DAY_MS)
        offers = [replace(offer, provider="fake") for offer in self._market.offers]
        first = [(offer, self._market.price(self._local[offer.id], opened)) for offer in offers]
        super().__init__(
            clock, seed=seed, catalog=first, behaviour=Behaviour(boot_s=0.0, listing_lag_s=0.0, stop_s=1.0)
        )
        for offer in offers:
            name = self._local[offer.id]
            for at_ms in self._market.changes_between(name, opened, until):
                self.set_price(offer.id, self._market.price(name, at_ms), at_ms)

    def launch(self, spec: LaunchSpec, at_ms: int) -> Landed:
        name = self._local[spec.offer_id]
        self.set_capacity(spec.offer_id, self._market.capacity(name, at_ms))
        known = self.accepted(spec.token)
        landed = super().launch(spec, at_ms)
        reclaim = self._market.reclaim_after(name, at_ms) if self._market.is_spot(name) and not known else None
        if reclaim is not None:
            for instance_id in landed.instance_ids:
                self.preempt(instance_id, NOTICE_S if reclaim.with_notice else None, reclaim.at_ms)
        return landed


class DemoMarket(SimulatedInstallation):
    """An installation on the market of a seed; `chance` is the random source for everything but the market."""

    def __init__(self, folder: Path, database: ScratchDatabase, seed: int, *, days: float) -> None:
        self.chance = random.Random(seed)
        super().__init__(
            folder,
            database,
            catalog=(),
            seed=seed,
            timings=Timings(
                step_s=1.0, prepare_s=STARTUP_S, restore_s=RESTORE_S, checkpoint_every_s=600.0, saving=SAVING
            ),
            overrides={"limits.max_usd_per_hour": 1e6},
            cloud=partial(_demo_cloud, seed, days),
        )
        self._of_offer: dict[str, float] = {}
        self.site.prepare_takes(self._startup_s)

    def _startup_s(self, offer_id: str) -> float:
        place = offer_id.rpartition("/")[0]
        if place not in self._of_offer:
            self._of_offer[place] = STARTUP_S * math.exp(self.chance.gauss(0, STARTUP_OF_OFFER))
        return self._of_offer[place] * math.exp(self.chance.gauss(0, STARTUP_OF_LAUNCH))

    def measured(self, spec: JobSpec) -> None:
        """Record measurements as if the program had run before on every kind of machine."""
        with self.store.write() as tx:
            before = replace(self.new_job(replace(spec, name="before")), state="finished")
            tx.add_job(before)
            off = math.exp(self.chance.gauss(0, SPEED_ERROR))
            for gpu, count in KINDS:
                assert gpu is not None
                rate = GPUS[gpu].throttle / self.timings.step_s * off
                tx.add_perf(before.id, gpu, count, rate, MEASURED_STEPS, self.clock.now_ms())

    def submit_planned(self, job: Job) -> None:
        with self.store.write() as tx:
            tx.add_job(replace(job, submitted_at_ms=self.clock.now_ms()))
        self.site.restore_takes(job.id, RESTORE_S * math.exp(self.chance.gauss(0, RESTORE_SPREAD)))

    def paid_nano_usd(self, job: Job) -> int:
        return self.read(lambda tx: tx.total_nano_usd(job_id=job.id))

    def finished_at_ms(self, job: Job) -> int | None:
        return self.read(lambda tx: tx.job_facts(job.id).finished_at_ms)


def _demo_cloud(seed: int, days: float, clock: VirtualClock) -> DemoCloud:
    """A market whose price history starts before the installation."""
    cloud = DemoCloud(clock, seed, days + BEFORE_DAYS)
    clock.advance(BEFORE_DAYS * DAY_MS / 1000)
    return cloud


def train_spec(name: str, steps: int) -> TrainSpec:
    return TrainSpec(f"{name}:main", None, {}, "/", {}, (), steps, None)
