"""The director: makes sure that each of three incidents happens to a job while it trains.

A sale makes an offer much cheaper, so that the policy should move a job there. Then a spot machine is preempted with
notice, and every process of another machine is killed without notice. The director only plays the simulated cloud and
then watches the store; the reaction is Tradewind's. The sale comes first, because a moving job keeps training while its
new machine starts, but a job without a machine waits. The losses follow once a job has moved, or when the jobs would
otherwise soon finish.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from orchestrator.engine.inputs.snapshot import current_run
from orchestrator.installation import Installation
from orchestrator.model import TERMINAL, Job, Migration, Run, Step
from providers.hardware import GPUS
from providers.local import LocalProvider

NOTICE_WALL_S = 3.0
SALE_SHARE = (0.2, 0.15)  # of the current price; lower the second time, if no job moved there
SALE_PATIENCE_S = 8.0
EARLY = 0.1  # share of its steps, after which a job may have an incident
HALF = 0.45  # share after which the losses begin, even if no job moved to the sale
LATE = 0.7  # share after which a job could finish before it has recovered from an incident


@dataclass
class Director:
    """Causes the incidents. Call `act` often; `done` has the incidents that a job survived."""

    installation: Installation
    say: Callable[[str], None]
    done: set[str] = field(default_factory=set)
    _victims: dict[str, str] = field(default_factory=dict)  # incident -> id of the affected run
    _on_sale: list[str] = field(default_factory=list)  # offer ids
    _sale_at_s: float = 0.0

    @property
    def cloud(self) -> LocalProvider:
        provider = self.installation.providers["local"]
        assert isinstance(provider, LocalProvider)
        return provider

    def act(self) -> None:
        """Check the jobs once: cause the incidents that are due, and record the survived ones."""
        with self.installation.store.read() as tx:
            jobs = {job.name: job for job in tx.jobs()}
            runs = {name: tx.runs(job_id=job.id) for name, job in jobs.items()}
            moves = {name: tx.migrations(job_id=job.id) for name, job in jobs.items()}
        self._note(jobs, runs, moves)
        trains = {
            name: current
            for name, job in jobs.items()
            if job.state == "running"
            and (current := current_run(runs[name])) is not None
            and EARLY <= _done(job, current) <= LATE
        }
        if "sale" not in self.done:
            taken = {run.offer_id for each in runs.values() for run in each if run.end is None}
            self._sale(jobs, trains, moves, taken)
        if "sale" in self.done or any(_done(jobs[name], run) >= HALF for name, run in trains.items()):
            self._take("notice", ("convnet", "gpt", "lstm"), trains)
            self._take("crash", ("lstm", "gpt", "convnet"), trains)

    def _note(
        self, jobs: Mapping[str, Job], runs: Mapping[str, list[Run]], moves: Mapping[str, list[Migration]]
    ) -> None:
        if any(move.step is Step.DONE for move in self._to_the_sale(moves)):
            self.done.add("sale")
        for incident, victim in tuple(self._victims.items()):
            for name, each in runs.items():
                lost = next((run for run in each if run.id == victim), None)
                if lost is None or lost.end is None or incident in self.done:
                    continue
                if any(run.generation > lost.generation and run.training_from_ms for run in each):
                    self.done.add(incident)
                elif jobs[name].state in TERMINAL:
                    del self._victims[incident]  # it finished before its machine was gone: try another job

    def _sale(
        self,
        jobs: Mapping[str, Job],
        trains: Mapping[str, Run],
        moves: Mapping[str, list[Migration]],
        taken: Collection[str],
    ) -> None:
        """Offer a fast machine in another zone than the job's, far below its usual price, until the job moves there.

        There is only one such machine, so no job may already run on that offer.
        """
        name = min(
            (name for name in ("gpt", "convnet") if name in trains),
            key=lambda name: _done(jobs[name], trains[name]),
            default=None,
        )
        coming = any(move.step is not Step.ABORTED for move in self._to_the_sale(moves))
        now_s = self.installation.clock.monotonic_s()
        if name is None or coming or len(self._on_sale) == len(SALE_SHARE) or now_s - self._sale_at_s < SALE_PATIENCE_S:
            return
        offers = {offer.id: offer for offer in self.cloud.offers()}
        prices = {point.offer_id: point.nano_usd_per_hour for point in self.cloud.prices()}
        here = offers[trains[name].offer_id]
        best = max(
            (
                offer
                for offer in offers.values()
                if offer.spot and offer.zone != here.zone and offer.id not in taken and offer.gpu in fitting(jobs[name])
            ),
            key=lambda offer: (GPUS[offer.gpu or ""].throttle, -prices[offer.id]),
        )
        price = int(prices[best.id] * SALE_SHARE[len(self._on_sale)])
        now_ms = self.installation.clock.now_ms()
        self.cloud.set_capacity(best.id, 1, now_ms + 7 * 86_400_000)
        self.cloud.set_price(best.id, price, now_ms)
        self.say(f"a sale: {best.id} now costs ${price / 1e9:.3f}/h instead of ${prices[best.id] / 1e9:.3f}/h")
        self._on_sale.append(best.id)
        self._sale_at_s = now_s

    def _to_the_sale(self, moves: Mapping[str, list[Migration]]) -> list[Migration]:
        """The moves made for the sale price (replacing a lost machine does not count)."""
        return [
            move
            for each in moves.values()
            for move in each
            if move.offer_id in self._on_sale and move.reason == "cheaper offer"
        ]

    def _take(self, incident: str, names: tuple[str, ...], trains: Mapping[str, Run]) -> None:
        """Take the machine of the first job without an incident so far; only spot machines get a notice."""
        if incident in self._victims:
            return
        for name in names:
            run = trains.get(name)
            if run is None or run.id in self._victims.values():
                continue
            assert run.instance_id is not None
            if incident == "crash":
                self.say(f"SIGKILL to every process of {name}'s machine {run.instance_id}")
                self.cloud.crash(run.instance_id)
            elif run.offer_id.endswith("/spot"):
                notice_s = NOTICE_WALL_S * self.installation.clock.factor
                self.say(f"{name}'s machine {run.instance_id} will be preempted in {notice_s:.0f} market seconds")
                self.cloud.preempt(run.instance_id, notice_s)
            else:
                continue
            self._victims[incident] = run.id
            return


def fitting(job: Job) -> set[str]:
    """The GPUs that the job accepts."""
    return {wanted.name for wanted in job.spec.resources.gpus}


def _done(job: Job, run: Run) -> float:
    """The share of its steps that are done, 0 to 1."""
    return run.last_step / job.spec.train.steps if job.spec.train.steps is not None else 0.0
