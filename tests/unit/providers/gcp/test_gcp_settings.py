"""[providers.gcp] of tradewind.toml: what may be wrong there is named with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config import Config, load_config
from orchestrator.errors import SpecError

GOOD = """[providers]
enabled = ["gcp"]
[providers.gcp]
regions = ["us-central1"]
machine_types = ["g2-standard-8", "n1-standard-8+1xnvidia-tesla-t4"]
image = "projects/debian-cloud/global/images/family/debian-12"
"""


def load(folder: Path, text: str) -> Config:
    (folder / "tradewind.toml").write_text(text)
    return load_config(cwd=folder, environ={})


def test_gcp_is_configured_by_regions_types_and_an_image(tmp_path: Path) -> None:
    gcp = load(tmp_path, GOOD).providers.gcp
    assert (gcp.regions, gcp.machine_types) == (("us-central1",), ("g2-standard-8", "n1-standard-8+1xnvidia-tesla-t4"))
    assert (gcp.disk_gb, gcp.project, gcp.endpoint) == (100, None, None)


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ('["us-central1"]', '["us-central1-a"]', "'us-central1-a' is not valid"),
        ('["us-central1"]', "[]", "must be a list of regions"),
        ('"g2-standard-8"', '"g2"', "must be a list of machine types; 'g2' is not valid"),
        ("+1xnvidia-tesla-t4", "+3", "'n1-standard-8+3' is not valid"),
        ("family/debian-12", "family/", "must be an image"),
        ("projects/debian-cloud/", "", "must be an image"),
        ("[providers.gcp]", '[providers.gcp]\nproject = "My Project"', "must be the id of a project"),
        ("[providers.gcp]", '[providers.gcp]\nendpoint = "compute"', "must be an address"),
    ],
)
def test_a_mistake_is_reported_with_its_line(tmp_path: Path, right: str, wrong: str, said: str) -> None:
    with pytest.raises(SpecError) as raised:
        load(tmp_path, GOOD.replace(right, wrong))
    (problem,) = raised.value.problems
    assert said in problem.message
    assert GOOD.replace(right, wrong).splitlines()[problem.line - 1].startswith(problem.field.rpartition(".")[2])


@pytest.mark.parametrize("setting", ["regions", "machine_types", "image"])
def test_what_is_missing_is_named_with_an_example(tmp_path: Path, setting: str) -> None:
    kept = "\n".join(line for line in GOOD.splitlines() if not line.startswith(setting))
    with pytest.raises(SpecError) as raised:
        load(tmp_path, kept)
    (problem,) = raised.value.problems
    assert problem.message == f"gcp needs providers.gcp.{setting}"
    assert problem.line == 2
    assert "such as" in problem.hint
