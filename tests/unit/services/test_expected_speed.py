"""`expected:` of a job file: what its user knows of its speed, checked like everything else that is said."""

from __future__ import annotations

import pytest

from orchestrator.errors import SpecError
from orchestrator.jobfile import job_from_mapping
from orchestrator.model import Expected, GpuRequest


def written(expected: object) -> dict[str, object]:
    return {"name": "llm", "train": {"entry": "json:dumps", "args": {"obj": 1}, "steps": 10}, "expected": expected}


def test_it_names_a_machine_and_a_speed() -> None:
    assert job_from_mapping(written({"gpu": "a100-80gb:8", "steps_per_s": 2})).expected == Expected(
        GpuRequest("A100-80GB", 8), 2.0
    )
    assert job_from_mapping(written(None)).expected is None


@pytest.mark.parametrize(
    "rate", [0, -1, 1e30, 10**400, 1e-9, float("nan"), float("inf"), True, "2", None, [2.0], {"of": 2}]
)
def test_a_speed_that_no_program_has_is_refused(rate: object) -> None:
    with pytest.raises(SpecError):
        job_from_mapping(written({"gpu": "L4", "steps_per_s": rate}))


@pytest.mark.parametrize("said", [{"steps_per_s": 2}, {"gpu": "L4"}, {"gpu": "L5", "steps_per_s": 2}, 2, "fast", []])
def test_half_of_it_is_refused(said: object) -> None:
    with pytest.raises(SpecError):
        job_from_mapping(written(said))
