"""Sums of the ledger by UTC day: what lasts over midnight is divided there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from orchestrator.store import CostFilter, CostSum, Store, Tx
from providers.billing.charges import CHARGE_KINDS

Make = Callable[..., Any]
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
DAY = 19_700
T0 = DAY * DAY_MS


@pytest.fixture
def tx(store: Store, job: Make, run: Make) -> Iterator[Tx]:
    with store.write() as opened:
        opened.add_job(job("job_A"))
        opened.add_job(job("job_B"))
        opened.add_run(run("run_A", "job_A"))
        opened.add_run(run("run_B", "job_B"))
        yield opened


def amounts(tx: Tx, since_h: float | None = None, until_h: float | None = None, **only: str) -> dict[int, int]:
    """nano-USD by day; times in hours since the first midnight."""
    since, until = (None if each is None else T0 + round(each * HOUR_MS) for each in (since_h, until_h))
    return {each.day - DAY: each.amount_nano_usd for each in tx.cost_sums(CostFilter(since, until, **only))}


def test_an_entry_that_lasts_over_midnight_is_divided_there_to_the_nano_dollar(tx: Tx, entry: Make) -> None:
    tx.add_entries([entry("ent_A", T0 + 23 * HOUR_MS, 10, period_end_ms=T0 + 26 * HOUR_MS)])
    assert tx.cost_sums(CostFilter(), "kind") == [
        CostSum(DAY, "compute", 1, 3, HOUR_MS),
        CostSum(DAY + 1, "compute", 1, 7, 2 * HOUR_MS, continued=1),
    ]
    assert tx.cost_jobs(CostFilter()) == [(DAY, "", "job_A"), (DAY + 1, "", "job_A")]
    assert tx.cost_jobs(CostFilter(), "project") == [(0, "default", "job_A")]


def test_a_day_that_is_over_keeps_its_costs_while_the_machine_runs_on(tx: Tx, entry: Make) -> None:
    before = dict[int, int]()
    for number in range(0, 60):
        start_ms = T0 + round((20 + number / 2) * HOUR_MS) - 1000  # one of them lasts over midnight
        tx.add_entries([entry(f"ent_{number}", start_ms, 1001, period_end_ms=start_ms + HOUR_MS // 2)])
        now = amounts(tx)
        over = {day for day in before if (day + 1) * 24 <= 20 + number / 2}
        assert {day: now[day] for day in over} == {day: before[day] for day in over}
        before = now
    assert sum(before.values()) == tx.total_nano_usd() == 60 * 1001
    assert before[1] > before[0] > 0


def test_what_is_booked_at_the_end_of_a_machine_counts_on_the_days_of_its_life(tx: Tx, entry: Make) -> None:
    life = {"period_end_ms": T0 + 10 * DAY_MS}
    tx.add_entries([entry("ent_A", T0, 1_000, kind="disk", **life), entry("ent_B", T0, 500, kind="egress", **life)])
    assert amounts(tx, kind="disk") == dict.fromkeys(range(10), 100)
    assert amounts(tx, kind="egress") == {0: 500}, "it is billed when the checkpoint is brought, at the start"
    assert amounts(tx, 5 * 24, 6 * 24) == {5: 100}
    page, count, amount = tx.entry_page(CostFilter(T0 + 5 * DAY_MS, T0 + 6 * DAY_MS), 10)
    assert ([each.id for each in page], count, amount) == (["ent_A"], 1, 100)
    tx.add_entries([entry("ent_C", T0, -1_000, kind="correction", reverses="ent_A", **life)])
    assert set(amounts(tx, 24).values()) == {0}


@pytest.mark.parametrize("kind", ["compute", *CHARGE_KINDS])
def test_a_correction_counts_on_the_days_of_what_it_corrects(tx: Tx, entry: Make, kind: str) -> None:
    life = {"period_end_ms": T0 + 3 * DAY_MS}
    tx.add_entries([entry("ent_A", T0, 3_000, kind=kind, **life)])
    booked = amounts(tx)
    tx.add_entries([entry("ent_B", T0, -1_500, kind="correction", reverses="ent_A", **life)])
    assert amounts(tx) == {day: amount // 2 for day, amount in booked.items()}
    tx.add_entries([entry("ent_C", T0, 1_500, kind="correction", reverses="ent_B", **life)])
    assert amounts(tx) == booked
    days = [amounts(tx, 24 * day, 24 * (day + 1)) for day in range(3)]
    assert days == [{day: booked[day]} if day in booked else {} for day in range(3)]


def test_an_end_of_the_time_asked_for_divides_entries_too(tx: Tx, entry: Make) -> None:
    tx.add_entries([entry("ent_A", T0 + 8 * HOUR_MS, 9, period_end_ms=T0 + 12 * HOUR_MS)])
    tx.add_entries([entry("ent_B", T0 + 10 * HOUR_MS, 5, period_end_ms=T0 + 10 * HOUR_MS, kind="failed_launch")])
    assert amounts(tx, until_h=10) == {0: 4}
    assert amounts(tx, 10) == {0: 10}
    assert amounts(tx, 9, 10) == {0: 2}
    assert amounts(tx, 12) == amounts(tx, until_h=8) == {}


@pytest.mark.parametrize("hours", [1, 5, 24, 31, 24 * 7])
def test_adjacent_periods_of_any_length_add_up_to_the_ledger(tx: Tx, entry: Make, hours: int) -> None:
    kinds = ("compute", "disk", "egress", "storage")
    for number in range(40):
        start_ms, lasts_ms = T0 + number * 5 * HOUR_MS + number, (number % 7) ** 3 * HOUR_MS + 1
        kind = kinds[number % 4]
        fields = {"kind": kind, "run_id": "run_B" if number % 3 else "run_A", "period_end_ms": start_ms + lasts_ms}
        if kind != "compute" or lasts_ms < 15 * HOUR_MS:  # a run is billed for an instant once
            tx.add_entries([entry(f"ent_{number}", start_ms, 10**12 + 7 * number, **fields)])
    edges = range(0, 24 * 30, hours)
    parts = [amounts(tx, since, since + hours) for since in edges]
    assert sum(sum(each.values()) for each in parts) == tx.total_nano_usd() > 0
    pages = [tx.entry_page(CostFilter(T0 + since * HOUR_MS, T0 + (since + hours) * HOUR_MS), 1)[2] for since in edges]
    assert pages == [sum(each.values()) for each in parts]
    assert sum(amounts(tx).values()) == tx.total_nano_usd()
