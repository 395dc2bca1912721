"""Group files on the command line: `plan`, `submit`; `queue`, `pause`, `resume` and `cancel` with `--group`."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from orchestrator.cli import complete
from orchestrator.cli.render.screens.groups import group_plan
from orchestrator.cli.render.text import Screen, fitted
from orchestrator.config import load_config
from orchestrator.installation import open_installation
from orchestrator.policy.groups import Allocation, Program, solve, solving
from orchestrator.policy.groups.time_limit import TimeLimit
from orchestrator.services.groups.views import GroupPlanView, PlacedElsewhere, PlannedJob, PlannedPart, UnitWorth
from providers.base import Covered, Quota

Run = Callable[..., Result]
GROUP = """\
group: sweep
budget: $400
defaults: {resources: {gpu: [V100]}, expected: {gpu: V100, steps_per_s: 4.5}}
jobs:
  - {file: job.yaml, weight: 2}
  - {name: next, after: [fresh], train: {entry: "train:main", steps: 500}}
  - name: seeds
    train: {entry: "train:main", steps: 100}
    matrix: {seed: [1, 2]}
"""


@pytest.fixture
def group(tmp_path: Path, state: Path) -> Path:
    (tmp_path / "train.py").write_text("def main(**given):\n    pass\n")
    (tmp_path / "group.yaml").write_text(GROUP)
    (state / "up.lock").mkdir()  # no control plane is started
    return tmp_path / "group.yaml"


@pytest.mark.usefixtures("group")
def test_programs_of_a_group_that_start_over_are_named_once(tradewind: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def main(**given):\n    while True:\n        pass\n")
    said = "fresh, next, seeds-seed1, seeds-seed2: their programs read no saved state, so they start from step 0"
    assert " ".join(tradewind("plan", "group.yaml").stdout.split()).count(said) == 1
    document = json.loads(tradewind("submit", "group.yaml", "--yes", "--output", "json").stdout)
    assert [said in each["message"] for each in document["command_warnings"]].count(True) == 1


@pytest.mark.usefixtures("group")
def test_the_joint_plan_names_each_job_the_sums_and_the_certificate(
    tradewind: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = tradewind("plan", "group.yaml")
    assert shown.exit_code == 0
    for word in ("fresh", "next", "seeds-seed1", "seeds-seed2", "together about", "of the $400.00 budget", "certified"):
        assert word in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert "not counting moves and the order of jobs" in " ".join(shown.stdout.split())  # the bound knows no `after`
    document = json.loads(tradewind("plan", "group.yaml", "--output", "json").stdout)
    assert document["schema"] == "tradewind/group-plan/v1"
    assert [each["name"] for each in document["jobs"]] == ["fresh", "next", "seeds-seed1", "seeds-seed2"]


def test_the_certificate_of_makespan_knows_the_order(tradewind: Run, group: Path) -> None:
    group.write_text(GROUP.replace("group: sweep", "group: sweep\npolicy: makespan"))
    shown = " ".join(tradewind("plan", "group.yaml").stdout.split())
    assert "(certified, not counting moves)" in shown
    document = json.loads(tradewind("plan", "group.yaml", "--output", "json").stdout)
    left_s = (max(each["finish_at_ms"] for each in document["jobs"]) - document["at_ms"]) / 1000
    assert document["objective"] == pytest.approx(left_s, abs=0.01)
    assert document["bound"] <= document["objective"]


@pytest.mark.parametrize("length", [8, 30, 60])
def test_what_a_job_waits_for_is_shown_at_any_width(
    tradewind: Run, group: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    first, second = "a" * length, "b" * length
    train = "train: {entry: 'train:main', steps: 500}"
    jobs = f"  - {{name: {first}, {train}}}\n  - {{name: {second}, {train}, after: [{first}]}}\n"
    group.write_text(GROUP.partition("jobs:")[0] + f"jobs:\n{jobs}")
    monkeypatch.setenv("COLUMNS", "80")
    shown = tradewind("plan", "group.yaml").stdout
    assert f"after {first}" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_job_of_a_group_is_decided_by_its_policy(tradewind: Run, group: Path) -> None:
    def objectives() -> set[str]:
        listed = json.loads(tradewind("queue", "--group", "sweep", "--output", "json").stdout)
        return {each["objective"] for each in listed["jobs"]}

    tradewind("submit", "group.yaml", "--yes")
    assert objectives() == {"cheapest"}
    group.write_text(GROUP.replace("group: sweep", "group: sweep\npolicy: makespan"))
    tradewind("submit", "group.yaml", "--yes")
    assert objectives() == {"makespan"}
    assert "submitted, objective makespan" in tradewind("events", "next").stdout
    assert "objective  makespan" in tradewind("status", "next").stdout
    assert "objective makespan" in tradewind("explain", "next").stdout
    assert "objective makespan" in tradewind("plan", "--all", "--why").stdout


@pytest.mark.parametrize(
    ("quota", "scope", "unit", "owned", "more", "words"),
    [
        ("machines", "this computer", "machines", True, 1, "one more machine on this computer (2 of 2 used) would"),
        ("machines", "eu-1", "machines", False, 2, "2 more machines in fake/eu-1 (2 of 2 used) would"),
        ("P instances", "eu-1", "gpus", False, 8, "8 more GPUs of P instances in fake/eu-1 (2 of 2 used) would"),
    ],
)
def test_what_a_quota_is_worth_names_it_once(
    quota: str, scope: str, unit: str, owned: bool, more: int, words: str
) -> None:
    worth = UnitWorth("", quota, "fake", scope, unit, owned, 2, 2, more, 31 * 10**9, 0.0, 1.0)
    view = GroupPlanView(
        0, "sweep", "max-min-fairness", "p", False, 0.0, (), 0, None, None, 0, 1.0, 1.0, 0.0, (worth,)
    )  # fmt: skip
    assert f"{words} save about $31.00" in group_plan(view, Screen())


def test_jobs_that_are_placed_elsewhere_than_in_the_table_are_named_with_their_cost() -> None:
    view = GroupPlanView(0, "sweep", "cheapest", "p", False, 0.0, (), 0, None, None, 0, 1.0, 1.0, 0.0, ())
    assert "spot machine" not in group_plan(view, Screen())
    shown = group_plan(replace(view, elsewhere=(PlacedElsewhere("late", 10 * 10**9),)), Screen())
    assert "no time left to lose a spot machine" in shown
    assert "late (about $10.00)" in shown


@pytest.mark.parametrize("parts", [(), (PlannedPart("fake/eu-1/eu-1a/p3/spot", 0.001),)])
def test_a_plan_says_which_jobs_wait_for_the_machines_of_others(parts: tuple[PlannedPart, ...]) -> None:
    """The time until the end of a job that waits for a long one has no other explanation in the table."""
    whole = (PlannedPart("fake/eu-1/eu-1a/p3/spot", 1.0),)
    year_ms = 365 * 86_400_000
    endless = PlannedJob("endless", 1.0, (), whole, 1.0, 10**9, 0, year_ms, None, False, None, 0, 0)
    jobs = (endless, replace(endless, name="short", parts=parts), replace(endless, name="done", finish_at_ms=0))
    view = GroupPlanView(0, "sweep", "cheapest", "p", False, 0.0, jobs, 0, None, None, 0, 1.0, 1.0, 0.0, ())
    shown = " ".join(group_plan(view, Screen(width=80)).split())
    assert "so these wait until others leave a machine, unless they get a deadline: short no plan" in shown
    assert "these wait" not in group_plan(replace(view, jobs=(endless,)), Screen())


@pytest.mark.usefixtures("group")
def test_a_plan_of_a_solver_that_was_stopped_says_so(tradewind: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(tradewind("plan", "group.yaml", "--output", "json").stdout)["stopped_after_s"] is None

    def stopped(program: Program, until: TimeLimit) -> Allocation:
        found = solve(program, until=until)
        (certificate,) = found.certificates
        return replace(found, certificates=(replace(certificate, bound=certificate.value / 1.0304),), in_time=False)

    monkeypatch.setattr(solving, "solve", stopped)
    monkeypatch.setenv("COLUMNS", "80")
    shown = tradewind("plan", "group.yaml").stdout
    assert "the solver was stopped after 20 s; this plan is within 3.1% of the best" in shown
    assert max(map(len, shown.splitlines())) <= 80
    document = json.loads(tradewind("plan", "group.yaml", "--output", "json").stdout)
    assert document["stopped_after_s"] == 20.0
    assert document["gap"] == pytest.approx(0.0304)


@pytest.mark.usefixtures("group")
def test_a_conflict_of_deadlines_and_quotas_says_what_relaxing_each_costs(
    tradewind: Run, state: Path, group: Path
) -> None:
    installation = open_installation(load_config({"state_dir": str(state), "providers.enabled": "fake"}, environ={}))
    with installation.store.write() as tx:
        tx.set_quotas("fake", [Quota("P instances", "us", 2, 0, Covered("machines"))], installation.clock.now_ms())
    installation.close()
    train = "train: {entry: 'train:main', steps: 15000}"
    group.write_text(GROUP.partition("jobs:")[0] + f"jobs:\n  - {{name: a, {train}}}\n  - {{name: b, {train}}}\n")
    assert tradewind("plan", "group.yaml").exit_code == 0
    group.write_text(group.read_text() + "deadline: 100 min\n")
    refused = tradewind("plan", "group.yaml")
    assert refused.exit_code == 6
    message, *hint = fitted(refused.stderr, 80).rstrip().split("\nhint: ")
    assert message.startswith("error: not all deadlines can be met within the quotas (P instances in us): a\n")
    assert hint[0].splitlines() == [
        "each of these changes alone is enough (estimates, for the whole group):",
        "  all deadlines 22 min later: about $2.06 in total",
        "  3 instead of 2 P instances in fake/us: about $2.06 in total",
        "to see the plan with another quota: --what-if quota.fake.us.P_instances=3",
    ]
    document = json.loads(tradewind("plan", "group.yaml", "--output", "json").stdout)["error"]
    in_order = group.read_text()
    group.write_text(in_order.replace("{name: b,", "{name: b, after: [a],"))
    assert "is enough (estimates, for the whole group, not counting the order of jobs)" in (
        " ".join(tradewind("plan", "group.yaml").stderr.split())
    )
    group.write_text(in_order)
    later, larger = document["relaxations"]
    assert (later["enough"], later["jobs"], later["delay_s"]) == (True, ["a", "b"], 1320.0)
    assert (larger["quota"], larger["limit"], larger["instead_of"]) == ("quota.fake.us.P_instances", 3, 2)
    assert larger["cost_nano_usd"] == pytest.approx(2.06e9, rel=0.01)
    assert tradewind("plan", "group.yaml", "--what-if", f"{larger['quota']}={larger['limit']}").exit_code == 0
    for key in ("quota.fake.us", "quota.fake.eu.P_instances"):
        unknown = tradewind("plan", "group.yaml", "--what-if", f"{key}=3")
        assert unknown.exit_code == 2
        assert "the quotas here: quota.fake.us.P_instances" in " ".join(unknown.stderr.split())


def test_mistakes_and_options_that_do_not_fit(tradewind: Run, group: Path) -> None:
    for options in (("job.yaml",), ("--check",), ("--all", "--anywhere"), ("--policy-trace",), ("-o", "group.json")):
        refused = tradewind("plan", "group.yaml", *options)
        assert refused.exit_code == 2
        assert "group.yaml is a group file" in refused.stderr
        assert all(each in refused.stderr for each in options if each.startswith("-"))
        assert ("other files" in refused.stderr) is (options == ("job.yaml",))
        (advised, *_) = re.findall(r": (tradewind (?:plan|submit) [^;\n]*)", refused.stderr)
        assert tradewind(*shlex.split(advised)[1:], "--help").exit_code == 0
    assert tradewind("plan", "job.yaml", "--what-if", "quota.a.b.c=1").exit_code == 2
    assert tradewind("plan", "group.yaml", "--what-if", "quota.a.b.c=1").exit_code == 2
    for order in ("cancel", "pause", "resume"):
        assert tradewind(order).exit_code == 2
        assert tradewind(order, "fresh", "--group", "sweep").exit_code == 2
    assert tradewind("queue", "--group", "sweep").exit_code == 4
    for command in (("profile", "group.yaml"), ("offers", "--for", "group.yaml")):
        refused = tradewind(*command)
        assert refused.exit_code == 2
        assert "group.yaml is a group file, but a single job is expected" in refused.stderr
    group.write_text(GROUP.replace("weight: 2", "weight: 0"))
    refused = tradewind("plan", "group.yaml")
    assert refused.exit_code == 3
    assert "group.yaml:5:" in refused.stderr
    group.write_text(GROUP.replace("$400", "$0.000001"))
    refused = tradewind("plan", "group.yaml")
    assert refused.exit_code == 9
    assert re.search(r"a budget of \$[\d.]+ is enough", refused.stderr)


@pytest.mark.usefixtures("group")
def test_a_group_is_submitted_listed_and_cancelled(tradewind: Run, state: Path) -> None:
    dry = tradewind("submit", "group.yaml", "--dry-run", "--output", "json")
    assert json.loads(dry.stdout)["schema"] == "tradewind/group-plan/v1"
    assert tradewind("queue", "--group", "sweep").exit_code == 4
    first = tradewind("submit", "group.yaml", "--yes", "--token", "once", "--output", "json")
    document = json.loads(first.stdout)
    assert document["schema"] == "tradewind/group/v1"
    assert len(document["jobs"]) == 4
    again = tradewind("submit", "group.yaml", "--yes", "--token", "once", "--output", "json")
    assert json.loads(again.stdout)["id"] == document["id"]
    listed = json.loads(tradewind("queue", "--group", "sweep", "--output", "json").stdout)
    assert [each["name"] for each in listed["jobs"]] == ["fresh", "next", "seeds-seed1", "seeds-seed2"]
    assert "sweep has no jobs left to resume" in tradewind("resume", "--group", "sweep").stderr
    assert "4 jobs of sweep will pause" in tradewind("pause", "--group", "sweep").stdout
    assert "sweep has no jobs left to pause" in tradewind("pause", "--group", "sweep").stderr
    assert "4 jobs of sweep will resume" in tradewind("resume", "--group", "sweep").stdout
    assert tradewind("cancel", "--group", "sweep", "--yes").exit_code == 0
    with closing(sqlite3.connect(state / "tradewind.db")) as connection, connection:
        connection.execute("UPDATE job SET state = 'cancelled' WHERE group_id IS NOT NULL")
    ended = tradewind("queue", "--limit", "9", "--group", "sweep").stdout
    assert ended == "4 ended: tradewind queue --limit 9 --group sweep --all\n"
    assert "seeds-seed2" in tradewind(*ended.strip().partition(": tradewind ")[2].split()).stdout
    text = tradewind("submit", "group.yaml", "--yes").stdout
    assert "budget $400.00" in text


@pytest.mark.usefixtures("group")
def test_a_group_where_a_job_is_expected_is_called_one(tradewind: Run) -> None:
    submitted = json.loads(tradewind("submit", "group.yaml", "--yes", "--output", "json").stdout)
    of_jobs = ["report", "status", "wait", "explain", "events", "fetch", "pause", "resume", "cancel", "logs", "nodes"]
    for command, ref in [*((each, "sweep") for each in of_jobs), ("status", submitted["id"])]:
        refused = tradewind(command, ref)
        assert refused.exit_code == 4
        assert "is a group of jobs, not a job" in refused.stderr
        (advised,) = re.findall(r"tradewind queue [^;]*", refused.stderr)
        (option,) = re.findall(r"pause, resume, cancel and budget set take (--group .*)", refused.stderr)
        assert "fresh" in tradewind(*shlex.split(advised)[1:]).stdout
    assert tradewind("pause", *shlex.split(option)).exit_code == 0


def test_cancelling_needs_the_project_if_two_have_a_group_of_that_name(tradewind: Run, group: Path) -> None:
    ids = {}
    for project in ("alpha", "beta"):
        group.write_text(GROUP + f"project: {project}\n")
        ids[project] = json.loads(tradewind("submit", "group.yaml", "--yes", "--output", "json").stdout)["id"]
    for command in (("cancel", "--yes"), ("pause",), ("resume",)):
        refused = tradewind(*command, "--group", "sweep")
        assert refused.exit_code == 2
        assert "several projects have a group sweep: alpha, beta" in refused.stderr
    assert tradewind("cancel", "--group", ids["beta"], "--project", "alpha", "--yes").exit_code == 4
    assert tradewind("cancel", "fresh", "--project", "alpha", "--yes").exit_code == 2
    document = json.loads(
        tradewind("cancel", "--group", "sweep", "--project", "alpha", "--yes", "--output", "json").stdout
    )
    listed = json.loads(tradewind("queue", "--group", ids["alpha"], "--output", "json").stdout)["jobs"]
    assert document["job_ids"] == [each["id"] for each in listed]


def test_the_budget_of_a_group_is_set_with_and_without_others_in_it(tradewind: Run, group: Path) -> None:
    tradewind("submit", "group.yaml", "--yes")
    parts = {each["name"]: each["budget_nano_usd"] / 1e9 for each in _listed(tradewind, "sweep")}
    refused = tradewind("budget", "set", "fresh", f"{parts['fresh'] + 2:.2f}")
    assert refused.exit_code == 2
    said = " ".join(refused.stderr.split())
    assert "the other jobs of group sweep have the rest of the group's $400.00 budget" in said
    (whole,) = re.findall(r"raise the budget of the group first: tradewind budget set --group sweep (\d+\.\d\d);", said)
    assert float(whole) == pytest.approx(402, abs=0.02)
    (other,) = re.findall(r"or lower that of another job: tradewind budget set (\S+) USD", said)
    assert other in parts
    assert other != "fresh"
    less = tradewind("budget", "set", "--group", "sweep", "399.99")
    assert less.exit_code == 2
    assert "the jobs of sweep have $400.00 of its budget; $0.00 is spent" in " ".join(less.stderr.split())
    document = json.loads(tradewind("budget", "set", "--group", "sweep", whole, "--output", "json").stdout)
    assert (document["schema"], document["command"]) == ("tradewind/accepted/v1", "budget")
    assert len(document["job_ids"]) == 4
    assert "its jobs keep their parts" in document["message"]
    # no control plane has carried that out yet, and the one that does carries out both
    assert tradewind("budget", "set", "fresh", f"{parts['fresh'] + 2:.2f}").exit_code == 0

    group.write_text(GROUP.partition("  - {name: next")[0].replace("sweep", "one"))
    tradewind("submit", "group.yaml", "--yes")
    (own,) = _listed(tradewind, "one")
    assert own["budget_nano_usd"] == 400 * 10**9
    refused = tradewind("budget", "set", own["id"], "401")
    said = " ".join(refused.stderr.split())
    assert "fresh can get at most $400.00, the budget of its group one" in said
    (way,) = re.findall(r"raise the budget of the group instead: tradewind (budget set --group one 401\.00)", said)
    assert "becomes $401.00, and that of fresh $401.00" in " ".join(tradewind(*way.split()).stdout.split())


def _listed(tradewind: Run, group: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(tradewind("queue", "--group", group, "--output", "json").stdout)["jobs"]
    return found


@pytest.mark.usefixtures("group")
def test_a_budget_is_set_of_a_job_or_a_group_and_never_without_an_amount(tradewind: Run, group: Path) -> None:
    tradewind("submit", "group.yaml", "--yes")
    for arguments, word in (
        ((), "the amount is missing"),
        (("fresh",), "the amount is missing"),
        (("--group", "sweep"), "the amount is missing"),
        (("fresh", "3", "--group", "sweep"), "takes a job or --group"),
        (("fresh", "3", "--project", "default"), "no --group is given"),
        (("--group", "sweep", "much"), "much"),
    ):
        refused = tradewind("budget", "set", *arguments)
        assert refused.exit_code == 2
        assert word in refused.stderr
    assert tradewind("budget", "set", "--group", "nothing", "3").exit_code == 4
    group.write_text(GROUP.replace("budget: $400\n", "").replace("sweep", "free"))
    tradewind("submit", "group.yaml", "--yes")
    said = " ".join(tradewind("budget", "set", "--group", "free", "300").stdout.split())
    assert "the budget of group free becomes $300.00; of this, fresh gets $75.00, next gets $75.00" in said
    assert "to change a part: tradewind budget set JOB USD" in said


def test_plan_dry_run_and_submit_agree_on_budgets(tradewind: Run, group: Path) -> None:
    ways = [["plan", "group.yaml"], ["submit", "group.yaml", "--dry-run"], ["submit", "group.yaml", "--yes"]]
    accept_risk = [*ways[2], "--accept-risk"]
    for amount in ("$0.01", "$0.07"):
        group.write_text(GROUP.replace("$400", amount))
        refused = [tradewind(*way) for way in (*ways, accept_risk)]
        assert [each.exit_code for each in refused] == [9] * 4
        named = {each.stderr.split("hint: a budget of $")[1].split()[0] for each in refused}
        assert len(named) == 1
    group.write_text(GROUP.replace("400", named.pop()))
    assert [tradewind(*way).exit_code for way in ways] == [0] * 3


def test_a_budget_that_may_be_too_small_is_reported_with_the_plan(tradewind: Run, group: Path) -> None:
    view = json.loads(tradewind("plan", "group.yaml", "--output", "json").stdout)
    enough = view["enough_budget_nano_usd"]
    less = sum(each["least_budget_nano_usd"] + each["enough_budget_nano_usd"] for each in view["jobs"]) // 2
    group.write_text(GROUP.replace("$400", f"${less / 1e9:.2f}"))
    shown = tradewind("plan", "group.yaml")
    assert shown.exit_code == 0
    assert f"may cost more than the budget; ${-(-enough // 10_000_000) / 100:.2f} would be enough" in shown.stdout
    (own,) = [each for each in view["jobs"] if each["name"] == "next"]
    between = (own["least_budget_nano_usd"] + own["enough_budget_nano_usd"]) / 2e9
    group.write_text(GROUP.replace("after: [fresh],", f"after: [fresh], budget: ${between:.2f},"))
    assert "the budget of next ($" in tradewind("plan", "group.yaml").stdout


def test_the_plan_of_a_group_says_when_submit_needs_accept_risk(tradewind: Run, group: Path) -> None:
    assert "--accept-risk" not in tradewind("plan", "group.yaml").stdout
    view = json.loads(tradewind("plan", "group.yaml", "--output", "json").stdout)
    assert view["risk"] == ""
    (own,) = [each for each in view["jobs"] if each["name"] == "next"]
    budget = (19 * own["least_budget_nano_usd"] + own["enough_budget_nano_usd"]) / 20e9
    group.write_text(GROUP.replace("after: [fresh],", f"after: [fresh], budget: ${budget:.4f},"))
    shown = " ".join(tradewind("plan", "group.yaml").stdout.split())
    risk = re.search(r"budget may not be met: next \d+% likely, if it could start now", shown)
    assert risk is not None, shown
    assert f"{risk[0]}; submit --yes needs --accept-risk" in shown
    assert " ".join(tradewind("submit", "group.yaml", "--dry-run").stdout.split()) == shown
    refused = tradewind("submit", "group.yaml", "--yes")
    assert refused.exit_code == 9
    assert f"{risk[0]}; --yes requires 80%" in " ".join(refused.stderr.split())
    assert "--accept-risk" not in tradewind("plan", "group.yaml", "--what-if", "quota.fake.us.P_instances=9").stdout
    assert tradewind("submit", "group.yaml", "--yes", "--accept-risk").exit_code == 0


def test_why_shows_what_is_decided_about_each_job(tradewind: Run, group: Path) -> None:
    shown = tradewind("plan", "group.yaml", "--why")
    assert shown.exit_code == 0
    places = [shown.stdout.index(f"\n{name}: ") for name in ("fresh", "next", "seeds-seed1", "seeds-seed2")]
    assert sorted(places) == places
    assert places[-1] < shown.stdout.index("sweep: 4 jobs")
    heading = "each job alone, without the budget of the group, as if it could start now:"
    assert shown.stdout.startswith(f"{heading}\n")
    assert heading in tradewind("submit", "group.yaml", "--yes", "--why").stderr
    assert "--for group.yaml" not in shown.stdout
    assert "seeds-seed2: " in tradewind("submit", "group.yaml", "--dry-run", "--why").stdout
    assert "seeds-seed2: " in tradewind("submit", "group.yaml", "--yes", "--why").stderr
    refused = tradewind("plan", "group.yaml", "--why", "--output", "json")
    assert refused.exit_code == 2
    assert json.loads(refused.stdout)["error"]["hint"]
    group.write_text(GROUP.replace("budget: $400\n", ""))
    assert tradewind("plan", "group.yaml", "--why").stdout.startswith("each job alone, as if it could start now:\n")


def test_gpus_that_no_machine_has_are_named_with_all_jobs_that_ask_for_them(tradewind: Run, group: Path) -> None:
    for text in (GROUP, GROUP.replace(", expected: {gpu: V100, steps_per_s: 4.5}", "")):
        group.write_text(text.replace("gpu: [V100]", "gpu: [H200, B200:8]"))
        refused = tradewind("plan", "group.yaml")
        assert refused.exit_code == 6
        assert "no machine of the enabled providers has H200 or B200:8; available machines have " in refused.stderr
        assert "V100" in refused.stderr
        assert "next: no machine" in refused.stderr
        assert "the same is true of seeds-seed1, seeds-seed2" in refused.stderr
        assert "no throughput is known" not in refused.stderr.split("next: ")[1]
        assert "tradewind offers --gpu H200" in refused.stderr


def test_all_jobs_without_a_known_speed_are_named(tradewind: Run, group: Path) -> None:
    group.write_text(GROUP.replace(", expected: {gpu: V100, steps_per_s: 4.5}", ""))
    refused = tradewind("plan", "group.yaml")
    assert refused.exit_code == 6
    assert "next: no throughput is known for it on any offer; the same is true of seeds-seed1, seeds-" in refused.stderr


def test_the_hint_about_jobs_that_fit_nowhere_works(tradewind: Run, group: Path) -> None:
    named = group.rename(group.with_name("my group.yaml")).name
    (group.parent / named).write_text(GROUP.replace("name: seeds", "name: seeds\n    where: {regions: [nowhere-9]}"))
    for command in (("plan", named), ("submit", named, "--yes")):
        refused = tradewind(*command)
        assert refused.exit_code == 6
        assert "seeds-seed1: no offer fits it now; the same is true of seeds-seed2" in refused.stderr
        assert f"tradewind plan '{named}' --why; then relax what seeds-seed1, seeds-seed2 ask for" in refused.stderr
    shown = tradewind("plan", named, "--why")
    assert shown.exit_code == 6
    assert "region (" in shown.stdout
    assert "hint: then relax" not in shown.stderr
    assert "hint: relax what" in shown.stderr
    assert "--why" not in shown.stderr


@pytest.mark.usefixtures("group")
def test_groups_are_completed(tradewind: Run, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(state))
    tradewind("submit", "group.yaml", "--yes")
    assert ("sweep", "cheapest") in complete.groups("sw")
    assert complete.groups("other") == []


def test_a_job_after_many_names_some(tradewind: Run, group: Path) -> None:
    text = GROUP.replace("seed: [1, 2]", "seed: [1, 2, 3, 4, 5, 6]").replace("after: [fresh]", "after: [seeds]")
    group.write_text(text)
    shown = " ".join(tradewind("plan", "group.yaml").stdout.split())
    assert "after seeds-seed1, seeds-seed2, seeds-seed3, seeds-seed4 and 2 more" in shown
    (planned,) = (
        each
        for each in json.loads(tradewind("plan", "group.yaml", "--output", "json").stdout)["jobs"]
        if each["name"] == "next"
    )
    assert len(planned["after"]) == 6
