"""Programs that harm themselves: each trains like tiny for some steps, then does its worst."""

import ctypes
import os
import signal
import time
from pathlib import Path

import torch

import trainers
from trainers.spec import CONTROL_VARIABLE

AFTER = 10  # steps
GARBAGE = (
    '{"state": "training", "step": 1' + "0" * 30 + "}",
    '{"state": "winning"}',
    "[[[",
    '{"state": "finished", "step": 1, "weights_hash": "' + "ab" * 16 + '"}',
    "x" * 1_000_000,
)


def main(how: str) -> None:
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    run = trainers.attach(model=model, optimizer=optimizer)
    while run.steps_done < 10_000:
        loss = model(torch.ones(4, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.step(loss)
        time.sleep(0.05)
        if run.steps_done >= AFTER:
            WORST[how]()


def exits() -> None:
    os._exit(0)


def is_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def crashes() -> None:
    ctypes.string_at(0)


def hangs() -> None:
    time.sleep(100_000)


def ignores_being_asked() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hangs()


def writes_garbage() -> None:
    """Over what it says of itself, again and again, and into whatever else lies beside it."""
    control = Path(os.environ[CONTROL_VARIABLE])
    for number in range(1_000_000):
        for name in ("progress.json", "quiesce.json", "notice.json", "lease.json"):
            (control / name).write_text(GARBAGE[number % len(GARBAGE)])
        time.sleep(0.02)


WORST = {
    "exits": exits,
    "is killed": is_killed,
    "crashes": crashes,
    "hangs": hangs,
    "ignores being asked": ignores_being_asked,
    "writes garbage": writes_garbage,
}
