"""`submit`: what is found out about a job on this machine before it is handed over."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from typer.testing import Result

Run = Callable[..., Result]

WRAPPED = """\
import functools


def traced(function):
    @functools.wraps(function)
    def inner(**given):
        return function(**given)
    return inner


@traced
def main(width=64):
    pass
"""


def test_a_job_whose_decorated_function_takes_other_arguments_is_refused_before_anything_is_rented(
    tradewind: Run, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(WRAPPED)
    text = (tmp_path / "job.yaml").read_text().replace("steps: 500", "steps: 500, args: {wide: 8}")
    (tmp_path / "job.yaml").write_text(text)
    refused = tradewind("submit", "job.yaml", "--yes")
    assert refused.exit_code == 3
    assert "train.args do not fit train:main(width=64): got an unexpected keyword argument 'wide'" in refused.stderr
    assert "Traceback" not in refused.stdout
    assert tradewind("status", "fresh").exit_code == 4  # nothing was submitted
    saved = tradewind("plan", "job.yaml", "-o", "plan.json")
    assert saved.exit_code == 0  # a look at a job file runs none of its code
    assert tradewind("apply", "plan.json", "--yes").exit_code == 3


def test_what_could_not_be_checked_here_is_said_and_keeps_no_job_back(
    tradewind: Run, tmp_path: Path, state: Path
) -> None:
    (state / "up.lock").mkdir()  # no control plane is started
    (tmp_path / "train.py").write_text(WRAPPED + "\n\nraise RuntimeError('no CUDA device')\n")
    result = tradewind("submit", "job.yaml", "--yes", "--output", "json")
    assert "train:main was not checked here: RuntimeError: no CUDA device" in result.stderr
    assert json.loads(result.stdout)["name"] == "fresh"
