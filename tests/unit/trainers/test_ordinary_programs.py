"""Programs as tutorials write them are not refused, and are resumed bit for bit after a kill."""

import dataclasses

import pytest

STEPS, KILL = 9, 5

PROGRAMS = [
    "first_look",
    "hugging",
    "lightning",
    "gan",
    "ema",
    "accumulation",
    "lora",
    "distillation",
    "warmup_cosine",
    "mixed_precision",
    "recurrent",
    "replay",
    "contrastive",
    "mixup",
    "looks_at_some",
    "early_stopping",
    "half_labelled",
    "reptile",
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_ordinary_program_is_not_refused_and_resumed_bit_for_bit(job, program):
    job.entry, job.steps = "ordinary:main", STEPS
    whole = dataclasses.replace(job, folder=job.folder / "whole")
    whole.folder.mkdir()
    reference = whole.run(program=program)
    assert reference.status == "finished", reference.log
    killed = job.run(program=program, kill_after_step=KILL, spec={"max_overhead": 1.0})  # saves after every step
    assert killed.status == "killed 9", killed.log
    outcome = job.run(program=program)
    assert outcome.status == "finished", outcome.log
    assert outcome.progress.start_step == KILL - 1
    assert killed.losses | outcome.losses == reference.losses
    assert outcome.progress.weights_hash == reference.progress.weights_hash
