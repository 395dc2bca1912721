"""Start times: seconds from a launch to a ready trainer, as a column over sites or a table over sites and kinds."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from orchestrator.market.listing import Listing
from orchestrator.model import Estimate
from providers.billing.charges import Location

Floats = NDArray[np.float64]
Quantile = Literal["value", "low", "high"]
QUANTILES: tuple[Quantile, ...] = get_args(Quantile)

DEFAULT_STARTUP_S = 360.0  # cold start of a cloud machine to a ready trainer: 6 min (SkyNomad, arXiv 2601.06520)


def site_starts(listing: Listing, startup_s: Mapping[str, float | Estimate]) -> Mapping[Quantile, Floats]:
    """Start times over the sites of the listing, for each quantile, from the usual time of each provider
    (DEFAULT_STARTUP_S if there is none)."""
    known = [startup_s.get(site.provider, DEFAULT_STARTUP_S) for site in listing.sites]
    return MappingProxyType(
        {name: np.array([getattr(each, name, each) for each in known], np.float64) for name in QUANTILES}
    )


def coded_starts(
    listing: Listing, starts: Mapping[tuple[Location, tuple[str | None, int]], Estimate]
) -> dict[tuple[int, int], Estimate]:
    """`starts` with the listing's codes of site and kind as keys. Places and kinds that are not listed are left out."""
    sites = {tuple(site): code for code, site in enumerate(listing.sites)}
    kinds = {kind: code for code, kind in enumerate(listing.kinds)}
    return {
        (sites[place], kinds[kind]): known
        for (place, kind), known in starts.items()
        if place in sites and kind in kinds
    }


def start_table(
    listing: Listing,
    by_site: Mapping[Quantile, Floats],
    starts: Mapping[tuple[int, int], Estimate],
    quantile: Quantile,
) -> Floats:
    """Seconds by site and kind of hardware (codes of the listing): as observed (`starts`), otherwise the usual time at
    the site."""
    table = np.repeat(by_site[quantile][:, None], len(listing.kinds), axis=1)
    for place_and_kind, known in starts.items():
        table[place_and_kind] = getattr(known, quantile)
    return table
