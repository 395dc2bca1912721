"""Long operations of Azure Resource Manager: follows an accepted request to its result, as often as Azure allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from azure.core import exceptions
from azure.core.polling import PollingMethod

from providers.azure.session import Connections, refusal
from providers.clock import Clock
from providers.collect.error_bodies import refuse_error
from providers.collect.http import retry_after_s
from providers.errors import ProviderError

FIRST_S, LEAST_S = 2.0, 1.0
"""How long to wait if Azure does not say, and at least: Azure may say 0."""
_VERSION = "2026-04-01"


class Accepted(PollingMethod[Any]):  # type: ignore[misc]  # azure-core is not checked here
    """Replaces the library's polling, which would wait without a limit: keeps the first answer and sends nothing."""

    def __init__(self) -> None:
        self.http_status = 0
        self.headers: dict[str, str] = {}
        self.body: Any = None

    def initialize(self, client: Any, initial_response: Any, deserialization_callback: Callable[[Any], Any]) -> None:
        """Called by the library with the first answer."""
        self._keep(initial_response.http_response)

    @classmethod
    def of(cls, answer: Any) -> Accepted:
        """The first answer to a request that was sent without the library's polling."""
        accepted = cls()
        accepted._keep(answer)
        return accepted

    def _keep(self, answer: Any) -> None:
        self.http_status = int(answer.status_code)
        self.headers = {str(name).lower(): str(value) for name, value in answer.headers.items()}
        self.body = answer.json() if answer.content else None
        refuse_error("Azure", self.http_status, self.body)  # the library reads it too late for NoErrors

    def run(self) -> None:
        """Does not wait."""

    def finished(self) -> bool:
        """The library does not have to poll."""
        return True

    def resource(self) -> None:
        """Not used."""

    @property
    def operation(self) -> str:
        """The address that says how far the operation is; "" if it is over."""
        return self.headers.get("azure-asyncoperation") or self.headers.get("location", "")

    @property
    def wait_s(self) -> float:
        """How long to wait before the next request."""
        return _wait_s(self.headers)


class Operations:
    """Waits for operations."""

    def __init__(self, connections: Connections, clock: Clock) -> None:
        self._connections, self._clock = connections, clock

    def outcomes(self, begun: Mapping[str, Accepted], within_s: float) -> dict[str, ProviderError | None]:
        """The error, or None, of each operation that ends within this time, by the names in `begun`.

        Leaves out operations that Azure says nothing about or that are not finished.
        """
        deadline_s = self._clock.monotonic_s() + within_s
        open_ = {name: each.operation for name, each in begun.items() if each.operation}
        ended: dict[str, ProviderError | None] = {name: None for name in begun if name not in open_}
        wait_s = min((begun[name].wait_s for name in open_), default=0.0)
        while open_ and self._clock.monotonic_s() + wait_s <= deadline_s:
            self._clock.sleep(wait_s)
            wait_s = within_s
            for name, url in list(open_.items()):
                try:
                    answer = self._connections.send("GET", url, _VERSION, retry_total=0)
                except exceptions.HttpResponseError as error:
                    headers = {} if error.response is None else error.response.headers
                    wait_s = min(wait_s, _wait_s(headers))
                    continue
                except exceptions.AzureError:
                    wait_s = min(wait_s, FIRST_S)
                    continue
                over, failed = _outcome(answer)
                if over:
                    ended[name] = failed
                    del open_[name]
                else:
                    wait_s = min(wait_s, _wait_s(answer.headers))
        return ended


def _outcome(answer: Any) -> tuple[bool, ProviderError | None]:
    """(whether the operation has ended, its error)."""
    body = answer.json() if answer.content else {}
    said = str(body.get("status", "Succeeded" if answer.status_code == 200 else "InProgress"))
    if said == "Succeeded":
        return True, None
    if said not in ("Failed", "Canceled"):
        return False, None
    error = body.get("error") or {}
    return True, refusal(str(error.get("code", said)), str(error.get("message", "")))


def _wait_s(headers: Mapping[str, str]) -> float:
    asked_s = retry_after_s(headers)
    return FIRST_S if asked_s is None else max(LEAST_S, asked_s)
