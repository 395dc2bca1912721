"""`costs` by day and month where entries last over midnight."""

from __future__ import annotations

import csv
import io
import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.config import load_config
from orchestrator.errors import UsageError
from orchestrator.formats.readable import iso
from orchestrator.installation import Installation, open_installation
from orchestrator.model import Entry, EntryKind, Job, JobSpec, Run, TrainSpec
from orchestrator.reports.costs import CostGroup, CostView, costs, costs_csv, entry_page
from orchestrator.reports.html.charts.costs import by_day
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


def recorded(tmp_path: Path) -> Installation:
    """An installation with ENTRIES."""
    config = load_config({"state_dir": str(tmp_path), "providers.enabled": "fake"}, environ={})
    installation = open_installation(config)
    with installation.store.write() as tx:
        train = TrainSpec("m:f", None, {}, "/w", {}, (), 1, None)
        tx.add_job(Job("job_A", JobSpec("gpt", train), "ann", 1, "running"))
        tx.add_run(Run("run_A", "job_A", 1, "fake/r/z/t/spot", "i-1", "training", 1))
        tx.add_entries(ENTRIES)
    return installation


def test_days_and_months_divide_what_lasts_over_midnight_and_add_up_to_the_ledger(tmp_path: Path) -> None:
    installation = recorded(tmp_path)

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


def test_a_csv_of_days_names_each_day_as_its_page_does(tmp_path: Path) -> None:
    with closing(recorded(tmp_path)) as installation:
        view = costs(installation, period_of(MIDNIGHT_MS, since=WEEK[0], until=WEEK[1]), "day")
    rows = list(csv.DictReader(io.StringIO(costs_csv(view))))
    assert [each["day"] for each in rows] == [each.name for each in view.rows]
    assert rows[0]["day"] == "2026-10-30"


def test_a_chart_of_few_days_names_the_days_and_no_hours(tmp_path: Path) -> None:
    with closing(recorded(tmp_path)) as installation:
        views = [
            costs(installation, period_of(MIDNIGHT_MS, since=since, until="2026-11-02"), "project")
            for since in ("2026-11-01", "2026-10-31")
        ]
    charts = [str(by_day(view)) for view in views]
    assert not any(re.search(r">\d\d:\d\d<", each) for each in charts)
    assert [re.findall(r">(\d+ [A-Z][a-z]{2})<", each) for each in charts] == [["1 Nov"], ["31 Oct", "1 Nov"]]


def test_the_chart_of_costs_by_job_tells_jobs_of_one_name_apart(tmp_path: Path) -> None:
    with closing(recorded(tmp_path)) as installation:
        with installation.store.write() as tx:
            tx.add_job(Job("job_B", tx.job("job_A").spec, "ann", 1, "running"))
            tx.add_run(Run("run_B", "job_B", 1, "fake/r/z/t/spot", "i-2", "training", 1))
            tx.add_entries([replace(ENTRIES[2], id="ent_F", run_id="run_B", job_id="job_B")])
        chart = str(by_day(costs(installation, period_of(MIDNIGHT_MS, since=WEEK[0], until=WEEK[1]), "job")))
    assert "2026-11-01, gpt job_A: " in chart
    assert "2026-11-01, gpt job_B: " in chart


def test_a_period_that_begins_in_the_future_says_that_it_ends_now() -> None:
    with pytest.raises(UsageError) as caught:
        period_of(MIDNIGHT_MS, since="2026-12-24")
    assert str(caught.value) == "--since '2026-12-24' is in the future: it is 2026-11-01T00:00:00.000Z"
