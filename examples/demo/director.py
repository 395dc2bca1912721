"""The director: makes sure that each of three incidents happens to a job while it trains.

A sale makes one offer much cheaper, so that the policy should move a job there; a machine is taken back with notice;
every process of another one is killed without any. What Tradewind does about them is its own affair: the director only
acts as the (simulated) cloud and then watches the store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.engine.snapshot import current_run
from orchestrator.engine.world import World
from orchestrator.model import Job, Run
from providers.hardware import GPUS
from providers.local import LocalProvider

NOTICE_S = 1500.0  # market seconds: 2.5 wall seconds at the demo's pace
SALE_SHARE = (0.25, 0.10, 0.04)  # of the price in force; deeper if nobody comes


@dataclass
class Director:
    """Call `act` often. `done` says which incidents were survived."""

    world: World
    say: Callable[[str], None]
    sale_job: str
    notice_job: str
    crash_job: str
    done: set[str] = field(default_factory=set)
    _begun: dict[str, str] = field(default_factory=dict)  # incident -> run id that it happened to
    _sales: int = 0
    _sale_at_s: float = 0.0

    @property
    def cloud(self) -> LocalProvider:
        provider = self.world.providers["local"]
        assert isinstance(provider, LocalProvider)
        return provider

    def act(self) -> None:
        """One look at the jobs: begin what is due, note what was survived."""
        with self.world.store.read() as tx:
            jobs = {job.name: job for job in tx.jobs()}
            runs = {name: tx.runs(job_id=job.id) for name, job in jobs.items()}
            moves = {name: tx.migrations(job_id=job.id) for name, job in jobs.items()}
        self._sale(jobs[self.sale_job], runs[self.sale_job])
        self._take(jobs[self.notice_job], runs[self.notice_job], "notice", 0.35)
        self._take(jobs[self.crash_job], runs[self.crash_job], "crash", 0.45)
        if any(m.reason == "cheaper offer" and m.step == "done" for ms in moves.values() for m in ms):
            self.done.add("sale")
        for incident, name in (("notice", self.notice_job), ("crash", self.crash_job)):
            began = self._begun.get(incident)
            lost = next((run for run in runs[name] if run.id == began), None)
            if lost is not None and lost.end in ("preempted", "lost", "moved"):
                after = [run for run in runs[name] if run.generation > lost.generation and run.training_from_ms]
                if after:
                    self.done.add(incident)

    def _sale(self, job: Job, runs: list[Run]) -> None:
        now_s = self.world.clock.monotonic_s()
        current = current_run(runs)
        if "sale" in self.done or current is None or job.state != "running" or not _reached(job, current, 0.2):
            return
        if self._sales >= len(SALE_SHARE) or (self._sales and now_s - self._sale_at_s < 4.0):
            return
        offers = {offer.id: offer for offer in self.cloud.offers()}
        prices = {point.offer_id: point.nano_usd_per_hour for point in self.cloud.prices()}
        here = offers[current.offer_id]
        fastest = max(
            (o for o in offers.values() if o.spot and o.zone != here.zone),
            key=lambda o: (GPUS[o.gpu or ""].throttle, -prices[o.id]),
        )
        price = int(prices[fastest.id] * SALE_SHARE[self._sales])
        now_ms = self.world.clock.now_ms()
        self.cloud.set_price(fastest.id, price, now_ms, now_ms + 7 * 86_400_000)
        self.say(f"a sale: {fastest.id} now costs ${price / 1e9:.3f}/h instead of ${prices[fastest.id] / 1e9:.3f}/h")
        self._sales, self._sale_at_s = self._sales + 1, now_s

    def _take(self, job: Job, runs: list[Run], incident: str, share: float) -> None:
        current = current_run(runs)
        if incident in self._begun or current is None or job.state != "running" or not _reached(job, current, share):
            return
        assert current.instance_id is not None
        self._begun[incident] = current.id
        if incident == "notice":
            self.say(f"{job.name}'s machine {current.instance_id} will be taken back in {NOTICE_S:.0f} market seconds")
            self.cloud.preempt(current.instance_id, NOTICE_S)
        else:
            self.say(f"SIGKILL to every process of {job.name}'s machine {current.instance_id}")
            self.cloud.crash(current.instance_id)


def _reached(job: Job, run: Run, share: float) -> bool:
    return job.spec.train.steps is not None and run.last_step >= share * job.spec.train.steps
