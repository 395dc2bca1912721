"""The pause in training when a job is moved, and when its machine is killed with and without a warm standby.

    python benchmarks/failover.py [--quick] [--bucket] [--json]

Real processes and Ray on the `local` provider; a job with a checkpoint of 10 MB and steps of 20 ms. Orders, reports and
checkpoints are in a folder; with --bucket, also in a bucket of an S3 server on this host, whose requests are counted.
Killed means SIGKILL to every process of the machine at once, without notice. The times are measured from the steps:
for a move, from the source's last step to the target's first; for a kill, from the signal to the first step after it.
Phases are from the engine's events. All times depend on the load of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks._claims import Claim, show
from orchestrator.model import Event, Run, Step
from orchestrator.nodes.session import end_session
from tests.clouds.s3 import S3, environment
from tests.clouds.server import serving
from tests.e2e.living import Tradewind, until

STEPS = 1_000_000
REST_S = 1.5  # of plain training before each incident
MOVE = ("ready", "checkpoint", "transfer", "restore", "verify", "cutover")
GOALS = {"planned move": 0.5, "hard kill, warm standby": 1.0, "hard kill, cold": 4.0}
BUCKET_GOALS = {"planned move": 3.0, "hard kill, cold": 8.0}
READ_USD, WRITE_USD = 0.4e-6, 5e-6  # S3 Standard, us-east-1, list price of 2026 per request


@dataclass(frozen=True, slots=True)
class Gap:
    """Wall seconds of one incident: how long training stopped, and the phases of the wait in order."""

    total_s: float
    phases: dict[str, float]


class Bench:
    """Runs one job at a time and interrupts it repeatedly."""

    def __init__(self, home: Tradewind) -> None:
        self._home = home

    def submit(self, name: str, **fields: object) -> str:
        train = {"entry": "_steady:main", "steps": STEPS, "workdir": str(Path(__file__).parent)}
        return self._home.submit(name, train=train, **fields)

    def cancel(self, job: str) -> None:
        self._home.client.jobs.cancel(job)
        self._home.ended(job, "cancelled")

    def planned(self, job: str) -> Gap:
        """Move the job; the engine prepares the target while the source keeps training."""
        source = self._rested(job)
        self._home.client.jobs.migrate(job, self._home.other_offer(source))
        target = self._home.training(job, after=source, steps=1)
        last_s, first_s = self._steps(source)[-1], self._steps(target)[0]
        held_s = self._at(job, target, "migration.checkpoint")
        return Gap(first_s - last_s, self._phases(job, target, first_s, [("held", held_s)], last_s))

    def cold(self, job: str) -> Gap:
        source = self._rested(job)
        killed_s = self._kill(source)
        target = self._home.training(job, after=source, steps=1)
        first_s = self._steps(target)[0]
        steps = [
            ("detected", self._at(job, source, "run.lost")),
            ("rented", self._at(job, target, "migration.provision")),
            ("Ray, agent and libraries loaded", self._at(job, target, "migration.ready")),
        ]
        return Gap(first_s - killed_s, self._phases(job, target, first_s, steps, killed_s))

    def warm(self, job: str) -> Gap:
        until("the standby waits", lambda: self._standby(job))
        source = self._rested(job)
        killed_s = self._kill(source)
        target = self._home.training(job, after=source, steps=1)
        first_s = self._steps(target)[0]
        steps = [("detected", self._at(job, source, "run.lost"))]
        return Gap(first_s - killed_s, self._phases(job, target, first_s, steps, killed_s))

    def _rested(self, job: str) -> Run:
        """The current run, after some time without other events."""
        run = self._home.training(job)
        until("no migration in progress", lambda: not self._moving(job))
        time.sleep(REST_S)
        return run

    def _moving(self, job: str) -> bool:
        open_ones = [move for move in self._home.migrations(job) if move.step not in (Step.DONE, Step.ABORTED)]
        return any(move.reason != "standby" or move.step is not Step.CHECKPOINT for move in open_ones)

    def _standby(self, job: str) -> bool:
        standbys = [move for move in self._home.migrations(job) if move.reason == "standby"]
        return bool(standbys) and standbys[-1].step is Step.CHECKPOINT

    def _kill(self, run: Run) -> float:
        leader = os.getsid(self._home.agent(run))
        now_s = time.monotonic()
        for pid in self._home.session(leader):
            with suppress(ProcessLookupError):  # some phases end together with the previous one
                os.kill(pid, signal.SIGKILL)
        end_session(leader)  # and any process started meanwhile
        return now_s

    def _steps(self, run: Run) -> list[float]:
        """The times of its steps, in monotonic seconds."""
        path = self._home.installation.run_dir(run.id) / "metrics.jsonl"
        return [json.loads(line)["t"] for line in path.read_text().splitlines() if line.endswith("}")]

    def _at(self, job: str, run: Run, kind: str) -> float:
        with self._home.installation.store.read() as tx:
            found: Sequence[Event] = [e for e in tx.events(job_id=job, kinds=(kind,)) if e.run_id == run.id]
        clock = self._home.installation.clock
        return clock.monotonic_s() - (clock.now_ms() - found[-1].at_ms) / 1000 / clock.factor

    def _phases(
        self, job: str, target: Run, first_s: float, before: list[tuple[str, float]], begin_s: float
    ) -> dict[str, float]:
        after = [
            ("restored", self._at(job, target, "migration.restore")),
            ("handed over", self._at(job, target, "migration.cutover")),
            ("first step", first_s),
        ]
        phases = {}
        for name, at_s in [*before, *after]:
            phases[name] = at_s - begin_s
            begin_s = at_s
        return phases

    def rest(self, job: str) -> None:
        self._rested(job)


def measure(home: Tradewind, times: dict[str, int]) -> dict[str, list[Gap]]:
    """Cause every kind of incident this many times, one after the other."""
    bench = Bench(home)
    found: dict[str, list[Gap]] = {name: [] for name in times}

    def repeat(name: str, job: str, incident: Callable[[str], Gap]) -> None:
        for _ in range(times[name]):
            found[name].append(incident(job))

    job = bench.submit("alone")
    repeat("planned move", job, bench.planned)
    repeat("hard kill, cold", job, bench.cold)
    bench.cancel(job)
    if "hard kill, warm standby" in times:
        job = bench.submit("guarded", standby="warm")
        repeat("hard kill, warm standby", job, bench.warm)
        bench.cancel(job)
    return found


def in_bucket(folder: Path, times: dict[str, int], counted_s: float) -> tuple[dict[str, list[Gap]], Counter[str]]:
    """The gaps with the store in a bucket, and its requests by method while one job trains for `counted_s`."""
    s3 = S3()
    with serving(s3) as server:
        os.environ.update(environment(server))
        home = Tradewind(folder, TRADEWIND_STORE_ROOT=f"s3://{s3.bucket}/tw")
        try:
            home.command("up")
            job = Bench(home).submit("counted")
            home.training(job)
            before = len(server.requests)
            time.sleep(counted_s)
            requests = Counter(each.method for each in server.requests[before:])
            Bench(home).cancel(job)
            return measure(home, times), requests
        finally:
            home.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 repetitions of each instead of 10, under 50 seconds")
    parser.add_argument("--bucket", action="store_true", help="also with the store in a bucket, which takes longer")
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    options = parser.parse_args()
    times = dict.fromkeys(GOALS, 2 if options.quick else 10)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="tw-failover-") as folder:
        home = Tradewind(Path(folder))
        try:
            home.command("up")
            found = measure(home, times)
        finally:
            home.close()
    claims = [
        Claim(f"{name}, median of {len(gaps)}", median(gap.total_s for gap in gaps), "s", GOALS[name])
        for name, gaps in found.items()
    ]
    if options.bucket:
        counted_s = 6.0 if options.quick else 60.0
        with tempfile.TemporaryDirectory(prefix="tw-failover-") as folder:
            gaps_of, requests = in_bucket(
                Path(folder), dict.fromkeys(BUCKET_GOALS, 1 if options.quick else 5), counted_s
            )
        per_hour = {method: count * 3600 / counted_s for method, count in requests.items()}
        reads = sum(count for method, count in per_hour.items() if method in ("GET", "HEAD"))
        usd = reads * READ_USD + (sum(per_hour.values()) - reads) * WRITE_USD
        claims += [
            Claim(
                f"bucket: {name}, median of {len(gaps)}", median(gap.total_s for gap in gaps), "s", BUCKET_GOALS[name]
            )
            for name, gaps in gaps_of.items()
        ]
        claims += [
            Claim("bucket: requests of an hour of training", sum(per_hour.values()), ""),
            Claim("bucket: their list price", usd, "US$"),
        ]
        found |= {f"bucket: {name}": gaps for name, gaps in gaps_of.items()}
    notes = []
    for name, gaps in found.items():
        totals = sorted(gap.total_s for gap in gaps)
        split = ", ".join(f"{phase} {median(gap.phases[phase] for gap in gaps):.2f}" for phase in gaps[0].phases)
        notes.append(f"{name}: {totals[0]:.2f} to {totals[-1]:.2f} s; medians of its phases: {split}")
    notes.append(f"Load of the machine at the start: {load:.1f} on {os.cpu_count()} cores.")
    return show("Failover", claims, as_json=options.json, notes=notes)


if __name__ == "__main__":
    sys.exit(main())
