"""The part of the `aws` provider that runs on a rented machine, as root: the metadata service, and the machine's end.

providers.aws.user_data sends this module's text. It needs only the standard library of any Python 3. EC2 has no time to
live, so the machine keeps it itself: the tag LIVES says for how many seconds it may go on from the moment at which the
tag was set. That moment is taken to be the last look that still showed the former value: the machine ends some seconds
early rather than late. The machine's own wall clock is not used.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

LIVES = "tradewind-lives"
LOOK_S = 15.0
TOKEN_S = 3600
_SERVICE = "http://169.254.169.254"
_TAG = "/latest/meta-data/tags/instance/" + LIVES
_DOCUMENT = "/latest/dynamic/instance-identity/document"


class Imds:
    """The machine's metadata service, version 2. Methods raise OSError if it does not answer."""

    def __init__(self, url: str = _SERVICE, timeout_s: float = 1.0) -> None:
        self._url, self._timeout_s, self._token = url, timeout_s, ""
        self._opener = build_opener(ProxyHandler({}))

    def get(self, path: str) -> tuple[str | None, datetime]:
        """What it says at a path (None: nothing), and its time."""
        for _ in range(2):
            request = Request(self._url + path, headers={"X-aws-ec2-metadata-token": self._token})
            try:
                with self._opener.open(request, timeout=self._timeout_s) as answer:
                    return answer.read(65536).decode(), _date(answer.headers["Date"])
            except HTTPError as error:
                with error:
                    if error.code == 404:
                        return None, _date(error.headers["Date"])
                    if error.code != 401:
                        raise
            self._token = self._new_token()
        raise OSError("the metadata service refuses its own token")

    def _new_token(self) -> str:
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_S)}
        request = Request(self._url + "/latest/api/token", headers=headers, method="PUT")
        with self._opener.open(request, timeout=self._timeout_s) as answer:
            return str(answer.read(1024).decode())


def instant(text: str) -> datetime:
    """An instant as the metadata service writes it. Raises ValueError."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)  # noqa: UP017 - old Pythons


def wait_for_the_end(imds: Imds, to_live_s: float, now: Callable[[], float], sleep: Callable[[float], None]) -> None:
    """Return when the time to live is over: at first `to_live_s` after the launch, then as the tag says."""
    looked = now()
    try:
        document, there = imds.get(_DOCUMENT)
        looked -= max(0.0, (there - instant(json.loads(document or "")["pendingTime"])).total_seconds())
    except (OSError, ValueError, KeyError):
        sys.stderr.write("tradewind: the metadata service does not say when this machine was launched\n")
    deadline, said = looked + to_live_s, ""
    while now() < deadline:
        began = now()
        try:
            found = imds.get(_TAG)[0] or said
        except (OSError, ValueError):
            found = said
        if found != said:
            seconds = found.split(" ")[0]
            deadline, said = looked + float(seconds) if seconds.isdigit() else deadline, found
        looked = began
        sleep(max(0.0, min(LOOK_S, deadline - now())))


def _date(text: str) -> datetime:
    try:
        return parsedate_to_datetime(text)
    except TypeError as error:
        raise OSError("the metadata service does not say its time") from error


def main() -> None:
    """Return when this machine has to end. `to_live_s` is the only argument."""
    parent = os.getppid()

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        if os.getppid() != parent:  # whoever was to shut the machine down is gone
            os.execvp("shutdown", ["shutdown", "-h", "now"])

    wait_for_the_end(Imds(), float(sys.argv[1]), lambda: time.clock_gettime(time.CLOCK_BOOTTIME), sleep)
    sys.stderr.write("tradewind: nobody has renewed this machine, and its time is over\n")


if __name__ == "__main__":
    main()
