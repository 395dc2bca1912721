"""One day of a job on a simulated market: its price rises, and later its machine is preempted. Deterministic.

The product's own engine runs in virtual time; docs/migration.svg and docs/demo.svg show the result.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

from orchestrator.model import Expected, GpuRequest, JobSpec, Run
from orchestrator.reports.report import report
from orchestrator.reports.views import ReportView
from orchestrator.services.jobs import plan
from orchestrator.services.views import PlanView
from orchestrator.store import Store
from providers.fake import Behaviour
from providers.hardware import GIB
from providers.money import MS_PER_HOUR, usd
from providers.offer import CapacityType, Offer
from tests.rig import SimulatedInstallation, SqliteScratchDatabase, Timings, memory_folder, train_spec

HOURS = 8
STEP_S = 10.0
STRIDE_S, MOVING_STRIDE_S = 45.0, 2.0  # between migrations, and during one
BEHAVIOUR = Behaviour(boot_s=90.0, listing_lag_s=10.0, stop_s=20.0, late_s=30.0)
TIMINGS = Timings(step_s=STEP_S, prepare_s=20.0, restore_s=10.0, checkpoint_every_s=600.0)


def _offer(region: str, capacity: CapacityType) -> Offer:
    return Offer("fake", region, f"{region}-1", "v100.1", "V100", 1, 8, 64 * GIB, capacity, simulated=True)


OREGON = _offer("oregon", CapacityType.SPOT)
IRELAND = _offer("ireland", CapacityType.SPOT)
ON_DEMAND = _offer("oregon", CapacityType.ON_DEMAND)
ELSEWHERE = _offer("ireland", CapacityType.ON_DEMAND)
COURSES = {  # (hour, dollars per hour); between two points a price varies a little
    OREGON: ((0.0, 0.92), (2.3, 2.15), (4.4, 1.16)),
    IRELAND: ((0.0, 1.34), (1.6, 1.12), (6.2, 1.55)),
    ON_DEMAND: ((0.0, 3.06),),
    ELSEWHERE: ((0.0, 3.37),),
}
TAKEN_AT_H, NOTICE_S = 5.2, 120.0


@dataclass(frozen=True, slots=True)
class Story:
    """The result. Instants are market time in ms; `paths` has each offer's (instant, nano-USD per hour).

    `planned` is the plan shown before submitting, `reported` the report at the end.
    """

    begin_ms: int
    end_ms: int
    paths: dict[Offer, list[tuple[int, int]]]
    runs: tuple[Run, ...]
    paid_nano_usd: int
    stops_s: tuple[float, ...]  # time without training at each change of machine
    planned: PlanView
    reported: ReportView


@cache
def play() -> Story:
    """Run the simulation, which takes some seconds. The result is cached."""
    with memory_folder() as folder:
        database = SqliteScratchDatabase(folder)
        try:
            return _play(
                SimulatedInstallation(
                    folder / "state",
                    database,
                    catalog=[(offer, usd(str(course[0][1]))) for offer, course in COURSES.items()],
                    behaviour=BEHAVIOUR,
                    timings=TIMINGS,
                    overrides={"policy.min_dwell_s": 1800.0},
                )
            )
        finally:
            database.close()


def _play(home: SimulatedInstallation) -> Story:
    begin_ms = home.clock.now_ms()
    _script_prices(home, begin_ms)
    home.tick(STRIDE_S)  # prices are known
    steps = int(HOURS * 3600 / STEP_S * 0.85)
    spec = JobSpec("gpt", train_spec(steps), expected=Expected(GpuRequest("V100"), 1 / STEP_S))
    planned = replace(plan.preview(home.installation, [spec]), id="plan_1HF7YC5Y8MNOPQR")  # no randomness
    job = home.submit_job(spec)
    taken = False
    while not home.settled:
        moving = home.read(lambda tx: tx.migrations(open=True))
        home.tick(MOVING_STRIDE_S if moving else STRIDE_S)
        if not taken and home.clock.now_ms() >= begin_ms + TAKEN_AT_H * MS_PER_HOUR and (run := home.current(job)):
            home.cloud.preempt(home.machine(run).id, notice_s=NOTICE_S)
            home.cloud.set_capacity(run.offer_id, 0)
            taken = True
    with Store.read(home.store) as tx:
        runs = [run for run in tx.runs(job_id=job.id) if run.training_from_ms is not None]
        end_ms = max(run.training_to_ms or 0 for run in runs)
        return Story(
            begin_ms,
            end_ms,
            {offer: home.cloud.price_path(offer.id, end_ms, begin_ms) for offer in (OREGON, IRELAND, ON_DEMAND)},
            tuple(runs),
            tx.total_nano_usd(),
            tuple(
                ((after.training_from_ms or 0) - (before.training_to_ms or 0)) / 1000
                for before, after in pairwise(runs)
            ),
            planned,
            report(home.installation, job.id),
        )


def _script_prices(home: SimulatedInstallation, begin_ms: int) -> None:
    wander = random.Random(3)
    for offer, course in COURSES.items():
        if not offer.spot:
            continue
        for tenth in range(HOURS * 4):
            hour = tenth / 4 + wander.uniform(0.0, 0.2)
            dollars = [price for since, price in course if since <= hour][-1] * wander.uniform(0.96, 1.04)
            home.cloud.set_price(offer.id, usd(f"{dollars:.4f}"), at_ms=begin_ms + int(hour * MS_PER_HOUR))
