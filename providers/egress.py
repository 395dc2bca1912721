"""EgressTable: what it costs to move bytes from one place to another.

A table of list prices in which the most specific row wins; no I/O, no clouds of its own (providers.catalog fills it).
Rates are nano-USD per 10^9 bytes, all that both ends are charged, first paid tier, without an account's free allowance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from providers.charges import egress_nano_usd

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ANY = "*"
OTHER_ZONE = "zone"
OTHER_REGION = "region"
INTERNET = "internet"

# Where nothing is known of a provider. Typical of the list prices that are: between zones 0.01, between regions 0.02 to
# 0.08, to the internet 0.087 to 0.12 USD. Rather too dear than too cheap: a move should not be taken for free.
UNKNOWN_ZONE_NANO_USD = 10_000_000
UNKNOWN_REGION_NANO_USD = 50_000_000
UNKNOWN_INTERNET_NANO_USD = 90_000_000


class Location(NamedTuple):
    """Where bytes are. An unnamed zone counts as the same zone as any other of its region."""

    provider: str
    region: str
    zone: str = ""


@dataclass(frozen=True, slots=True)
class EgressRow:
    """A list price. `source` is a region, `continent:X` or `*`; `target` is a region or `continent:X` of the same
    provider, or one of `zone` (another of the same region), `region` (any other), `internet` (anywhere else)."""

    provider: str
    source: str
    target: str
    nano_usd_per_gb: int


class EgressTable:
    """Raises ValueError for a negative rate and for two rows about the same thing."""

    def __init__(self, rows: Iterable[EgressRow], continents: Mapping[tuple[str, str], str]) -> None:
        """`continents` maps (provider, region) to the X of `continent:X`; a region may be missing in it."""
        self._rates: dict[tuple[str, str, str], int] = {}
        self._continents = dict(continents)
        for row in rows:
            key = (row.provider, row.source, row.target)
            if row.nano_usd_per_gb < 0:
                raise ValueError(f"a negative rate: {row}")
            if key in self._rates:
                raise ValueError(f"two rates from {row.source} to {row.target} of {row.provider}")
            self._rates[key] = row.nano_usd_per_gb

    @property
    def places(self) -> frozenset[tuple[str, str]]:
        """Every (provider, region) whose continent is known."""
        return frozenset(self._continents)

    def rate(self, source: Sequence[str], target: Sequence[str]) -> int:
        """nano-USD per 10^9 bytes between two places, given as `Location` or as (provider, region[, zone]).

        Within a region 0, unless both zones are named and differ. Between regions of a provider the most specific row:
        first by the target (its region, its continent, any), then by the source. Elsewhere the source's internet price.
        """
        here, there = Location(*source), Location(*target)
        if here.provider != there.provider:
            return self._first(here, (INTERNET,), UNKNOWN_INTERNET_NANO_USD)
        if here.region != there.region:
            return self._first(here, (*self.names(there)[:-1], OTHER_REGION), UNKNOWN_REGION_NANO_USD)
        if here.zone == there.zone or not here.zone or not there.zone:
            return 0
        return self._first(here, (OTHER_ZONE,), UNKNOWN_ZONE_NANO_USD)

    def rates(self, source: Sequence[str], targets: Sequence[Sequence[str]]) -> NDArray[np.int64]:
        """`rate` from one place to each of many, as int64. Equal targets are looked up once."""
        import numpy as np

        known = {target: self.rate(source, target) for target in {tuple(target) for target in targets}}
        return np.fromiter((known[tuple(target)] for target in targets), np.int64, len(targets))

    def cost_nano_usd(self, source: Sequence[str], target: Sequence[str], size_bytes: int) -> int:
        """nano-USD for `size_bytes`, rounded down."""
        return egress_nano_usd(self.rate(source, target), size_bytes)

    def _first(self, source: Location, targets: Iterable[str], otherwise: int) -> int:
        names = self.names(source)
        for target in targets:
            for name in names:
                found = self._rates.get((source.provider, name, target))
                if found is not None:
                    return found
        return otherwise

    def names(self, place: Sequence[str]) -> tuple[str, ...]:
        """What rows may call a place, most specific first."""
        provider, region, *_ = place
        continent = self._continents.get((provider, region))
        return (region, ANY) if continent is None else (region, f"continent:{continent}", ANY)
