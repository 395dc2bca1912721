"""Prior hazard: the losses per hour of each offer before any of its machines was observed, as a column over a
listing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from orchestrator.market.availability import ASSUMED, CapacityHistory, HazardPrior, hazard_per_hour
from orchestrator.market.listing import Listing

Floats = NDArray[np.float64]


def prior_hazard(listing: Listing, priors: Mapping[tuple[str, str, str], HazardPrior]) -> Floats:
    """Losses per hour before any observation, over the rows; 0 for on-demand. `priors` are by (provider, region,
    instance type). Each combination of site and shape is looked up once."""
    pairs, pair = np.unique(listing.site * len(listing.shapes) + listing.shape, return_inverse=True)
    rates = np.empty(len(pairs))
    for index, code in enumerate(pairs.tolist()):
        site, shape = divmod(code, len(listing.shapes))
        where, what = listing.sites[site], listing.shapes[shape]
        prior = priors.get((where.provider, where.region, what.instance_type), ASSUMED)
        rates[index] = hazard_per_hour(CapacityHistory(), spot=True, prior=prior)
    return np.where(listing.spot, rates[pair], 0.0)
