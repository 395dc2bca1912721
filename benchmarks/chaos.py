"""Real jobs on real processes while everything around them is killed and stopped, at random.

    python benchmarks/chaos.py [--quick] [--json] [--seed N] [--minutes M]

Twenty jobs on the `local` provider, a few at a time, on a store in Postgres. Every few seconds one of these is killed
(SIGKILL) or stopped for some seconds (SIGSTOP, SIGCONT): a machine, a run's actor, its trainer, Ray's head, the control
plane, a connection to the database; a machine's agent and Ray's head also sleep past the lease, and for as long the
provider answers neither `launch` nor `terminate`. A dead control plane is started again, as a supervisor would. Beside
these jobs others harm themselves: they exit, kill themselves, crash, hang, ignore SIGTERM, write garbage into their
control directory. Then the jobs are let through, and what is left is compared: every loss and the weights with a run
without interruption, bit for bit; the ledger with the cloud's bill; the processes of this machine with none; and each
job that harmed itself must have failed or be paused, with the reason.
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
from orchestrator.engine.site.environment import end_session
from orchestrator.model import TERMINAL, Run
from tests.e2e.living import Reference, Tradewind, alive
from tests.postgres import Server, server

AT_ONCE = 4  # machines: each is six processes, on two cores
LEASE_S = 12.0
BETWEEN_S = (3.0, 8.0)  # from one blow to the next
STOPPED_S = (0.5, 6.0)
TELL_EVERY_S = 20.0
LATE_S = 300.0  # for the jobs to end, once nothing disturbs them any more
HOW = ("killed", "stopped")
PAST_THE_LEASE = "stopped past the lease"
OVERSLEPT_S = (LEASE_S + 3.0, LEASE_S + 8.0)
PROVIDER, UNANSWERED = "provider", "unanswered"
BAD = ("exits", "is killed", "crashes", "hangs", "ignores being asked", "writes garbage")
STALLS = {"STALLS_AFTER_S": "20", "STALLS_FAIL_AFTER_S": "45"}
HEAD = "head"  # it takes all runs with it: once each way, then now and then
HEAD_AGAIN = 0.15


class Chaos:
    """What is done to one installation, at random."""

    def __init__(self, home: Tradewind, database: Server, jobs: list[str], seed: int) -> None:
        self._home = home
        self._database = database
        self._jobs = jobs
        self._random = random.Random(seed)
        self._stopped: list[tuple[threading.Timer, int]] = []  # what wakes it, which process
        self._silences: list[tuple[threading.Timer, sqlite3.Connection]] = []  # what ends it, what is locked
        self._plane: subprocess.Popen[bytes] | None = None
        self._targets: dict[str, Callable[[], int]] = {
            "machine": lambda: self._of_a_run(home.agent),
            "actor": lambda: self._of_a_run(lambda run: self._named(run, "ray::RunActor")),
            "trainer": lambda: self._of_a_run(lambda run: self._named(run, "trainers.process.prewarm")),
            HEAD: self._head,
            "control plane": self._control_plane,
            "database connection": self._backend,
        }
        self._due = self._shuffled(list(self._targets))
        self.kinds = len(self._due)
        self.blows: Counter[str] = Counter()

    def strike(self) -> None:
        """The next blow, if there is such a part now; else it comes later. Each kind has its turn."""
        name, how = self._due.pop(0)
        if name == PROVIDER:
            self._silence()
        elif not self._strike(name, how):
            self._due.append((name, how))
            return
        self.blows[f"{name} {how}"] += 1
        if not self._due:
            again = self._random.random() < HEAD_AGAIN
            self._due = self._shuffled([each for each in self._targets if again or each != HEAD])

    def _strike(self, name: str, how: str) -> bool:
        """Whether there is such a process now."""
        try:
            pid = self._targets[name]()
        except (StopIteration, ValueError, AssertionError, OSError):
            pid = 0  # it is just coming or going
        if pid and how != "killed":
            self._stop(pid, STOPPED_S if how == "stopped" else OVERSLEPT_S)
        elif pid:
            self._kill(name, pid)
        return bool(pid)

    def _silence(self) -> None:
        """The provider answers no launch and no terminate for longer than a lease: each call times out."""
        books = sqlite3.connect(
            self._home.installation.state_dir / "local" / "books.db", timeout=5, check_same_thread=False
        )
        books.execute("BEGIN IMMEDIATE")  # `local` writes each launch and each end down before it acts
        timer = threading.Timer(self._random.uniform(*OVERSLEPT_S), books.close)
        timer.daemon = True
        timer.start()
        self._silences.append((timer, books))

    def _shuffled(self, names: list[str]) -> list[tuple[str, str]]:
        blows = [(name, how) for name in names for how in HOW]
        blows += [(name, PAST_THE_LEASE) for name in names if name in ("machine", HEAD)]
        blows.append((PROVIDER, UNANSWERED))
        return self._random.sample(blows, len(blows))

    def tend(self) -> None:
        """Start the control plane again when it is dead."""
        if self._plane is None or self._plane.poll() is not None:
            self._plane = self._home.start_control_plane()

    def calm(self) -> None:
        """Nothing sleeps any more."""
        for timer, pid in self._stopped:
            timer.cancel()
            self._signal(pid, signal.SIGCONT)
        self._stopped.clear()
        for timer, books in self._silences:
            timer.cancel()
            books.close()
        self._silences.clear()

    def end(self) -> None:
        """The control plane is the installation's to end; this waits for it."""
        if self._plane is not None:
            self._plane.wait(timeout=30)

    def _of_a_run(self, find: Callable[[Run], int]) -> int:
        runs = [run for job in self._jobs if (run := current_run(self._home.runs(job))) is not None]
        return find(self._random.choice(runs)) if runs else 0

    def _named(self, run: Run, name: str) -> int:
        return next(pid for pid, command in self._home.processes(run).items() if name in command)

    def _head(self) -> int:
        head = self._home.site.read_head()
        return head.pid if head is not None and alive(head.pid) else 0

    def _control_plane(self) -> int:
        return self._plane.pid if self._plane is not None and alive(self._plane.pid) else 0

    def _backend(self) -> int:
        found = self._database.sql("SELECT pid FROM pg_stat_activity WHERE datname = 'chaos'")
        return int(self._random.choice(found)[0]) if found else 0

    def _kill(self, name: str, pid: int) -> None:
        if name == "machine":
            end_session(pid)
        elif name == "database connection":
            self._database.sql(f"SELECT pg_terminate_backend({pid})")  # SIGKILL would take the whole server down
        else:
            self._signal(pid, signal.SIGKILL)

    def _stop(self, pid: int, range_s: tuple[float, float]) -> None:
        self._signal(pid, signal.SIGSTOP)
        # from a thread: this process waits for its own connection to the database, if that is the one which sleeps
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
    """Disturb for so long, then let the jobs through. Returns the wall seconds that all of it took."""
    rng = random.Random(seed + 1)
    started_s = time.monotonic()
    while not any(current_run(home.runs(job)) for job in jobs) and time.monotonic() < started_s + LATE_S:
        chaos.tend()
        time.sleep(0.1)
    began_s = next_s = told_s = time.monotonic()
    while time.monotonic() < began_s + seconds and _open(home, jobs):
        chaos.tend()
        if time.monotonic() >= next_s:
            chaos.strike()
            next_s = time.monotonic() + rng.uniform(*BETWEEN_S)
        told_s = _tell(home, chaos, jobs, began_s, told_s)
        time.sleep(0.1)
    chaos.calm()
    for job in jobs:
        home.hurry_file(home.job(job).name).touch()
    give_up_s = time.monotonic() + LATE_S
    while _open(home, jobs) and time.monotonic() < give_up_s:
        chaos.tend()
        told_s = _tell(home, chaos, jobs, began_s, told_s)
        time.sleep(0.2)
    return time.monotonic() - started_s


def _open(home: Tradewind, jobs: list[str]) -> bool:
    """Whether any of them, or of those that harm themselves, is still at it."""
    with home.installation.store.read() as tx:
        own = any(tx.job(job).state not in TERMINAL for job in jobs)
        return own or any(job.state not in TERMINAL | {"paused"} for job in tx.jobs()) or bool(tx.unsettled_runs())


def _unstated(home: Tradewind, job: str) -> str | None:
    """What is wrong with the end of a job that harmed itself: it must have failed or be paused, with the reason."""
    with home.installation.store.read() as tx:
        state, facts = tx.job(job).state, tx.job_facts(job)
    if state not in ("failed", "paused"):
        return f"it is {state}"
    return None if facts.error or facts.quarantine else f"it is {state}, and nothing says why"


def _tell(home: Tradewind, chaos: Chaos, jobs: list[str], began_s: float, told_s: float) -> float:
    """Say how far it is, every so often. Returns when it was last said."""
    now = time.monotonic()
    if now < told_s + TELL_EVERY_S:
        return told_s
    over = sum(home.job(job).state in TERMINAL for job in jobs)
    print(f"{now - began_s:.0f} s: {chaos.blows.total()} blows, {over} of {len(jobs)} jobs over", file=sys.stderr)
    return now


def _unequal(home: Tradewind, job: str, reference: Reference) -> str | None:
    """What is not as in a run without interruption."""
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
    parser.add_argument("--seed", type=int, default=1, help="of what is struck, and how")
    parser.add_argument("--minutes", type=float, default=5.0, help="of being disturbed")
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
            home.end_control_plane()  # this one is ours to kill and to start
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
        Claim(f"of {count} jobs, not finished", count - states["finished"], "jobs", 0),
        Claim("finished with another loss or other weights", len(unequal), "jobs", 0),
        Claim(f"of {len(deeds)} jobs that harm themselves, in no stated end", len(unstated), "jobs", 0),
        Claim("ledger against the cloud's bill", abs(ledger - bill), "nano-USD", 0),
        Claim("machines that no run accounts for", leaked, "machines", 0),
        Claim("processes left behind", len(left), "processes", 0),
        Claim(
            f"kinds of blows, of {chaos.kinds}, that never fell",
            chaos.kinds - len(chaos.blows),
            "kinds",
            None if options.quick else 0,
        ),
        Claim("blows", chaos.blows.total(), "blows"),
        Claim("runs", len(runs), "runs"),
        Claim("from the first to the last of it", took_s, "s"),
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
