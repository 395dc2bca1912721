"""The director: makes sure that each of three incidents happens to a job while it trains.

A sale makes an offer much cheaper, so that the policy should move a job there; a spot machine is taken back with
notice; every process of another machine is killed without any. What Tradewind does about them is its own affair: the
director only acts as the (simulated) cloud and then watches the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from orchestrator.engine.snapshot import current_run
from orchestrator.engine.world import World
from orchestrator.model import Job, Migration, Run
from providers.hardware import GPUS
from providers.local import LocalProvider

NOTICE_S = 1800.0  # market seconds: 3 wall seconds at the demo's pace
SALE_SHARE = (0.25, 0.10)  # of the price in force; deeper if nobody comes
SALE_PATIENCE_S = 8.0
INCIDENTS = ("sale", "notice", "crash")


@dataclass
class Director:
    """Call `act` often. `done` says which incidents were survived."""

    world: World
    say: Callable[[str], None]
    done: set[str] = field(default_factory=set)
    _victims: dict[str, str] = field(default_factory=dict)  # incident -> run id that it happened to
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
        self._note(runs, moves)
        trains = {
            name: current
            for name, job in jobs.items()
            if job.state == "running" and (current := current_run(runs[name])) is not None
        }
        self._sale(jobs, trains, moves)
        self._take("notice", 0.3, ("convnet", "gpt", "lstm"), jobs, trains)
        self._take("crash", 0.4, ("lstm", "convnet", "gpt"), jobs, trains)

    def _note(self, runs: Mapping[str, list[Run]], moves: Mapping[str, list[Migration]]) -> None:
        if any(move.reason == "cheaper offer" and move.step == "done" for each in moves.values() for move in each):
            self.done.add("sale")
        for incident, victim in self._victims.items():
            for each in runs.values():
                lost = next((run for run in each if run.id == victim), None)
                if lost is not None and lost.end is not None:
                    successors = [run for run in each if run.generation > lost.generation and run.training_from_ms]
                    if successors:
                        self.done.add(incident)

    def _sale(self, jobs: Mapping[str, Job], trains: Mapping[str, Run], moves: Mapping[str, list[Migration]]) -> None:
        """A fast machine in another zone than the job's, far below its price, until the job comes."""
        name = next(
            (name for name in ("gpt", "convnet") if name in trains and _reached(jobs[name], trains[name], 0.15)), None
        )
        coming = any(move.reason == "cheaper offer" for each in moves.values() for move in each)
        now_s = self.world.clock.monotonic_s()
        if name is None or coming or self._sales == len(SALE_SHARE) or now_s - self._sale_at_s < SALE_PATIENCE_S:
            return
        offers = {offer.id: offer for offer in self.cloud.offers()}
        prices = {point.offer_id: point.nano_usd_per_hour for point in self.cloud.prices()}
        here = offers[trains[name].offer_id]
        best = max(
            (offer for offer in offers.values() if offer.spot and offer.zone != here.zone),
            key=lambda offer: (GPUS[offer.gpu or ""].throttle, -prices[offer.id]),
        )
        price = int(prices[best.id] * SALE_SHARE[self._sales])
        now_ms = self.world.clock.now_ms()
        self.cloud.set_capacity(best.id, 2, now_ms + 7 * 86_400_000)
        self.cloud.set_price(best.id, price, now_ms)
        self.say(f"a sale: {best.id} now costs ${price / 1e9:.3f}/h instead of ${prices[best.id] / 1e9:.3f}/h")
        self._sales, self._sale_at_s = self._sales + 1, now_s

    def _take(
        self, incident: str, share: float, names: tuple[str, ...], jobs: Mapping[str, Job], trains: Mapping[str, Run]
    ) -> None:
        """Take the machine of the first job that is far enough and was not hit yet; notices only hit spot machines."""
        if incident in self._victims:
            return
        for name in names:
            run = trains.get(name)
            if run is None or run.id in self._victims.values() or not _reached(jobs[name], run, share):
                continue
            assert run.instance_id is not None
            if incident == "crash":
                self.say(f"SIGKILL to every process of {name}'s machine {run.instance_id}")
                self.cloud.crash(run.instance_id)
            elif run.offer_id.endswith("/spot"):
                self.say(f"{name}'s machine {run.instance_id} will be taken back in {NOTICE_S:.0f} market seconds")
                self.cloud.preempt(run.instance_id, NOTICE_S)
            else:
                continue
            self._victims[incident] = run.id
            return


def _reached(job: Job, run: Run, share: float) -> bool:
    return job.spec.train.steps is not None and run.last_step >= share * job.spec.train.steps
