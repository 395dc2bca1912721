"""The rules found for a bucket, and the request that reads them."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException

from trainers.objects.redirects import Stay

ANSWER_S = 10.0
MOST_ANSWER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Rules:
    """`costly` has (what the bucket does, the remedy) for each rule by which it bills deleted data; `unchecked` says
    why there may be more, "" if all are known. `region`: the region of the bucket, if the store reports a single
    one."""

    costly: tuple[tuple[str, str], ...] = ()
    unchecked: str = ""
    region: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The response of a store; without a response, `status` is 0 and `body` is the reason."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def good(self) -> bool:
        """Whether the request succeeded."""
        return self.status == 200


def ask(url: str, headers: Mapping[str, str] | None = None) -> Answer:
    """A GET request. It follows no redirects, which could send credentials elsewhere."""
    opener = urllib.request.build_opener(Stay)
    try:
        with opener.open(urllib.request.Request(url, headers=dict(headers or {})), timeout=ANSWER_S) as answer:
            return Answer(answer.status, answer.read(MOST_ANSWER_BYTES), _known(answer.headers))
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.read(MOST_ANSWER_BYTES), _known(error.headers))
    except (OSError, HTTPException) as error:
        return Answer(0, str(error).encode(), {})


def _known(headers: Message) -> Mapping[str, str]:
    return {name.lower(): value for name, value in headers.items()}
