"""Chaos test: real jobs in real processes while everything around them is killed and stopped at random.

    python benchmarks/chaos.py [--quick] [--json] [--seed N] [--minutes M]

Twenty jobs run on the `local` provider, a few at a time, with a store in Postgres. Every few seconds one of these is
killed (SIGKILL) or stopped for some seconds (SIGSTOP, SIGCONT): a machine, a run's actor, its trainer, its Ray, the
control plane, a connection to the database. A machine's agent and its Ray are also stopped for longer than the lease,
and for equally long periods the provider answers neither `launch` nor `terminate`. A dead control plane is restarted,
like a supervisor would do. Other jobs harm themselves: they exit, kill themselves, crash, hang, ignore SIGTERM or write
garbage into their control directory.

Then the disturbances stop and the jobs finish. Every loss and the final weights must equal those of an uninterrupted
run, bit for bit; the ledger must equal the cloud's bill; no process may be left behind; and each job that harmed itself
must have failed or be paused, with the reason.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from benchmarks._claims import Claim, show
from orchestrator.engine.inputs.snapshot import current_run
from orchestrator.model import TERMINAL, Run
from orchestrator.nodes.session import end_session
from tests.e2e.living import Reference, Tradewind, alive
from tests.postgres import Server, server

AT_ONCE = 4  # machines: each has six processes, on two cores
LEASE_S = 12.0
BETWEEN_S = (3.0, 8.0)  # between two disturbances
STOPPED_S = (0.5, 6.0)
TELL_EVERY_S = 20.0
LATE_S = 300.0  # for the jobs to finish after the last disturbance
HOW = ("killed", "stopped")
PAST_THE_LEASE = "stopped past the lease"
OVERSLEPT_S = (LEASE_S + 3.0, LEASE_S + 8.0)
PROVIDER, UNANSWERED = "provider", "unanswered"
BAD = ("exits", "is killed", "crashes", "hangs", "ignores being asked", "writes garbage")
STALLS = {"STALLS_AFTER_S": "20", "STALLS_FAIL_AFTER_S": "45"}


class Chaos:
    """Random disturbances of one installation."""

    def __init__(self, home: Tradewind, database: Server, jobs: list[str], seed: int) -> None:
        self._home = home
        self._database = database
        self._jobs = jobs
        self._random = random.Random(seed)
        self._stopped: list[tuple[threading.Timer, int]] = []  # action that wakes it, process
        self._silences: list[tuple[threading.Timer, sqlite3.Connection]] = []  # action that ends it, what is locked
        self._plane: subprocess.Popen[bytes] | None = None
        self._targets: dict[str, Callable[[], int]] = {
            "machine": lambda: self._of_a_run(home.agent),
            "actor": lambda: self._of_a_run(lambda run: self._named(run, "ray::RunActor")),
            "trainer": lambda: self._of_a_run(lambda run: self._named(run, "trainers.process.prewarm")),
            "Ray": lambda: self._of_a_run(lambda run: self._named(run, "gcs_server")),
            "control plane": self._control_plane,
            "database connection": self._backend,
        }
        self._due = self._shuffled(list(self._targets))
        self.kinds = len(self._due)
        self.blows: Counter[str] = Counter()

    def strike(self) -> None:
        """Cause the next disturbance if its target exists now, otherwise later. All kinds take turns."""
        name, how = self._due.pop(0)
        if name == PROVIDER:
            self._silence()
        elif not self._strike(name, how):
            self._due.append((name, how))
            return
        self.blows[f"{name} {how}"] += 1
        if not self._due:
            self._due = self._shuffled(list(self._targets))

    def _strike(self, name: str, how: str) -> bool:
        """Whether the disturbance was possible: its process exists now."""
        try:
            pid = self._targets[name]()
        except (StopIteration, ValueError, AssertionError, OSError):
            pid = 0  # it is just starting or ending
        if pid and how != "killed":
            self._stop(pid, STOPPED_S if how == "stopped" else OVERSLEPT_S)
        elif pid:
            self._kill(name, pid)
        return bool(pid)

    def _silence(self) -> None:
        """Let each launch and terminate call to the provider time out for longer than a lease."""
        books = sqlite3.connect(
            self._home.installation.state_dir / "local" / "books.db", timeout=5, check_same_thread=False
        )
        books.execute("BEGIN IMMEDIATE")  # `local` records each launch and each end before it acts
        timer = threading.Timer(self._random.uniform(*OVERSLEPT_S), books.close)
        timer.daemon = True
        timer.start()
        self._silences.append((timer, books))

    def _shuffled(self, names: list[str]) -> list[tuple[str, str]]:
        blows = [(name, how) for name in names for how in HOW]
        blows += [(name, PAST_THE_LEASE) for name in names if name in ("machine", "Ray")]
        blows.append((PROVIDER, UNANSWERED))
        return self._random.sample(blows, len(blows))

    def tend(self) -> None:
        """Restart the control plane if it is dead."""
        if self._plane is None or self._plane.poll() is not None:
            self._plane = self._home.start_control_plane()

    def calm(self) -> None:
        """Wake everything that is stopped."""
        for timer, pid in self._stopped:
            timer.cancel()
            self._signal(pid, signal.SIGCONT)
        self._stopped.clear()
        for timer, books in self._silences:
            timer.cancel()
            books.close()
        self._silences.clear()

    def end(self) -> None:
        """Wait for the control plane, which the installation ends."""
        if self._plane is not None:
            self._plane.wait(timeout=30)

    def _of_a_run(self, find: Callable[[Run], int]) -> int:
        runs = [run for job in self._jobs if (run := current_run(self._home.runs(job))) is not None]
        return find(self._random.choice(runs)) if runs else 0

    def _named(self, run: Run, name: str) -> int:
        return next(pid for pid, command in self._home.processes(run).items() if name in command)

    def _control_plane(self) -> int:
        return self._plane.pid if self._plane is not None and alive(self._plane.pid) else 0

    def _backend(self) -> int:
        found = self._database.sql("SELECT pid FROM pg_stat_activity WHERE datname = 'chaos'")
        return int(self._random.choice(found)[0]) if found else 0

    def _kill(self, name: str, pid: int) -> None:
        if name == "machine":
            end_session(os.getsid(pid))
        elif name == "database connection":
            self._database.sql(f"SELECT pg_terminate_backend({pid})")  # SIGKILL would end the whole server
        else:
            self._signal(pid, signal.SIGKILL)

    def _stop(self, pid: int, range_s: tuple[float, float]) -> None:
        self._signal(pid, signal.SIGSTOP)
        # in a thread, because the stopped connection may be this process's own
        timer = threading.Timer(self._random.uniform(*range_s), self._signal, (pid, signal.SIGCONT))
        timer.daemon = True
        timer.start()
        self._stopped.append((timer, pid))

    def _signal(self, pid: int, number: signal.Signals) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return


def play(home: Tradewind, chaos: Chaos, jobs: list[str], seconds: float, seed: int) -> float:
    """Disturb the jobs for that long, then let them finish. Returns the wall seconds of all of it."""
    rng = random.Random(seed + 1)
    started_s = time.monotonic()
    while not any(current_run(home.runs(job)) for job in jobs) and time.monotonic() < started_s + LATE_S:
        chaos.tend()
        time.sleep(0.1)
    began_s = next_s = printed_s = time.monotonic()
    while time.monotonic() < began_s + seconds and _open(home, jobs):
        chaos.tend()
        if time.monotonic() >= next_s:
            chaos.strike()
            next_s = time.monotonic() + rng.uniform(*BETWEEN_S)
        printed_s = _tell(home, chaos, jobs, began_s, printed_s)
        time.sleep(0.1)
    chaos.calm()
    for job in jobs:
        home.hurry_file(home.job(job).name).touch()
    give_up_s = time.monotonic() + LATE_S
    while _open(home, jobs) and time.monotonic() < give_up_s:
        chaos.tend()
        printed_s = _tell(home, chaos, jobs, began_s, printed_s)
        time.sleep(0.2)
    return time.monotonic() - started_s


def _open(home: Tradewind, jobs: list[str]) -> bool:
    """Whether any job, including those that harm themselves, is still active."""
    with home.installation.store.read() as tx:
        own = any(tx.job(job).state not in TERMINAL for job in jobs)
        return own or any(job.state not in TERMINAL | {"paused"} for job in tx.jobs()) or bool(tx.unsettled_runs())


def _unstated(home: Tradewind, job: str) -> str | None:
    """The problem with the state of a job that harmed itself: it must have failed or be paused, with the reason."""
    with home.installation.store.read() as tx:
        state, facts = tx.job(job).state, tx.job_facts(job)
    if state not in ("failed", "paused"):
        return f"it is {state}"
    return None if facts.error or facts.quarantine else f"it is {state}, without a reason"


def _tell(home: Tradewind, chaos: Chaos, jobs: list[str], began_s: float, printed_s: float) -> float:
    """Print the progress every so often. Returns when it was last printed."""
    now = time.monotonic()
    if now < printed_s + TELL_EVERY_S:
        return printed_s
    over = sum(home.job(job).state in TERMINAL for job in jobs)
    print(f"{now - began_s:.0f} s: {chaos.blows.total()} attacks, {over} of {len(jobs)} jobs ended", file=sys.stderr)
    return now


def _unequal(home: Tradewind, job: str, reference: Reference) -> str | None:
    """The differences from an uninterrupted run."""
    try:
        found = home.losses(job)
    except AssertionError as error:
        return str(error)
    if found != reference.losses():
        return "its losses differ"
    return None if home.weights_hash(job) == reference.weights_hash() else "its weights differ"


def _bad(how: str) -> dict[str, object]:
    return {"entry": "bad:main", "steps": 10_000, "args": {"how": how}}


def _last_line(error: str) -> str:
    return error.strip().splitlines()[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 jobs and 12 seconds of it, under 50 seconds")
    parser.add_argument("--json", action="store_true", help="only a list of claims")
    parser.add_argument("--seed", type=int, default=1, help="seed for the choice of disturbances")
    parser.add_argument("--minutes", type=float, default=5.0, help="duration of the disturbances")
    options = parser.parse_args()
    count, seconds = (2, 12.0) if options.quick else (20, 60.0 * options.minutes)
    deeds = BAD[:2] if options.quick else BAD
    with server() as database, tempfile.TemporaryDirectory(prefix="tw-chaos-") as name:
        folder = Path(name)
        settings = {
            "STORE_URL": database.create("chaos"),
            "LIMITS_MAX_INSTANCES": str(AT_ONCE),
            "LEASE_S": str(LEASE_S),
        }
        settings |= STALLS
        home = Tradewind(folder, **{f"TRADEWIND_{key}": value for key, value in settings.items()})
        (folder / "reference").mkdir()
        reference = Reference(folder / "reference")
        try:
            jobs = [home.submit(f"job-{number}") for number in range(1, count + 1)]
            bad = {how: home.submit(how.replace(" ", "-"), train=_bad(how), retries=0) for how in deeds}
            home.end_control_plane()  # the benchmark kills and restarts this one
            chaos = Chaos(home, database, jobs, options.seed)
            took_s = play(home, chaos, jobs, seconds, options.seed)
            states = Counter(home.job(job).state for job in jobs)
            unstated = {how: why for how, job in bad.items() if (why := _unstated(home, job)) is not None}
            ends = {how: _last_line(home.error(job) or "no error") for how, job in bad.items()}
            runs = [run for job in [*jobs, *bad.values()] for run in home.runs(job)]
            unequal = {home.job(job).name: why for job in jobs if (why := _unequal(home, job, reference)) is not None}
            given_up = Counter(_last_line(move.error) for job in jobs for move in home.migrations(job) if move.error)
            stories = [home.story(job) for job in jobs if home.job(job).state != "finished"]
            with home.installation.store.read() as tx:
                ledger = tx.total_nano_usd()
            machines = {run.instance_id for run in runs if run.instance_id is not None}  # two runs may share one
            bill = sum(map(home.cloud.bill_nano_usd, machines))
            rented = {machine for job in [*jobs, *bad.values()] for machine in home.rented(job)}
            leaked = len(rented - {run.instance_id for run in runs})
            home.client.control_plane.down(force=True)
            chaos.end()
            left = home.left_behind()
        finally:
            reference.close()
            home.close()
    claims = [
        Claim(f"jobs not finished, of {count}", count - states["finished"], "jobs", 0),
        Claim("jobs with a different loss or different weights", len(unequal), "jobs", 0),
        Claim(f"self-harming jobs without a stated end, of {len(deeds)}", len(unstated), "jobs", 0),
        Claim("difference between ledger and cloud's bill", abs(ledger - bill), "nano-USD", 0),
        Claim("machines without a run", leaked, "machines", 0),
        Claim("processes left behind", len(left), "processes", 0),
        Claim(
            f"kinds of disturbances that never occurred, of {chaos.kinds}",
            chaos.kinds - len(chaos.blows),
            "kinds",
            None if options.quick else 0,
        ),
        Claim("blows", chaos.blows.total(), "blows"),
        Claim("runs", len(runs), "runs"),
        Claim("wall time", took_s, "s"),
    ]
    notes = [
        ", ".join(f"{what} {times}" for what, times in sorted(chaos.blows.items())),
        f"job states: {dict(states)}; runs ended: {dict(Counter(run.end for run in runs))}",
        *(f"{times} x {why}" for why, times in given_up.most_common(12)),
        *(f"{job}: {why}" for job, why in unequal.items()),
        *(f"the job that {how}: {why}" for how, why in (ends | unstated).items()),
        *stories,
        *left,
    ]
    return show("Chaos", claims, as_json=options.json, notes=notes)


if __name__ == "__main__":
    sys.exit(main())
