"""Which offers one launch can name."""

from __future__ import annotations

from collections.abc import Sequence

from providers.base import LaunchesAnywhere, Provider
from providers.offer import OfferId


def together(provider: Provider | None, offer_id: str, also: Sequence[str], count: int) -> tuple[str, ...]:
    """The offers of `also`, best first, that a launch of `count` machines of `offer_id` can also request."""
    if not isinstance(provider, LaunchesAnywhere):
        return ()
    kind = OfferId.parse(offer_id).instance_type
    able = [each for each in also if provider.mixes_types or OfferId.parse(each).instance_type == kind]
    return tuple(able[: provider.most_offers(count) - 1])
