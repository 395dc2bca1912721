"""Rentable: whether an installation may rent an offer from a cloud."""

from __future__ import annotations

from collections.abc import Collection

from providers.errors import NotFoundError
from providers.offer import OfferId


def rentable(
    offer_id: str, provider: str, regions: Collection[str], types: Collection[str], setting: str = "instance_types"
) -> OfferId:
    """The parts of an offer's id. Raises NotFoundError if it is not one of `provider` in the configured regions and of
    the configured machine types; `setting` is the name of the field with these types in tradewind.toml."""
    try:
        offer = OfferId.parse(offer_id)
    except ValueError as error:
        raise NotFoundError(str(error)) from error
    if offer.provider != provider or offer.region not in regions or offer.instance_type not in types:
        raise NotFoundError(
            f"{offer_id} is not an offer of this installation",
            hint=f"providers.{provider}.regions and providers.{provider}.{setting} in tradewind.toml list what may be "
            "rented",
        )
    return offer
