"""The catalogue: GPU offers and list prices compiled from public lists, with dates and sources, usable offline.

    catalog = load()
    catalog.offers(), catalog.prices(), catalog.interruptions, catalog.egress(), catalog.flagged(), catalog.sources()

It has one latest price per offer and no time series.
"""

from providers.catalog.accelerators import AcceleratorPrice
from providers.catalog.catalog import Catalog, FlaggedPrice, age_days, damage, instance_types, load, read
from providers.catalog.check import Verdict, verify, verify_own
from providers.catalog.files import CatalogError, Finding
from providers.catalog.flags import Flag
from providers.catalog.hazard import Interruption, hazard
from providers.catalog.rows import InstanceType, PriceRow, Source

__all__ = [
    "AcceleratorPrice",
    "Catalog",
    "CatalogError",
    "Finding",
    "Flag",
    "FlaggedPrice",
    "InstanceType",
    "Interruption",
    "PriceRow",
    "Source",
    "Verdict",
    "age_days",
    "damage",
    "hazard",
    "instance_types",
    "load",
    "read",
    "verify",
    "verify_own",
]
