"""Parses offer ids from users: command line and SDK."""

from __future__ import annotations

from orchestrator.errors import UsageError
from providers.offer import OfferId


def checked_offer_id(text: str) -> str:
    """Returns `text` if it is a valid offer id. Raises UsageError."""
    try:
        return str(OfferId.parse(text))
    except (ValueError, AttributeError):
        raise UsageError(
            f"{text!r:.200} is not an offer id",
            hint="provider/region/zone/machine/spot or .../on_demand, as `tradewind offers --wide` lists them",
        ) from None
