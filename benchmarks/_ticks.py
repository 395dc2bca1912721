"""A real control plane on the store of a generated fleet, whose ticks are timed until its input ends.

    python -m benchmarks._ticks STORE_FOLDER RUNS

The engine, its decisions and its writes to the SQLite file are real; the cloud and the trainers are simulated, and
their time is subtracted: CPU seconds from CPU seconds, wall seconds from wall seconds. Virtual time advances by TICK_S
with each tick, and so does real time. Prints `ready` and the number of training runs, and at the end JSON: the start of
each tick on the monotonic clock, its CPU seconds and its wall seconds.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

from benchmarks.control_plane import TICK_S, Stopwatch, bring_up
from orchestrator.model import TERMINAL, Step
from orchestrator.store import Store
from orchestrator.store.backends.backend import backend_of
from orchestrator.web.demo.opening import NOW_MS, generated
from providers.clock import VirtualClock


class KeptDatabase:
    """The SQLite file of a fleet, which is not changed."""

    def __init__(self, url: str) -> None:
        self.url, self.backend = url, backend_of(url, create=False)

    def wipe(self) -> None:
        pass

    def close(self) -> None:
        self.backend.close()


def close_the_fleet(store: Store) -> None:
    """End the open jobs of the fleet: no cloud knows their machines."""
    with store.write() as tx:
        for job in tx.jobs():
            if job.state not in TERMINAL:
                tx.set_job_state(job.id, "cancelled")
                tx.set_job_facts(job.id, finished_at_ms=NOW_MS)
        for move in tx.migrations(open=True):
            tx.advance(move.id, move.step, Step.ABORTED)
        for run in tx.unsettled_runs():
            tx.update_run(run.id, state="ended", end="aborted", billed_to_ms=NOW_MS, training_to_ms=NOW_MS)


def main(folder: Path, runs: int) -> None:
    with generated(folder) as fleet:
        close_the_fleet(fleet.store)
        url = fleet.config.store_url
    with TemporaryDirectory() as state:
        database = KeptDatabase(url)
        home = bring_up(Path(state), database, runs, VirtualClock(NOW_MS))
        watch, ticks = Stopwatch(home), list[tuple[float, float, float]]()
        print("ready", len(home.site.training()), flush=True)
        ended = Thread(target=sys.stdin.read, daemon=True)
        ended.start()
        while ended.is_alive():
            began_s, used_s, simulated = time.monotonic(), time.thread_time(), (watch.seconds, watch.wall_s)
            home.plane.tick()
            wall_s, cpu_s = time.monotonic() - began_s, time.thread_time() - used_s
            ticks.append((began_s, cpu_s - (watch.seconds - simulated[0]), wall_s - (watch.wall_s - simulated[1])))
            home.clock.advance(TICK_S)
            time.sleep(max(0.0, began_s + TICK_S - time.monotonic()))
        database.close()
    print(json.dumps(ticks))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
