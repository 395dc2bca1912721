"""Whether what `report` says adds up, on every surface: paid + saved = baseline in each row and each total."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from html import unescape

from rich.console import Console

from examples.demo.screen import closing_table
from orchestrator.cli.render import render
from orchestrator.cli.render.text import Screen
from orchestrator.formats.documents import to_json
from orchestrator.ledger import BASELINES, total_nano_usd
from orchestrator.reports.entries_csv import entries_csv
from orchestrator.reports.html import page
from orchestrator.reports.savings_csv import savings_csv
from orchestrator.reports.views import ReportView

MONEY = re.compile(r"-?\$[\d,]+\.\d+")
_DASH = re.compile(r"(?<=\s)-(?=\s|$)")


def nano(text: str) -> int:
    """`-$1,234.500000000` -> nano-USD."""
    return int(Decimal(text.replace("$", "").replace(",", "")) * 10**9)


def check(view: ReportView) -> None:
    """On all surfaces."""
    in_the_view(view)
    in_json(view)
    in_tables(view)
    on_the_page(view)
    in_csv(view)
    in_the_demo(view)


def in_the_view(view: ReportView) -> None:
    assert view.paid_nano_usd == total_nano_usd(view.entries) == sum(row.paid_nano_usd for row in view.jobs)
    for baseline in BASELINES:
        cells = [(row, row.against(baseline)) for row in view.jobs]
        for row, cell in cells:
            assert cell.paid_nano_usd == row.paid_nano_usd
            if cell.left_out:
                assert (cell.saved_nano_usd, cell.baseline_nano_usd) == (None, None)
            else:
                assert cell.saved_nano_usd is not None
                assert cell.paid_nano_usd + cell.saved_nano_usd == cell.baseline_nano_usd
        total = view.total(baseline)
        known = [cell for _, cell in cells if not cell.left_out]
        assert total.jobs == len(known)
        assert total.paid_nano_usd == sum(cell.paid_nano_usd for cell in known)
        assert total.saved_nano_usd == sum(cell.saved_nano_usd or 0 for cell in known)
        assert total.paid_nano_usd + total.saved_nano_usd == total.baseline_nano_usd
        assert {each.job_id for each in total.left_out} == {row.job.id for row, cell in cells if cell.left_out}
        assert all(each.reason for each in total.left_out)
        assert total.paid_nano_usd + total.left_out_nano_usd == view.paid_nano_usd


def in_json(view: ReportView) -> None:
    document = json.loads(json.dumps(to_json(view)))
    for row in [cell for job in document["jobs"] for cell in job["compared"]] + document["totals"]:
        if row["baseline_nano_usd"] is not None:
            assert row["paid_nano_usd"] + row["saved_nano_usd"] == row["baseline_nano_usd"]
    for job, row in zip(document["jobs"], view.jobs, strict=True):
        assert job["provisional"] == row.provisional
    named = {each["job_id"] for total in document["totals"] for each in total["left_out"]}
    assert named == {each.job_id for total in view.totals for each in total.left_out}


def in_tables(view: ReportView) -> None:
    text = render(view, Screen(wide=True))
    rounded = render(view, Screen()).splitlines()
    for line in text.splitlines()[: len(view.jobs) + 12]:
        if len(found := MONEY.findall(line)) == 3 and ":" not in line:
            assert nano(found[0]) + nano(found[1]) == nano(found[2]), line
    columns = _columns(text.splitlines(), "job ", ("paid", "compared"))
    lines = text.splitlines()
    jobs = [lines[1 + number] for number in range(len(view.jobs))]
    own = [nano(MONEY.findall(line)[0]) for line in jobs]
    assert sum(own) == view.paid_nano_usd
    sums = view.total("same_machine")
    feet = lines[1 + len(jobs) : 1 + len(jobs) + (3 if sums.left_out else 1)]
    assert nano(MONEY.findall(feet[-1])[0]) == view.paid_nano_usd
    if sums.left_out:
        assert sum(nano(MONEY.findall(line)[0]) for line in feet[:2]) == view.paid_nano_usd
    for line, row in zip(jobs, view.jobs, strict=True):
        standing = line[columns:].split()[-1]
        if row.against("same_machine").left_out:
            assert line.endswith("left out")
        elif row.provisional:
            assert standing == "provisional"
    for line in rounded[: len(view.jobs) + 12]:
        if len(found := MONEY.findall(line)) == 3 and ":" not in line:
            assert nano(found[0]) + nano(found[1]) == nano(found[2]), line
            assert not any(re.search(r"\.\d{7}", amount) for amount in found)
    for total in view.totals:
        assert total.definition in text
        assert all(f"{each.name}: " in text and each.reason in text for each in total.left_out)


def _columns(lines: Sequence[str], first: str, names: Iterable[str]) -> int:
    head = next(line for line in lines if line.startswith(first))
    assert all(name in head for name in names)
    return head.index("paid")


def on_the_page(view: ReportView) -> None:
    text = page(view)
    for total in view.totals:
        table = next(
            each for each in re.findall(r"<table.*?</table>", text, re.DOTALL) if f"Against {total.name}" in each
        )
        assert total.definition in unescape(table)
        body, foot = table.split("<tfoot>")
        rows = [_cells(row) for row in re.findall(r"<tr>.*?</tr>", body, re.DOTALL)[1:]]
        feet = [_cells(row) for row in re.findall(r"<tr>.*?</tr>", foot, re.DOTALL)]
        assert len(rows) == len(view.jobs)
        whole = [[nano(cell) for cell in row[1:4]] for row in (*rows, feet[0]) if "-" not in row[1:4]]
        assert all(paid + saved == baseline for paid, saved, baseline in whole)
        assert [sum(column) for column in zip(*whole[:-1], [0, 0, 0], strict=True)] == whole[-1]
        out = [row for row in rows if "-" in row[1:4]]
        assert {row[0] for row in out} == {each.name for each in total.left_out}
        assert all(row[4].startswith("left out: ") for row in out)
        assert [row[4] == "provisional" for row in rows if row not in out] == [
            row.provisional for row in view.jobs if not row.against(total.baseline).left_out
        ]
        if out:
            assert sum(nano(row[1]) for row in out) == nano(feet[1][1])
            assert nano(feet[0][1]) + nano(feet[1][1]) == nano(feet[2][1]) == view.paid_nano_usd


def _cells(row: str) -> list[str]:
    """The text of each cell, with amounts exact as they are on hover."""
    row = re.sub(r'<data value="-?\d+" title="([^"]*)">.*?</data>', r"\1", row)
    return [unescape(re.sub("<.*?>", "", cell)) for cell in re.findall(r"<t[dh][^>]*>.*?</t[dh]>", row)]


def in_csv(view: ReportView) -> None:
    rows = list(csv.DictReader(io.StringIO(savings_csv(view.jobs))))
    assert len(rows) == len(view.jobs) * len(BASELINES)
    for row in rows:
        if row["left_out"]:
            assert (row["standing"], row["saved_nano_usd"], row["baseline_usd"]) == ("left out", "", "")
            continue
        assert int(row["paid_nano_usd"]) + int(row["saved_nano_usd"]) == int(row["baseline_nano_usd"])
        assert Decimal(row["paid_usd"]) + Decimal(row["saved_usd"]) == Decimal(row["baseline_usd"])
        assert row["definition"]
    booked = sum(int(row["amount_nano_usd"]) for row in csv.DictReader(io.StringIO(entries_csv(view.entries))))
    for baseline in BASELINES:
        assert sum(int(row["paid_nano_usd"]) for row in rows if row["against"] == baseline) == booked


def in_the_demo(view: ReportView) -> None:
    console = Console(file=io.StringIO(), width=400)
    console.print(closing_table(view))
    assert isinstance(console.file, io.StringIO)
    lines = [MONEY.findall(line) for line in console.file.getvalue().splitlines()]
    whole = [[nano(cell) for cell in line] for line in lines if len(line) == 3]
    assert all(paid + saved == baseline for paid, saved, baseline in whole)
    assert [sum(column) for column in zip(*whole[:-1], [0, 0, 0], strict=True)] == whole[-1]
