"""Loads torch once, then forks a trainer process for every spec that it is sent: real processes, cheap to kill.

stdin: one JSON line per run {"spec": path, "secrets": {name: value}}; stdout: its exit status ("killed 9", "finished",
"left 0" ...).
"""

import atexit
import gc
import itertools
import json
import os
import sys
from pathlib import Path

import torch
import torch._dynamo  # what the first optimizer would load

from trainers import runner
from trainers.loop import session  # noqa: F401
from trainers.process.run_context import Timers
from trainers.spec import TrainerSpec

STATES = ["finished", "checkpointed_and_stopped", "fenced", "failed"]


def ticking() -> Timers:
    """Clocks that move 0.2 s whenever they are read, so that saves fall on the same steps in every process."""
    ticks = itertools.count()
    return Timers(monotonic=lambda: next(ticks) * 0.2, sleep=lambda _: None, cpu=lambda: 0.0)


def serve() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for line in sys.stdin:
        order = json.loads(line)
        spec, secrets = TrainerSpec.load(Path(order["spec"])), order["secrets"]
        child = os.fork()
        if child == 0:
            os.environ.update(secrets)
            state = runner.execute(spec, timers=ticking(), secrets=secrets)
            atexit._run_exitfuncs()  # what the job left for the end of its process
            os._exit(10 + STATES.index(state))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        known = STATES[code - 10] if code >= 10 else f"left {code}"  # left: by os._exit, past all of ours
        answers.write((f"killed {-code}" if code < 0 else known) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    gc.freeze()  # as trainers.process.prewarm does
    serve()
