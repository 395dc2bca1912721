"""`python -m examples.demo`: three real jobs on a simulated cloud on this machine: a sale, a preemption and a crash.

The exit code is 0 only if every check in examples.demo.checks passes. Options: --seed N, --state DIR.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from examples.demo.checks import Reference, problems
from examples.demo.director import Director
from examples.demo.screen import Screen, closing_table
from orchestrator import Client
from orchestrator.config import Config, load_config
from orchestrator.config.private import private_folder, write_privately
from orchestrator.errors import TradewindError, UsageError
from orchestrator.installation import Installation, open_installation
from orchestrator.model import TERMINAL, Event, GpuRequest, JobSpec
from orchestrator.reports.views import ReportView

EXAMPLES = Path(__file__).resolve().parent.parent
SEED = "TRADEWIND_PROVIDERS_LOCAL_SEED"
JOBS = ("gpt", "convnet", "lstm")
LIMIT_S = 300.0
REFERENCES_AFTER_S = 60.0
STYLES = {
    "plan.decided": "bold",
    "migration.cutover": "cyan",
    "job.finished": "bold green",
    "run.lost": "yellow",
    "run.preempted": "yellow",
    "instance.notice": "yellow",
    "migration.aborted": "yellow",
    "run.failed": "red",
    "job.failed": "bold red",
}
QUIET = {"migration.ready", "migration.transfer", "migration.restore", "migration.verify", "migration.done"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--seed", type=int, default=7, help="seed of the simulated market")
    parser.add_argument("--state", type=Path, default=Path(".demo"), help="folder for everything that the demo writes")
    options = parser.parse_args()
    state = options.state.resolve()
    # the control plane is a separate process, which reads the same settings from the environment
    os.environ["TRADEWIND_STATE_DIR"] = str(state)
    os.environ["TRADEWIND_PROVIDERS_LOCAL_HAZARD"] = "false"  # the director decides which machine is preempted
    # the jobs last an hour of market time: with the default, they would never move
    os.environ["TRADEWIND_POLICY_MIN_DWELL_S"] = "360"
    console = Console()
    if not console.is_terminal:
        console.width = 132
    started = time.monotonic()
    try:
        clear(state)
        os.environ[SEED] = str(options.seed)
        config = load_config()
        prepare(state, options.seed)
        console.print(
            "Three jobs on the [bold]local[/] provider: a cloud on this machine, whose market is [bold]simulated[/] "
            f"(seed {options.seed}, {config.providers.local.clock_factor:.0f} market seconds per second)."
        )
        return Demo(config, console, started).play()
    except TradewindError as error:
        console.print(f"[red]the demo failed:[/] {error}" + (f"\nhint: {error.hint}" if error.hint else ""))
        return error.exit_code
    except KeyboardInterrupt:
        console.print("interrupted; all processes of the demo were ended")
        return 130


def prepare(state: Path, seed: int) -> None:
    """Create the demo's state folder, with the seed of its market for `clear`."""
    private_folder(state)
    write_privately(state / "seed", str(seed))


def clear(state: Path) -> None:
    """End what an interrupted demo may have left running, and remove its folder."""
    if not state.exists():
        return
    if not (state / "seed").exists():
        raise UsageError(f"{state} exists and is not a demo's folder", hint="choose another one with --state")
    os.environ[SEED] = (state / "seed").read_text()
    with Client(load_config()) as client:
        client.control_plane.down(force=True)
    shutil.rmtree(state)


class Demo:
    """One run of the demo in an empty state folder."""

    def __init__(self, config: Config, console: Console, started: float) -> None:
        self._config = config
        self._console = console
        self._started = started
        self._references: list[Reference] = []

    def play(self) -> int:
        """Run the demo to its end. Returns the exit code."""
        installation = open_installation(self._config)
        try:
            with Client(self._config) as client:
                try:
                    with Screen(self._console) as screen:
                        done = self._watch(client, installation, screen)
                        report = client.reports.get()
                finally:
                    client.control_plane.down(force=True)
            return self._close(installation, done, report)
        finally:
            for reference in self._references:
                reference.process.kill()
                reference.process.wait()
            installation.close()

    def _watch(self, client: Client, installation: Installation, screen: Screen) -> set[str]:
        """Submit the jobs, cause incidents and show progress until every job has ended and every machine is booked.

        Returns the incidents that a job survived.
        """
        specs = [_on_throttled_machines(client.job_files.load(EXAMPLES / f"{name}.yaml")) for name in JOBS]
        client.control_plane.up(progress=lambda message: screen.line(message, style="dim"))
        for spec in specs:
            client.jobs.submit(spec)

        def say(message: str) -> None:
            screen.line(f"the cloud: {message}", style="magenta", at_ms=installation.clock.now_ms())

        director = Director(installation, say)
        last: str | None = None
        while True:
            last = self._tell(installation, screen, last)
            jobs = client.jobs.list(ended=True).jobs
            elapsed = time.monotonic() - self._started
            speed = f"market time runs {installation.clock.factor:.0f}x (simulated)"
            screen.jobs(jobs, f"Tradewind demo  {elapsed:.0f} s  {speed}")
            with installation.store.read() as tx:
                busy = tx.unsettled_runs()
            if (all(job.state in TERMINAL for job in jobs) and not busy) or elapsed > LIMIT_S:
                break
            director.act()
            trained = all(job.step > 0 for job in jobs)  # until then, starting machines needs both cores
            if not self._references and (trained or elapsed > REFERENCES_AFTER_S):
                self._references = [Reference.start(spec, installation.state_dir / "reference") for spec in specs]
            time.sleep(0.25)
        screen.line("all jobs have ended; waiting for the reference runs without interruption", style="dim")
        for reference in self._references:
            reference.process.wait(timeout=max(1.0, LIMIT_S - (time.monotonic() - self._started)))
        return director.done

    def _tell(self, installation: Installation, screen: Screen, last: str | None) -> str | None:
        with installation.store.read() as tx:
            fresh: list[Event] = tx.events(after_id=last)
            names = {job.id: job.name for job in tx.jobs()}
        for event in fresh:
            last = event.id
            if event.kind not in QUIET:
                name = names.get(event.job_id or "", "")
                screen.line(f"{name:8} {event.message}", style=STYLES.get(event.kind, ""), at_ms=event.at_ms)
        return last

    def _close(self, installation: Installation, done: set[str], report: ReportView) -> int:
        found = list(problems(installation, self._references))
        found += [f"no job survived the incident {name!r}" for name in ("sale", "notice", "crash") if name not in done]
        self._console.print(closing_table(report))
        elapsed = time.monotonic() - self._started
        if found:
            for problem in found:
                self._console.print(f"[red]FAILED[/] {problem}", soft_wrap=True)
        else:
            self._console.print(
                f"[green]All checks passed[/] after {elapsed:.0f} s: every job finished; every loss and the "
                "final weights equal an uninterrupted run's, bit for bit; the ledger's entries sum to the "
                "cloud's bills, to the nano-dollar; no process was left behind."
            )
        state = installation.state_dir
        shown = state.relative_to(Path.cwd()) if state.is_relative_to(Path.cwd()) else state
        self._console.print(
            f"See why: [bold]TRADEWIND_STATE_DIR={shown} .venv/bin/tradewind explain gpt[/]   "
            f"(also: queue, events, logs, report --html out.html)",
            soft_wrap=True,
        )
        self._console.print(
            f"Open it in the browser: [bold].venv/bin/tradewind --state-dir {shown} dashboard[/]", soft_wrap=True
        )
        return 1 if found else 0


def _on_throttled_machines(spec: JobSpec) -> JobSpec:
    """The job on slower machines. At full speed, three jobs would leave no core for machines that start, and would
    finish before a machine is ready."""
    wanted = tuple(GpuRequest(kind, 1) for kind in ("SIM-M", "SIM-S"))
    return replace(spec, resources=replace(spec.resources, gpus=wanted))


if __name__ == "__main__":
    sys.exit(main())
