"""World: where a history takes place: a cloud with its weather, and the installation that rents there."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol

from providers.fake import Faults
from tests.rig.crash_points import EDGES, PAUSE_EDGES
from tests.rig.database import ScratchDatabase
from tests.rig.installation import SimulatedInstallation
from tests.rig.trainer import Timings
from tests.rig.truth import findings
from tests.rig.weather import CATALOG, SLOW, behaviour_of, faults_of, slowness_of

TIMINGS = Timings(step_s=1.0, prepare_s=0.5, restore_s=0.5, checkpoint_every_s=5.0)
OVERRIDES: Mapping[str, object] = {
    "policy.min_dwell_s": 5.0,
    "policy.decide_every_s": 60.0,
    "lease_s": 20.0,
    "stalls.after_s": 15.0,
    "stalls.fail_after_s": 60.0,
}


class World(Protocol):
    """`offers` are for sale there; `code` is the digest of the jobs' uploaded code, where machines need one. Control
    planes die at `deaths`, and pause at `pauses`: mostly at those that the seed leans to, or at any of `roams`.
    `renting` are the names of edges that are reached when machines are rented. Random events happen for `chaos_s`.
    Between two passes of the control plane it takes `pace` times as long as on the fake cloud."""

    @property
    def offers(self) -> tuple[str, ...]: ...

    @property
    def code(self) -> str | None: ...

    @property
    def deaths(self) -> tuple[str, ...]: ...

    @property
    def pauses(self) -> tuple[str, ...]: ...

    @property
    def roams(self) -> tuple[str, ...]: ...

    @property
    def renting(self) -> tuple[str, ...]: ...

    @property
    def chaos_s(self) -> float: ...

    @property
    def pace(self) -> float: ...

    def settle(self, rng: random.Random, seed: int, folder: Path, database: ScratchDatabase) -> SimulatedInstallation:
        """A new installation there."""
        ...

    def findings(self, home: SimulatedInstallation, culprits: Collection[str]) -> list[str]:
        """What is wrong after a history, one sentence each."""
        ...


class FakeWorld:
    """The fake cloud."""

    offers = tuple(offer.id for offer, _ in CATALOG)
    code = None
    deaths, pauses = EDGES, PAUSE_EDGES
    renting: tuple[str, ...] = ()
    roams: tuple[str, ...] = ()
    chaos_s = 150.0
    pace = 1.0

    def settle(self, rng: random.Random, seed: int, folder: Path, database: ScratchDatabase) -> SimulatedInstallation:
        """See World."""
        frequency = faults_of(rng)
        home = SimulatedInstallation(
            folder,
            database,
            catalog=CATALOG,
            seed=seed,
            behaviour=behaviour_of(rng),
            timings=TIMINGS,
            faults=Faults(seed, frequency),
            overrides=OVERRIDES,
        )
        home.wires.rate, home.wires.slow = slowness_of(random.Random(f"slow {seed}")), SLOW
        return home

    def findings(self, home: SimulatedInstallation, culprits: Collection[str]) -> list[str]:
        """See World."""
        return findings(home, culprits=culprits)


FAKE = FakeWorld()
