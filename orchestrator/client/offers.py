"""client.offers: what can be rented, and for how much."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.client.session import Session
from orchestrator.services.offers import listing
from orchestrator.services.offers.filters import OfferQuery
from orchestrator.services.offers.listing import Grouping
from orchestrator.services.offers.views import OfferList
from providers.clock import SystemClock

if TYPE_CHECKING:
    from orchestrator.client.session import Work


class Offers:
    """Offers of the enabled providers with their newest prices, and of all other clouds as the catalogue says."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list(
        self,
        query: OfferQuery | None = None,
        *,
        work: Work | None = None,
        group_by: Grouping | None = None,
        limit: int | None = None,
    ) -> OfferList:
        """What can be rented, cheapest first; with `work` in the figures and the order of a plan of that job. `limit`:
        so many simulated and so many real ones. Raises UsageError when a filter leaves nothing, SpecError,
        InfeasibleError when nothing fits the job.
        """
        return listing.offers(
            self._session.config,
            lambda: self._session.installation,
            query or OfferQuery(),
            now_ms=SystemClock().now_ms(),
            spec=None if work is None else self._session.load(work),
            group_by=group_by,
            limit=limit,
        )
