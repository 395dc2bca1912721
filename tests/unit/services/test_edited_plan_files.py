"""A plan file can be edited before it is applied: whatever it says then, it is applied or refused with the remedy."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.cli.render import render
from orchestrator.cli.render.text import Screen
from orchestrator.errors import SpecError, TradewindError
from orchestrator.installation import Installation
from orchestrator.jobfile import job_from_mapping, require_sayable
from orchestrator.jobfile.from_spec import mapping_from_spec
from orchestrator.model import JobSpec
from orchestrator.services.jobs import apply, plan
from tests.unit.services.recorded_history import ME, program, spec

GATE = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=120)
NUMBERS = (-1, 0, 1, 0.5, 5e-324, 1e308, float("nan"), float("inf"), float("-inf"), 2**53, 2**63, -(2**70))
TEXTS = ("", " ", "x" * 100_000, "a\0b", "\x1b[2J", "\ud800", "../../etc", "9" * 400)
OTHERS: tuple[Any, ...] = (None, True, [], {}, [[]], {"a": {"b": {}}}, ["x"] * 10_000)
VALUES = st.sampled_from([*NUMBERS, *TEXTS, *OTHERS])
Loc = tuple[str | int, ...]


def places(value: object, loc: Loc = ()) -> Iterator[Loc]:
    yield loc
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, part in parts:
        yield from places(part, (*loc, step))


def edited(document: Any, loc: Loc, value: object) -> Any:
    changed = inner = copy.deepcopy(document)
    for step in loc[:-1]:
        inner = inner[step]
    inner[loc[-1]] = value
    return changed


@pytest.fixture
def apply_text(installation: Installation, tmp_path: Path) -> Callable[[str], None]:
    path = tmp_path / "plan.json"

    def act(text: str) -> None:
        """As `tradewind apply` does: looked at, checked, applied."""
        path.write_text(text)
        view = apply.load(installation, path)
        for why in (False, True):
            render(view, Screen(False, 80, why=why))
        apply.apply(installation, view, caller=ME)

    return act


@pytest.fixture
def document(installation: Installation, tmp_path: Path) -> Any:
    rich = spec(train=program(tmp_path), deadline_s=864_000.0, labels={"team": "a"}, max_duration_s=1e6)
    apply.save(plan.preview(installation, [rich]), tmp_path / "made.json")
    return json.loads((tmp_path / "made.json").read_text())


@GATE
@given(part=st.sampled_from(["new_jobs", "plan", "decisions", None]), at=st.integers(0, 10**6), value=VALUES)
def test_an_edited_plan_is_applied_or_refused_with_the_remedy(
    part: str | None, at: int, value: object, document: Any, apply_text: Callable[[str], None]
) -> None:
    locs = [loc for loc in places(document) if loc and part in (None, loc[0])]
    loc = locs[at % len(locs)]
    try:
        apply_text(json.dumps(edited(document, loc, value)))
    except TradewindError as error:
        problems = error.problems if isinstance(error, SpecError) else (error,)
        assert all(each.hint for each in problems), problems


@pytest.mark.parametrize(
    ("loc", "value"),
    [
        (("deadline_s",), 1e308),
        (("deadline_s",), float("nan")),
        (("deadline_at_ms",), 2**60),
        (("budget_nano_usd",), -1),
        (("retries",), 10**6),
        (("name",), "a/b"),
        (("train", "steps"), 0),
        (("train", "workdir"), "relative"),
        (("train", "args"), {"x": float("inf")}),
        (("train", "env"), {"RANK": "1"}),
        (("resources", "gpus"), [{"name": "V100", "count": 10**9}]),
        (("checkpoint", "max_overhead"), 7.0),
        (("max_duration_s",), 1e-300),
    ],
)
def test_a_plans_job_is_held_to_the_rules_of_a_job_file(
    document: Any, apply_text: Callable[[str], None], loc: Loc, value: object
) -> None:
    with pytest.raises(SpecError) as caught:
        apply_text(json.dumps(edited(document, ("new_jobs", 0, "spec", *loc), value)))
    problem = caught.value.problems[0]
    assert problem.path.endswith("plan.json")
    assert problem.field.startswith("new_jobs[0].spec.")
    assert "tradewind plan" in problem.hint


@pytest.mark.parametrize("job_id", ["", "../../x", "job_1", "job_" + "0" * 15])
def test_a_plans_job_has_the_id_that_the_plan_decided_about(
    document: Any, apply_text: Callable[[str], None], job_id: str
) -> None:
    with pytest.raises(SpecError, match=r"new_jobs\[0\].id"):
        apply_text(json.dumps(edited(document, ("new_jobs", 0, "id"), job_id)))


def test_decisions_that_were_changed_since_the_plan_was_made_are_refused(
    document: Any, apply_text: Callable[[str], None]
) -> None:
    with pytest.raises(SpecError, match="changed since the plan was made"):
        apply_text(json.dumps(edited(document, ("plan", "placements", 0, "saving_nano_usd"), 1)))


@pytest.mark.parametrize(
    ("field", "value"), [("offer_id", "../../etc"), ("offer_id", None), ("cost_nano_usd", -1), ("duration_s", 1e999)]
)
def test_a_comparison_with_impossible_values_is_refused(
    document: Any, apply_text: Callable[[str], None], field: str, value: object
) -> None:
    with pytest.raises(SpecError, match=r"decisions\[0\]: front or picks"):
        apply_text(json.dumps(edited(document, ("decisions", 0, "front", 0, field), value)))


def test_an_unedited_plan_is_applied(document: Any, apply_text: Callable[[str], None]) -> None:
    apply_text(json.dumps(document))


def test_a_deadline_counts_from_when_the_plan_is_applied(
    document: Any, installation: Installation, tmp_path: Path
) -> None:
    (tmp_path / "late.json").write_text(json.dumps(edited(document, ("new_jobs", 0, "submitted_at_ms"), 2**62)))
    (job,) = apply.load(installation, tmp_path / "late.json").new_jobs
    assert job.submitted_at_ms == installation.clock.now_ms()


JOB_FILES: tuple[dict[str, Any], ...] = (
    {"train": {"script": "train.py", "args": ["fit", "--lr", "3e-4"], "setup": "true", "requirements": ["tqdm>=4"]}},
    {"train": {"script": "train.py", "python": "3.12", "requirements": "train.py", "stall_after": "0.1h"}},
    {"resources": {"gpu_memory": "..80 GB", "memory": "1.5 GB"}, "deadline": "2030-01-31T18:00:00.125Z"},
    {"resources": {"gpu": ["A100:8", "V100"]}, "expected": {"gpu": "V100:2", "steps_per_s": 0.1}},
    {"resources": {"gpu_memory": "40 GB..", "cpu": 4}, "objective": "fastest", "budget": 0.3},
    {"objective": {"cost": 0.7, "time": 0.1}, "deadline": "0.333333333 h", "budget": "$1,250.505"},
    {"objective": {"cost": 3, "time": 7}, "max_duration": "99 w 0.000000001 s", "where": {"clouds": "aws"}},
    {"data": [{"source": "train.py", "mount": "/d", "size": "7 B"}], "outputs": [{"path": "o", "keep": "last"}]},
    {"checkpoint": {"to": "kept", "keep": 2, "max_overhead": "0.7%"}, "labels": {"a": 1}, "standby": "warm"},
)


@pytest.mark.parametrize("fields", JOB_FILES)
def test_what_a_job_file_says_can_be_said_again(fields: dict[str, Any], tmp_path: Path) -> None:
    program(tmp_path)
    whole = {"name": "a", "train": {"entry": "train:main", "steps": 5}, **fields}
    made: JobSpec = job_from_mapping(whole, tmp_path)
    assert job_from_mapping(mapping_from_spec(made)) == made


@GATE
@given(cost=st.floats(0, 1e6), time=st.floats(0, 1e6), seconds=st.decimals(0, 10**9, places=9))
def test_numbers_of_a_job_file_are_the_same_when_they_are_read_again(
    cost: float, time: float, seconds: Any, tmp_path: Path
) -> None:
    program(tmp_path)
    whole = {"name": "a", "train": {"entry": "train:main", "steps": 5}, "objective": {"cost": cost, "time": time}}
    if not cost and not time:
        whole.pop("objective")
    if seconds:
        whole["deadline"] = f"{seconds:f}s"
    made = job_from_mapping(whole, tmp_path)
    require_sayable(made, "plan.json", "spec", "", now_ms=0)
