"""Offer ids as people give them: on the command line, in Python."""

from __future__ import annotations

from orchestrator.errors import UsageError
from providers.offer import OfferId


def checked_offer_id(text: str) -> str:
    """`text`, if it has the form of an offer id. Raises UsageError."""
    try:
        return str(OfferId.parse(text))
    except (ValueError, AttributeError):
        raise UsageError(
            f"{text!r:.200} is not an offer id",
            hint="provider/region/zone/machine/spot or .../on_demand, as `tradewind offers --wide` lists them",
        ) from None
