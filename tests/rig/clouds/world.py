"""CloudWorld: a history on a loopback cloud, from making its network to removing it.

Both are done by the use cases behind `tradewind up --cloud` and `down --cloud`, which die and fail as well and are
repeated as a user would repeat them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from orchestrator.errors import ProviderFailure
from orchestrator.services.control_plane import networks
from providers.clock import VirtualClock
from providers.fake import Faults
from tests.rig.clouds.mortal import MortalClient
from tests.rig.clouds.rented import Make, RentedCloud, Weather
from tests.rig.clouds.scene import StagedServer
from tests.rig.crash_points import Killed
from tests.rig.database import ScratchDatabase
from tests.rig.installation import SimulatedInstallation
from tests.rig.truth import Promises, findings
from tests.rig.weather import SLOW, faults_of, slowness_of
from tests.rig.world import OVERRIDES, TIMINGS

CLOUDS = ("aws", "gcp", "azure")
OWN = (
    "intent", "attempt", "step provision>ready", "abort", "adopt", "resolve", "end of run", "settle", "accrue",
    "collect", "beat", "campaign", "launch", "terminate",
)  # fmt: skip
"""The engine's own edges around the calls of a provider."""
START_MS = 1_790_000_000_000  # after the date of the prices
NETWORK_DEATHS = 2
TRIES = 60


class CloudWorld:
    """A cloud of this kind behind `server`; `make` opens an empty account there."""

    chaos_s = 60.0
    pace = 3.0
    code = "0" * 64

    def __init__(self, kind: type[RentedCloud], server: StagedServer, make: Make) -> None:
        self.name, self._kind, self._server, self._make = kind.name, kind, server, make
        self.offers, self.launches = kind.offers, kind.launches
        of_machines = tuple(
            f"{moment} {request}" for request in kind.machine_requests for moment in ("before", "after")
        )
        self.deaths = tuple(f"{moment} {own}" for own in OWN for moment in ("before", "after")) + of_machines
        self.pauses = self.deaths
        between = ("launch", "step provision>ready", "adopt", "terminate", "settle")
        self.roams = of_machines + tuple(f"{moment} {own}" for own in between for moment in ("before", "after"))
        self.renting = (*OWN[:4], "launch", "terminate", *kind.machine_requests)

    def settle(self, rng: random.Random, seed: int, folder: Path, database: ScratchDatabase) -> SimulatedInstallation:
        """See World."""
        frequency, weather = faults_of(rng), Weather.of(rng)
        faults, chance = Faults(seed, frequency), random.Random(f"requests {seed}")

        def opened(clock: VirtualClock) -> RentedCloud:
            cloud = self._make(clock, weather, seed)
            self._server.scene = None
            self._server.serve(cloud.answer)
            return cloud

        def connect(home: SimulatedInstallation) -> Any:
            cloud: Any = home.cloud
            return MortalClient(cloud, self._server, home.faults, home.injector, chance)

        home = SimulatedInstallation(
            folder,
            database,
            catalog=(),
            seed=seed,
            timings=TIMINGS,
            faults=faults,
            overrides={**OVERRIDES, "providers.enabled": self.name, **self._kind.settings},
            cloud=opened,
            clock=VirtualClock(START_MS),
            connect=connect,
        )
        home.wires.rate, home.wires.slow = slowness_of(random.Random(f"slow {seed}")), SLOW
        self._repeat(home, networks.set_up, rng)
        return home

    def findings(self, home: SimulatedInstallation, culprits: Collection[str]) -> list[str]:
        """See World: what histories on the fake cloud must not show, whatever is left, and the parts of networks that
        `down --cloud` leaves."""
        cloud: Any = home.cloud
        found = [f"leaked: {each}" for each in cloud.left()]
        promises = Promises(checkpoints=False, whole=False, ends_unknown=cloud.ends_unknown)
        found += findings(home, culprits=culprits, promises=promises)
        if not any(line.startswith("leaked") for line in found):
            self._repeat(home, networks.tear_down, home.random)
            home.clock.advance(cloud.weather.late_s)
            cloud.pass_time()
            found += [f"network: {part} is left" for part in cloud.parts()]
        return found

    def _repeat(self, home: SimulatedInstallation, do: Callable[..., object], rng: random.Random) -> None:
        """Until it has worked; some of those who do it die at a request."""
        requests = [f"{moment} {each}" for each in self._kind.network_requests for moment in ("before", "after")]
        injector = home.injector
        was = injector.at, injector.when
        for number in range(TRIES):
            injector.at, injector.when = None, None
            if number < NETWORK_DEATHS:
                injector.when = rng.choice(requests).__eq__
            try:
                do(home.installed(home.store), [self.name], lambda _: None, clock=home.clock)
                break
            except Killed:
                continue
            except ProviderFailure:
                home.clock.advance(5.0)
        else:
            raise AssertionError(f"{do.__name__} has not worked after {TRIES} tries")
        injector.at, injector.when = was


@contextmanager
def cloud_world(name: str, folder: Path) -> Iterator[CloudWorld]:
    """The loopback cloud of this name. The connections of its client library are made once: that takes a second."""
    module = import_module(f"tests.rig.clouds.{name}")  # which loads only the libraries of this cloud
    with module.account(folder) as (kind, server, make):
        yield CloudWorld(kind, server, make)
