"""A store with a history: three jobs as the engine would have left them, written through the store's own methods.

gpt finished after a preemption and a move, conv runs, lstm waits. Prices are those of the fake cloud's catalogue.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from orchestrator.engine.billing.comparisons import conclude
from orchestrator.engine.machines.collect import collect
from orchestrator.installation import Installation
from orchestrator.ledger import accrue
from orchestrator.model import (
    Entry,
    Event,
    Expected,
    GpuRequest,
    Job,
    JobSpec,
    Migration,
    OutputSpec,
    Resources,
    Run,
    Step,
    TrainSpec,
)
from orchestrator.nodes.channel import Channel, control_store
from orchestrator.nodes.messages import NodeReport
from orchestrator.services.caller import Caller
from orchestrator.services.jobs import plan, submit
from orchestrator.services.views import JobView
from orchestrator.store import Tx

ME = Caller("me")
HOUR_MS = 3_600_000
SPOT = "fake/alpha/alpha-1/v100.1/spot"
OTHER_SPOT = "fake/beta/beta-1/v100.1/spot"
ON_DEMAND = "fake/alpha/alpha-1/v100.1/on_demand"


def spec(name: str = "gpt", steps: int = 1000, **changes: object) -> JobSpec:
    train = TrainSpec(
        entry="train:main", script=None, args={"lr": 0.1}, workdir="/", env={}, secrets=(), steps=steps, epochs=None
    )
    made = JobSpec(
        name=name,
        train=train,
        resources=Resources(gpus=(GpuRequest("V100"),)),
        expected=Expected(GpuRequest("V100"), 0.1),
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def program(folder: Path) -> TrainSpec:
    """What the jobs of `spec` train, as a program that is there."""
    (folder / "train.py").write_text("def main(**args): pass\n")
    return dataclasses.replace(spec().train, workdir=str(folder))


@dataclass(frozen=True)
class Past:
    """Ids of what happened. `start_ms` is when the first job was submitted."""

    gpt: str
    conv: str
    lstm: str
    runs: tuple[str, ...]
    migrations: tuple[str, ...]
    start_ms: int


def submit_job(installation: Installation, name: str, **changes: object) -> JobView:
    return submit.submit(installation, plan.preview(installation, [spec(name, **changes)]), caller=ME)


def record(installation: Installation) -> Past:
    """Fill the installation's store; its clock is taken to stand at the end of the recording."""
    collect(installation)
    now = installation.clock.now_ms()
    gpt = submit_job(installation, "gpt", outputs=(OutputSpec("weights"),))
    conv = submit_job(installation, "conv", project="vision")
    lstm = submit_job(installation, "lstm")
    story = _Story(installation, now)
    with installation.store.write() as tx:
        first = story.run(tx, gpt.id, 1, SPOT, 0.0, 1.0, end="preempted", steps=(0, 400), reason="first placement")
        second = story.run(
            tx, gpt.id, 2, ON_DEMAND, 1.1, 2.0, end="moved", steps=(390, 700), reason="lost", source=first, again=10
        )
        third = story.run(
            tx,
            gpt.id,
            3,
            OTHER_SPOT,
            2.0,
            3.0,
            end="finished",
            steps=(700, 1000),
            reason="cheaper offer",
            source=second,
        )
        fourth = story.run(tx, conv.id, 1, SPOT, 1.0, None, end=None, steps=(0, 50), reason="first placement")
        tx.set_job_state(gpt.id, "finished")
        tx.set_job_facts(gpt.id, finished_at_ms=now + 3 * HOUR_MS, baseline_offer_id=ON_DEMAND, weights_hash="abc")
        tx.set_job_state(conv.id, "running")
        tx.set_job_facts(conv.id, baseline_offer_id=ON_DEMAND)
        tx.add_perf(gpt.id, "V100", 1, 0.1, 1000, now)
        conclude(installation, tx, gpt.id)
    runs = (first, second, third, fourth)
    _files(installation, gpt.id, runs)
    said = {"state": "training", "step": 50}
    installation.prepare_control()
    Channel(control_store(installation.control_root), story.migrations[-1]).put_report(
        NodeReport("b0", 9, 3, fourth, said, 0.1)
    )
    return Past(gpt.id, conv.id, lstm.id, runs, story.migrations, now)


class _Story:
    def __init__(self, installation: Installation, start_ms: int) -> None:
        self._installation, self._start_ms = installation, start_ms
        self.migrations: tuple[str, ...] = ()
        self._count = 0

    def _at(self, hours: float) -> int:
        return self._start_ms + int(hours * HOUR_MS)

    def run(
        self,
        tx: Tx,
        job_id: str,
        generation: int,
        offer_id: str,
        begin_h: float,
        end_h: float | None,
        *,
        end: str | None,
        steps: tuple[int, int],
        reason: str,
        source: str | None = None,
        again: int = 0,
    ) -> str:
        self._count += 1
        run = Run(
            id=f"run_{self._count}",
            job_id=job_id,
            generation=generation,
            offer_id=offer_id,
            instance_id=f"i-{self._count}",
            state="ended" if end else "training",
            created_at_ms=self._at(begin_h),
            billed_from_ms=self._at(begin_h),
            billed_to_ms=self._at(end_h) if end_h is not None else None,
            training_from_ms=self._at(begin_h + 0.1),
            training_to_ms=self._at(end_h) if end_h is not None else None,
            end=end,  # type: ignore[arg-type]
            start_step=steps[0],
            last_step=steps[1],
            last_loss=2.0 / (1 + steps[1]),
            step_wall_s=2.0,
            repeated_steps=again,
            useful_s=1000.0,
            checkpoint_s=20.0,
        )
        tx.add_run(run)
        job = tx.job(job_id)
        self._migration(tx, job, run, reason, source)
        tx.add_entries(self._entries(tx, job, run, self._at(end_h if end_h is not None else 3.0)))
        return run.id

    def _migration(self, tx: Tx, job: Job, run: Run, reason: str, source: str | None) -> None:
        migration_id = f"mig_{self._count}"
        plan_now = tx.latest_plan(job.id)
        tx.add_migration(
            Migration(
                id=migration_id,
                job_id=job.id,
                source_run_id=source,
                target_run_id=run.id,
                offer_id=run.offer_id,
                generation=run.generation,
                reason=reason,  # type: ignore[arg-type]
                step=Step.DONE,
                attempt=1,
                token=migration_id,
                created_at_ms=run.created_at_ms,
                step_at_ms=run.created_at_ms + 600_000,
                plan_id=plan_now.id if plan_now is not None else None,
                expected_saving_nano_usd=1_500_000_000 if reason == "cheaper offer" else 0,
            )
        )
        for minutes, kind in ((1, "provision"), (5, "cutover"), (10, "done")):
            tx.add_event(
                Event(
                    id=f"ev_{self._count}_{kind}",
                    at_ms=run.created_at_ms + minutes * 60_000,
                    kind=f"migration.{kind}",
                    message=f"{reason}: {kind} on {run.offer_id}",
                    actor="control-plane",
                    job_id=job.id,
                    run_id=run.id,
                    migration_id=migration_id,
                    data={"attempt": 1},
                )
            )
        self.migrations += (migration_id,)

    def _entries(self, tx: Tx, job: Job, run: Run, end_ms: int) -> list[Entry]:
        assert run.billed_from_ms is not None
        prices = tx.price_changes(run.offer_id, run.billed_from_ms, end_ms)
        middle = (run.billed_from_ms + end_ms) // 2
        first = accrue(job, run, prices, middle, None)
        return first + accrue(job, run, prices, end_ms, middle)


def _files(installation: Installation, gpt: str, runs: tuple[str, ...]) -> None:
    for number, (run_id, begin) in enumerate(zip(runs, (0, 390, 700, 0), strict=True), 1):
        folder = installation.run_dir(run_id)
        folder.mkdir(parents=True)
        (folder / "log").write_bytes(f"hello from {number}\n".encode() + b"unfinished")
        metrics = [json.dumps({"step": step, "loss": 10 / (1 + step)}) for step in range(begin, begin + 300, 10)]
        (folder / "metrics.jsonl").write_text("\n".join(metrics) + '\n{"step": 1, "lo')
    outputs = installation.output_dir(gpt)
    (outputs / "weights").mkdir(parents=True)
    (outputs / "weights" / "final.pt").write_bytes(b"weights")
    (outputs / "scratch.txt").write_text("not named")
