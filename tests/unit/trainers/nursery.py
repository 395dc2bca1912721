"""Loads torch once, then forks a trainer process for every spec that it is sent: real processes, cheap to kill.

stdin: one JSON line per run {"specs": [path of each machine], "secrets": {name: value}}; stdout: the exit statuses of
its machines, with commas ("killed 9", "finished", "left 0" ...).
"""

import atexit
import gc
import importlib
import itertools
import json
import os
import sys
import tempfile
from pathlib import Path

import torch
import torch._dynamo  # what the first optimizer would load

from trainers import runner
from trainers.loop import session  # noqa: F401
from trainers.process import launcher
from trainers.process.run_context import Timers
from trainers.spec import TrainerSpec

STATES = ["finished", "checkpointed_and_stopped", "fenced", "failed"]


def ticking() -> Timers:
    """Clocks that move 0.2 s whenever they are read, so that saves fall on the same steps in every process."""
    ticks = itertools.count()
    return Timers(monotonic=lambda: next(ticks) * 0.2, sleep=lambda _: None, cpu=lambda: 0.0)


def execute(spec: TrainerSpec, secrets: dict[str, str]) -> str:
    """Execute the order of one machine in this process."""
    if spec.distributed:
        with tempfile.TemporaryDirectory() as ours:
            state = launcher.launch(
                spec,
                lambda rank: runner.execute(rank.spec, rank=rank, timers=ticking(), secrets=secrets),
                secrets=secrets,
            )
            assert Path(ours).exists(), "a rank has called our exit handlers"
        return state
    return runner.execute(spec, timers=ticking(), secrets=secrets)


def start(spec: TrainerSpec, secrets: dict[str, str]) -> int:
    """Fork the process of a machine."""
    child = os.fork()
    if child == 0:
        os.environ.update(secrets)
        state = execute(spec, secrets)
        atexit._run_exitfuncs()  # what the job left for the end of its process
        os._exit(10 + STATES.index(state))
    return child


def outcome(child: int) -> str:
    """Wait for a machine and describe its end."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    known = STATES[code - 10] if code >= 10 else f"left {code}"  # left: by os._exit, past all of ours
    return f"killed {-code}" if code < 0 else known


def serve() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for line in sys.stdin:
        order = json.loads(line)
        children = [start(TrainerSpec.load(Path(path)), order["secrets"]) for path in order["specs"]]
        answers.write(",".join(map(outcome, children)) + "\n")


if __name__ == "__main__":
    for module in sys.argv[1:]:
        importlib.import_module(module)
    torch.set_num_threads(1)
    gc.freeze()  # as trainers.process.prewarm does
    serve()
