"""[providers.aws] of tradewind.toml: what may be wrong there is named with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config import Config, load_config
from orchestrator.errors import SpecError

GOOD = """[providers]
enabled = ["aws"]
[providers.aws]
regions = ["us-east-1"]
instance_types = ["g5.xlarge", "u-3tb1.56xlarge"]
image = "ssm:/aws/service/x_86/latest/ami-id"
"""


def load(folder: Path, text: str) -> Config:
    (folder / "tradewind.toml").write_text(text)
    return load_config(cwd=folder, environ={})


def test_aws_is_configured_by_regions_types_and_an_image(tmp_path: Path) -> None:
    aws = load(tmp_path, GOOD).providers.aws
    assert (aws.regions, aws.instance_types) == (("us-east-1",), ("g5.xlarge", "u-3tb1.56xlarge"))
    assert aws.disk_gb == 100


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ('["us-east-1"]', '["us-east-1a"]', "'us-east-1a' is not valid"),
        ('["us-east-1"]', "[]", "must be a list of regions"),
        ('"g5.xlarge"', '"g5"', "must be a list of instance types; 'g5' is not valid"),
        ('"ssm:/aws/service/x_86/latest/ami-id"', '"ubuntu"', "must be an AMI"),
    ],
)
def test_a_mistake_is_reported_with_its_line(tmp_path: Path, right: str, wrong: str, said: str) -> None:
    with pytest.raises(SpecError) as raised:
        load(tmp_path, GOOD.replace(right, wrong))
    (problem,) = raised.value.problems
    assert said in problem.message
    assert GOOD.splitlines()[problem.line - 1].startswith(problem.field.rpartition(".")[2])


@pytest.mark.parametrize("setting", ["regions", "instance_types", "image"])
def test_what_is_missing_is_named_with_an_example(tmp_path: Path, setting: str) -> None:
    kept = "\n".join(line for line in GOOD.splitlines() if not line.startswith(setting))
    with pytest.raises(SpecError) as raised:
        load(tmp_path, kept)
    (problem,) = raised.value.problems
    assert problem.message == f"aws needs providers.aws.{setting}"
    assert problem.line == 2
    assert "such as" in problem.hint
