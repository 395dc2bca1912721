"""The files of the generated runs: losses and logs, at the same paths as those of real runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from orchestrator.formats.readable import iso
from orchestrator.installation import Installation
from orchestrator.nodes.log_pieces import PieceWriter, log_prefix
from orchestrator.web.demo.lives import Life, Stretch
from providers.offer import short_zone
from trainers.objects.opening import open_store

POINTS = 60
"""The most losses, and log lines, of a run."""
CHECKPOINT_EVERY = 6
"""Lines."""
SAVING_MS = 4_000


def write_files(installation: Installation, job_id: str, life: Life, runs: Sequence[str], now_ms: int) -> None:
    """The metrics and the logs of a job's runs."""
    at = Random(life.number)
    for run_id, stretch in zip(runs, life.stretches, strict=True):
        every = max(1, (stretch.last_step - stretch.start_step) // POINTS)
        steps = range(stretch.start_step, stretch.last_step, every)
        losses = [(step, round(life.loss_at(step) * (1 + at.gauss(0, 0.015)), 4)) for step in steps]
        folder = installation.run_dir(run_id)
        folder.mkdir(parents=True, exist_ok=True)
        points = ({"step": step, "loss": loss} for step, loss in losses)
        (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, points)))
        lines = [line for line_ms, line in sorted(_log(life, stretch, losses)) if line_ms <= now_ms]
        _ship(installation.job_root(job_id), run_id, "\n".join(lines) + "\n")


def _ship(root: str, run_id: str, text: str) -> None:
    """Store a log as a machine does."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_text(text, encoding="utf-8")
        PieceWriter(open_store(root), log_prefix(run_id), path).ship()


def _log(life: Life, stretch: Stretch, losses: Sequence[tuple[int, float]]) -> Iterator[tuple[int, str]]:
    """(time, line): a plausible output of the program."""

    def line(at_ms: int, words: str) -> tuple[int, str]:
        return at_ms, f"{iso(at_ms)[:19]}Z {words}"

    rate = life.steps_per_s(stretch.offer)
    began = stretch.training_ms
    yield line(stretch.begin_ms + 45_000, f"generated log: {life.name} on {short_zone(stretch.offer.id)}, no such run")
    done = stretch.start_step
    yield line(began, f"restored step {done} of {life.steps}" if done else f"begins; {life.steps} steps to go")
    for number, (step, loss) in enumerate(losses[1:], 1):
        at_ms = began + round((step - done) / rate * 1000)
        yield line(at_ms, f"step {step} of {life.steps}: loss {loss:.4f}, {rate:.3g} steps/s")
        saved_ms = at_ms + SAVING_MS
        if number % CHECKPOINT_EVERY == 0 and (stretch.end_ms is None or saved_ms < stretch.end_ms):
            yield line(saved_ms, f"saved a checkpoint of step {step}")
    last = {
        "finished": f"finished: all {life.steps} steps",
        "failed": "RuntimeError: loss is not finite (generated)",
        "cancelled": f"cancelled at step {stretch.last_step}",
        "moved": f"saved a checkpoint of step {stretch.last_step}; continues on another machine",
        "preempted": f"the provider takes the machine away at step {stretch.last_step}",
    }
    if stretch.end is not None and stretch.end_ms is not None:
        yield line(stretch.end_ms, last[stretch.end])
