"""Programs that are unusual and legal are resumed bit for bit after a kill at any step."""

import dataclasses

import pytest

PROGRAMS = ("lbfgs", "adversaries", "averages", "thaws", "schedules", "recurrent", "best_so_far", "turned")
KILLS = (9, 16)  # neither is a multiple of what any of them does every few steps


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_unusual_program_is_resumed_bit_for_bit(job, program):
    job.entry, job.steps = "unusual:main", 24
    whole = dataclasses.replace(job, folder=job.folder / "whole")
    whole.folder.mkdir()
    reference = whole.run(program=program)
    assert reference.status == "finished", reference.log
    found = {}
    for kill in KILLS:
        outcome = job.run(program=program, kill_after_step=kill)
        assert outcome.status == "killed 9", outcome.log
        found |= outcome.losses
    outcome = job.run(program=program)
    assert outcome.status == "finished", outcome.log
    assert outcome.progress.start_step > 0
    assert found | outcome.losses == reference.losses
    assert outcome.progress.weights_hash == reference.progress.weights_hash
