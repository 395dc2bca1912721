"""A small case to decide: offers with prices, jobs with measured throughput, all at one instant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from orchestrator.market import AvailabilityPoint, Market
from orchestrator.model import CHEAPEST, CheckpointSpec, Job, JobSpec, Placement, TrainSpec
from orchestrator.perf import Observation, PerfBook
from orchestrator.policy import Demand, MoveLimits, Running, Underway, decide
from providers.money import usd
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

NOW = 1_700_000_000_000
HOUR = 3_600_000


@dataclass
class DecisionCase:
    """`rates` are steps per market second, measured over enough steps to be certain to 4 %."""

    now: int = NOW
    offers: list[Offer] = field(default_factory=list)
    prices: list[PricePoint] = field(default_factory=list)
    seen: list[AvailabilityPoint] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    startup_s: float = 300.0

    def offer(
        self,
        name: str,
        dollars: float,
        *,
        gpu: str | None = "SIM-M",
        count: int = 1,
        spot: bool = False,
        region: str = "eu-1",
        provider: str = "local",
        age_s: float = 60,
        memory_gb: int = 16,
    ) -> str:
        kind = CapacityType.SPOT if spot else CapacityType.ON_DEMAND
        offer = Offer(provider, region, region + "a", name, gpu, count, 4, memory_gb * 10**9, kind, provider == "local")
        self.offers.append(offer)
        learned = self.now - int(age_s * 1000)
        self.prices.append(PricePoint(offer.id, usd(dollars), learned, learned, "test"))
        return offer.id

    def price(self, offer_id: str, dollars: float) -> None:
        self.prices.append(PricePoint(offer_id, usd(dollars), self.now, self.now, "test"))

    def happened(self, offer_id: str, kind: str, minutes_ago: float = 0) -> None:
        self.seen.append(AvailabilityPoint(offer_id, self.now - int(minutes_ago * 60_000), kind))

    def job(self, job_id: str = "job_1", *, rates: dict[str, float] | None = None, **spec: object) -> Job:
        train = TrainSpec("m:f", None, {}, "/w", {}, (), 1000, None)
        fields = {"objective": CHEAPEST, "checkpoint": CheckpointSpec(max_overhead=0.0), **spec}
        for gpu, rate in (rates if rates is not None else {"SIM-M": 1.0}).items():
            self.observations.append(Observation(job_id, gpu, 1, rate, 2209, self.now))
        return Job(job_id, JobSpec(job_id, train, **fields), "me", self.now, "queued")

    def market(self) -> Market:
        providers = {offer.provider: self.startup_s for offer in self.offers}
        return Market.as_of(
            self.now, offers=self.offers, prices=self.prices, availability=self.seen, startup_s=providers
        )

    def perf(self) -> PerfBook:
        return PerfBook.as_of(self.now, self.observations)

    def decide(
        self,
        demand: Demand,
        running: Running | None = None,
        limits: MoveLimits | None = None,
        underway: Underway | None = None,
    ) -> Placement:
        where = {} if running is None else {demand.job.id: running}
        moves = {} if underway is None else {demand.job.id: underway}
        plan = decide([demand], self.market(), self.perf(), where, limits=limits, underway=moves, complete=True)
        return plan.placements[0]


@pytest.fixture
def case() -> DecisionCase:
    return DecisionCase()


@pytest.fixture
def at_hour() -> Callable[[DecisionCase, float], None]:
    def go(case: DecisionCase, hours: float) -> None:
        case.now = NOW + int(hours * HOUR)

    return go


@pytest.fixture
def settled() -> Callable[..., Running]:
    """A run that has been where it is for a day: no dwell holds it back."""

    def running(offer_id: str, **changes: object) -> Running:
        return replace(Running(offer_id, NOW - 24 * HOUR), **changes)

    return running
