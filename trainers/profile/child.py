"""Runs a job's program for a few steps and writes the counts of one step: the child process of a profile.

    python -m trainers.profile.child SPEC.json COUNTS.json [BYTES]

The program gets a real session in temporary folders of the caller, and the length of the whole job, from which
schedules are built; it is ended as soon as a step is counted. A program for several processes runs as one process. Exit
code: 0 counted, 1 the program failed (its error is in progress.json), 4 it ended too early. BYTES limits its memory.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainers.loop.training_loop import Parts
from trainers.process.ranks import ranks_of
from trainers.process.run_context import RunContext, RunEnded, present_context
from trainers.profile.counts import COUNTED_STEPS, STEPS, TIMED_STEPS, TOO_FEW_STEPS, WARM_STEPS, StepCounts
from trainers.runner import execute, take_over
from trainers.spec import TrainerSpec

if TYPE_CHECKING:
    from trainers.profile.counter import Counter


class _Profile:
    """Follows the steps of the session: counts one step and times the later ones."""

    def __init__(self) -> None:
        self.counter: Counter | None = None
        self.counts: StepCounts | None = None
        self._timed_from_s = 0.0

    def stepped(self, steps_done: int) -> None:
        from trainers.profile.counter import Counter

        if steps_done == WARM_STEPS:
            self.counter = Counter()
            self.counter.__enter__()
        elif self.counter is None:
            return
        elif steps_done == WARM_STEPS + COUNTED_STEPS:
            self.counter.__exit__(None, None, None)
        # A session knows the duration of a step, without checkpoints, only after the step has ended.
        elif steps_done == STEPS - TIMED_STEPS:
            self._timed_from_s = self._useful_s()
        elif steps_done == STEPS:
            session = _context().session
            assert session is not None
            self.counts = _counts(self.counter, session.parts, (self._useful_s() - self._timed_from_s) / TIMED_STEPS)
            raise RunEnded("checkpointed_and_stopped")

    def _useful_s(self) -> float:
        return _context().journal.progress.useful_s


def _context() -> RunContext:
    context = present_context()
    assert context is not None  # called only by the runner
    return context


def _counts(counter: Counter, parts: Parts, step_s: float) -> StepCounts:
    import torch

    def tensors(value: Any) -> list[torch.Tensor]:
        if isinstance(value, torch.Tensor):
            return [value]
        if isinstance(value, dict):
            return [tensor for item in value.values() for tensor in tensors(item)]
        if isinstance(value, list | tuple):
            return [tensor for item in value for tensor in tensors(item)]
        return tensors(value.state_dict()) if hasattr(value, "state_dict") else []

    models = parts.model.values() if isinstance(parts.model, dict) else [parts.model]
    trained = [p for model in models if hasattr(model, "parameters") for p in model.parameters()]
    weights, moments = tensors(parts.model), tensors(parts.optimizer)
    counter.ignore([*weights, *trained])
    gradients = [p for p in trained if p.requires_grad]
    weight_bytes = sum(t.numel() * t.element_size() for t in weights)
    gradient_bytes = sum(t.numel() * t.element_size() for t in gradients)
    return StepCounts(
        flops=counter.flops / COUNTED_STEPS,
        half_flops=counter.half_flops / COUNTED_STEPS,
        traffic_bytes=counter.traffic_bytes / COUNTED_STEPS,
        operations=counter.operations // COUNTED_STEPS,
        parameters=sum(tensor.numel() for tensor in trained),
        resident_bytes=weight_bytes + gradient_bytes + sum(t.numel() * t.element_size() for t in moments),
        activation_bytes=counter.activation_bytes,
        step_s=step_s,
        outside_s=max(0.0, step_s - counter.computing_s / COUNTED_STEPS),
        precision=counter.precision,
        sort=counter.sort,
        weight_bytes=weight_bytes,
        gradient_bytes=gradient_bytes,
    )


def main(arguments: list[str]) -> int:
    """Profile the program of a spec and write the counts; returns the exit code. Raises OSError."""
    spec = TrainerSpec.load(Path(arguments[0]))
    if len(arguments) > 2:
        resource.setrlimit(resource.RLIMIT_DATA, (int(arguments[2]), int(arguments[2])))
    take_over(spec)
    profile = _Profile()
    rank = ranks_of(spec)[0] if spec.distributed else None
    state = execute(rank.spec if rank else spec, rank=rank, on_step=profile.stepped)
    if profile.counts is not None:
        profile.counts.save(Path(arguments[1]))
        return 0
    return 1 if state == "failed" else TOO_FEW_STEPS


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
