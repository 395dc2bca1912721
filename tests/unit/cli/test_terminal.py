"""Every table at every width: nothing is broken inside a word or wider than the terminal, and what matters is there."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command
from typer.testing import Result

from orchestrator.cli.app import app
from orchestrator.cli.output import Output
from orchestrator.cli.render import render
from orchestrator.cli.render.screens.jobs import queue, queue_rows
from orchestrator.cli.render.table import Column, numbers, table
from orchestrator.cli.render.text import Screen, budget_amount, counted, fitted, folded, progress, width_of
from orchestrator.cli.watching import WatchView
from orchestrator.formats.documents import View
from orchestrator.model import JobState
from orchestrator.services.views import JobList, JobView
from tests.unit.services.recorded_history import Past

Run = Callable[..., Result]
WIDTHS = (70, 80, 100, 120)  # 70 is the least that tables are made for
FIRST_SCREEN = 12
LONG_NAME = "pretraining-of-a-small-model-2026"

TIME_PARTS = ("billed time", "useful", "checkpoint", "lost work", "provisioning", "moves", "idle", "sum")

TABLES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "queue": (("queue", "--all"), ("name", "state", "done", "paid")),
    "status": (("status", "gpt"), ("run", "where", "state", "steps")),
    "nodes": (("nodes",), ("job", "state", "where", "up", "price", "cost", "training,")),
    "report": (("report",), ("job", "paid", "+ saved", "= on-demand", "compared with", *TIME_PARTS)),
    "plan": (("plan", "job.yaml"), ("cost", "finish", "runner-up", "changes if", "missing")),
    "plan all": (("plan", "--all"), ("job", "plan", "cost", "time")),
    "plan why": (("plan", "job.yaml", "--why"), ("where", "gpu", "type", "price", "chosen by")),
    "plan anywhere": (("plan", "job.yaml", "--anywhere", "--why"), ("where", "price", "gpu", "type")),
    "explain": (("explain", "gpt"), ("where", "gpu", "type", "price")),
    "explain migration": (("explain", "mig_3"), ("step", "took")),
    "events": (("events",), ("cutover",)),
    "offers": (("offers", "--gpu", "P100"), ("where", "gpu", "type", "price")),
    "offers of a job": (("offers", "--for", "job.yaml"), ("where", "price", "$/1k steps", "time", "cost")),
    "offers by region": (("offers", "--group-by", "region", "--limit", "5"), ("group", "where", "price")),
    "prices status": (("prices", "status"), ("source", "region", "age")),
    "prices history": (("prices", "history", "--provider", "fake"), ("where", "per GPU, last")),
    "prices import": (("prices", "import", "recorded.csv"), ("file", "rows", "flagged")),
    "catalog": (("catalog", "show"), ("provider", "offers", "price list", "not offered")),
    "backtest": (("backtest", "arena.yaml"), ("policy", "cost", "/ optimum", "missed")),
    "doctor": (("doctor",), ("ok",)),
    "settings": (("config", "show", "--origins"), ("setting", "from")),
    "fetch": (("fetch", "gpt"), ("file", "bytes")),
}


@pytest.fixture
def rich(tradewind: Run, state: Path, past: Past) -> Run:
    """A store with a long name, a quarantine and a source that fails."""
    with closing(sqlite3.connect(state / "tradewind.db")) as connection, connection:
        connection.execute(
            "UPDATE job SET name = ?, spec = replace(spec, '\"lstm\"', ?) WHERE id = ?",
            (LONG_NAME, json.dumps(LONG_NAME), past.lstm),
        )
        why = "the checkpoint of step 50 could not be read and no older one is left to go back to"
        connection.execute("UPDATE job SET quarantine = ?, quarantined_at_ms = 1 WHERE id = ?", (why, past.conv))
    return tradewind


@pytest.mark.parametrize("name", TABLES)
def test_no_table_breaks_a_word_or_is_wider_than_the_terminal(
    rich: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    arguments, columns = TABLES[name]
    (view, screen), whole = _shown(rich, monkeypatch, *arguments)
    words = _words(whole)
    for width in WIDTHS:
        lines = render(view, replace(screen, width=width)).splitlines()
        assert not [line for line in lines if width_of(line) > width and not _whole(line)], width
        assert not _words("\n".join(lines)) - words, width
        assert all(column in "\n".join(lines) for column in columns), (width, lines)


def _shown(run: Run, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[tuple[View, Screen], str]:
    """The view that a command showed and what for, and its whole text."""
    seen: list[tuple[View, Screen]] = []
    show = Output.show

    def watched(out: Output, view: View, *, stream: bool = False) -> None:
        seen.append((view, out.screen()))
        show(out, view, stream=stream)

    monkeypatch.setattr(Output, "show", watched)
    result = run(*arguments)
    assert result.exit_code in (0, 8), result.output
    return seen[-1], result.stdout


@pytest.mark.parametrize("width", WIDTHS)
def test_jobs_of_one_name_can_be_distinguished_in_every_table(
    tradewind: Run, state: Path, past: Past, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    with closing(sqlite3.connect(state / "tradewind.db")) as connection, connection:
        renamed = "UPDATE job SET name = 'gpt', spec = replace(spec, '\"conv\"', '\"gpt\"') WHERE id = ?"
        connection.execute(renamed, (past.conv,))
    monkeypatch.setenv("COLUMNS", str(width))
    begin, end = (datetime.fromtimestamp(past.start_ms / 1000, UTC) + timedelta(days=days) for days in (-1, 2))
    period = ("--since", f"{begin:%Y-%m-%d}", "--until", f"{end:%Y-%m-%d}")  # a month may end within the recording
    for command in (("queue", "--all"), ("report",), ("costs", "--by", "job", *period)):
        shown = tradewind(*command).stdout
        assert "gpt" in shown
        for table_ in shown.split("\n \n") if command == ("report",) else [shown]:
            if "gpt" in table_:
                assert past.conv in table_, table_
                assert past.gpt in table_, table_
        assert past.lstm not in shown


def test_columns_in_the_environment_set_the_width(rich: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    assert max(map(width_of, rich("queue", "--all").stdout.splitlines())) <= 70
    monkeypatch.delenv("COLUMNS")
    assert max(map(width_of, rich("queue", "--all").stdout.splitlines())) > 120


@pytest.mark.parametrize(
    "arguments", [("convert", "task.yaml"), *(("doctor", "--policy", cloud) for cloud in ("aws", "gcp", "azure"))]
)
def test_a_file_on_stdout_is_the_same_at_any_width(
    tradewind: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    whole = tradewind(*arguments).stdout
    assert max(map(width_of, whole.splitlines())) > 30
    for width in ("30", "80"):
        monkeypatch.setenv("COLUMNS", width)
        assert tradewind(*arguments).stdout == whole
    assert tradewind("--state-dir", "other", *arguments).stdout == whole


def _whole(line: str) -> bool:
    """What stays on one line however long it is, so that it can be copied: one word, or a command."""
    return len(line.split()) == 1 or line.lstrip().startswith("tradewind ")


def _words(text: str) -> set[str]:
    """The words, without the colon after a job's name or a reason; a chart has none."""
    lines = [
        line for line in text.splitlines() if not re.search("[\u2524\u2502\u2514\u250c\u2500\u2510\u2518\u252c]", line)
    ]
    return {word.rstrip(":") for line in lines for word in line.split()}


def test_ids_are_shown_with_wide_only(rich: Run, past: Past) -> None:
    assert past.gpt not in rich("queue", "--all").stdout
    assert past.gpt in rich("queue", "--all", "--wide").stdout
    assert "/on_demand" not in rich("offers", "--gpu", "P100").stdout
    assert "/on_demand" in rich("offers", "--gpu", "P100", "--wide").stdout


CELLS = st.lists(st.text("abc-/$.09", min_size=1, max_size=12), min_size=1, max_size=4).map(" ".join)


@given(
    st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS, CELLS), min_size=1, max_size=4),
    st.integers(min_value=60, max_value=200),
)
def test_a_table_fits_keeps_its_words_whole_and_never_loses_what_always_stays(
    rows: list[tuple[str, ...]], width: int
) -> None:
    columns = (Column("name"), numbers("money"), Column("more", 2), numbers("less", 1), Column("reason", text=True))
    found = table(columns, rows, Screen(width=width)).splitlines()
    assert max(map(width_of, found)) <= width
    allowed = {word for row in rows for cell in row for word in cell.split()}
    assert {word for line in found for word in line.split()} <= allowed | {column.head for column in columns}
    text = " ".join(" ".join(found).split())
    for row in rows:
        assert row[0] in text
        assert row[1] in text
        assert all(word in text for word in row[4].split())


@pytest.mark.parametrize(
    "command", [("plan", "job.yaml"), ("submit", "job.yaml", "--dry-run"), ("plan", "job.yaml", "--anywhere")]
)
@pytest.mark.parametrize("wants", ["", "deadline: 48h\nbudget: 1 USD\n"])
@pytest.mark.parametrize("known", [True, False])
def test_the_first_screen_of_a_plan_is_at_most_twelve_lines(
    tradewind: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], wants: str, known: bool
) -> None:
    text = Path("job.yaml").read_text()
    Path("job.yaml").write_text((text if known else text.partition("expected:")[0]) + wants)
    monkeypatch.setenv("COLUMNS", "80")
    lines = tradewind(*command).stdout.splitlines()
    assert len(lines) <= FIRST_SCREEN, "\n".join(lines)
    labels = [line.split("  ")[1] for line in lines if line.startswith("  ")]
    assert {"why", "cost", "runner-up", "missing"} <= set(labels)
    assert {"finish", "changes if"} <= set(labels) or not known
    assert len(tradewind(*command, "--why").stdout.splitlines()) > FIRST_SCREEN


@pytest.mark.parametrize("command", [("plan",), ("submit", "--dry-run"), ("plan", "--anywhere")], ids=" ".join)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("folder", ["data" * 49, "my data " * 24 + "here"], ids=["a word", "words"])
def test_the_first_screen_of_a_long_path_is_at_most_twelve_lines_and_its_commands_can_be_pasted(
    tradewind: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], known: bool, folder: str
) -> None:
    text = Path("job.yaml").read_text()
    Path(folder).mkdir()
    file = Path(folder) / "job.yaml"
    (file.parent / "train.py").write_text("def main(**args): pass\n")
    file.write_text((text if known else text.partition("expected:")[0]) + "deadline: 48h\nbudget: 1 USD\n")
    (view, screen), _ = _shown(tradewind, monkeypatch, *command, str(file))
    for width in (70, 80, 120):
        lines = render(view, replace(screen, width=width)).splitlines()
        assert len(lines) <= FIRST_SCREEN, "\n".join(lines)
        assert not [line for line in lines if width_of(line) > width and not _whole(line)], (width, lines)
        assert {"why", "cost", "runner-up"} <= {line.split("  ")[1] for line in lines if line.startswith("  ")}
        commands = [found[0] for line in lines if (found := re.search(r"tradewind .*--why$", line))]
        assert [shlex.split(each)[:1] + shlex.split(each)[-1:] for each in commands] == [["tradewind", "--why"]]
        assert str(file) in shlex.split(commands[0])


def test_the_rate_per_step_and_the_cost_agree_on_sight(tradewind: Run) -> None:
    shown = tradewind("plan", "job.yaml").stdout
    total, steps, per_thousand, rest = (
        float(found) for found in re.findall(r"\$([\d.]+)", " ".join(_line(shown, "cost", 2)))[:1] + _made_of(shown)
    )
    assert steps == pytest.approx(per_thousand * 500 / 1000, abs=1e-4)
    assert total == pytest.approx(steps + rest, abs=1e-9)  # to the last digit that is shown
    listed = tradewind("offers", "--for", "job.yaml", "--provider", "fake").stdout
    assert f"${per_thousand:.4f}" in listed
    assert f"${total:.4f}" in listed


def _made_of(shown: str) -> list[str]:
    return re.findall(r"\$([\d.]+)", _line(shown, "cost", 2)[1])


def _line(shown: str, label: str, count: int) -> list[str]:
    lines = shown.splitlines()
    at = next(number for number, line in enumerate(lines) if line.strip().startswith(label))
    return lines[at : at + count]


@pytest.mark.parametrize(
    "arguments",
    [("plan", "job.yaml"), ("offers", "--gpu", "H100:8", "--limit", "2"), ("offers", "--for", "job.yaml")],
    ids=" ".join,
)
def test_every_command_that_a_footer_names_can_be_pasted(tradewind: Run, arguments: tuple[str, ...]) -> None:
    shown = tradewind(*arguments).stdout
    commands = re.findall(r": (tradewind .*)$", shown, re.MULTILINE)
    assert commands
    for command in commands:
        words = shlex.split(command)[1:]
        result = tradewind(*(["plan", *words[1:]] if words[0] == "profile" else words))  # profiling takes a while
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize("name", [None, "submit", "prices collect", "offers"])
def test_help_shows_no_type_of_a_switch_and_flows_with_the_terminal(
    tradewind: Run, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = tradewind(*(name or "").split(), "--help").stdout
    assert "<bool>" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert not re.search(r"[a-z,;] *\n +[a-z]{1,12} *\n", shown)  # a line that ends in the middle of nowhere


def test_options_of_the_same_name_say_the_same(tradewind: Run) -> None:
    root: Any = get_command(app)
    leaves = [leaf for each in root.commands.values() for leaf in getattr(each, "commands", {"": each}).values()]
    for option in ("--wide", "--why", "--output"):
        helps = {param.help for leaf in leaves for param in leaf.params if option in param.opts}
        assert len(helps) == 1, option


ERRORS: list[tuple[tuple[str, ...], int, str]] = [
    (("queue", "--nonsense"), 2, "NoSuchOption"),
    (("offers", "--gpu", "H900"), 2, "UsageError"),
    (("plan", "bad.yaml"), 3, "SpecError"),
    (("status", "nobody"), 4, "NotFoundError"),
    (("submit", "job.yaml"), 2, "UsageError"),
    (("plan", "impossible.yaml"), 6, "InfeasibleError"),
    (("wait", "conv", "--timeout", "0"), 8, "PartialFailure"),
]


@pytest.mark.parametrize(("arguments", "code", "kind"), ERRORS)
def test_an_error_is_part_of_the_one_document(tradewind: Run, arguments: tuple[str, ...], code: int, kind: str) -> None:
    Path("bad.yaml").write_text("nme: x\ntrain: {entry: 1}\n")
    Path("impossible.yaml").write_text("name: no\ntrain: {entry: 'train:main', steps: 5}\nresources: {gpu: T4:7}\n")
    result = tradewind(*arguments, "--output", "json")
    document = json.loads(result.output)  # stdout and stderr together, as in 2>&1 | jq
    assert result.exit_code == code == document["error"]["code"]
    assert document["error"]["type"] == kind
    assert document["error"]["message"]
    assert document["schema"].startswith("tradewind/")
    places = [(each["file"], each["line"], each["field"]) for each in document["error"]["problems"]]
    assert (("bad.yaml", 1, "nme") in places) is (kind == "SpecError")


def test_a_result_that_came_before_the_error_is_in_the_same_document(tradewind: Run) -> None:
    Path("bad.yaml").write_text("name: no\ntrain: {entry: 'train:main', steps: 5}\nresources: {gpu: T4:7}\n")
    document = json.loads(tradewind("plan", "bad.yaml", "--output", "json").output)
    assert document["schema"] == "tradewind/plan/v1"
    assert document["decisions"][0]["offer_id"] is None
    assert document["error"]["code"] == 6


def test_a_bug_is_part_of_the_document_too(tradewind: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: object, **_options: object) -> None:
        raise LookupError("nobody expects this")

    monkeypatch.setattr("orchestrator.client.namespaces.jobs.Jobs.list", broken)
    result = tradewind("queue", "--output=json")
    assert (result.exit_code, result.stderr) == (1, "")
    assert "LookupError: nobody expects this" in json.loads(result.stdout)["error"]["message"]


def test_submit_names_the_plan_for_more_and_never_itself(tradewind: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = tradewind("submit", "job.yaml", "--dry-run", "--token", "once").stdout
    assert ": tradewind plan job.yaml --why" in shown
    assert "tradewind submit" not in shown


def test_a_command_in_a_cell_is_never_folded() -> None:
    command = "tradewind profile '/data/a folder with spaces/job.yaml'"
    for text in (f"a measured speed: {command}", f"measure a step: {command}; or add `expected:` to the job file"):
        for width in range(10, 90):
            assert any(command in line for line in folded(text, width)), (text, width)
            assert " ".join(folded(text, width)) == text
            assert command in fitted(f"missing  {text}\n  {command}", width).splitlines()[-1]


def test_a_report_in_two_formats_at_once_is_refused(tradewind: Run) -> None:
    for option in ("--csv", "--savings-csv"):
        failed = tradewind("report", option, "--output", "json")
        assert failed.exit_code == 2
        assert json.loads(failed.output)["error"]["type"] == "UsageError"
    assert tradewind("report", "--csv", "--savings-csv").exit_code == 2


def test_a_report_written_to_a_page_is_in_the_document_too(tradewind: Run, tmp_path: Path) -> None:
    done = tradewind("report", "--html", str(tmp_path / "report.html"), "--output", "json")
    assert json.loads(done.output)["schema"] == "tradewind/report/v1"
    assert (tmp_path / "report.html").exists()


def test_a_command_at_the_end_of_a_line_is_never_folded() -> None:
    command = "tradewind offers --gpu H100:8 --region 'eu-west-*' --limit 2000"
    lines = fitted(f"2000 more of these: {command}", 50).splitlines()
    assert lines == ["2000 more of these:", f"  {command}"]


def test_several_commands_are_each_whole_on_a_line_of_their_own_where_they_do_not_fit() -> None:
    whole, part, resume = "budget set --group sweep 0.13", "budget set conv 0.22", "resume conv"
    text = f"paused; to continue: tradewind {whole}, then tradewind {part}, then tradewind {resume}"
    own = [f"tradewind {whole}, then", f"tradewind {part}, then", f"tradewind {resume}"]
    assert folded(text, 45) == ["paused; to continue:", *own]
    assert fitted(text, 45).splitlines() == ["paused; to continue:", *(f"  {each}" for each in own)]
    assert fitted(text, 200) == text


def test_nothing_has_no_colour_so_that_no_empty_line_is_shown_for_it() -> None:
    assert Screen(color=True)("", "yellow") == ""
    assert Screen(color=True)("late", "yellow") == "\x1b[33mlate\x1b[0m"


@pytest.mark.parametrize("width", range(30, 120, 7))
def test_commands_that_follow_other_advice_are_not_folded(width: int) -> None:
    text = (
        "paused: $0.08 of its $0.1 is spent; to continue: raise projects.vision.budget in tradewind.toml "
        "(tradewind down --keep-jobs, then tradewind up), then tradewind resume a-b; or wait (tradewind status a-b)"
    )
    lines = folded(text, width)
    assert " ".join(lines) == text
    for command in ("down --keep-jobs", "up", "resume a-b", "status a-b"):
        assert any(f"tradewind {command}" in line for line in lines), lines


@pytest.mark.parametrize("amount", ["0 s", "12 min", "3.9 h", "2.5 d", "2.5 days", "6.9 years", "100 %", "64 GB"])
def test_a_number_is_never_parted_from_its_unit(amount: str) -> None:
    text = f"sweep: 2 jobs, prices {amount} old; the last ends after {amount}, estimated ({amount})"
    for width in range(8, 90):
        lines = folded(text, width)
        assert " ".join(lines) == text
        assert sum(line.count(amount) for line in lines) == 3, (width, lines)


def test_a_number_before_a_word_is_folded_as_any_other() -> None:
    assert folded("it has 2 short names", 10) == ["it has 2", "short", "names"]


def job_view(state: JobState, step: int, total: int | None, **changes: Any) -> JobView:
    view = JobView(
        "job_1", "name", "p", "ada", state, "cheapest", 0, None, None, None,
        step, total, None, None, None, 0, 1, 0, 0, True, "",
    )  # fmt: skip
    return replace(view, **changes)


def test_the_jobs_of_a_sweep_are_compared_by_value_and_loss_on_80_columns() -> None:
    spent: dict[str, Any] = {"paid_nano_usd": 10**8, "nano_usd_per_hour": 4 * 10**8, "no_forecast": "no speed yet"}
    spent |= {"offer_id": "aws/us-east-1/us-east-1a/p3.2xlarge/spot", "group": "sweep", "group_id": "grp_1"}
    jobs = tuple(
        job_view("running", 40, 100, name=f"cnn-lr{rate}-width8", id=f"job_{rate}", loss=loss, **spent)
        for rate, loss in (("0.1", 0.31), ("0.01", 0.25))
    )
    shown = queue(JobList(0, jobs, 2 * 10**8, True), Screen(width=80))
    assert re.search(r"cnn-lr0.1-width8 .* 0.31 ", shown)
    assert re.search(r"cnn-lr0.01-width8 .* 0.25 ", shown)
    assert max(map(len, shown.splitlines())) <= 80


PAUSES = (
    "paused at step 40 with a checkpoint: its budget of $0.50 is nearly used up; to continue: tradewind budget set "
    "job-0 12.50, then tradewind resume job-0",
    "paused before it started: 5 machines in a row were rented but never trained, for $0.31 so far. Last reason: it "
    "did not join. Likely cause: its setup fails. Then run: tradewind resume job-1",
    "paused at step 10 with a checkpoint: requested by user:me",
    "paused at step 1 with a checkpoint: its project has $3.00 left; to continue: raise projects.research.budget "
    "to 9 in tradewind.toml, then tradewind resume job-3",
    "paused at its last checkpoint: all machines here were ended at once",
)


def paused(number: int, note: str, **changes: Any) -> JobView:
    spent: dict[str, Any] = {"paid_nano_usd": 10**8, "budget_nano_usd": 5 * 10**8, "no_forecast": "no speed yet"}
    given = {"name": f"job-{number}", "id": f"job_{number}", "note": note, **spent, **changes}
    return job_view(given.pop("state", "paused"), 40, 100, **given)


def watched(jobs: tuple[JobView, ...], **changes: Any) -> WatchView:
    return replace(WatchView(0, jobs, 0, (), 0, 0, (), True, "", True), **changes)


def _unfolded(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("width", [60, 80, 100, 160])
@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("command", ["queue", "watch"])
def test_why_jobs_are_paused_and_what_continues_them_is_whole_at_any_width(
    command: str, long: bool, width: int
) -> None:
    jobs = tuple(paused(number, note) for number, note in enumerate(PAUSES))
    if long:
        jobs = tuple(replace(job, name=f"{LONG_NAME}-{LONG_NAME}"[:60], note=PAUSES[2]) for job in jobs[:1]) + jobs[1:]
    view: View = JobList(0, jobs, 0, True) if command == "queue" else watched(jobs)
    shown = render(view, Screen(width=width))
    assert max(width_of(line) for line in shown.splitlines() if not _whole(line)) <= width, shown
    for job in jobs:
        if long and job.note == PAUSES[2]:
            assert "2 jobs" in shown
            assert "paused with a checkpoint: requested by user:me" in _unfolded(shown)
        else:
            assert f"{job.name}: {job.note}" in _unfolded(shown)
    commands = ("tradewind resume job-3", "tradewind resume job-1")
    assert all(any(line.strip() == each for line in shown.splitlines()) or width > 80 for each in commands), shown


@pytest.mark.parametrize("width", [60, 80, 100, 160])
@pytest.mark.parametrize("command", ["queue", "watch"])
def test_why_jobs_failed_is_whole_at_any_width(command: str, width: int) -> None:
    why = "failed: FileNotFoundError: [Errno 2] No such file or directory: '/data/a/long/folder/imagenet/train.bin'"
    jobs = (paused(0, why, state="failed"), paused(1, "failed: job-0 failed, and it waits for that", state="failed"))
    view: View = JobList(0, jobs, 0, True) if command == "queue" else watched(jobs)
    shown = _unfolded(render(view, Screen(width=width)))
    for job in jobs:
        assert f"{job.name}: {job.note}" in shown


def test_a_reason_that_the_jobs_of_a_sweep_share_is_said_once_with_dots_in_their_names() -> None:
    names = ("cnn-lr0.1-width8", "cnn-lr0.01-width8", "cnn")
    said = "paused before it started: stop (tradewind status {0}). To continue: tradewind resume {0}"
    jobs = tuple(paused(n, said.format(name), name=name, id=f"job_{n}") for n, name in enumerate(names))
    shown = _unfolded(render(JobList(0, jobs, 0, True), Screen(width=80)))
    assert f"3 jobs ({', '.join(names)}): {said.format('JOB')}" in shown


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_a_reason_that_fifty_jobs_share_is_said_once_with_their_number(width: int) -> None:
    said = "paused at step {} with a checkpoint: the store is gone; to continue: tradewind resume job-{}"
    jobs = tuple(paused(number, said.format(number + 1, number)) for number in range(50))
    shown = _unfolded(render(JobList(0, jobs, 0, True), Screen(width=width)))
    assert shown.count("the store is gone") == 1
    assert "50 jobs (job-0, job-1, job-2, job-3, job-4, job-5, job-6, job-7 and 42 more): paused with" in shown
    assert "to continue: tradewind resume JOB" in shown
    rows = render(JobList(0, jobs, 0, True), Screen()).splitlines()
    assert sum(said.format(number + 1, number) in line for number, line in enumerate(rows[1:51])) == 50


def test_a_note_that_is_neither_a_reason_nor_names_a_command_gives_way_on_a_narrow_screen() -> None:
    jobs = (job_view("running", 5, 10, note="first placement: done", id="job_0"),)
    assert "first placement" not in queue(JobList(0, jobs, 0, True), Screen(width=40))
    assert "first placement" in queue(JobList(0, jobs, 0, True), Screen(width=160))
    at_risk = "its deadline is at risk; to continue: tradewind budget set job_1 3.00"
    jobs = (job_view("running", 5, 10, note=at_risk, id="job_0"),)
    assert at_risk in _unfolded(render(JobList(0, jobs, 0, True), Screen(width=60)))


@pytest.mark.parametrize("height", [14, 16, 20, 24, 40, 60])
def test_the_live_view_cuts_no_reason_and_counts_those_that_do_not_fit(height: int) -> None:
    jobs = tuple(paused(number, f"{PAUSES[1]} {number}") for number in range(8))
    shown = render(watched(jobs), Screen(width=80, height=height))
    assert len(shown.splitlines()) <= height
    whole = sum(f"job-{number}: {PAUSES[1]} {number}" in _unfolded(shown) for number in range(8))
    begun = sum(f"job-{number}: " in shown for number in range(8))
    assert whole == begun
    assert whole == 8 or f"{8 - whole} reasons do not fit here: tradewind queue" in _unfolded(shown)
    assert "simulated" in shown


def test_a_budget_is_never_rounded_and_has_the_decimals_of_the_cost_beside_it() -> None:
    for nano_usd, shown in ((85_000_000, "$0.0850"), (10**10, "$10.00"), (10_125_000_000, "$10.125"), (None, "-")):
        assert budget_amount(nano_usd) == shown
    assert budget_amount(12_345_600) == "$0.0123456"
    assert (counted(1), counted(2)) == ("1 job", "2 jobs")


def test_a_job_that_has_finished_is_done_but_not_if_it_reported_none_of_the_steps_that_its_job_file_states() -> None:
    cells = [(job_view("finished", 0, None), "100%", "0"), (job_view("finished", 7, None), "100%", "7")]
    cells += [(job_view("finished", 0, 500), "0/500 (finished)", "0/500 (finished)")]
    cells += [(job_view("finished", 300, 500), "100%", "300/500 (finished)")]
    cells += [
        (job_view("finished", 500, 500), "100%", "500/500 (100%)"),
        (job_view("failed", 5, 500), "1%", "5/500 (1%)"),
    ]
    cells += [(job_view("running", 7, None), "7 steps", "7"), (job_view("running", 0, 500), "0%", "0/500 (0%)")]
    for view, done, steps in cells:
        assert queue_rows([view], Screen())[0][2] == done
        assert progress(view) == steps
