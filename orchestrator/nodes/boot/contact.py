"""Contact: what an agent without credentials can ask of the store, by the URLs of its user data."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException

from orchestrator.formats.codec import CodecError, dumps, loads
from orchestrator.nodes.messages import MOST_BYTES, NodeFacts
from trainers.errors import ObjectStoreError, StoreDenied, StoreUnavailable

ANSWER_S = 10.0


@dataclass(frozen=True, slots=True)
class Urls:
    """Signed URLs: of each object its path, and what follows the query that they share."""

    endpoint: str
    query: str
    objects: Mapping[str, tuple[str, str]]

    def of(self, name: str) -> str:
        """The whole URL of an object."""
        path, suffix = self.objects[name]
        return f"{self.endpoint}{path}?{self.query}&{suffix}"


class Contact:
    """Raises ObjectStoreError."""

    def __init__(self, urls: Urls) -> None:
        self._urls = urls

    def put_facts(self, facts: NodeFacts) -> bool:
        """See Channel.put_facts."""
        status, _ = self._asked("PUT", "node", dumps(facts).encode())
        if status != 412:
            return True
        status, data = self._asked("GET", "registered")  # an earlier try, whose answer was lost?
        try:
            return status == 200 and loads(NodeFacts, data).boot == facts.boot
        except CodecError:
            return False

    def access(self) -> bytes | None:
        """The first sealed credentials; None if they are not there yet."""
        status, data = self._asked("GET", "access")
        return data if status == 200 else None

    def _asked(self, method: str, name: str, body: bytes | None = None) -> tuple[int, bytes]:
        headers = {"If-None-Match": "*", "Content-Type": "application/json"} if method == "PUT" else {}
        request = urllib.request.Request(self._urls.of(name), body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                return int(answer.status), answer.read(MOST_BYTES)
        except urllib.error.HTTPError as error:
            told = error.read(MOST_BYTES)
            if error.code in (404, 412) or (error.code == 403 and method == "GET" and b"expired" not in told):
                return error.code, told
            raise self._refused(error.code, told) from error
        except (OSError, HTTPException) as error:  # the latter of an answer that is none
            raise StoreUnavailable(
                f"{self._urls.endpoint} does not answer: {error}", hint="it is asked again"
            ) from error

    def _refused(self, status: int, told: bytes) -> ObjectStoreError:
        what = f"{self._urls.endpoint} refuses the first contact: {status} {told[:300].decode(errors='replace')}"
        if status in (409, 429) or status >= 500:
            return StoreUnavailable(what, hint="it is asked again")
        return StoreDenied(what, hint="user data is valid for an hour: the control plane orders another machine")
