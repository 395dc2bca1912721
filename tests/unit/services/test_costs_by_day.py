"""`costs` by day and month where entries last over midnight."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from orchestrator.config import load_config
from orchestrator.formats.readable import iso
from orchestrator.installation import open_installation
from orchestrator.model import Entry, EntryKind, Job, JobSpec, Run, TrainSpec
from orchestrator.reports.costs import CostGroup, CostView, costs, costs_csv, entry_page
from orchestrator.reports.periods import Period, period_of
from orchestrator.services.prices.history import instant_of

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
MIDNIGHT_MS = 1_793_491_200_000  # 2026-11-01
WEEK = ("2026-10-29", "2026-11-05")


def entry(name: str, start_h: float, end_h: float, amount: int, kind: EntryKind = "compute") -> Entry:
    start, end = (MIDNIGHT_MS + round(each * HOUR_MS) for each in (start_h, end_h))
    return Entry(name, "run_A", "job_A", start, end, kind, amount, "estimated", "fake/r/z/t/spot", 1)


ENTRIES = (
    entry("ent_A", -30.0, -29.0, 100),
    entry("ent_B", -3.0, 1.0, 1001),
    entry("ent_C", 2.0, 3.0, 10),
    entry("ent_D", -30.0, 50.0, 77, "disk"),
    entry("ent_E", -30.0, 50.0, 5, "egress"),
)


def test_days_and_months_divide_what_lasts_over_midnight_and_add_up_to_the_ledger(tmp_path: Path) -> None:
    config = load_config({"state_dir": str(tmp_path), "providers.enabled": "fake"}, environ={})
    installation = open_installation(config)
    with installation.store.write() as tx:
        train = TrainSpec("m:f", None, {}, "/w", {}, (), 1, None)
        tx.add_job(Job("job_A", JobSpec("gpt", train), "ann", 1, "running"))
        tx.add_run(Run("run_A", "job_A", 1, "fake/r/z/t/spot", "i-1", "training", 1))
        tx.add_entries(ENTRIES)

    def during(since: str, until: str) -> Period:
        return period_of(MIDNIGHT_MS, since=since, until=until)

    def by(group_by: CostGroup) -> CostView:
        return costs(installation, during(*WEEK), group_by)

    views = [by(group) for group in ("day", "month", "kind", "job", "project")]
    assert {view.total.amount_nano_usd for view in views} == {1193}
    assert {view.total.entries for view in views} == {5}
    rows = [(each.name, each.amount_nano_usd, each.entries) for each in views[0].rows]
    assert rows == [
        ("2026-10-30", 100 + 5 + 5, 3),
        ("2026-10-31", 750 + 23, 2),
        ("2026-11-01", 251 + 10 + 23, 3),
        ("2026-11-02", 24, 1),
        ("2026-11-03", 2, 1),
    ]
    months = [(each.key, each.entries, each.machine_ms / HOUR_MS, each.jobs) for each in views[1].rows]
    assert months == [("2026-10", 4, 4.0, 1), ("2026-11", 3, 2.0, 1)]
    for row in views[0].rows:
        page = entry_page(installation, during(row.name, iso(int(row.key) + DAY_MS)))
        assert (page.count, page.amount_nano_usd) == (row.entries, row.amount_nano_usd)
    table = csv.DictReader(io.StringIO(costs_csv(views[0])))
    assert sum(int(each["amount_nano_usd"]) for each in table) == 1193
    assert sum(amount for day in views[4].days for _, amount in day.amounts) == 1193
    installation.close()


@pytest.mark.parametrize("until", ["5d", "2026-10-27", "2020-03-01"])
def test_a_period_with_only_an_end_is_the_thirty_days_before_it(until: str) -> None:
    period = period_of(MIDNIGHT_MS, until=until)
    assert period.until_ms == instant_of(until, MIDNIGHT_MS)
    assert period.until_ms - period.from_ms == 30 * DAY_MS
    assert period.before_ms == period.from_ms - 30 * DAY_MS
