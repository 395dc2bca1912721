"""Capacity is found in seconds where most zones have none: each refusal sends the job to the next offer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from providers.money import usd
from tests.sim.harness import CHEAP, SimulatedInstallation, check_truth

ZONES = tuple(replace(CHEAP, zone=f"alpha-{number}") for number in range(1, 7))
TICK_S = 0.5
"""How often the control plane looks at jobs that wait (engine.control)."""


def test_five_of_six_zones_without_capacity_cost_less_than_five_seconds(
    install: Callable[..., SimulatedInstallation],
) -> None:
    home = install(catalog=tuple((offer, usd(f"1.0{number}")) for number, offer in enumerate(ZONES)))
    for offer in ZONES[:-1]:
        home.cloud.set_capacity(offer.id, 0)
    job = home.submit()
    began_s = home.clock.monotonic_s()
    home.until(lambda: any(run.instance_id for run in home.runs(job)), stride_s=TICK_S)
    assert [run.offer_id for run in home.runs(job)] == [offer.id for offer in ZONES], "the cheapest first"
    assert home.clock.monotonic_s() - began_s < 5.0
    home.settle()
    assert home.job(job).state == "finished"
    check_truth(home)
