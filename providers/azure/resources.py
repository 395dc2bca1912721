"""Azure resources that azure-mgmt-compute does not support: plain REST through its pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from providers.azure.codes import ABSENT, IN_USE
from providers.azure.operations import Accepted, Operations
from providers.azure.session import ONCE, Connections, error_code
from providers.clock import Clock
from providers.collect.pages import Pages
from providers.errors import UnavailableError

WAIT_S = 60.0
"""How long one step may take before it has to be continued."""


class Resources:
    """`path` is the id of a resource, or of a list. Methods raise azure.core's exceptions and ProviderErrors."""

    def __init__(self, connections: Connections, clock: Clock) -> None:
        self._connections, self._operations = connections, Operations(connections, clock)

    def got(self, path: str, version: str) -> Any:
        """The resource; None if it does not exist."""
        try:
            return self._connections.send("GET", path, version).json()
        except Exception as error:
            if error_code(error) in ABSENT:
                return None
            raise

    def listed(self, path: str, version: str) -> list[Any]:
        """All pages of a list; empty if its parent resource does not exist."""
        found: list[Any] = []
        links = Pages(f"ARM's list {path.rpartition('/')[2]}")
        try:
            while path:
                page = self._connections.send("GET", path, version).json()
                found += page["value"]
                path = links.follow(page["nextLink"]) if page.get("nextLink") else ""
        except Exception as error:
            if error_code(error) not in ABSENT:
                raise
        return found

    def put(self, path: str, version: str, body: Mapping[str, Any]) -> None:
        """Create or change a resource, and wait until that is done."""
        self._finish(self._connections.send("PUT", path, version, body, **ONCE), path)

    def remove(self, path: str, version: str, what: str) -> None:
        """Remove a resource if it exists, and wait until that is done. Raises UnavailableError while it is used."""
        try:
            self._finish(self._connections.send("DELETE", path, version, **ONCE), path)
        except Exception as error:
            if error_code(error) in IN_USE:
                raise UnavailableError(f"{what} is still used", hint="try again when its machines are gone") from error
            if error_code(error) not in ABSENT:
                raise

    def _finish(self, answer: Any, path: str) -> None:
        outcomes = self._operations.outcomes({path: Accepted.of(answer)}, WAIT_S)
        if path not in outcomes:
            raise UnavailableError(f"Azure is not done with {path.rpartition('/')[2]} yet", hint="repeat it")
        if (error := outcomes[path]) is not None:
            raise error
