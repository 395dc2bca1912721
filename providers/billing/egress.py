"""EgressTable: list prices of moving bytes from one location to another.

The most specific row wins. Rates are in nano-USD per 10^9 bytes: the sum of what both ends are charged in the first
paid tier, without an account's free allowance. providers.catalog fills the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from providers.billing.charges import egress_nano_usd

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ANY = "*"
OTHER_ZONE = "zone"
OTHER_REGION = "region"
INTERNET = "internet"

# For providers without list prices. Typical list prices in USD/GB: between zones 0.01, between regions 0.02 to 0.08, to
# the internet 0.087 to 0.12. On the high side, so that a move does not count as free.
UNKNOWN_ZONE_NANO_USD = 10_000_000
UNKNOWN_REGION_NANO_USD = 50_000_000
UNKNOWN_INTERNET_NANO_USD = 90_000_000


class Location(NamedTuple):
    """Where bytes are stored. An empty zone matches every zone of its region."""

    provider: str
    region: str
    zone: str = ""


@dataclass(frozen=True, slots=True)
class EgressRow:
    """A list price. `source` is a region, `continent:X` or `*`.

    `target` is a region or `continent:X` of the same provider, or one of `zone` (another zone of the same region),
    `region` (any other region), `internet` (anywhere else).
    """

    provider: str
    source: str
    target: str
    nano_usd_per_gb: int


class EgressTable:
    """Egress rates by route. Raises ValueError for a negative rate and for two rows for the same route."""

    def __init__(self, rows: Iterable[EgressRow], continents: Mapping[tuple[str, str], str]) -> None:
        """`continents` maps (provider, region) to the X of `continent:X`; regions may be missing."""
        self._rates: dict[tuple[str, str, str], int] = {}
        self._continents = dict(continents)
        for row in rows:
            key = (row.provider, row.source, row.target)
            if row.nano_usd_per_gb < 0:
                raise ValueError(f"egress rate is negative: {row}")
            if key in self._rates:
                raise ValueError(f"duplicate egress rate of {row.provider} from {row.source} to {row.target}")
            self._rates[key] = row.nano_usd_per_gb

    @property
    def places(self) -> frozenset[tuple[str, str]]:
        """Every (provider, region) whose continent is known."""
        return frozenset(self._continents)

    def rate(self, source: Sequence[str], target: Sequence[str]) -> int:
        """nano-USD per 10^9 bytes between two locations, each a `Location` or (provider, region[, zone]).

        Within a region 0, unless both zones are given and differ. Between regions of a provider, the most specific row:
        first by target (its region, its continent, any), then by source. To another provider, the source's internet
        price.
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
        """`rate` from one location to each of many, as an int64 array. Equal targets are looked up once."""
        import numpy as np

        known = {target: self.rate(source, target) for target in {tuple(target) for target in targets}}
        return np.fromiter((known[tuple(target)] for target in targets), np.int64, len(targets))

    def cost_nano_usd(self, source: Sequence[str], target: Sequence[str], size_bytes: int) -> int:
        """Cost of moving `size_bytes`, in nano-USD, rounded down."""
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
        """The names by which rows may refer to a location, most specific first."""
        provider, region, *_ = place
        continent = self._continents.get((provider, region))
        return (region, ANY) if continent is None else (region, f"continent:{continent}", ANY)
