"""What is known of a provider by its name alone, so that nothing has to be opened to ask."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Traits:
    """`own_clock`: its market's time may run faster than the wall clock where no other provider is enabled.
    `start_wall_s`: seconds from asking for a machine to a trainer that trains, None as for a cloud."""

    simulated: bool = False
    only_simulated_gpus: bool = False
    own_clock: bool = False
    start_wall_s: float | None = None


_OF = {
    # 5 s: a Ray node and a trainer with torch, on 2 idle cores (benchmarks/failover.py)
    "local": Traits(simulated=True, only_simulated_gpus=True, own_clock=True, start_wall_s=5.0),
    "fake": Traits(simulated=True),
}


def traits_of(provider: str) -> Traits:
    """A provider that is not listed here is a real cloud."""
    return _OF.get(provider, Traits())


def own_clock(providers: tuple[str, ...]) -> bool:
    """Whether market time may run faster than the wall clock with these providers enabled."""
    return len(providers) == 1 and traits_of(providers[0]).own_clock
