"""Contact: the requests that an agent without credentials can send to the store, by the URLs in its user data.

All machines of a run share one user data text, which has no room for the URLs of every rank. Those URLs are in the
object `seats`, locked with the boot token that all of them have.
"""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException

from orchestrator.errors import SiteError
from orchestrator.formats.codec import CodecError, dumps, loads
from orchestrator.nodes import sealing
from orchestrator.nodes.messages import MOST_BYTES, NodeFacts
from trainers.errors import ObjectStoreError, StoreDenied, StoreUnavailable
from trainers.objects.redirects import Stay

ANSWER_S = 10.0
_EXISTS = re.compile(rb"BlobAlreadyExists|UnauthorizedBlobOverwrite")  # Azure's form of this refusal
_EXPIRED = re.compile(rb"expired|AuthenticationFailed")  # other refusals mean that there is no such object
_DIRECT = urllib.request.build_opener(Stay)
SEATS = "seats"
MOST_SEATS_BYTES = 64 << 20
"""Enough for 30,000 machines with Azure's signatures, which are the longest. Larger runs are not launched."""


@dataclass(frozen=True, slots=True)
class Urls:
    """Signed requests (orchestrator.nodes.access.grants.Signer): the path and suffix of each object."""

    endpoint: str
    query: str
    objects: Mapping[str, tuple[str, str]]
    headers: Mapping[str, str]
    once: Mapping[str, str]

    def of(self, name: str) -> str:
        """The whole URL of an object."""
        path, suffix = self.objects[name]
        query = "&".join(filter(None, (self.query, suffix)))
        return f"{self.endpoint}{path}?{query}" if query else f"{self.endpoint}{path}"


class Contact:
    """A contact for the objects of one machine; if there are several, of the one with this `rank`. Methods raise
    ObjectStoreError."""

    def __init__(self, urls: Urls, rank: int | None = None) -> None:
        self._urls = urls
        self._of = "" if rank is None else f"{rank}/"

    def claim(self, by: str) -> str:
        """See Channel.claim."""
        self._asked("PUT", "claim", by.encode())
        status, data = self._asked("GET", "claimed")
        return data.decode(errors="replace") if status == 200 else ""

    def facts(self) -> NodeFacts | None:
        """See Channel.facts; Also None if they are not valid."""
        status, data = self._asked("GET", "registered")
        try:
            return loads(NodeFacts, data) if status == 200 else None
        except CodecError:
            return None

    def seats(self, boot_token: str) -> Urls:
        """The URLs of the objects of all machines of the run. Raises SiteError if they were not written for this
        run."""
        status, data = self._asked("GET", SEATS, most_bytes=MOST_SEATS_BYTES)
        if status != 200:
            raise StoreUnavailable("the store has no seats of this run yet", hint="the machine tries again")
        try:
            return loads(Urls, sealing.unlocked(boot_token.encode(), data).encode())
        except (CodecError, SiteError) as error:
            raise SiteError(
                f"the seats of this run cannot be read: {error}", hint="Tradewind rents other machines"
            ) from error

    def put_facts(self, facts: NodeFacts) -> bool:
        """See Channel.put_facts."""
        status, _ = self._asked("PUT", "node", dumps(facts).encode())
        if status != 412:
            return True
        found = self.facts()  # from an earlier try whose answer was lost?
        return found is not None and found.boot == facts.boot

    def access(self) -> bytes | None:
        """The first sealed credentials; None if they are not there yet."""
        status, data = self._asked("GET", "access")
        return data if status == 200 else None

    def _asked(
        self, method: str, name: str, body: bytes | None = None, most_bytes: int = MOST_BYTES
    ) -> tuple[int, bytes]:
        headers = dict(self._urls.headers)
        if method == "PUT":
            headers |= {**self._urls.once, "Content-Type": "application/json"}
        request = urllib.request.Request(self._urls.of(self._of + name), body, headers, method=method)
        try:
            try:
                with _DIRECT.open(request, timeout=ANSWER_S) as answer:
                    return int(answer.status), answer.read(most_bytes)
            except urllib.error.HTTPError as error:
                with error:
                    status, body = error.code, error.read(MOST_BYTES)
        except (OSError, HTTPException) as error:  # the latter for an invalid answer
            raise StoreUnavailable(
                f"{self._urls.endpoint} does not answer: {error}", hint="the machine tries again"
            ) from error
        if status in (404, 412) or (status == 403 and method == "GET" and not _EXPIRED.search(body)):
            return status, body
        if method == "PUT" and _EXISTS.search(body):
            return 412, body
        raise self._refused(status, body)

    def _refused(self, status: int, body: bytes) -> ObjectStoreError:
        what = f"{self._urls.endpoint} refuses the first contact: {status} {body[:300].decode(errors='replace')}"
        if status in (408, 409, 429) or status >= 500:
            return StoreUnavailable(what, hint="the machine tries again")
        return StoreDenied(what, hint="user data is valid for an hour; the control plane orders another machine")
