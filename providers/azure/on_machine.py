"""The part of the `azure` provider that runs on a rented machine, as root: its metadata service and its shutdown.

providers.machine.user_data sends this module's text. It needs only the standard library of any Python 3. Its time to
live is the tag LIVES.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

from providers.machine.lifetime import LIVES, keep

PREEMPT = "Preempt"
_SERVICE = "http://169.254.169.254"
_NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
_TAGS = "/metadata/instance/compute/tagsList?api-version=2021-02-01"
_EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"


class Imds:
    """The machine's metadata service. Methods raise OSError if it does not answer, ValueError if the answer is not
    JSON."""

    def __init__(self, url: str = _SERVICE, timeout_s: float = 2.0) -> None:
        self._url, self._timeout_s, self._name = url, timeout_s, ""
        self._opener = build_opener(ProxyHandler({}))

    def tags(self) -> dict[str, str]:
        """The tags of this machine."""
        try:
            return {str(each["name"]): str(each["value"]) for each in json.loads(self._ask(_TAGS)[0])}
        except TypeError as error:
            raise ValueError("the metadata service's tags are not valid") from error

    def preemptions(self) -> tuple[list[dict[str, Any]], datetime]:
        """The announcements that this machine will be preempted, and the service's time."""
        if not self._name:
            self._name = self._ask(_NAME)[0]
        said, now = self._ask(_EVENTS)
        events = [each for each in json.loads(said)["Events"] if each["EventType"] == PREEMPT]
        return [each for each in events if self._name in each["Resources"]], now

    def approve(self, event_id: str) -> None:
        """Let Azure carry out its announcement now instead of at the end of its notice."""
        self._ask(_EVENTS, json.dumps({"StartRequests": [{"EventId": event_id}]}).encode())

    def _ask(self, path: str, body: bytes | None = None) -> tuple[str, datetime]:
        request = Request(self._url + path, body, {"Metadata": "true", "Content-Type": "application/json"})
        with self._opener.open(request, timeout=self._timeout_s) as answer:
            return answer.read(1 << 20).decode(), _date(answer.headers["Date"])


def instant(text: str) -> datetime:
    """A time as the metadata service writes it. Raises ValueError."""
    try:
        return parsedate_to_datetime(str(text))
    except TypeError as error:
        raise ValueError(f"{text!r} is not a time") from error


def approve_all(imds: Imds) -> None:
    """Approve every announced end: the work is saved, and a machine that only shuts down is billed until it is
    deleted."""
    try:
        for event in imds.preemptions()[0]:
            imds.approve(str(event["EventId"]))
    except (OSError, ValueError, LookupError, TypeError) as error:
        sys.stderr.write(f"tradewind: the end that Azure announced was not approved: {error}\n")


def _date(text: str) -> datetime:
    try:
        return instant(text)
    except ValueError as error:
        raise OSError("the metadata service does not report its time") from error


def main() -> None:
    """Return when this machine has to end; or, without an argument, approve its end."""
    imds = Imds()
    if len(sys.argv) == 1:
        approve_all(imds)
    else:
        keep(lambda: 0.0, lambda: imds.tags().get(LIVES))  # Azure does not say when it was launched


if __name__ == "__main__":
    main()
