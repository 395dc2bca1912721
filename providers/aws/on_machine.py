"""The part of the `aws` provider that runs on a rented machine, as root: its metadata service.

providers.machine.user_data sends this module's text. It needs only the standard library of any Python 3. Its time to
live is the tag LIVES.
"""

from __future__ import annotations

import json
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from providers.machine.lifetime import LIVES, keep

TOKEN_S = 3600
_SERVICE = "http://169.254.169.254"
TAG = "/latest/meta-data/tags/instance/" + LIVES
_DOCUMENT = "/latest/dynamic/instance-identity/document"


class Imds:
    """The machine's metadata service, version 2. Methods raise OSError if it does not answer."""

    def __init__(self, url: str = _SERVICE, timeout_s: float = 1.0) -> None:
        self._url, self._timeout_s, self._token = url, timeout_s, ""
        self._opener = build_opener(ProxyHandler({}))

    def get(self, path: str) -> tuple[str | None, datetime]:
        """The value at a path (None: nothing), and the service's time."""
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
    """A time as the metadata service writes it. Raises ValueError."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)  # noqa: UP017 - old Pythons


def age_s(imds: Imds) -> float:
    """How long ago this machine was launched. Raises OSError, ValueError and KeyError."""
    document, there = imds.get(_DOCUMENT)
    return (there - instant(json.loads(document or "")["pendingTime"])).total_seconds()


def _date(text: str) -> datetime:
    try:
        return parsedate_to_datetime(text)
    except TypeError as error:
        raise OSError("the metadata service does not report its time") from error


def main() -> None:
    """Return when this machine has to end."""
    imds = Imds()
    keep(lambda: age_s(imds), lambda: imds.get(TAG)[0])


if __name__ == "__main__":
    main()
