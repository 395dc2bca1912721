"""What was paid and what was saved is what it would have cost: for any books, on every surface, to the nano-dollar."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.ledger import (
    BASELINES,
    Comparison,
    Inputs,
    TimeBreakdown,
    accrue,
    baseline_nano_usd,
    carried_nano_usd,
    charge,
    correction,
    elsewhere,
    stays,
    total_nano_usd,
    totals,
)
from orchestrator.model import Entry, Run
from orchestrator.reports import savings
from orchestrator.reports.views import JobReport, ReportView
from orchestrator.services.views import JobView
from providers.billing.charges import CHARGE_KINDS, GB, RateCard, charges
from tests import reconciled
from tests.property.test_money_laws import JOB, RUN, price_paths

ENDS = ("finished", "failed", "moved", "preempted", "lost", "paused", "aborted")
CARD = RateCard("", 60_000, disk_bytes=50 * GB, disk_nano_usd_per_gb_month=80_000_000)
LATE_MS = 10**8


def path(random: Random) -> list[tuple[int, int]]:
    later = sorted(random.sample(range(1, LATE_MS), random.randrange(4)))
    return [(at, random.randrange(10**13)) for at in [0, *later]]


def chain(random: Random, number: int) -> list[Run]:
    """The runs of a job: they may overlap, and some may still live."""
    made, at = [], random.randrange(10**6)
    for generation in range(random.randrange(5)):
        billed = at + random.randrange(10**5)
        trained = billed + random.randrange(10**6)
        stopped = trained + random.randrange(10**7)
        living = random.random() < 0.2
        made.append(
            replace(
                RUN,
                id=f"run_{number}_{generation}",
                job_id=f"job_{number}",
                generation=generation,
                offer_id=f"cloud/r/z/t{random.randrange(2)}/{random.choice(('spot', 'on_demand'))}",
                created_at_ms=billed + random.randrange(10**5),
                billed_from_ms=billed,
                billed_to_ms=None if living else stopped + random.randrange(10**6),
                training_from_ms=trained if random.random() < 0.8 else None,
                training_to_ms=None if living else stopped,
                end=None if living else random.choice(ENDS),
                last_step=random.randrange(100),
                step_wall_s=random.random() * 100,
                repeated_steps=random.randrange(20),
                useful_s=random.random() * 10**4,
                checkpoint_s=random.random() * 10**3,
            )
        )
        at = stopped
    return made


def books(random: Random, runs: list[Run], prices: dict[str, list[tuple[int, int]]]) -> list[Entry]:
    """What was booked of them: machine time, other charges, refunds, corrections of some."""
    written: list[Entry] = []
    for run in runs:
        for entry in accrue(JOB, run, prices[run.offer_id], LATE_MS, None):
            written.append(replace(entry, job_id=run.job_id))
        if random.random() < 0.4:
            amount = random.randrange(-(10**10), 10**11)
            kind = random.choice(CHARGE_KINDS)
            written.append(Entry(f"ent_{run.id}", run.id, run.job_id, 0, 1, kind, amount, "estimated", run.offer_id, 1))
    for entry in list(written):
        if random.random() < 0.2 and (fixed := correction(entry, random.randrange(10**12), LATE_MS)) is not None:
            written.append(fixed)
    return written


def compared(random: Random, number: int, runs: list[Run], entries: list[Entry]) -> list[Comparison]:
    paid, made = total_nano_usd(entries), stays(runs, {run.id: LATE_MS for run in runs}, factor=10.0)
    found = []
    for baseline in BASELINES:
        inputs, why = None, ""
        if made and random.random() < 0.8:
            machine = f"cloud/r/z/t{random.randrange(3)}/on_demand"
            timings = random.choice((1.0, random.random() * 3 + 0.01))
            prices = {machine: tuple(path(random))}
            there = elsewhere(made, partial(lambda at, part: at, (machine, timings)))
            inputs = Inputs(there, prices, {"cloud": CARD}, carried_nano_usd(runs, entries))
        else:
            why = random.choice(("no step was recorded", "its speed was not measured"))
        cost = None if inputs is None else baseline_nano_usd(inputs)
        found.append(Comparison(f"job_{number}", 1, baseline, 0, "", paid, len(entries), cost, why, inputs))
    return found


def row(random: Random, number: int, entries: list[Entry], prices: dict[str, list[tuple[int, int]]]) -> JobReport:
    runs = chain(random, number)
    own = books(random, runs, prices)
    entries += own
    cells = tuple(savings.compared(each, runs) for each in compared(random, number, runs, own))
    paid = total_nano_usd(own)
    state = random.choice(("running", "finished"))
    view = JobView(
        f"job_{number}", f"name {number}", "p", "ada", state, "cheapest", 0, None, None, None,
        5, 10, None, None, None, paid, 1, 1, 0, True, "",
    )  # fmt: skip
    provisional = state == "running"
    return JobReport(
        view, (), 1.0, 1.0, paid, provisional, None if provisional else 1, 0, "", cells, TimeBreakdown(), ()
    )


@settings(max_examples=250)  # of four jobs each: a thousand ledgers
@given(st.integers(0, 2**63))
def test_paid_and_saved_is_the_baseline_in_every_row_and_total_on_every_surface(seed):
    random, entries = Random(seed), []
    prices = {f"cloud/r/z/t{n}/{kind}": path(random) for n in range(2) for kind in ("spot", "on_demand")}
    rows = tuple(row(random, number, entries, prices) for number in range(4))
    paid = total_nano_usd(entries)
    kinds = totals(entries, "kind")
    view = ReportView(0, True, 1.0, rows, paid, savings.totals(rows), len(entries), kinds, tuple(entries), (), ())
    reconciled.check(view)


times = st.integers(0, 10**7)


@given(price_paths(), times, times, times, times, st.floats(0, 10**4), st.integers(0, 50), st.sampled_from([0, 10**8]))
def test_one_unbroken_run_on_demand_costs_what_the_same_machine_on_demand_costs(
    prices, begin, until_training, training, tail, useful_s, repeated, minimum_ms
):
    end = begin + until_training + training + tail
    run = replace(
        RUN,
        offer_id="cloud/r/z/t/on_demand",
        created_at_ms=begin // 2,
        billed_from_ms=begin,
        training_from_ms=begin + until_training,
        training_to_ms=begin + until_training + training,
        billed_to_ms=end,
        end="finished",
        useful_s=useful_s,
        repeated_steps=repeated,
        step_wall_s=3.0,
    )
    card = replace(CARD, minimum_ms=minimum_ms)
    entries = accrue(JOB, run, prices, 10**9, None)
    entries += charge(JOB, run, charges(card, prices, begin, end, end, ended=True), entries, end)
    inputs = Inputs(tuple(stays([run], {}, factor=7.0)), {run.offer_id: tuple(prices)}, {"cloud": card}, 0)
    assert baseline_nano_usd(inputs) == total_nano_usd(entries)
