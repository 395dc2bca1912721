"""Market: everything that is known at one time (offers, prices, capacity), and nothing later. Pure: no I/O, no clock,
no random source."""

from orchestrator.market.availability import PRIOR_LOSSES, AvailabilityKind, AvailabilityPoint, HazardPrior
from orchestrator.market.gangs import of_machines
from orchestrator.market.listing import Listing, MachineKind, Shape, Site
from orchestrator.market.outages import expected_wait_s, mean_outage_h
from orchestrator.market.price_columns import PriceColumns
from orchestrator.market.price_forecast import PriceForecast
from orchestrator.market.prior_hazard import prior_hazard
from orchestrator.market.quotas import (
    QuotaName,
    Room,
    Rooms,
    rooms,
    rooms_raised,
    rooms_without,
    units_taken,
    why_over_quota,
)
from orchestrator.market.reversion import Course, History
from orchestrator.market.snapshot import Market
from orchestrator.market.start_times import QUANTILES, Quantile
from orchestrator.market.transfer import OWN_STORE, TYPICAL, Tariff, egress_nano_usd, fetched_from, rate_between
from providers.billing.charges import Location

__all__ = [
    "OWN_STORE",
    "PRIOR_LOSSES",
    "QUANTILES",
    "TYPICAL",
    "AvailabilityKind",
    "AvailabilityPoint",
    "Course",
    "HazardPrior",
    "History",
    "Listing",
    "Location",
    "MachineKind",
    "Market",
    "PriceColumns",
    "PriceForecast",
    "Quantile",
    "QuotaName",
    "Room",
    "Rooms",
    "Shape",
    "Site",
    "Tariff",
    "egress_nano_usd",
    "expected_wait_s",
    "fetched_from",
    "mean_outage_h",
    "of_machines",
    "prior_hazard",
    "rate_between",
    "rooms",
    "rooms_raised",
    "rooms_without",
    "units_taken",
    "why_over_quota",
]
