"""Base of the AWS price sources: a connection to each region that the account has enabled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from providers.aws.regions import enabled_regions
from providers.aws.session import Connections, to_provider_error
from providers.collect.facts import PollResult


class RegionalPrices(ABC):
    """`regions` restricts the account's enabled regions, `instance_types` the types (which may then have no GPUs).
    `connect_s`, `read_s` (seconds) and `attempts` apply to each call.
    """

    provider = "aws"
    kind: ClassVar[str]

    def __init__(
        self,
        *,
        name: str = "",
        regions: Sequence[str] = (),
        instance_types: Sequence[str] = (),
        connect_s: float = 5.0,
        read_s: float = 30.0,
        attempts: int = 3,
        connections: Connections | None = None,
    ) -> None:
        self.name = name or self.kind
        self._only, self._only_types = tuple(regions), tuple(instance_types)
        self._connections = connections or Connections(connect_s, read_s, attempts)

    def regions(self) -> Sequence[str]:
        """The regions to poll. Raises ProviderError if the account's regions cannot be listed."""
        if self._only:
            return self._only
        try:
            return enabled_regions(self._connections.client("ec2", self._connections.home_region))
        except Exception as error:
            known = to_provider_error(error)
            if known is None:
                raise
            raise known from error

    @abstractmethod
    def poll(self, region: str, now_ms: int, since_ms: int | None) -> PollResult:
        """All that is known about a region now; see PriceSource.poll."""
