"""From a scenario file to a table and a page."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from orchestrator.arena.page import page
from orchestrator.arena.results import bootstrap, summarise
from orchestrator.arena.runner import cases, run
from orchestrator.arena.scenario import PolicyChoice, load_scenario
from orchestrator.cli.render.screens.backtest import backtest
from orchestrator.cli.render.text import Screen
from orchestrator.errors import SpecError

EXAMPLES = Path(__file__).parents[3] / "examples" / "scenarios"


@pytest.fixture(scope="module")
def scenario():
    small = load_scenario(EXAMPLES / "small.yaml")
    return replace(small, jobs=small.jobs[:1], starts=2)


@pytest.fixture(scope="module")
def played(scenario):
    return run(scenario)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_are_scenarios(path):
    assert load_scenario(path).policies


def test_pairs_start_together_and_savings_add_up(scenario, played):
    view = summarise(scenario, played)
    assert view.runs == 2
    assert [row.policy for row in view.policies] == [choice.label for choice in scenario.policies]
    for row in view.policies:
        assert row.saved_by_gpu_nano_usd == 0  # one kind
        saved = row.saved_by_spot_nano_usd + row.saved_by_zone_nano_usd + row.saved_by_moving_nano_usd
        assert saved == pytest.approx(view.on_demand_nano_usd - row.cost_nano_usd, abs=2)
        assert row.over_optimum >= 1
        assert row.difference_low_nano_usd <= row.difference_nano_usd <= row.difference_high_nano_usd
    reference = next(row for row in view.policies if row.policy == scenario.reference)
    assert reference.difference_nano_usd == 0
    assert all(run.outcomes.keys() == {row.policy for row in view.policies} for run in played)


def test_what_another_kind_of_machine_saves_is_shown_apart(tmp_path):
    market = EXAMPLES / "made-up"
    (tmp_path / "mixed.yaml").write_text(
        f"""
traces:
  - mixed:
      - {{path: {market}, on_demand: 3.06, spot: 0.92, kind: small}}
      - {{path: {market}, on_demand: 12.24, spot: 2.76, kind: large, speed: 4}}
jobs: [{{work: 10h, ratio: 1.4, overhead: 12 min, checkpoint: 20 GB}}]
starts: 2
policies: [greedy, daily, deadline, skynomad]
"""
    )
    mix = load_scenario(tmp_path / "mixed.yaml")
    played = run(mix)
    view = summarise(mix, played)
    assert played[0].window.zones[0].startswith("small/")
    for row in view.policies:
        parts = ("spot", "zone", "gpu", "moving")
        saved = sum(getattr(row, f"saved_by_{part}_nano_usd") for part in parts)
        assert saved == pytest.approx(view.on_demand_nano_usd - row.cost_nano_usd, abs=3)
        assert row.saved_by_gpu_nano_usd > 0
        assert (row.missed, row.failed) == (0, 0)
    assert "large/us-east-2a" in page(view, played)


@pytest.mark.parametrize(
    ("trace", "named"),
    [
        ("{mixed: []}", "must be a list with at least one"),
        ("{mixed: [{path: a.npz, speed: 2}]}", "must be 1"),
        ("{path: a.npz, mixed: [a.npz]}", "path: is not a field of a scenario"),
        ("{path: a.npz, speed: 2}", "speed: is not a field of a scenario"),
        ("{path: a.npz, tick: soon}", "tick"),
        ("{mixed: [{path: a.npz}, {path: b.npz, speed: 0.0004}]}", "0.001 or more"),
    ],
)
def test_a_wrong_trace_is_named(tmp_path, trace, named):
    path = tmp_path / "wrong.yaml"
    path.write_text(f"traces: [{trace}]\njobs: [{{work: 10h, ratio: 1.4}}]\npolicies: [greedy]\n")
    with pytest.raises(SpecError, match=named):
        load_scenario(path)


def test_processes_change_nothing(scenario, played):
    reported = []
    again = run(scenario, processes=2, progress=lambda done, whole: reported.append((done, whole)))
    assert summarise(scenario, again) == summarise(scenario, played)
    assert reported == [(1, 2), (2, 2)]


def test_a_policy_that_fails_is_reported_and_the_others_go_on(scenario, monkeypatch):
    class Broken:
        name = "broken"

        def start(self, job, market):
            raise RuntimeError("no idea")

    real = PolicyChoice.fresh
    monkeypatch.setattr(PolicyChoice, "fresh", lambda self: Broken() if self.name == "daily" else real(self))
    played = run(scenario)
    view = summarise(scenario, played)
    failed = next(row for row in view.policies if row.policy == "daily")
    assert (failed.runs, failed.failed) == (0, 2)
    assert "broken failed at tick 0" in view.failures[0]
    assert "RuntimeError: no idea" in view.failures[0]
    assert all(row.failed == 0 for row in view.policies if row.policy != "daily")
    assert (failed.over_optimum, failed.p95, failed.worst) == (None, None, None)
    shown = backtest(view, Screen()).splitlines()
    assert any(re.fullmatch(r"daily +- +- +- +- +0 +2 +- +-", line) for line in shown)
    assert "broken failed at tick 0" in page(view, played)


def test_the_page_is_self_contained(scenario, played):
    drawn = page(summarise(scenario, played), played)
    assert drawn.count("<svg") == 2 + len(played)
    assert "uniform-progress" in drawn
    assert "us-east-2a up, hours" in drawn
    for outside in ("http://", "https://", "<script", "src="):
        assert outside not in drawn.replace("http://www.w3.org/2000/svg", "")


def test_hindsight_costs_no_more_than_the_zone_chosen_at_the_start(played):
    for each in played:
        assert each.outcomes["static-in-hindsight"].usd <= each.at_start.usd + 1e-9


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"policies": ["gready"]}, "policies[0]: 'gready' is not a policy (did you mean \"greedy\"?)"),
        ({"reference": "daily"}, "reference: 'daily' is not among the policies"),
        ({"policies": [{"policy": "daily", "speed": 2}]}, "daily does not have this option"),
        ({"policies": [{"policy": "greedy", "replan_hours": 2}]}, "greedy takes no options"),
        ({"policies": ["greedy", "greedy"]}, "listed twice"),
        ({"jobs": [{"work": "40", "ratio": 2}]}, "is not a duration"),
        ({"jobs": [{"work": "40h"}]}, "needs either `deadline` or `ratio`"),
        ({"jobs": [{"work": "40h", "ratio": -1}]}, "must be a positive number"),
        ({"jobs": [{"work": "40h", "ratio": 2, "gang": 0}]}, "must be a whole number"),
        ({"jobs": []}, "jobs: must be a list with at least one"),
        ({"starts": 0}, "starts: must be a number of starts"),
        (
            {"jobs": [{"work": "40h", "ratio": []}]},
            ":1:67: jobs[0].ratio: must be a value, or a list with at least one",
        ),
        ({"jobs": [{"work": "40h", "deadline": []}]}, "jobs[0].deadline: must be a value, or a list with at least one"),
        ({"jobs": [{"work": "40h", "ratio": [2, 3, 2.0]}]}, "jobs[0].ratio[2]: is the same as item 1 of the list"),
        ({"jobs": [{"work": "4h", "ratio": 2}, {"work": "4h", "deadline": "8h"}]}, "jobs[1]: is the same as item 1"),
        ({"traces": ["x.npz", {"path": "./x.npz"}]}, "traces[1]: is the same as item 1 of the list"),
        ({"starts": [0, 6, 6]}, "starts[2]: is the same as item 2 of the list"),
        ({"policies": [{"policy": "daily", "replan_hours": "abc"}]}, "replan_hours: must be a positive number"),
        (
            {"policies": [{"policy": "daily", "replan_hours": -5}]},
            "policies[0].replan_hours: must be a positive number",
        ),
        ({"policies": [{"policy": "daily", "replan_hours": math.nan}]}, "replan_hours: must be a positive number"),
        ({"policies": ["greedy", {"policy": "daily", "replan_hours": 10**400}]}, "not a huge number"),
        ({"traces": [{"path": "x", "on_demand": 10**400}]}, "traces[0].on_demand: must be a positive number"),
        ({"traces": [{"path": "x", "spot": 1e308}]}, "traces[0].spot: must be a positive number, at most 1,000,000"),
        ({"traces": [{"path": "x.csv", "tick": "0.0001 s"}]}, "traces[0].tick: must be 1 ms or more"),
        ({"traces": [{"path": "x.csv", "machine": ["p3"]}]}, "traces[0].machine: must be text, not a list"),
        ({"traces": [{"mixed": [{"path": "x.npz", "kind": {}}]}]}, "mixed[0].kind: must be text, not a mapping"),
        ({"traces": ["x" * 300]}, "traces[0].path: must have at most 255 bytes between two slashes"),
        ({"traces": ["x\0.npz"]}, "traces[0].path: must not contain a NUL"),
        ({"jobs": [{"work": "40h", "ratio": 1e308}]}, "jobs[0].ratio: must be a positive number"),
        ({"jobs": [{"work": "40h", "ratio": 2, "gang": 10**400}]}, "jobs[0].gang: must be a whole number"),
        ({"name": {"a": "b"}}, "name: must be text, not a mapping"),
        ({"name": None}, "name: must be text, not null"),
        ({"trace": []}, 'is not a field of a scenario (did you mean "traces"?)'),
    ],
)
def test_a_wrong_scenario_is_refused_with_its_place(tmp_path, change, named):
    good = {
        "traces": [{"path": "x.npz"}],
        "jobs": [{"work": "4h", "ratio": 2}],
        "starts": 2,
        "policies": ["greedy"],
    }
    path = tmp_path / "s.yaml"
    path.write_text(json.dumps({**good, **change}))  # JSON is YAML
    with pytest.raises(SpecError) as error:
        load_scenario(path)
    assert str(path) in str(error.value)
    assert named in str(error.value)
    path.write_text(json.dumps(good))
    assert load_scenario(path).jobs[0].deadline_h == 8


def test_more_starts_than_ticks_are_every_tick_once(scenario):
    every = [case.start for case in cases(replace(scenario, starts=10**15))]
    assert every == list(range(len(every)))
    assert len(every) > 100


def test_a_start_or_deadline_outside_the_trace_is_refused(scenario):
    with pytest.raises(SpecError, match="are not inside the trace"):
        list(cases(replace(scenario, starts=(890,))))
    tight = replace(scenario.jobs[0], deadline_h=scenario.jobs[0].work_h)
    with pytest.raises(SpecError, match=r"the job 30 h in 30 h on .*made-up.*is too short"):
        list(cases(replace(scenario, jobs=(tight,))))
    longer = replace(scenario.jobs[0], deadline_h=1000.0)
    with pytest.raises(SpecError, match="choose an earlier deadline"):
        list(cases(replace(scenario, jobs=(longer,))))


def mixed_scenario(path, more, job="{work: 10h, ratio: 1.4}"):
    market = EXAMPLES / "made-up"
    small = f"{{path: {market}, on_demand: 3.06, spot: 0.92, kind: small}}"
    large = f"{{path: {market}, on_demand: 12.24, spot: 2.76, kind: large, speed: 4}}"
    path.write_text(
        f"traces: [{{mixed: [{small}, {large}]{more}}}]\njobs: [{job}]\nstarts: 1\npolicies: [greedy, daily]\n"
    )
    return load_scenario(path)


def test_a_deadline_that_only_the_faster_kind_can_meet_is_played(tmp_path):
    tight = mixed_scenario(tmp_path / "s.yaml", "", "{work: 10h, deadline: 5h}")
    (played,) = run(tight)
    assert played.on_demand.finished
    assert played.outcomes["greedy"].finished
    too_tight = mixed_scenario(tmp_path / "s.yaml", "", "{work: 10h, deadline: 2h}")
    with pytest.raises(SpecError, match=r"2\.5 h without interruption"):
        run(too_tight)


def test_a_selection_needs_the_first_kind_wherever_it_stands(tmp_path):
    with pytest.raises(SpecError, match="none of them has the first kind of machine"):
        run(mixed_scenario(tmp_path / "s.yaml", ", zones: [large/us-east-2a]"))
    one, other = (
        run(mixed_scenario(tmp_path / "s.yaml", f", zones: [{zones}]"))[0].on_demand.usd
        for zones in ("small/us-east-2a, large/us-east-2a", "large/us-east-2a, small/us-east-2a")
    )
    assert one == other  # both on the small kind


def test_the_interval_holds_the_mean_and_is_the_same_each_time():
    values = np.arange(30.0)
    low, high = bootstrap(values)
    assert low < values.mean() < high
    assert (low, high) == bootstrap(values)
    assert bootstrap([]) == (0.0, 0.0)
