"""Programs as tutorials write them are not refused, and are resumed bit for bit after a kill."""

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
    last = job.require_exact_resumes(program, [KILL], max_overhead=1.0)  # saves after every step
    assert last.progress.start_step == KILL - 1
