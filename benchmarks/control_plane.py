"""A control plane that never waits: 200 runs in 20 regions, of which 5 never answer. Offline.

    python benchmarks/control_plane.py [--quick] [--json]
    python benchmarks/control_plane.py --agents [--quick] [--json]    only the real agents

In virtual time, with the real engine and store: every call to the cloud takes 2 s (to the store of checkpoints 50 ms),
and calls to five regions are never answered from some moment on. Machines that train in the other regions are given
notice, one after the other. The benchmark measures the CPU time of each tick without that of the simulated cloud and
trainers (CPU time depends less on the load of the machine than wall time), the virtual time from a notice until the
control plane has recorded it, and the memory of the process with the simulation. Then the same calls are made by
threads of this process in real time.

With real agents (benchmarks._agents says which parts are simulated): 50 agents run as processes of this host. A control
plane in real time drives them through a folder and then through a bucket of an S3 server on loopback; the cloud is as
slow and silent as before.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from math import inf
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

from benchmarks._agents import Driven, drive
from benchmarks._claims import Claim, show
from benchmarks.crash_fuzz import empty_database
from orchestrator.daemon import keep_what_is_loaded
from orchestrator.engine.calls import Calls, Place, Threads
from orchestrator.model import CHEAPEST, JobSpec, Where
from providers.clock import VirtualClock
from providers.errors import ProviderError
from providers.fake import Behaviour
from providers.hardware import GIB
from providers.instance import Instance, InstanceState
from providers.money import usd
from providers.offer import CapacityType, Offer
from tests.rig import SimulatedInstallation, Timings, memory_folder, train_spec
from tests.rig.database import ScratchDatabase
from tests.rig.wires import Delay

P = ParamSpec("P")
T = TypeVar("T")
RUNS, QUICK_RUNS, REGIONS, SILENT = 200, 60, 20, 5
CALL_S = 2.0
CLOUD_CALL, STORE_CALL = Delay(CALL_S / 2, CALL_S / 2), Delay(0.025, 0.025)
TICK_S = 0.1  # between two ticks, as in the daemon while machines are up
BRING_UP_S, QUIET_S, NOTICE_EVERY_S, NOTICES, QUICK_NOTICES = 90.0, 20.0, 2.0, 40, 8
REAL_S, QUICK_REAL_S = 20.0, 5.0
AGENTS, QUICK_AGENTS = 50, 10
AGENT_NOTICES, QUICK_AGENT_NOTICES = 20, 3
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
    """CPU seconds of each tick, and virtual seconds from each notice until it was recorded (infinite: never)."""

    ticks_s: list[float] = field(default_factory=list)
    reactions_s: list[float] = field(default_factory=list)
    simulation_s: list[float] = field(default_factory=list)
    training: int = 0
    memory_mb: float = 0.0


class Stopwatch:
    """The CPU seconds and the wall seconds of the simulation so far: of its calls, which may call one another."""

    def __init__(self, home: SimulatedInstallation) -> None:
        self.seconds, self.wall_s, self._depth = 0.0, 0.0, 0
        site, wires = vars(home.site), vars(home.wires)
        site["reports"], site["look"] = self._timed(home.site.reports), self._timed(home.site.look)
        wires["deliver"] = self._timed(home.wires.deliver)  # the cloud, which real calls use in threads

    def _timed(self, call: Callable[P, T]) -> Callable[P, T]:
        def timed(*args: P.args, **kwargs: P.kwargs) -> T:
            began_s, used_s, self._depth = time.monotonic(), time.thread_time(), self._depth + 1
            try:
                return call(*args, **kwargs)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.seconds += time.thread_time() - used_s
                    self.wall_s += time.monotonic() - began_s

        return timed


def delay(home: SimulatedInstallation, place: Place, key: str) -> Delay:
    """The duration of a call to a cloud or the store of checkpoints. No call runs in the tick: the daemon uses
    threads."""
    if home.wires.silent(place, key):
        return Delay(inf, inf)
    return CLOUD_CALL if place[0] == "fake" else STORE_CALL


def region(number: int) -> str:
    return f"region-{number:02}"


def bring_up(
    folder: Path, database: ScratchDatabase, runs: int, clock: VirtualClock | None = None
) -> SimulatedInstallation:
    """A control plane with this many jobs, after they have started."""
    home = SimulatedInstallation(
        folder,
        database,
        catalog=CATALOG,
        behaviour=BEHAVIOUR,
        timings=Timings(step_s=1.0, prepare_s=2.0, restore_s=1.0, checkpoint_every_s=30.0),
        overrides={"limits.max_instances": 2 * runs, "limits.max_usd_per_hour": 1e6},
        clock=clock,
    )
    vars(home.wires)["delay"] = partial(delay, home)
    for number in range(runs):
        own = number % REGIONS
        where = Where(regions=(region(own), region(own + 1)))  # the last machine has no alternative
        home.submit_job(JobSpec(f"job-{number}", train_spec(100_000), objective=CHEAPEST, where=where, probe=False))
    until_s = home.clock.monotonic_s() + BRING_UP_S
    while home.clock.monotonic_s() < until_s and len(home.site.training()) < runs:
        home.tick(TICK_S * 5)
    keep_what_is_loaded()  # as the daemon does
    return home


def simulate(folder: Path, runs: int, notices: int) -> Measured:
    """The virtual part."""
    found = Measured()
    with empty_database("sqlite", folder) as database:
        home = bring_up(folder / "state", database, runs)
        found.training = len(home.site.training())
        silent = {region(number) for number in range(SILENT)}
        home.wires.silent = lambda place, _key: place[1] in silent
        watch = Stopwatch(home)
        quiet_until_s = home.clock.monotonic_s() + QUIET_S
        while home.clock.monotonic_s() < quiet_until_s:
            _tick(home, watch, found)
        for number in range(notices):
            _notice(home, watch, number, found)
        found.memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def _notice(home: SimulatedInstallation, watch: Stopwatch, number: int, found: Measured) -> None:
    """Give notice to a machine of each region that answers, in turn, and tick for NOTICE_EVERY_S or until the notice is
    recorded."""
    heard = [region(each) for each in range(SILENT, REGIONS)]
    spared = [each for each in home.cloud.instances() if _spared(home, each)]
    there = {where: each for each in reversed(spared) for where in heard if f"/{where}/" in each.offer_id}
    given_s, machine = home.clock.monotonic_s(), there[sorted(there)[number % len(there)]]
    run_id = machine.tags["tradewind-run"]
    home.cloud.preempt(machine.id, notice_s=600.0)
    noticed_s = inf
    while (now_s := home.clock.monotonic_s()) < given_s + max(NOTICE_EVERY_S, 10.0 if noticed_s == inf else 0.0):
        _tick(home, watch, found)
        if noticed_s == inf and home.read(lambda tx: tx.events(kinds=("instance.notice",), limit=1, newest_first=True)):
            newest = home.read(lambda tx: tx.events(kinds=("instance.notice",), limit=1, newest_first=True))[0]
            if newest.run_id == run_id:
                noticed_s = now_s - given_s
    found.reactions_s.append(noticed_s)


def _tick(home: SimulatedInstallation, watch: Stopwatch, found: Measured) -> None:
    """A tick, and the time until the next."""
    began_s, simulated_s = time.thread_time(), watch.seconds
    home.plane.tick()
    simulated_s = watch.seconds - simulated_s
    found.ticks_s.append(time.thread_time() - began_s - simulated_s)
    found.simulation_s.append(simulated_s)
    home.clock.advance(TICK_S)


def _spared(home: SimulatedInstallation, machine: Instance) -> bool:
    """Whether the machine runs, its job trains or starts on it, and it was given no notice."""
    if machine.state is not InstanceState.RUNNING or machine.notice_deadline_ms is not None:
        return False
    return home.read(lambda tx: tx.run(machine.tags["tradewind-run"])).end is None


def real(seconds: float) -> tuple[list[float], int]:
    """(wall seconds of each pass, answers) of calls to all regions in threads, as in a tick; five never answer."""
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


def with_agents(*, quick: bool, bucket: bool) -> Driven:
    """The part with real agents, in a separate process, so its memory is that of the control plane alone."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_with_agents, quick, bucket).result()


def _with_agents(quick: bool, bucket: bool) -> Driven:
    return drive(
        CATALOG,
        [region(number) for number in range(REGIONS)],
        frozenset(region(number) for number in range(SILENT)),
        machines=QUICK_AGENTS if quick else AGENTS,
        notices=QUICK_AGENT_NOTICES if quick else AGENT_NOTICES,
        call_s=CALL_S,
        bucket=bucket,
    )


def of_agents(store: str, found: Driven, agents: int) -> list[Claim]:
    return [
        Claim(f"{store}: real agents whose runs train, of {agents}", found.training, "agents", agents, least=True),
        Claim(f"{store}: CPU time of a tick, 99th percentile", 1000 * percentile(found.ticks_s, 0.99), "ms", 50.0),
        Claim(f"{store}: longest of {len(found.reactions_s)} reactions", max(found.reactions_s, default=inf), "s", 3.0),
        Claim(f"{store}: memory of the control plane", found.memory_mb, "MB", 150.0),
        Claim(f"{store}: CPU of the control plane", 100 * found.plane_share, "% of a core"),
        Claim(f"{store}: CPU of all agents together", 100 * found.agents_share, "% of a core"),
    ]


def percentile(values: list[float], share: float) -> float:
    """0 without values."""
    return 0.0 if not values else sorted(values)[min(len(values) - 1, int(share * len(values)))]


def in_virtual_time(*, quick: bool) -> tuple[list[Claim], str]:
    """The claims about the simulation, and a note."""
    with memory_folder() as folder:
        runs = QUICK_RUNS if quick else RUNS
        found = simulate(folder, runs, QUICK_NOTICES if quick else NOTICES)
    ticks_s = found.ticks_s
    claims = [
        Claim(f"runs that train, of {runs}", found.training, "runs", runs, least=True),
        Claim("CPU time of a tick, 99th percentile", 1000 * percentile(ticks_s, 0.99), "ms", 50.0),
        Claim("CPU time of a tick, longest", 1000 * max(ticks_s), "ms"),
        Claim("CPU time of a tick, median", 1000 * percentile(ticks_s, 0.5), "ms"),
        Claim("of the simulation in a tick (not counted), median", 1000 * percentile(found.simulation_s, 0.5), "ms"),
        Claim(f"longest of {len(found.reactions_s)} reactions to a notice", max(found.reactions_s), "s", 3.0),
        Claim("memory of the process, with the simulation", found.memory_mb, "MB", 150.0),
    ]
    return claims, f"{len(ticks_s)} ticks in virtual time; in each, at least one job's placement is reconsidered"


def in_threads(*, quick: bool) -> list[Claim]:
    """The claims about calls in threads."""
    passes, answers = real(QUICK_REAL_S if quick else REAL_S)
    return [
        Claim("threads: longest pass over all regions", 1000 * max(passes), "ms", None if quick else 50.0),
        Claim("threads: answers from regions that answer", answers, "answers", 1, least=True),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_RUNS} runs, {QUICK_AGENTS} agents; under 50 s")
    parser.add_argument("--agents", action="store_true", help="only the part with real agents")
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    options = parser.parse_args()
    load, quick, claims = os.getloadavg()[0], options.quick, list[Claim]()
    notes = [f"{SILENT} of {REGIONS} regions never answer; each call takes {CALL_S:g} s."]
    if not options.agents:
        simulated, note = in_virtual_time(quick=quick)
        claims, notes = [*simulated, *in_threads(quick=quick)], [f"{note}.", *notes]
    agents = QUICK_AGENTS if quick else AGENTS
    claims += of_agents("folder", with_agents(quick=quick, bucket=False), agents)
    if not quick:
        claims += of_agents("bucket", with_agents(quick=quick, bucket=True), agents)
    notes.append(f"Load of the machine at the start: {load:.1f} on {os.cpu_count()} cores.")
    return show("Control plane", claims, as_json=options.json, notes=notes)


if __name__ == "__main__":
    sys.exit(main())
