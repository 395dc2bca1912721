"""The generated fleet, written with the store's own methods, as a control plane would have left it.

Ledger entries are accrued from each run's interval and prices, and savings are computed by the same function as for
real jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from random import Random

from orchestrator.engine.billing.comparisons import conclude
from orchestrator.installation import Installation
from orchestrator.ledger import accrue
from orchestrator.model import (
    Alternative,
    CostParts,
    Entry,
    Estimate,
    Event,
    GpuRequest,
    Job,
    JobForecast,
    JobSpec,
    Migration,
    Placement,
    Plan,
    Rejection,
    Resources,
    Run,
    Step,
    TrainSpec,
    new_id,
)
from orchestrator.store import Tx
from orchestrator.web.demo.backtest import write_backtests
from orchestrator.web.demo.files import write_files
from orchestrator.web.demo.lives import DAY_MS, Life, Stretch, candidates, lives
from orchestrator.web.demo.market import MACHINES, SOURCE, ZONES, DemoMarket, market
from providers.clock import VirtualClock
from providers.money import format_usd
from providers.offer import OfferId, short_zone
from providers.price import PricePoint

DAYS = 92
SEED = 20
WITH_FILES_DAYS = 10
ACTOR = "control-plane"
GB = 1_000_000_000
CLOSED_AFTER_MS = 120_000
"""Time after the end of a job by which its last machine is booked."""


@dataclass(frozen=True)
class Size:
    """How much to generate: jobs; price changes of a spot offer per day; periods booked per day of a run; days; starts
    of each job of a back-test."""

    jobs: int = 1000
    changes_per_day: float = 4.0
    periods_per_day: int = 12
    days: int = DAYS
    starts: int = 2


def write_fleet(
    installation: Installation, size: Size, progress: Callable[[str], None] = lambda _: None, seed: int = SEED
) -> None:
    """Fill an empty store with a history that ends now. The same size and seed give the same figures."""
    now_ms = installation.clock.now_ms()
    start_ms = now_ms - size.days * DAY_MS
    progress("prices")
    demo = market(start_ms, now_ms, seed, changes_per_day=size.changes_per_day)
    _write_market(installation, demo, now_ms)
    progress("jobs")
    fleet = lives(demo, size.jobs, start_ms, now_ms, seed)
    with installation.store.write() as tx:
        writer = _Writer(tx, demo, now_ms, size.periods_per_day)
        entries: list[Entry] = []
        ended: list[tuple[int, str]] = []
        for life in fleet:
            job = writer.write(life)
            entries += writer.entries(job)
            if life.finished_ms is not None:
                ended.append((life.finished_ms, job.id))
        for event in sorted(writer.events, key=lambda each: (each.at_ms, each.id)):
            tx.add_event(event)
        entries.sort(key=lambda each: (each.period_end_ms, each.id))
        progress("ledger")
        tx.load_entries(entries)
        for name, body in writer.plans:
            tx.add_plan(body, acted_on=[name])
    for life, job_id in zip(fleet, writer.ids, strict=True):
        if life.finished_ms is None or life.finished_ms > now_ms - WITH_FILES_DAYS * DAY_MS:
            write_files(installation, job_id, life, [run.id for run in writer.runs[job_id]], now_ms)
    progress("savings")
    for begin in range(0, len(ended), 200):
        with installation.store.write() as tx:
            for finished_ms, job_id in sorted(ended)[begin : begin + 200]:
                then = replace(installation, clock=VirtualClock(finished_ms + CLOSED_AFTER_MS))
                conclude(then, tx, job_id)
    progress("back-tests")
    write_backtests(installation.state_dir, demo, start_ms, now_ms, seed, size.starts)


def _write_market(installation: Installation, demo: DemoMarket, now_ms: int) -> None:
    points = [
        PricePoint(offer_id, price, at_ms, at_ms + 120_000, SOURCE)
        for offer_id, changes in demo.prices.items()
        for at_ms, price in changes
    ]
    with installation.store.write() as tx:
        for cloud in MACHINES:
            tx.put_offers(cloud, [each for each in demo.offers if each.provider == cloud])
        tx.add_prices(points)
        for cloud, zones in ZONES.items():
            for region in sorted({region for region, _ in zones}):
                late = 7200_000 if region == "southcentralus" else 0
                seen = sum(each.provider == cloud and each.region == region for each in demo.offers)
                tx.record_poll(cloud, now_ms - 240_000 - late, now_ms - 236_000 - late, seen, 3, None, region=region)
            tx.record_poll(cloud, now_ms - 3600_000, now_ms - 3590_000, 0, 0, None, region="")
        down = "the region did not answer within 30 s (generated)"
        tx.record_poll(
            "azure",
            now_ms - 120_000,
            now_ms - 90_000,
            0,
            0,
            down,
            region="southcentralus",
            hint="it will be polled again in 5 minutes",
        )
    while True:
        with installation.store.write() as tx:
            if not tx.roll_up(now_ms):
                break


class _Writer:
    """Writes lives; collects the events and plans, which are written in the order of time."""

    def __init__(self, tx: Tx, demo: DemoMarket, now_ms: int, periods_per_day: int) -> None:
        self._tx, self._demo, self._now_ms = tx, demo, now_ms
        self._period_ms = DAY_MS // periods_per_day
        self.events: list[Event] = []
        self.plans: list[tuple[str, Plan]] = []
        self.runs: dict[str, list[Run]] = {}
        self.ids: list[str] = []

    def write(self, life: Life) -> Job:
        """The job with its runs and moves. Returns it."""
        at = Random(life.number)
        family = life.family
        job_id = new_id("job", life.submitted_ms, at)
        train = TrainSpec(
            entry="train:main",
            script=None,
            args={"lr": 0.0003},
            workdir="/code",
            env={},
            secrets=(),
            steps=life.steps,
            epochs=None,
        )
        first = candidates(life, self._demo, life.submitted_ms)[0]
        guess = round(first[0] * life.steps)
        budget = guess * 2 if life.number % 3 == 0 else None
        deadline_s = life.steps / life.steps_per_s(first[1]) * 2.5 if life.number % 4 == 0 else None
        spec = JobSpec(
            name=life.name,
            train=train,
            project=family.project,
            labels={"team": family.owner},
            resources=Resources(gpus=tuple(GpuRequest(name) for name in family.gpus)),
            budget_nano_usd=budget,
            deadline_s=deadline_s,
        )
        job = Job(job_id, spec, family.owner, life.submitted_ms, "queued")
        self._tx.add_job(job)
        said = f"{family.owner} submitted {life.name}"
        self._say(job, life.submitted_ms, "job.submitted", said, actor=f"user:{family.owner}")
        runs: list[Run] = []
        for number, stretch in enumerate(life.stretches, 1):
            run = self._run(job, life, stretch, number, at)
            self._tx.add_run(run)
            self._move(job, life, stretch, run, runs[-1] if runs else None, at)
            runs.append(run)
        self.runs[job_id] = runs
        self.ids.append(job_id)
        for gpu, count, rate, steps, at_ms in self._speeds(life):
            self._tx.add_perf(job_id, gpu, count, rate, steps, at_ms)
        self._tx.set_job_state(job_id, life.state)  # type: ignore[arg-type]
        dear = [pair for pair in candidates(life, self._demo, life.submitted_ms) if not pair[1].spot]
        self._tx.set_job_facts(
            job_id,
            finished_at_ms=life.finished_ms,
            baseline_offer_id=dear[0][1].id,
            total_steps=life.steps,
            checkpoint_bytes=round(2.4 * GB),
            error="RuntimeError: loss is not finite (generated)" if life.state == "failed" else None,
        )
        if life.finished_ms is not None:
            words = {
                "finished": "finished all steps",
                "failed": "failed: loss is not finite",
                "cancelled": "was cancelled",
            }
            self._say(job, life.finished_ms, f"job.{life.state}", f"{life.name} {words[life.state]}")
        else:
            self._forecast(job, life)
        return job

    def entries(self, job: Job) -> list[Entry]:
        """The costs of its machines by period, and of transfers between clouds."""
        made: list[Entry] = []
        runs = self.runs[job.id]
        for run, before in zip(runs, [None, *runs], strict=False):
            if run.billed_from_ms is None:
                continue
            end_ms = self._now_ms if run.billed_to_ms is None else run.billed_to_ms
            prices = self._demo.prices_within(run.offer_id, run.billed_from_ms, end_ms)
            last: int | None = None
            for upto in self._ends(run.billed_from_ms, end_ms):
                made += accrue(job, run, prices, upto, last)
                last = upto
            if before is not None and _region(before.offer_id) != _region(run.offer_id):
                start, amount = run.billed_from_ms, round(2.4 * 90_000_000)
                name = f"{run.id.replace('run_', 'le_')}-egress"
                made.append(
                    Entry(
                        id=name,
                        run_id=run.id,
                        job_id=job.id,
                        period_start_ms=start,
                        period_end_ms=start + 60_000,
                        kind="egress",
                        amount_nano_usd=amount,
                        basis="estimated",
                        offer_id=run.offer_id,
                        at_ms=start + 60_000,
                        reverses=None,
                        project=job.project,
                        owner=job.owner,
                        labels=job.spec.labels,
                    )
                )
        return made

    def _ends(self, start_ms: int, end_ms: int) -> Iterator[int]:
        at_ms = (start_ms // self._period_ms + 1) * self._period_ms
        while at_ms < end_ms:
            yield at_ms
            at_ms += self._period_ms
        yield end_ms

    def _run(self, job: Job, life: Life, stretch: Stretch, number: int, at: Random) -> Run:
        stop = self._now_ms if stretch.end_ms is None else stretch.end_ms
        trained_s = max(0, stop - stretch.training_ms) / 1000
        starts = stretch.end is None and stretch.training_ms > self._now_ms
        return Run(
            id=new_id("run", stretch.begin_ms, at),
            job_id=job.id,
            generation=number,
            offer_id=stretch.offer.id,
            instance_id=f"i-{blake2b(f'{job.id}{number}'.encode(), digest_size=8).hexdigest()}",
            state="ended" if stretch.end else "starting" if starts else "training",
            created_at_ms=stretch.begin_ms,
            billed_from_ms=stretch.begin_ms + 30_000,
            billed_to_ms=None if stretch.end_ms is None else max(stretch.end_ms, stretch.begin_ms + 90_000),
            training_from_ms=None if starts else min(stretch.training_ms, stop),
            training_to_ms=stretch.end_ms,
            end=stretch.end,
            start_step=stretch.start_step,
            last_step=stretch.last_step,
            last_loss=life.loss_at(stretch.last_step),
            step_wall_s=1 / life.steps_per_s(stretch.offer),
            save_wall_s=4.0,
            repeated_steps=stretch.repeated,
            useful_s=trained_s * 0.975,
            checkpoint_s=trained_s * 0.012,
        )

    def _move(self, job: Job, life: Life, stretch: Stretch, run: Run, source: Run | None, at: Random) -> None:
        plan_id = self._plan(job, life, stretch)
        migration_id = new_id("mig", stretch.begin_ms, at)
        starting = run.training_from_ms is None
        self._tx.add_migration(
            Migration(
                id=migration_id,
                job_id=job.id,
                source_run_id=None if source is None else source.id,
                target_run_id=run.id,
                offer_id=run.offer_id,
                generation=run.generation,
                reason=stretch.reason,
                step=Step.READY if starting else Step.DONE,
                attempt=1,
                token=migration_id,
                created_at_ms=stretch.begin_ms,
                step_at_ms=stretch.training_ms,
                plan_id=plan_id,
                expected_saving_nano_usd=stretch.saving_nano_usd,
            )
        )
        where = short_zone(run.offer_id)
        words = {
            "first placement": f"starts on {where}: cheapest per step",
            "cheaper offer": f"moves to {where}: saves {format_usd(stretch.saving_nano_usd)} to the end",
            "notice": f"moves to {where}: its spot machine is being taken away",
            "lost": f"continues on {where}: its machine disappeared",
        }
        data = {"attempt": 1, "bytes": 2_400_000_000 if source else 0}
        parts = (
            ("provision", 0.0),
            ("ready", 0.5),
            ("transfer", 0.62),
            ("restore", 0.75),
            ("cutover", 0.92),
            ("done", 1.0),
        )
        for step, share in parts:
            when = stretch.begin_ms + round(share * (stretch.training_ms - stretch.begin_ms))
            if when <= self._now_ms:
                said = f"{life.name} {words[stretch.reason]}" if step == "provision" else f"{step} on {where}"
                self._say(job, when, f"migration.{step}", said, run.id, migration_id, data)
        if stretch.end == "preempted" and stretch.end_ms is not None:
            said = f"the provider took {where} away at step {stretch.last_step}"
            self._say(job, stretch.end_ms, "run.preempted", said, run.id)

    def _plan(self, job: Job, life: Life, stretch: Stretch) -> str:
        at_ms, left = stretch.begin_ms - 2000, life.steps - stretch.start_step
        ranked = candidates(life, self._demo, at_ms)
        chosen = next(pair for pair in ranked if pair[1].id == stretch.offer.id)
        others = [pair for pair in ranked if pair[1].id != stretch.offer.id]

        def alternative(pair: tuple[float, object], reason: str) -> Alternative:
            per_step, offer = pair
            rate, cost = life.steps_per_s(offer), round(per_step * left * 1.05)  # type: ignore[arg-type]
            return Alternative(
                offer_id=offer.id,  # type: ignore[attr-defined]
                nano_usd_per_hour=self._demo.price_at(offer.id, at_ms),  # type: ignore[attr-defined]
                price_age_s=140.0,
                steps_per_s=rate,
                nano_usd_per_step=per_step,
                cost_nano_usd=cost,
                cost_low_nano_usd=round(cost * 0.93),
                cost_high_nano_usd=round(cost * 1.19),
                duration_s=left / rate * 1.04,
                feasible=True,
                reason=reason,
                duration_low_s=left / rate,
                duration_high_s=left / rate * 1.2,
            )

        best = alternative(chosen, "")
        cost = best.cost_nano_usd or 0
        rest = tuple(
            alternative(
                pair,
                f"costs {pair[0] / chosen[0] - 1:.0%} more per step"
                if pair[0] >= chosen[0]
                else "no capacity at the time",
            )
            for pair in others[:7]
        )
        dear = next(pair for pair in ranked if not pair[1].spot)
        rate = life.steps_per_s(stretch.offer)
        second = others[0][0] if others else chosen[0]
        parts = _parts(cost)
        placement = Placement(
            job_id=job.id,
            action="place" if stretch.reason == "first placement" else "move",
            offer_id=stretch.offer.id,
            reason="least cost per step of the offers that fit"
            if not stretch.saving_nano_usd
            else f"saves {format_usd(stretch.saving_nano_usd)} after the cost of moving",
            cost_nano_usd=cost,
            finish_at_ms=at_ms + round((best.duration_s or 0) * 1000),
            saving_nano_usd=max(0, round(dear[0] * left) - cost),
            alternatives=(best, *rest),
            baseline=alternative(dear, "on demand"),
            throughput=Estimate(rate, rate * 0.94, rate * 1.06, "measured on this kind of machine (generated)"),
            would_move_below_nano_usd_per_hour=round(
                self._demo.price_at(others[0][1].id, at_ms) * 0.8 * chosen[0] / second
            )
            if others
            else None,
            kept_up_to_nano_usd_per_hour=round(best.nano_usd_per_hour * 1.25 * second / chosen[0]),
            parts=parts,
            expected_losses=round((best.duration_s or 0) / 3600 / 26.0, 2) if stretch.offer.spot else 0.0,
            hazard_source="generated: one loss in 26 hours",
            considered=len(self._demo.offers),
            rejected=(Rejection("gpu", len(self._demo.offers) - len(ranked)),),
            evidence="measured" if stretch.start_step else "profile",
        )
        digest = blake2b(f"{job.id}{stretch.begin_ms}".encode(), digest_size=8).hexdigest()
        plan = Plan(f"plan_{digest}", at_ms, digest, True, (placement,))
        self.plans.append((job.id, plan))
        return plan.id

    def _forecast(self, job: Job, life: Life) -> None:
        last = life.stretches[-1]
        per_step = self._demo.price_at(last.offer.id, self._now_ms) / 3600 / life.steps_per_s(last.offer)
        left = life.steps - last.last_step
        cost, time_s = round(per_step * left), left / life.steps_per_s(last.offer)
        forecast = JobForecast(
            self._now_ms, cost, round(cost * 0.94), round(cost * 1.22), time_s, time_s * 0.97, time_s * 1.2, "measured"
        )
        self._tx.put_forecasts({job.id: forecast}, self._now_ms)

    def _speeds(self, life: Life) -> Iterable[tuple[str, int, float, int, int]]:
        for stretch in life.stretches:
            steps = stretch.last_step - stretch.start_step
            if steps > 0 and stretch.offer.gpu is not None:
                at_ms = stretch.end_ms or self._now_ms
                yield stretch.offer.gpu, stretch.offer.gpu_count, life.steps_per_s(stretch.offer), steps, at_ms

    def _say(
        self,
        job: Job,
        at_ms: int,
        kind: str,
        message: str,
        run_id: str | None = None,
        migration_id: str | None = None,
        data: dict[str, int] | None = None,
        actor: str = ACTOR,
    ) -> None:
        digest = blake2b(f"{job.id}{at_ms}{kind}{run_id}".encode(), digest_size=8).hexdigest()
        self.events.append(
            Event(
                f"ev_{digest}",
                at_ms,
                kind,
                message,
                actor,
                job.id,
                run_id,
                migration_id,
                None,
                data or {},
                job.project,
                job.owner,
                job.spec.labels,
            )
        )


def _parts(cost: int) -> CostParts:
    saves, losses, start = cost * 12 // 1000, cost * 3 // 100, cost // 100
    return CostParts(cost - saves - losses - start, saves, losses, start, 0, 0, 0)


def _region(offer_id: str) -> tuple[str, str]:
    named = OfferId.parse(offer_id)
    return named.provider, named.region
