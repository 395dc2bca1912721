"""What was found of a bucket's rules, and the one way to ask for them."""

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
    """`costly` has (what the bucket does, the remedy) of each rule by which it bills what was deleted; `unchecked` says
    why it is not known whether there are more, "" if it is. `region`: where the bucket is, if the store says it and
    it is one region."""

    costly: tuple[tuple[str, str], ...] = ()
    unchecked: str = ""
    region: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a store answered, or `status` 0 and the reason as `body` if nothing came."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def good(self) -> bool:
        """Whether the store did what was asked."""
        return self.status == 200


def ask(url: str, headers: Mapping[str, str] | None = None) -> Answer:
    """GET. Redirections, which might carry credentials elsewhere, are not followed."""
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
