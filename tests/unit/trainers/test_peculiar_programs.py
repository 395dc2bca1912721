"""Programs that are peculiar and real are resumed bit for bit after a kill, or refused before they are inexact."""

from __future__ import annotations

import re

import pytest

STEPS, KILL = 9, 5  # in the middle of what a program does every third step

EXACT = [
    "compiled",
    "parametrized",
    "lazy",
    "extra_state",
    "kinds",
    "sparse",
    "sparse_zeroed",
    "doubled_early",
    "rates",
    "tensor_rate",
    "workers",
    "stream",
    "across_epochs",
    "containers",
    "two_names",
    "spawning",
    "by_hand",
    "throwaway",
    "wrapped",
]
REFUSED = {
    "doubled": r"model.0.weight is now torch.float64 of shape .* but was torch.float32",
    "grown": r"model.seen is now torch.float32 of shape \(2,\)",
    "new_head": r"parameter 2 of group 0 of optimizer .* its module was replaced",
    "graph": r"extra.total still has its computation graph",
    "graph_in_buffer": r"model.total still has its computation graph",
    "scheduler_forgotten": r"the scheduler CosineAnnealingLR belongs to an attached optimizer, but was not given",
    "plateau_forgotten": r"the scheduler ReduceLROnPlateau belongs to an attached optimizer",
    "scaler_forgotten": r"the scaler GradScaler is in use, but was not given",
    "optimizer_replaced": r"the optimizer SGD changed attached parameters, but was not given",
    "discriminator_forgotten": r"the optimizer Adam is used in several steps, but was not given",
    "wrapped_in_part": r"optimizer.base_optimizer, a SGD, has state \(momentum_buffer\) that the state_dict\(\)",
    "own_loader": r"an iterator of a DataLoader over TensorDataset is read from step to step, but its loader",
    "own_loader_later": r"an iterator of a DataLoader over TensorDataset is read from step to step",
    "scheduler_of_module": r"the scheduler StepLR belongs to an attached optimizer, but was not given",
    "packing": r"fetching a sample changed collate_fn.calls",
    "late_weights": r"extra.prompt requires gradients and was added after attach",
    "best_model": r"extra.best was added after attach",
    "best_is_the_same": r"extra.best.(\S+) was added after attach\(\) and shares memory with model.\1:",
}


@pytest.mark.parametrize("program", EXACT)
def test_a_peculiar_program_is_resumed_bit_for_bit(job, program):
    job.entry, job.steps = "peculiar:main", STEPS
    last = job.require_exact_resumes(program, [KILL], max_overhead=1.0)  # saves after every step
    assert last.progress.start_step == KILL - 1


@pytest.mark.parametrize("program", REFUSED)
def test_what_could_not_be_resumed_exactly_is_refused_before_it_is_committed(job, program):
    job.entry, job.steps = "peculiar:main", STEPS
    outcome = job.run(program=program, spec={"max_overhead": 1.0})
    assert outcome.status == "failed"
    assert re.search(REFUSED[program], outcome.progress.error), outcome.progress.error
    assert outcome.progress.manifest is None or outcome.progress.manifest_step < outcome.progress.step
