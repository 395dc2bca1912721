"""The pages that are made of the code are up to date, and their examples are right."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.config import SETTINGS, load_config
from orchestrator.jobfile import parse_job
from orchestrator.jobfile.schema import JobFile
from scripts.gen_docs import PAGES, ROOT
from scripts.page_configuration import example_settings
from scripts.page_job_file import example_job_file


@pytest.mark.parametrize(("name", "page"), PAGES, ids=[name for name, _ in PAGES])
def test_a_generated_page_is_what_the_code_says(name: str, page: Callable[[], str]) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == page(), "run: python -m scripts.gen_docs"


def test_every_example_of_the_job_file_page_is_a_job(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def main(**args): pass\n")
    (tmp_path / "requirements.txt").touch()
    examples = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/job-file.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        parse_job(example, tmp_path / "job.yaml")


def test_the_full_example_has_every_field_and_each_alternative_is_right_too(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def main(**args): pass\n")
    (tmp_path / "requirements.txt").touch()
    lines = example_job_file().splitlines()
    assert [line.split(":")[0] for line in lines if not line.startswith((" ", "#"))] == list(JobFile.model_fields)
    replaced = {"script": "entry", "epochs": "steps", "gpu_memory": "gpu", "cpu": "gpu"}
    alternatives = [line for line in lines if line.strip().startswith("#")]
    assert [line.strip("# ").split(":")[0] for line in alternatives] == list(replaced)
    for line in alternatives:
        field = line.strip("# ").split(":")[0]
        first = next(at for at, other in enumerate(lines) if other.strip().startswith(f"{replaced[field]}:"))
        others = [*lines[:first], *lines[first + 1 :]]
        others[others.index(line)] = line.replace("# ", "", 1)
        parse_job("\n".join(others), tmp_path / "job.yaml")


def test_the_full_configuration_is_read_and_names_every_setting(tmp_path: Path) -> None:
    (tmp_path / "tradewind.toml").write_text(example_settings())
    origins = load_config(cwd=tmp_path, environ={}).origins
    assert list(origins) == list(SETTINGS)
    assert all(origin.startswith("tradewind.toml:") for origin in origins.values())
