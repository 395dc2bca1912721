"""`python -m examples.demo`: three real jobs on a cloud on this machine, with everything that can happen to them.

Exit code 0 only if every check of examples.demo.checks holds. Options: --seed N, --state DIR, --record FILE.svg.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

from rich.console import Console

from examples.demo.checks import Reference, problems
from examples.demo.director import Director
from examples.demo.screen import Screen, closing_table
from orchestrator.client import Client
from orchestrator.config import load_config
from orchestrator.engine.world import open_world
from orchestrator.errors import TradewindError
from orchestrator.model import TERMINAL
from orchestrator.services.lifecycle import down

EXAMPLES = Path(__file__).resolve().parent.parent
JOBS = ("gpt", "convnet", "lstm")
LIMIT_S = 300.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--seed", type=int, default=7, help="of the simulated market")
    parser.add_argument("--state", type=Path, default=Path(".demo"), help="folder for everything that it writes")
    parser.add_argument("--record", type=Path, help="also write the closing picture to this SVG file")
    options = parser.parse_args()
    state = options.state.resolve()
    os.environ["TRADEWIND_STATE_DIR"] = str(state)
    os.environ["TRADEWIND_PROVIDERS_LOCAL_SEED"] = str(options.seed)
    os.environ["TRADEWIND_PROVIDERS_LOCAL_HAZARD"] = "false"  # the director decides who is preempted
    console = Console(record=options.record is not None, width=120 if options.record else None)
    config = load_config()
    if state.exists():  # an earlier demo that was cut off may have left machines up
        down(config, progress=lambda _: None, force=True)
        shutil.rmtree(state)
    console.print(
        f"Tradewind demo: three jobs on the [bold]local[/] provider, a cloud on this machine whose market is "
        f"[bold]simulated[/] (seed {options.seed}, {config.providers.local.clock_factor:.0f} market seconds a second)."
    )
    started = time.monotonic()
    try:
        return play(config, console, options.record, started)
    except TradewindError as error:
        console.print(f"[red]demo failed:[/] {error}" + (f"\nhint: {error.hint}" if error.hint else ""))
        return error.exit_code
    finally:
        down(config, progress=lambda _: None, force=True)


def play(config: object, console: Console, record: Path | None, started: float) -> int:
    """The whole demo on an empty state folder."""
    settings = load_config()
    world = open_world(settings)
    specs = []
    references: list[Reference] = []
    try:
        with Client(settings) as client, Screen(console) as screen:
            specs = [client.load(EXAMPLES / f"{name}.yaml") for name in JOBS]
            client.up(progress=lambda message: screen.line(message, style="dim"))
            for spec in specs:
                accepted = client.submit(spec)
                screen.line(f"submitted {spec.name}: {accepted.message}", at_ms=world.clock.now_ms())
            references = [Reference.start(spec, world.state_dir / "reference") for spec in specs]
            director = Director(
                world,
                lambda message: screen.line(f"cloud: {message}", style="magenta", at_ms=world.clock.now_ms()),
                *JOBS,
            )
            last_event: str | None = None
            while True:
                for event in client.events(after_id=last_event).events:
                    last_event = event.id
                    name = next((spec.name for spec in specs if event.job_id and spec.name), "")
                    with world.store.read() as tx:
                        name = tx.job(event.job_id).name if event.job_id else ""
                    style = "bold" if event.kind in ("plan.decided", "job.finished") else ""
                    screen.line(f"{name}: {event.message}", style=style, at_ms=event.at_ms)
                jobs = client.jobs().jobs
                elapsed = time.monotonic() - started
                screen.jobs(jobs, f"Tradewind demo, {elapsed:.0f} s; market time {world.clock.factor:.0f}x (simulated)")
                director.act()
                if all(job.state in TERMINAL for job in jobs) or elapsed > LIMIT_S:
                    break
                time.sleep(0.2)
            screen.line("ending machines and control plane; waiting for the reference runs", style="dim")
            wait_for_books(world)
            for reference in references:
                reference.process.wait(timeout=max(1.0, LIMIT_S - (time.monotonic() - started)))
            if console.record:
                console.print(screen.view())
            reports = client.report().jobs
            client.down(progress=lambda _: None)
        return close(console, record, world, references, director, reports, started)
    finally:
        for reference in references:
            reference.process.kill()
            reference.process.wait()
        world.close()


def wait_for_books(world: object) -> None:
    """Until every instance is confirmed gone and booked."""
