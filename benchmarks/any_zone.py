"""Claim: if most zones have no capacity, a machine is found in seconds, because one launch requests all of them.

    python -m benchmarks.any_zone            each number of dry zones from 0 to 5
    python -m benchmarks.any_zone --quick    none and five

The engine runs in virtual time on a simulated region with six zones; only the last one has capacity. The cloud takes a
while for each answer, like a real one: EC2 refuses in its answer, Compute Engine mostly seconds later. The clock stops
when the machine is recorded. The benchmark compares launches zone by zone with launches in any of the zones.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from functools import partial

from benchmarks._claims import Claim, show
from orchestrator.daemon import pause_s
from orchestrator.model import JobSpec
from providers.base import Landed, LaunchSpec
from providers.clock import VirtualClock
from providers.fake import Behaviour, FakeCloud
from providers.hardware import GIB
from providers.money import usd
from providers.offer import CapacityType, Offer
from tests.rig import SimulatedInstallation, SqliteScratchDatabase, memory_folder, train_spec

ZONES = 6
LIMIT_S = 120.0
ANSWERS_S = {"at once": 0.0, "in 1 s": 1.0, "in 5 s": 5.0}
GOAL_S = 1.0
"""Longer than the cloud takes for one answer."""


class SlowCloud(FakeCloud):
    """A cloud that takes `answer_s` for each launch."""

    answer_s = 0.0

    def launch(self, spec: LaunchSpec, at_ms: int) -> Landed:
        self.clock.advance(self.answer_s)  # type: ignore[attr-defined]
        return super().launch(spec, at_ms + round(self.answer_s * 1000))


def offers() -> list[Offer]:
    """Machines that differ only in their zone."""
    first = Offer("fake", "alpha", "", "v100.1", "V100", 1, 8, 64 * GIB, CapacityType.SPOT, simulated=True)
    return [replace(first, zone=f"alpha-{number}") for number in range(1, ZONES + 1)]


def found_after_s(dry: int, answer_s: float, most_offers: int) -> tuple[float, int]:
    """(market seconds until a machine is recorded, launches) with this many zones without capacity."""
    market = offers()
    launches: list[str] = []

    def cloud(clock: VirtualClock) -> SlowCloud:
        prices = [(offer, usd(f"1.0{number}")) for number, offer in enumerate(market)]
        made = SlowCloud(clock, catalog=prices, behaviour=Behaviour(most_offers=most_offers))
        made.answer_s = answer_s
        for offer in market[:dry]:
            made.set_capacity(offer.id, 0)
        return made

    with memory_folder() as folder:
        database = SqliteScratchDatabase(folder)
        home = SimulatedInstallation(folder / "home", database, catalog=(), cloud=partial(cloud))
        home.injector.when = lambda edge: launches.append(edge) or False  # type: ignore[func-returns-value]
        job = home.submit_job(JobSpec("job", train_spec(10)))
        began_s = home.clock.monotonic_s()
        while not any(run.instance_id for run in home.runs(job)):
            if not home.tick(0.0):  # as orchestrator/daemon.py does, which looks again at once after a change
                home.clock.advance(pause_s(home.plane._ctx.work))
            assert home.clock.monotonic_s() - began_s < LIMIT_S, "no machine was found"
        waited_s = home.clock.monotonic_s() - began_s
        database.close()
    return waited_s, launches.count("before launch")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="no dry zone, and five of six")
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    options = parser.parse_args()
    claims = []
    for dry in (0, ZONES - 1) if options.quick else range(ZONES):
        for answers, answer_s in ANSWERS_S.items():
            before, calls = found_after_s(dry, answer_s, 1)
            after, one = found_after_s(dry, answer_s, ZONES)
            case = f"{dry} dry zones, the cloud answers {answers}"
            claims.append(Claim(f"{case}: one launch for all zones ({one})", after, "s", answer_s + GOAL_S))
            claims.append(Claim(f"{case}: zone by zone ({calls} launches)", before, "s"))
    return show("Capacity found", claims, as_json=options.json, notes=["Virtual time: the load does not matter."])


if __name__ == "__main__":
    sys.exit(main())
