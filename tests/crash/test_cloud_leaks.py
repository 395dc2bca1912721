"""Histories on the loopback clouds (tests.rig.clouds): that deaths, lost answers and late effects are what they claim
to be, and that what is left is found.

Whole histories take some 20 s of CPU time each: benchmarks/cloud_leaks.py plays them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model import JobSpec
from providers.base import LaunchSpec, Provider
from providers.errors import UnavailableError
from providers.fake import Fault
from tests.rig import Killed, ScratchDatabase, SimulatedInstallation, train_spec
from tests.rig.clouds.world import CLOUDS, CloudWorld, cloud_world


@pytest.fixture(params=CLOUDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CloudWorld]:
    with cloud_world(request.param, tmp_path) as world:
        yield world


def test_what_happens_at_the_requests_of_a_provider_is_as_it_claims_and_what_is_left_is_found(
    world: CloudWorld, memory: Path, databases: list[ScratchDatabase]
) -> None:
    home = world.settle(random.Random(1), 1, memory, databases[0])
    home.faults._rates.clear()
    job, cloud = home.submit_job(JobSpec("job", train_spec(10))), _any(home.cloud)

    def spec(number: int) -> LaunchSpec:
        tags = {"tradewind-install": home.store.install_id, "tradewind-job": job.id, "tradewind-run": f"run-{number}"}
        return LaunchSpec(f"token-{number}", world.offers[0], "sleep 1\n", tags, time_to_live_s=3600)

    # a process that dies has sent what comes before, and nothing after it
    for number, (moment, machines) in enumerate((("before", 0), ("after", 1))):
        home.injector.when = f"{moment} {world.launches}".__eq__
        with pytest.raises(Killed):
            _client(home).launch(spec(number))
        assert len(home.cloud.instances()) == machines

    # a lost answer and a late effect leave one machine for one token
    for number, fault in enumerate((Fault.LOST_REPLY, Fault.LATE), 2):
        home.faults.inject("launch", fault)
        provider = _client(home)
        with suppress(UnavailableError):  # on GCP, also the look at what became of a launch may fail
            provider.launch(spec(number))
        home.clock.advance(cloud.weather.late_s + cloud.weather.lag_s)
        assert len(provider.launch(spec(number))) == 1
    assert len(home.cloud.instances()) == 3

    # nobody ends or books these machines
    home.clock.advance(100.0)
    found = world.findings(home, ())
    assert sum(line.startswith("leaked: machine") for line in found) == 3, found
    assert sum(line.startswith("money: run-") for line in found) == 3, found
    assert cloud.parts()


def _client(home: SimulatedInstallation) -> Any:
    (provider,) = home.installed(home.store).providers.values()
    assert isinstance(provider, Provider)
    return provider


def _any(cloud: Any) -> Any:
    return cloud
