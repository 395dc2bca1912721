"""What AWS's sources of prices share: a connection to each region that the account has switched on.

spot.py and on_demand.py are the sources.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from providers.aws.regions import enabled_regions
from providers.aws.session import Connections, in_our_words
from providers.collect.facts import PollResult


class RegionalPrices(ABC):
    """`regions` narrows the account's enabled regions. Seconds to connect and to read, and attempts, are per call."""

    provider = "aws"
    kind: ClassVar[str]

    def __init__(
        self,
        *,
        name: str = "",
        regions: Sequence[str] = (),
        connect_s: float = 5.0,
        read_s: float = 30.0,
        attempts: int = 3,
        connections: Connections | None = None,
    ) -> None:
        self.name = name or self.kind
        self._only = tuple(regions)
        self._connections = connections or Connections(connect_s, read_s, attempts)

    def regions(self) -> Sequence[str]:
        """Raises ProviderError when the account's cannot be listed."""
        if self._only:
            return self._only
        try:
            return enabled_regions(self._connections.client("ec2", self._connections.home_region))
        except Exception as error:
            known = in_our_words(error)
            if known is None:
                raise
            raise known from error

    @abstractmethod
    def poll(self, region: str, now_ms: int, since_ms: int | None) -> PollResult:
        """As PriceSource says."""
