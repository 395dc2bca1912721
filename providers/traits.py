"""Facts about a provider that are known from its name alone, without opening it."""

from __future__ import annotations

from dataclasses import dataclass

from providers.offer import provider_of


@dataclass(frozen=True, slots=True)
class Traits:
    """`own_clock`: market time may run faster than the wall clock while no other provider is enabled. `start_wall_s`:
    wall seconds from requesting a machine to a training trainer; None: as for a cloud. `shares_host`: its machines are
    processes of this host's user, so they read and write the same folders as the control plane. `owned`: its prices are
    those that the user declares for machines of their own, and may be 0.
    """

    simulated: bool = False
    only_simulated_gpus: bool = False
    own_clock: bool = False
    start_wall_s: float | None = None
    shares_host: bool = False
    owned: bool = False


_OF = {
    # 5 s: start of a Ray node and a trainer with torch on 2 idle cores (benchmarks/failover.py)
    "local": Traits(simulated=True, only_simulated_gpus=True, own_clock=True, start_wall_s=5.0, shares_host=True),
    "fake": Traits(simulated=True, shares_host=True),
    "static": Traits(owned=True),
}


def traits_of(provider: str) -> Traits:
    """The traits of a provider. One that is not listed here is a real cloud."""
    return _OF.get(provider, Traits())


def shares_host(offer_id: str) -> bool:
    """Whether a machine of this offer has the folders of this host."""
    return traits_of(provider_of(offer_id)).shares_host


def own_clock(providers: tuple[str, ...]) -> bool:
    """True if market time may run faster than the wall clock with these providers enabled."""
    return len(providers) == 1 and traits_of(providers[0]).own_clock
