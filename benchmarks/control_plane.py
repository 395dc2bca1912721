"""A control plane that never waits: 200 runs in 20 regions, of which 5 never answer. Offline.

    python benchmarks/control_plane.py [--quick] [--json]

In virtual time, with the real engine and store: every call to the cloud takes 2 s, and those to five regions are never
answered from some moment on. Machines in the other regions are given notice, one after the other. Measured are the CPU
time of each tick, which depends less on the load of the machine than wall time, the virtual time from a notice until
the control plane has recorded it, and the memory of the process with the simulated cloud and trainers. Then the same
calls are made by threads of this process in real time.
"""

from __future__ import annotations

import argparse
import resource
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from benchmarks._claims import Claim, show
from benchmarks.crash_fuzz import empty_database
from orchestrator.engine.calls import Calls, Threads
from orchestrator.model import CHEAPEST, JobSpec, Where
from providers.errors import ProviderError
from providers.fake import Behaviour
from providers.hardware import GIB
from providers.money import usd
from providers.offer import CapacityType, Offer
from tests.rig import SimulatedInstallation, Timings, memory_folder, train_spec
from tests.rig.wires import Delay

RUNS, QUICK_RUNS, REGIONS, SILENT = 200, 60, 20, 5
CALL_S = 2.0
TICK_S = 0.1  # between two ticks, as in the daemon while machines are up
BRING_UP_S, NOTICE_EVERY_S, NOTICES, QUICK_NOTICES = 90.0, 2.0, 40, 8
REAL_S, QUICK_REAL_S = 20.0, 8.0
BEHAVIOUR = Behaviour(boot_s=5.0, listing_lag_s=10.0, stop_s=2.0, describe_every_s=0.7)
CATALOG = tuple(
    (
        Offer(
            "fake",
            f"region-{number:02}",
            f"region-{number:02}-a",
            "v100.1",
            "V100",
            1,
            8,
            64 * GIB,
            kind,
            simulated=True,
        ),
        usd(price),
    )
    for number in range(REGIONS)
    for kind, price in ((CapacityType.SPOT, "1.00"),)
)


@dataclass
class Measured:
    """CPU seconds of ticks without and with a decision of the policy, and virtual seconds from each notice until it was
    recorded (infinite: never)."""

    ticks_s: list[float] = field(default_factory=list)
    deciding_s: list[float] = field(default_factory=list)
    reactions_s: list[float] = field(default_factory=list)
    training: int = 0
    memory_mb: float = 0.0


def region(number: int) -> str:
    return f"region-{number:02}"


def simulate(folder: Path, runs: int, notices: int) -> Measured:
    """The virtual part."""
    found = Measured()
    with empty_database("sqlite", folder) as database:
        home = SimulatedInstallation(
            folder / "state",
            database,
            catalog=CATALOG,
            behaviour=BEHAVIOUR,
            timings=Timings(step_s=1.0, prepare_s=2.0, restore_s=1.0, checkpoint_every_s=30.0),
            overrides={"limits.max_instances": 2 * runs, "limits.max_usd_per_hour": 1e6},
        )
        home.wires.rate, home.wires.slow = 1.0, (Delay(CALL_S / 2, CALL_S / 2),)
        for number in range(runs):
            where = Where(regions=(region(number % REGIONS),))
            home.submit_job(JobSpec(f"job-{number}", train_spec(100_000), objective=CHEAPEST, where=where, probe=False))
        while home.clock.monotonic_s() < BRING_UP_S and len(home.site.training()) < runs:
            home.tick(TICK_S * 5)
        found.training = len(home.site.training())
        silent = {region(number) for number in range(SILENT)}
        home.wires.silent = lambda place, _key: place[1] in silent
        for number in range(notices):
            _notice(home, region(SILENT + number % (REGIONS - SILENT)), number // (REGIONS - SILENT), found)
        found.memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def _notice(home: SimulatedInstallation, where: str, number: int, found: Measured) -> None:
    """Give a machine notice, and tick on for NOTICE_EVERY_S, or until that is recorded."""
    there = [each for each in home.cloud.instances() if each.alive and f"/{where}/" in each.offer_id]
    given_s, machine = home.clock.monotonic_s(), there[number]
    run_id = machine.tags["tradewind-run"]
    home.cloud.preempt(machine.id, notice_s=600.0)
    noticed_s = inf
    while (now_s := home.clock.monotonic_s()) < given_s + max(NOTICE_EVERY_S, 10.0 if noticed_s == inf else 0.0):
        began_s, decided = time.thread_time(), home.saboteur.begun["decide"]
        home.plane.tick()
        ticks_s = found.ticks_s if home.saboteur.begun["decide"] == decided else found.deciding_s
        ticks_s.append(time.thread_time() - began_s)
        if noticed_s == inf and home.read(lambda tx: tx.events(kinds=("instance.notice",), limit=1, newest_first=True)):
            newest = home.read(lambda tx: tx.events(kinds=("instance.notice",), limit=1, newest_first=True))[0]
            if newest.run_id == run_id:
                noticed_s = now_s - given_s
        home.clock.advance(TICK_S)
    found.reactions_s.append(noticed_s)


def real(seconds: float) -> tuple[list[float], int]:
    """(wall seconds of each pass, answers) of asking all regions in threads, as a tick does; five never answer."""
    hang, calls = threading.Event(), Calls(Threads())
    passes, answers = list[float](), 0
    began_s = time.monotonic()
    try:
        while (now_s := time.monotonic()) < began_s + seconds:
            calls.next_tick(now_s)
            for number in range(REGIONS):
                place, key = ("fake", region(number)), f"describe:{number}"
                call: Callable[[], object] = hang.wait if number < SILENT else (lambda: time.sleep(CALL_S))
                answer = calls.answer(key, now_s)
                if answer is not None and not isinstance(answer.error, ProviderError):
                    answers += 1
                if calls.may_begin(key, place, now_s, abreast=3):
                    calls.begin(key, place, call, 0, now_s)
            passes.append(time.monotonic() - now_s)
            time.sleep(TICK_S)
    finally:
        hang.set()
    return passes, answers


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_RUNS} runs and fewer notices, under 50 seconds")
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    options = parser.parse_args()
    with memory_folder() as folder:
        runs = QUICK_RUNS if options.quick else RUNS
        found = simulate(folder, runs, QUICK_NOTICES if options.quick else NOTICES)
    passes, answers = real(QUICK_REAL_S if options.quick else REAL_S)
    ticks_s, short = [*found.ticks_s, *found.deciding_s], options.quick
    claims = [
        Claim(f"runs that train, of {runs}", found.training, "runs", runs, least=True),
        Claim("CPU time of a tick, 99th percentile", 1000 * percentile(ticks_s, 0.99), "ms", None if short else 50.0),
        Claim("- without a decision, 99th percentile", 1000 * percentile(found.ticks_s, 0.99), "ms", 50.0),
        Claim("- with a decision, longest", 1000 * max(found.deciding_s, default=0.0), "ms"),
        Claim("CPU time of a tick, median", 1000 * percentile(ticks_s, 0.5), "ms"),
        Claim(f"longest of {len(found.reactions_s)} reactions to a notice", max(found.reactions_s), "s", 3.0),
        Claim("memory of the process, with the simulation", found.memory_mb, "MB", 150.0),
        Claim("threads: longest pass over all regions", 1000 * max(passes), "ms", None if short else 50.0),
        Claim("threads: answers from regions that answer", answers, "answers", 1, least=True),
    ]
    ticks = f"{len(ticks_s)} ticks, {len(found.deciding_s)} of them with a decision"
    notes = [f"{ticks}; {SILENT} of {REGIONS} regions never answer; each call takes {CALL_S:g} s."]
    return show("Control plane", claims, as_json=options.json, notes=notes)


if __name__ == "__main__":
    sys.exit(main())
