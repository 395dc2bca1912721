"""The part of the `gcp` provider that runs on a rented machine, as root: its metadata server.

providers.machine.user_data sends this module's text. It needs only the standard library of any Python 3. Its time to
live is the attribute LIVES, and counts from its boot.
"""

from __future__ import annotations

from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

from providers.machine.lifetime import LIVES, keep, since_boot_s

_SERVER = "http://169.254.169.254"
_FLAVOR = "Metadata-Flavor"
ATTRIBUTE = "instance/attributes/" + LIVES


class MetadataServer:
    """The machine's metadata server. Methods raise OSError if it does not answer."""

    def __init__(self, url: str = _SERVER, timeout_s: float = 1.0) -> None:
        self._url, self._timeout_s = url, timeout_s
        self._opener = build_opener(ProxyHandler({}))

    def get(self, path: str) -> str | None:
        """The value at a path; None: nothing."""
        return self._get(path, self._timeout_s)[0]

    def wait(self, path: str, etag: str, longest_s: int) -> tuple[str | None, str]:
        """The value and its etag, as soon as the etag is no longer `etag`, after `longest_s` at the latest."""
        query = f"?wait_for_change=true&timeout_sec={longest_s}&last_etag={quote(etag or '0')}"
        return self._get(path + query, longest_s + self._timeout_s)

    def _get(self, path: str, timeout_s: float) -> tuple[str | None, str]:
        request = Request(f"{self._url}/computeMetadata/v1/{path}", headers={_FLAVOR: "Google"})
        try:
            with self._opener.open(request, timeout=timeout_s) as answer:
                if answer.headers[_FLAVOR] != "Google":
                    raise OSError("the answer is not from the metadata server")
                return answer.read(262144).decode(), answer.headers["ETag"] or ""
        except HTTPError as error:
            with error:
                if error.code == 404:
                    return None, ""
                raise


def main() -> None:
    """Return when this machine has to end."""
    server = MetadataServer()
    keep(since_boot_s, lambda: server.get(ATTRIBUTE))


if __name__ == "__main__":
    main()
