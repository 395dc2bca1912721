"""Base of the sources that query Azure's Resource Graph once for all regions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from providers.azure.session import Connections, to_provider_error
from providers.collect.facts import Finding, PollResult, gather

SOURCE = "Azure Resource Graph"
GLOBAL = "global"
ORDER = "| order by sku asc, location asc"


class GraphSource(ABC):
    """Runs one query per poll; its rows arrive page by page.

    The query must sort its rows by a unique key (`ORDER`): pages of an unsorted answer overlap and omit rows
    (learn.microsoft.com, "Guidance for throttled requests", pagination).
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
        """One region, `global`: the query covers all regions."""
        return [GLOBAL]

    def poll(self, region: str, now_ms: int, since_ms: int | None) -> PollResult:
        """The result of the query."""
        return gather(region, lambda finding: self._read(finding, now_ms, since_ms or 0), to_provider_error)

    def _read(self, finding: Finding, now_ms: int, since_ms: int) -> None:
        for rows in self._connections.graph(self.query):
            finding.page(len(rows))
            for row in rows:
                self.add(finding, row, now_ms, since_ms)

    @abstractmethod
    def add(self, finding: Finding, row: Mapping[str, Any], now_ms: int, since_ms: int) -> None:
        """Add what one row of the answer reports."""
