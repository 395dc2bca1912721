"""client.offers: what can be rented, and at what price."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.client.arguments import checked
from orchestrator.client.session import Session
from orchestrator.services.offers import listing
from orchestrator.services.offers.filters import OfferQuery
from orchestrator.services.offers.listing import Grouping
from orchestrator.services.offers.views import OfferList
from providers.clock import SystemClock

if TYPE_CHECKING:
    from orchestrator.client.session import Work


@checked
class Offers:
    """Offers of the enabled providers with their newest prices, and of all other clouds from the catalogue."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list(
        self,
        *,
        gpu: str | None = None,
        gpu_memory: str | None = None,
        cloud: Sequence[str] = (),
        region: Sequence[str] = (),
        spot: bool | None = None,
        max_price: float | None = None,
        vcpu: str | None = None,
        memory: str | None = None,
        work: Work | None = None,
        group_by: Grouping | None = None,
        limit: int | None = 100,
        cursor: str | None = None,
    ) -> OfferList:
        """What can be rented, the cheapest first; with `work`, with the figures and the order of a plan of that job.

        Filters: `gpu` such as `H100` or `H100:8`; `gpu_memory` (of one GPU) and `memory` in GB and `vcpu` as ranges,
        `40..` or `40..80`; `region` with `*`; `max_price` in USD per hour. A page has at most `limit` simulated and
        `limit` real offers; all pages have the prices of the first page. With `group_by`, the result has the first
        `limit` groups and no next page. Raises UsageError if a filter leaves no offers, SpecError, InfeasibleError if
        no offer suits the job.
        """
        return listing.offers(
            self._session.config,
            lambda: self._session.installation,
            OfferQuery.of(
                gpu=gpu,
                gpu_memory=gpu_memory,
                cloud=cloud,
                region=region,
                spot=spot,
                max_price=max_price,
                vcpu=vcpu,
                memory=memory,
            ),
            now_ms=SystemClock().now_ms(),
            spec=None if work is None else self._session.load(work),
            group_by=group_by,
            limit=limit,
            cursor=cursor,
        )
