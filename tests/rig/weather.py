"""Weather: the cloud of a history: its offers, its behaviour and the probability of failing and of slow calls, partly
random."""

from __future__ import annotations

import random
from math import inf

from providers.fake import Behaviour, Fault
from providers.hardware import GIB
from providers.money import usd
from providers.offer import CapacityType, Offer
from tests.rig.wires import Delay

CATALOG = tuple(
    (Offer("fake", region, f"{region}-1", "v100.1", "V100", 1, 8, 64 * GIB, kind, simulated=True), usd(price))
    for region, kind, price in (
        ("alpha", CapacityType.SPOT, "1.00"),
        ("beta", CapacityType.SPOT, "1.30"),
        ("alpha", CapacityType.ON_DEMAND, "3.00"),
        ("beta", CapacityType.ON_DEMAND, "3.10"),
    )
)


def faults_of(rng: random.Random) -> dict[Fault, float]:
    """The probability of each fault per call."""
    return {
        Fault.CAPACITY: rng.choice((0.0, 0.05, 0.15)),
        Fault.THROTTLED: rng.choice((0.0, 0.03)),
        Fault.NO_ANSWER: rng.choice((0.0, 0.03, 0.1)),
        Fault.LOST_REPLY: rng.choice((0.0, 0.05, 0.15)),
        Fault.LATE: rng.choice((0.0, 0.05, 0.1)),
    }


SLOW = (Delay(0.0, 0.5), Delay(0.5), Delay(0.0, 2.0), Delay(2.0), Delay(4.0, 4.0), Delay(0.0, 20.0), Delay(20.0),
        Delay(40.0), Delay(0.0, inf), Delay(2.0, inf), Delay(inf))  # fmt: skip
"""Answers late, or never; in each case it may have taken effect long before."""


def slowness_of(rng: random.Random) -> float:
    """The probability that a call is slow."""
    return rng.choice((0.0, 0.02, 0.1, 0.4))


def behaviour_of(rng: random.Random) -> Behaviour:
    """The behaviour of machines and prices."""
    return Behaviour(
        boot_s=rng.choice((0.5, 1.0, 3.0)),
        listing_lag_s=rng.choice((0.0, 3.0, 10.0)),
        stop_s=rng.choice((0.0, 1.0, 12.0)),
        late_s=rng.choice((1.0, 4.0, 15.0)),
        drift_s=rng.choice((None, 20.0)),
        preemptions_per_hour=rng.choice((0.0, 0.0, 40.0)),
        notice_s=rng.choice((None, 12.0)),
        max_instances=rng.choice((None, None, 6)),
    )
