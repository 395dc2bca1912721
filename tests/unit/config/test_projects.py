"""[projects.NAME] in tradewind.toml: what a project may use, and how much it counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config import Config, Project, load_config, shown_settings
from orchestrator.errors import SpecError

TOML = """\
[projects.vision]
weight = 2
max_instances = 8
max_usd_per_hour = 12
budget = 400
priority = 1

[projects."team.b"]
priority = -3
"""


def config_of(folder: Path, toml: str = "", **environ: str) -> Config:
    (folder / "tradewind.toml").write_text(toml)
    return load_config({"state_dir": folder / "state"}, folder, {"HOME": str(folder), **environ})


def problems_of(folder: Path, toml: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        config_of(folder, toml)
    return [str(problem) for problem in caught.value.problems]


def test_each_project_has_its_limits_and_others_have_none(tmp_path: Path) -> None:
    projects = config_of(tmp_path, TOML).projects
    assert projects.of("vision") == Project(2.0, 8, 12.0, 400.0, 1)
    assert projects.of("team.b") == Project(priority=-3)
    assert projects.of("any other") == Project(1.0, None, None, None, 0)
    assert projects.highest_priority == 1
    assert config_of(tmp_path).projects.highest_priority == 0


def test_what_is_shown_reads_as_the_same_from_the_environment(tmp_path: Path) -> None:
    config = config_of(tmp_path, TOML)
    (shown,) = [each for each in shown_settings(config) if each.key == "projects"]
    assert shown.origin == "tradewind.toml:1"
    assert config_of(tmp_path, TRADEWIND_PROJECTS=shown.value).projects == config.projects


def test_every_mistake_has_its_line_and_a_remedy(tmp_path: Path) -> None:
    toml = """\
[projects.vision]
wieght = 2
max_instances = 1.5
budget = 0
[projects.speech]
weight = 0
max_usd_per_hour = 1e30
priority = "high"
[projects."not a name"]
[projects.chess]
colour = "red"
"""
    assert problems_of(tmp_path, toml) == [
        'tradewind.toml:2:1: projects.vision.wieght: unknown setting (did you mean "weight"?)',
        "tradewind.toml:3:1: projects.vision.max_instances: must be a whole number, at least 0 "
        '(write it like "max_instances = 8")',
        'tradewind.toml:4:1: projects.vision.budget: must be a number, more than 0 (write it like "budget = 400")',
        'tradewind.toml:6:1: projects.speech.weight: must be a number, more than 0 (write it like "weight = 2")',
        "tradewind.toml:7:1: projects.speech.max_usd_per_hour: must be an amount of US dollars, at least $0.000000001 "
        'and less than $9 billion (write it like "max_usd_per_hour = 12")',
        "tradewind.toml:8:1: projects.speech.priority: must be a whole number from -1000 to 1000 "
        '(write it like "priority = 1")',
        "tradewind.toml:9:2: projects.not a name: is not a valid project name (use the name that job files give "
        "as `project`)",
        "tradewind.toml:11:1: projects.chess.colour: unknown setting (the settings are weight, max_instances, "
        "max_usd_per_hour, budget, priority)",
    ]


@pytest.mark.parametrize(
    ("toml", "problem"),
    [
        (
            "[projects]\nweight = 2\n",
            "tradewind.toml:2:1: projects.weight: must be a table of settings (write them below [projects.NAME])",
        ),
        (
            "[projects]\nvision = 2\n",
            "tradewind.toml:2:1: projects.vision: must be a table of settings (write them below [projects.vision])",
        ),
        (
            "projects = 5\n",
            "tradewind.toml:1:1: projects: must be a table for each project, such as [projects.vision]",
        ),
        (
            '[projects.vision]\nbudget = "400"\n',
            "tradewind.toml:2:1: projects.vision.budget: must be 400, without quotes",
        ),
        (
            '[projects.vision]\nmax_instances = "8"\n',
            "tradewind.toml:2:1: projects.vision.max_instances: must be 8, without quotes",
        ),
        (
            '[projects.vision]\npriority = "1"\n',
            "tradewind.toml:2:1: projects.vision.priority: must be 1, without quotes",
        ),
        ("[project.vision]\n", 'tradewind.toml:1:2: project: unknown setting (did you mean "projects"?)'),
    ],
)
def test_a_table_in_the_wrong_place_is_refused(tmp_path: Path, toml: str, problem: str) -> None:
    assert problems_of(tmp_path, toml) == [problem]
