"""Sources that ask Azure's Resource Graph one question for all regions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from providers.azure.session import Connections, in_our_words
from providers.collect.facts import Finding, PollResult, gather

SOURCE = "Azure Resource Graph"
GLOBAL = "global"
ORDER = "| order by sku asc, location asc"


class GraphSource(ABC):
    """One poll is one question, `query`, whose rows come page by page.

    It must give its rows an order that no two of them share (`ORDER`): pages of an unordered answer overlap and leave
    rows out (learn.microsoft.com, "Guidance for throttled requests", pagination).
    """

    provider = "azure"
    kind: ClassVar[str]
    query: ClassVar[str]

    def __init__(
        self,
        *,
        name: str = "",
        call_s: float = 30.0,
        attempts: int = 3,
        connections: Connections | None = None,
    ) -> None:
        self.name = name or self.kind
        self._connections = Connections(call_s=call_s, attempts=attempts) if connections is None else connections

    def regions(self) -> Sequence[str]:
        return [GLOBAL]

    def poll(self, region: str, now_ms: int, since_ms: int | None) -> PollResult:
        return gather(region, lambda finding: self._read(finding, now_ms, since_ms or 0), in_our_words)

    def _read(self, finding: Finding, now_ms: int, since_ms: int) -> None:
        for rows in self._connections.graph(self.query):
            finding.page(len(rows))
            for row in rows:
                self.add(finding, row, now_ms, since_ms)

    @abstractmethod
    def add(self, finding: Finding, row: Mapping[str, Any], now_ms: int, since_ms: int) -> None:
        """What a row of the answer says."""
