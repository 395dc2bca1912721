"""Reports: exact sums, the comparison with baselines, the time breakdown, and the page."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.formats.csv_cells import cell
from orchestrator.formats.documents import to_json
from orchestrator.formats.html.markup import element, text
from orchestrator.installation import Installation
from orchestrator.ledger import totals
from orchestrator.model import JobSpec
from orchestrator.reports.entries_csv import entries_csv, write_entries
from orchestrator.reports.html import page
from orchestrator.reports.html.render import environment
from orchestrator.reports.losses import losses
from orchestrator.reports.report import entries, report
from providers.fake import default_catalog
from tests.rig import SimulatedInstallation, SqliteScratchDatabase, train_spec
from tests.unit.services.recorded_history import ON_DEMAND, OTHER_SPOT, SPOT, Past, submit_job


def test_the_total_is_the_exact_sum_of_jobs_of_runs_and_of_entries(installation: Installation, past: Past) -> None:
    view = report(installation)
    assert view.paid_nano_usd > 0
    assert view.paid_nano_usd == sum(entry.amount_nano_usd for entry in view.entries)
    assert view.paid_nano_usd == sum(row.paid_nano_usd for row in view.jobs)
    assert view.paid_nano_usd == sum(cost.cost_nano_usd for row in view.jobs for cost in row.runs)


def test_every_billed_millisecond_is_in_one_box(installation: Installation, past: Past) -> None:
    view = report(installation)
    for row in view.jobs:
        billed = sum(
            (cost.run.billed_to_ms or view.at_ms) - cost.run.billed_from_ms
            for cost in row.runs
            if cost.run.billed_from_ms is not None
        )
        assert row.time_breakdown.total_ms == billed


def test_runs_carry_their_reason_and_the_prices_that_were_in_force(installation: Installation, past: Past) -> None:
    runs = report(installation, "gpt").jobs[0].runs
    assert [(cost.run.offer_id, cost.reason) for cost in runs] == [
        (SPOT, "first placement"),
        (ON_DEMAND, "lost"),
        (OTHER_SPOT, "cheaper offer"),
    ]
    assert all(cost.prices for cost in runs)


def test_the_loss_curve_takes_the_last_word_on_a_repeated_step_and_skips_cut_lines(
    installation: Installation, past: Past
) -> None:
    losses = report(installation, "gpt").jobs[0].losses
    steps = [step for step, _ in losses]
    assert steps == sorted(set(steps))
    assert losses[0] == (0, 10.0)
    assert steps[-1] == 990


def test_lines_of_metrics_that_no_number_holds_are_skipped() -> None:
    steps = ("9" * 400, "1e400", "NaN", '"x"', "-1", "[" * 100_000, "true", str(2**60))
    lines = [f'{{"step": {step}, "loss": 1}}' for step in steps]
    lines += [f'{{"step": 1, "loss": {loss}}}' for loss in ("9" * 400, "1e400", "null", "{}")]
    assert losses([f'{chr(10).join(lines)}\n{{"step": 2, "loss": 3.5}}\n'.encode()]) == ((2, 3.5),)


def test_the_csv_sums_to_the_total_and_starts_no_formula(installation: Installation, past: Past) -> None:
    submit_job(installation, "evil", project="=cmd()")
    view = report(installation)
    rows = list(csv.DictReader(io.StringIO(entries_csv(view.entries))))
    assert sum(int(row["amount_nano_usd"]) for row in rows) == view.paid_nano_usd
    assert not any(value.startswith(("=", "@")) for row in rows for value in row.values())


@pytest.mark.parametrize(
    "text",
    [
        *("=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "-2+3+cmd|' /C calc'!A0", "\uff1d1"),
        *(" =1", "\xa0 \t@SUM(A1)", "\u3000\uff1d1"),
    ],
)
def test_no_cell_is_run_by_a_spreadsheet(text: str) -> None:
    assert cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "-", "-1.5", "+3", "-.5e-3", "gpt", "a=b", "2026-11-21"])
def test_numbers_and_plain_words_stay_what_they_are(text: str) -> None:
    assert cell(text) == text


@pytest.mark.parametrize(
    "hidden", ["\x00", "\x1b", "\x9b", "\xad", "\u200b", "\u202e", "\ufeff", "\ud800", "\U000e0041"]
)
def test_hidden_characters_of_a_cell_or_a_page_are_shown_and_have_no_effect(hidden: str) -> None:
    for written in (cell(f"{hidden}=1"), str(text(f"{hidden}=1")), element("a", href=f"{hidden}=1")):
        assert hidden not in written
        assert "\\" in written
        assert written.encode()
    template = environment().from_string("<a title='{{ it }}'>{{ it }} {{ it | upper }} {{ markup | chart }}</a>")
    page_ = template.render(it=f"{hidden}<b>", markup=element("b", "bold"))
    assert hidden not in page_
    assert page_.count("&lt;") == 3
    assert cell("two\nlines\tand a tab") == str(text("two\nlines\tand a tab")) == "two\nlines\tand a tab"


class _Page(HTMLParser):
    """Tags, addresses and the words of a page; complains about a tag that is not closed."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), f"{tag} has a handler"
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "xlink:href", "action"):
                self.addresses.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_nothing_from_outside_and_no_script(installation: Installation, past: Past) -> None:
    text = page(report(installation))
    parsed = _Page(text)
    assert parsed.addresses == []
    assert "http" not in text
    assert "url(" not in text
    assert "@import" not in text
    assert "script" not in parsed.tags
    assert len(text) < 200_000


def test_the_page_tells_jobs_of_one_name_apart(installation: Installation, past: Past) -> None:
    again = submit_job(installation, "gpt").id
    text = page(report(installation))
    for job_id in (past.gpt, again):
        assert text.count(f'<th scope="row">gpt {job_id}</th>') == 5  # jobs, three comparisons, billed time
        assert f"<b>gpt {job_id}</b>: " in text
    assert '<th scope="row">gpt</th>' not in text
    assert f'<th scope="row">gpt {past.gpt} 1</th>' in text  # its first run
    assert f"gpt {past.gpt}, paid: " in text  # the chart


def test_the_page_is_accessible(installation: Installation, past: Past) -> None:
    text = page(report(installation))
    parsed = _Page(text)
    assert parsed.tags.count("h1") == 1
    assert len(parsed.ids) == len(set(parsed.ids))
    assert parsed.tags.count("svg") >= 4
    assert len(re.findall(r"<svg [^>]*aria-label=", text)) == parsed.tags.count("svg")
    assert parsed.tags.count("caption") == parsed.tags.count("table")
    assert 'scope="col"' in text
    assert 'scope="row"' in text
    assert '<html lang="en">' in text
    assert "color-scheme" in text


def test_the_page_says_simulated_and_names_the_command_of_each_section(installation: Installation, past: Past) -> None:
    text = page(report(installation))
    assert "Simulated:" in text
    sections = text.split("<section")[1:]
    assert len(sections) == 8
    assert all('class="cmd">tradewind ' in section for section in sections)


def test_the_page_shows_the_exact_total(installation: Installation, past: Past) -> None:
    view = report(installation)
    exact = f"${view.paid_nano_usd // 10**9:,}.{view.paid_nano_usd % 10**9:09d}"
    assert f'<data value="{view.paid_nano_usd}" title="{exact}">' in page(view).split("<tfoot>")[-1]


def test_what_a_stranger_wrote_is_only_text(installation: Installation, past: Past) -> None:
    name = "x\"><script>alert(1)</script><img src=x onerror=alert(1)>&'"
    submit_job(installation, name, labels={"a<b": "</td>"})
    with installation.store.write() as tx:
        for run in tx.runs(job_id=past.conv):
            tx.update_run(run.id, end="lost", state="ended")
    text = page(report(installation))
    parsed = _Page(text)
    assert "script" not in parsed.tags
    assert "img" not in parsed.tags
    assert "&lt;script&gt;" in text


def test_a_report_without_jobs_is_a_page_too(installation: Installation) -> None:
    assert "no jobs" in page(report(installation))
    assert to_json(report(installation))["paid_nano_usd"] == 0


@pytest.fixture
def home(tmp_path: Path) -> Iterator[SimulatedInstallation]:
    with closing(SqliteScratchDatabase(tmp_path)) as database:
        yield SimulatedInstallation(tmp_path, database, catalog=default_catalog())


def test_a_months_report_is_of_the_jobs_that_ended_in_it(home: SimulatedInstallation) -> None:
    for number in range(2):
        home.submit_job(JobSpec(f"job-{number}", train_spec(20, args={"seed": number})))
    while not home.settled:
        home.tick(5.0)
    home.submit_job(JobSpec("later", train_spec(20)))
    month = datetime.fromtimestamp(home.clock.now_ms() / 1000, UTC).strftime("%Y-%m")
    whole, of_month = report(home.installation), report(home.installation, month=month)
    assert [row.job.name for row in of_month.jobs] == ["job-0", "job-1"]
    assert of_month.paid_nano_usd == whole.paid_nano_usd == home.read(lambda tx: tx.total_nano_usd()) > 0
    assert of_month.entry_count == len(of_month.entries) == len(home.read(lambda tx: tx.entries()))
    assert of_month.kinds == totals(home.read(lambda tx: tx.entries()), "kind")
    assert report(home.installation, month="2001-01").jobs == ()
    for wrong, hint in (("2023-13", "for example 2026-11"), ("", "for example 2026-11"), ("2026/1", "write 2026-01")):
        with pytest.raises(UsageError, match="is not a month") as caught:
            report(home.installation, month=wrong)
        assert caught.value.hint == hint
    with pytest.raises(UsageError, match="not both"):
        report(home.installation, "job-0", month)


def test_every_entry_is_written_as_csv_without_all_of_them_in_memory(home: SimulatedInstallation) -> None:
    home.submit_job(JobSpec("job", train_spec(20)))
    while not home.settled:
        home.tick(5.0)
    out = io.StringIO()
    with entries(home.installation) as booked:
        assert not isinstance(booked, (list, tuple))
        written = write_entries(out, booked)
    expected = home.read(lambda tx: tx.entries())
    assert out.getvalue() == entries_csv(expected)
    assert written == len(expected) > 0
