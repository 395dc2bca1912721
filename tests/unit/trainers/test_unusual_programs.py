"""Programs that are unusual and legal are resumed bit for bit after a kill at any step."""

import pytest

PROGRAMS = ("lbfgs", "adversaries", "averages", "thaws", "schedules", "recurrent", "best_so_far", "turned")
KILLS = (9, 16)  # neither is a multiple of what any of them does every few steps


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_unusual_program_is_resumed_bit_for_bit(job, program):
    job.entry, job.steps = "unusual:main", 24
    job.require_exact_resumes(program, KILLS)
