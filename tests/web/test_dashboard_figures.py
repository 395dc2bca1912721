"""The figures of the dashboard are those of the command line and of the ledger, to the nano-dollar."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, defaultdict
from decimal import Decimal
from html import unescape
from itertools import pairwise
from operator import attrgetter
from typing import get_args

import pytest

from orchestrator.cli.render.screens.costs import costs
from orchestrator.cli.render.text import Screen
from orchestrator.formats.documents import to_json
from orchestrator.formats.readable import iso
from orchestrator.model import TERMINAL, JobState
from orchestrator.reports.costs import GROUPS, costs_csv
from orchestrator.store import CostFilter, JobFilter
from tests.web.dashboard import HOSTILE, Served

DAY_MS = 86_400_000
OPEN = tuple(each for each in get_args(JobState) if each not in TERMINAL)
MONTHS = ("2026-11", "2026-10", "2026-09")


@pytest.mark.parametrize("month", MONTHS)
def test_what_was_saved_is_what_the_report_of_the_month_says(fleet: Served, month: str) -> None:
    report = fleet.client.reports.get(month=month)
    assert report.paid_nano_usd > 0
    shown = {each["baseline"]: each for each in fleet.json(f"/overview.json?month={month}")["savings"]}
    for sums in report.totals:
        assert sums.provisional == 0
        row = shown[sums.baseline]
        for name in ("paid_nano_usd", "saved_nano_usd", "baseline_nano_usd", "jobs"):
            assert row[name] == getattr(sums, name), name
        assert row["left_out"] == len(sums.left_out)


@pytest.mark.parametrize("group_by", ["project", "kind", "cloud", "day", "job", "owner", "month"])
def test_costs_by_any_group_add_up_to_the_entries_of_the_period(fleet: Served, group_by: str) -> None:
    view = fleet.client.reports.costs(group_by, month="2026-11")  # type: ignore[arg-type]
    with fleet.installation.store.read() as tx:
        entries = tx.entries(since_ms=view.from_ms, until_ms=view.until_ms)
    assert view.total.amount_nano_usd == sum(each.amount_nano_usd for each in entries) > 0
    assert sum(each.amount_nano_usd for each in view.rows) + view.rest_nano_usd == view.total.amount_nano_usd
    assert sum(amount for day in view.days for _, amount in day.amounts) == view.total.amount_nano_usd
    assert view.total.entries == len(entries)
    groups = {
        "cloud": lambda each: each.offer_id.partition("/")[0],
        "day": lambda each: str(each.period_start_ms // DAY_MS * DAY_MS),
        "job": lambda each: each.job_id,
        "month": lambda each: iso(each.period_start_ms)[:7],
    }
    billed: dict[str, set[str]] = defaultdict(set)
    for each in entries:
        billed[groups.get(group_by, attrgetter(group_by))(each)].add(each.job_id)
    assert {each.key: each.jobs for each in view.rows if each.entries} == {key: len(of) for key, of in billed.items()}
    assert view.total.jobs == len({each.job_id for each in entries})
    if group_by == "project":
        sums: Counter[str] = Counter()
        for each in entries:
            sums[each.project] += each.amount_nano_usd
        assert {each.key: each.amount_nano_usd for each in view.rows if each.amount_nano_usd} == dict(sums)


@pytest.mark.parametrize(
    "query", ["month=2026-11", "since=20d", "since=2026-10-05&until=2026-10-09", "since=9d&cloud=aws"]
)
def test_the_entries_behind_costs_are_those_that_were_summed(fleet: Served, query: str) -> None:
    costs = fleet.json(f"/costs.json?by=day&{query}")
    _, _, body = fleet.get(f"/costs?by=day&{query}")
    links = [unescape(each) for each in re.findall(r'href="(/ledger[^"]*)"', body.decode())]
    assert len(links) == 1 + len(costs["rows"]) > 2
    for link, row in zip(links, (costs["total"], *costs["rows"]), strict=True):
        entries = fleet.json(link.replace("/ledger?", "/ledger.json?") + "&limit=1")
        assert (entries["count"], entries["amount_nano_usd"]) == (row["entries"], row["amount_nano_usd"])
        assert fleet.get(link)[0] == 200


@pytest.mark.parametrize("query", ["until=60d", "since=&until=60d"])
def test_a_market_with_only_an_end_is_that_of_the_thirty_days_before(fleet: Served, query: str) -> None:
    view = fleet.json(f"/market.json?gpu=A100-80GB&{query}")
    assert view["from_ms"] == view["at_ms"] - 90 * DAY_MS
    ends = {series["points"][-1][0] for series in view["series"] if series["points"]}
    assert ends == {view["at_ms"] - 60 * DAY_MS}
    status, _, page = fleet.get(f"/market?gpu=A100-80GB&{query}")
    assert status == 200
    assert f"--since {iso(view['from_ms'])[:16]}" in page.decode()
    status, _, page = fleet.get("/market?until=2999-01-01")
    assert status == 400
    assert b"The period has not begun yet" in page


def test_pages_of_migrations_have_every_one_once(fleet: Served) -> None:
    found, path = list[str](), "/migrations?since=90d"
    while path:
        found += [each["migration"]["id"] for each in fleet.json(path.replace("?", ".json?"))["moves"]]
        older = re.search(r'rel="next" href="([^"]*)"', fleet.get(path)[2].decode())
        path = "" if older is None else unescape(older[1])
    with fleet.installation.store.read() as tx:
        assert found == [each.id for each in tx.recent_migrations(0, 100_000)]
    assert len(found) == len(set(found)) > 50
    assert fleet.get("/migrations?before=mig_0")[0] == 404


@pytest.mark.parametrize(
    ("limit", "path", "of"),
    [
        ("job_list.ROWS", "/jobs{}?sort=name", "jobs"),
        ("moves.ROWS", "/migrations{}?since=90d", "moves"),
        ("decisions.MOST", "/plans{}", "jobs"),
        ("market.ROWS", "/market{}?gpu=A100-80GB", "rows"),
    ],
)
def test_a_csv_has_every_row_of_the_list(
    fleet: Served, monkeypatch: pytest.MonkeyPatch, limit: str, path: str, of: str
) -> None:
    monkeypatch.setattr(f"orchestrator.reports.{limit}", 3)
    monkeypatch.setattr("orchestrator.web.routes.jobs.ROWS", 3)
    assert len(fleet.json(path.format(".json"))[of]) == 3
    rows = list(csv.reader(io.StringIO(fleet.get(path.format(".csv"))[2].decode())))
    monkeypatch.undo()
    with fleet.installation.store.read() as tx:
        counts = {
            "job_list.ROWS": len(tx.job_ids_page(JobFilter(), "name", None, 0)[0]),
            "moves.ROWS": len(tx.recent_migrations(fleet.client.reports.now_ms - 90 * DAY_MS, 100_000)),
            "decisions.MOST": len(tx.job_ids_page(JobFilter(OPEN), "name", None, 0)[0]),
            "market.ROWS": fleet.json("/market.json?gpu=A100-80GB")["count"],
        }
    assert len(rows) - 1 == counts[limit] > 3


def test_the_csv_of_costs_has_every_group(fleet: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.reports.costs.MOST_ROWS", 7)
    whole = fleet.json("/costs.json?by=job&since=90d")
    assert (len(whole["rows"]), whole["left_out"] > 0) == (7, True)
    _, _, body = fleet.get("/costs.csv?by=job&since=90d")
    rows = list(csv.DictReader(io.StringIO(body.decode())))
    assert len(rows) == 7 + whole["left_out"]
    assert sum(int(each["amount_nano_usd"]) for each in rows) == whole["total"]["amount_nano_usd"]


def test_the_cheapest_zones_have_the_lowest_price_of_each_day(fleet: Served) -> None:
    view = fleet.json("/market.json?gpu=A100-80GB")
    heat, zones = view["heat"], view["cheapest"]
    held = {}
    for each in zones:
        held |= {day: each for day in range(each["first_ms"], each["last_ms"] + DAY_MS, DAY_MS)}
    assert len(zones) > 1
    assert all(one["zone"] != other["zone"] for one, other in pairwise(zones))
    for column, day in enumerate(heat["days"]):
        prices = {zone: row[column] for zone, row in zip(heat["zones"], heat["values"], strict=True) if row[column]}
        assert prices[held[day]["zone"]] == min(prices.values())
        assert held[day]["lowest"] <= min(prices.values()) <= held[day]["highest"]
    _, _, page = fleet.get("/market?gpu=A100-80GB")
    assert page.count(b'<tr><th scope="row">' + zones[-1]["zone"].encode()) >= 1


def test_a_shorter_list_of_costs_says_what_it_leaves_out(fleet: Served) -> None:
    whole = fleet.client.reports.costs("job", month="2026-11")
    short = whole.shortened(5)
    assert (len(short.rows), short.left_out) == (5, whole.left_out + len(whole.rows) - 5)
    assert sum(each.amount_nano_usd for each in short.rows) + short.rest_nano_usd == whole.total.amount_nano_usd
    assert {each.jobs for each in whole.rows if each.entries} == {1}
    assert whole.total.jobs == sum(each.jobs for each in whole.rows) > 5


def test_the_two_causes_of_a_change_add_up_to_it(fleet: Served) -> None:
    for by in (each for each in GROUPS if each not in ("day", "month")):
        view = fleet.client.reports.costs(by, month="2026-11", every=True)
        assert any(row.before_nano_usd for row in view.rows)
        for row in (*view.rows, view.total):
            assert (row.by_hours_nano_usd or 0) + (row.by_price_nano_usd or 0) == row.change_nano_usd
        assert view.total.by_hours_nano_usd == sum(row.by_hours_nano_usd or 0 for row in view.rows)
        assert to_json(view)["total"]["by_price_nano_usd"] == view.total.by_price_nano_usd
        rows = list(csv.DictReader(io.StringIO(costs_csv(view))))
        assert sum(int(row["by_price_nano_usd"]) for row in rows) == view.total.by_price_nano_usd


def test_a_month_that_has_not_ended_shows_no_change_in_percent(fleet: Served) -> None:
    """A part of a month costs less than the whole month before: that is no saving."""
    ended, running = (fleet.client.reports.costs("project", month=each) for each in (MONTHS[1], MONTHS[0]))
    assert (ended.so_far, running.so_far) == (ended.period, f"{running.period} so far")
    for page in ("/?month=", "/costs?month="):
        percent = [
            re.search(r'title="before: [^"]*">[+-]?\d+%<', fleet.get(page + each)[2].decode()) for each in MONTHS[:2]
        ]
        assert [each is not None for each in percent] == [False, True]


def test_days_and_months_are_not_compared_with_a_period_before(fleet: Served) -> None:
    view = fleet.client.reports.costs("month", month="2026-11")
    assert (view.total.by_hours_nano_usd, view.total.by_price_nano_usd) == (None, None)
    assert "change" not in costs(view, Screen())


def test_adjacent_periods_neither_share_nor_miss_an_entry(fleet: Served) -> None:
    costs = fleet.client.reports.costs
    whole = costs("month", since="2026-09-01", until="2026-12-01")
    parts = [costs("project", month=month) for month in MONTHS]
    assert whole.total.amount_nano_usd == sum(each.total.amount_nano_usd for each in parts)
    assert [row.amount_nano_usd for row in whole.rows] == [each.total.amount_nano_usd for each in reversed(parts)]


def test_pages_of_the_ledger_have_every_entry_once(fleet: Served) -> None:
    found, cursor = [], None
    while True:
        page = fleet.client.reports.ledger(month="2026-11", limit=37, cursor=cursor)
        found += page.entries
        cursor = page.next_cursor
        if cursor is None:
            break
    assert len(found) == len({each.id for each in found}) == page.count > 37
    assert (
        sum(each.amount_nano_usd for each in found) == fleet.client.reports.costs(month="2026-11").total.amount_nano_usd
    )
    assert page.amount_nano_usd == sum(each.amount_nano_usd for each in found)
    only = fleet.client.reports.ledger(month="2026-11", only=CostFilter(kind="egress"), limit=1000)
    assert only.amount_nano_usd == sum(each.amount_nano_usd for each in only.entries)
    assert {each.kind for each in only.entries} == {"egress"}


def test_a_job_s_page_has_the_figures_of_its_report_and_of_its_entries(fleet: Served) -> None:
    job = fleet.client.reports.jobs(sort="cost").jobs[0]
    document = fleet.json(f"/jobs/{job.id}.json")
    report = fleet.client.reports.get(job.id)
    assert document["report"]["compared"] == to_json(report)["jobs"][0]["compared"]
    assert document["report"]["paid_nano_usd"] == report.paid_nano_usd == job.paid_nano_usd
    _, _, body = fleet.get(f"/jobs/{job.id}.csv")
    rows = list(csv.DictReader(io.StringIO(body.decode())))
    assert sum(int(row["amount_nano_usd"]) for row in rows) == report.paid_nano_usd
    assert sum(Decimal(row["amount_usd"]) for row in rows) == Decimal(report.paid_nano_usd) / 10**9


def test_a_list_of_jobs_counts_finds_and_sorts(fleet: Served) -> None:
    read = fleet.client.reports.jobs
    everything = read(limit=1000)
    assert everything.count == sum(everything.states.values()) == len(everything.jobs)
    paid = [each.paid_nano_usd for each in read(sort="cost", limit=1000).jobs]
    assert paid == sorted(paid, reverse=True)
    some = fleet.json("/jobs.json?q=LLAMA&state=finished")
    assert some["count"] == len(some["jobs"]) > 0
    assert all("llama" in each["name"] and each["state"] == "finished" for each in some["jobs"])
    assert fleet.json("/jobs.json?q=%25")["count"] == 0  # a percent sign is no wildcard


def test_an_export_holds_no_cell_that_a_spreadsheet_would_evaluate(fleet: Served) -> None:
    _, headers, body = fleet.get("/jobs.csv")
    assert headers["content-disposition"] == 'attachment; filename="tradewind-jobs.csv"'
    rows = list(csv.reader(io.StringIO(body.decode())))
    names = {row[1] for row in rows}
    assert {f"'{name}" if name.startswith("=") else name for name in HOSTILE} <= names
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "@"))]


@pytest.mark.parametrize(("cloud", "capacity"), [("", ""), ("gcp", ""), ("", "spot"), ("aws", "on-demand")])
def test_the_frontier_has_the_offers_that_none_beats_in_both_price_and_speed(
    fleet: Served, cloud: str, capacity: str
) -> None:
    view = fleet.json(f"/market/frontier.json?cloud={cloud}&capacity={capacity}")
    with fleet.installation.store.read() as tx:
        offers = {each.id: each for each in tx.offers()}
        prices = {each.offer_id: each.nano_usd_per_hour for each in tx.payable_as_of(fleet.installation.clock.now_ms())}
    of_kind = {
        (each["gpu"], each["gpu_count"], each["spot"]): [
            prices[name]
            for name, offer in offers.items()
            if (offer.gpu, offer.gpu_count, offer.spot) == (each["gpu"], each["gpu_count"], each["spot"])
            and (not cloud or offer.provider == cloud)
        ]
        for each in view["rows"]
    }
    assert len(of_kind) == len(view["rows"]) > 2
    for each in view["rows"]:
        assert each["nano_usd_per_hour"] == prices[each["offer_id"]]
        assert prices[each["offer_id"]] == min(of_kind[each["gpu"], each["gpu_count"], each["spot"]])
        assert not capacity or each["spot"] == (capacity == "spot")
        beaten = [
            other
            for other in view["rows"]
            if other["speed"] >= each["speed"] and other["nano_usd_per_hour"] <= each["nano_usd_per_hour"]
        ]
        assert each["best"] == (beaten == [each])
    rows = list(
        csv.DictReader(io.StringIO(fleet.get(f"/market/frontier.csv?cloud={cloud}&capacity={capacity}")[2].decode()))
    )
    assert [int(row["nano_usd_per_hour"]) for row in rows] == [each["nano_usd_per_hour"] for each in view["rows"]]


def test_the_frontier_of_a_job_has_its_own_speeds(fleet: Served) -> None:
    job = next(each for each in fleet.client.reports.jobs(limit=1000).jobs if each.state == "finished")
    view = fleet.client.reports.frontier(job.id)
    assert (view.speed_of, view.job_name) == ("steps", job.name)
    assert [each.speed for each in view.rows] == sorted(each.speed for each in view.rows)
    best = [each for each in view.rows if each.best]
    assert [each.nano_usd_per_hour for each in best] == sorted(each.nano_usd_per_hour for each in best)
    for each in view.rows:
        assert each.nano_usd_per_unit == pytest.approx(each.nano_usd_per_hour / 3600 / each.speed * 1000)
    status, _, page = fleet.get(f"/market/frontier?job={job.id}")
    assert status == 200
    assert f"Cheapest at each speed of {job.name}" in page.decode()


def test_what_a_generated_job_saved_was_computed_when_it_ended_with_the_prices_known_then(fleet: Served) -> None:
    with fleet.installation.store.read() as tx:
        ended = {each.job_id: tx.job_facts(each.job_id).finished_at_ms for each in tx.comparisons()}
        compared = tx.comparisons()
    assert len(ended) > 10
    for each in compared:
        ended_ms = ended[each.job_id]
        assert ended_ms is not None
        assert 0 < each.at_ms - ended_ms < 3_600_000
        prices = [] if each.inputs is None else [at for of in each.inputs.prices.values() for at, _ in of]
        assert all(at_ms < each.at_ms for at_ms in prices)


def test_health_says_who_leads_and_how_long_machines_may_be_alone(fleet: Served) -> None:
    leader, config = fleet.installation.store.leader(), fleet.installation.config
    assert leader is not None
    health = fleet.json("/health.json")
    assert (health["epoch"], health["epoch_holder"]) == (leader.epoch, leader.holder)
    assert (health["lease_s"], health["suspect_after_s"]) == (config.lease_s, config.suspect_after_s)
    page = fleet.get("/health")[2].decode()
    assert f"epoch {leader.epoch}<small>{leader.holder}</small>" in page
    assert "suspected lost after 5 s without contact" in page


def test_an_ended_job_has_nothing_to_go(fleet: Served) -> None:
    jobs = fleet.json("/jobs.json")["jobs"]
    ended = [each for each in jobs if each["state"] in ("finished", "failed", "cancelled")]
    assert ended
    assert [each["name"] for each in ended if each["forecast"] is not None] == []
    assert any(each["forecast"] is not None for each in jobs)
