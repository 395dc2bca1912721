"""What an account may not rent although it is configured: shown with the reason and the remedy instead of left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from providers.errors import ProviderError
from providers.offer import Offer


@dataclass(frozen=True, slots=True)
class Closed:
    """A region, or one instance type there, that cannot be rented. "" stands for all regions, or all types."""

    region: str
    instance_type: str
    reason: str
    remedy: str


def refused(region: str, error: ProviderError) -> Closed:
    """A region (or all) that cannot be used for a lasting reason."""
    return Closed(region, "", str(error), error.hint)


def without_offers(
    cloud: str,
    regions: Iterable[str],
    types: Sequence[str],
    offers: Iterable[Offer],
    known: Mapping[tuple[str, str], Closed],
) -> Iterator[Closed]:
    """The configured types that are not offered in the regions that have answered; `known` has the known reasons, by
    region and lower-case type."""
    offered = {(offer.region, offer.instance_type.lower()) for offer in offers}
    for region in regions:
        for name in types:
            key = region, name.lower()
            if key not in offered:
                remedy = f"remove it from the configuration of {cloud}, or choose a region that has it"
                yield known.get(key, Closed(region, name, f"{cloud} does not offer it in this region", remedy))
