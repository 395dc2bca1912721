"""Who am I at Azure, and what may I read? Must not know prices."""

from __future__ import annotations

import base64
import json

from providers.azure.session import SUBSCRIPTION, Connections, in_our_words
from providers.collect.permissions import Access, examine
from providers.errors import NoCredentialsError

ACTIONS = ("Microsoft.Compute/skus/read", "Microsoft.ResourceGraph/resources/read")
"""Both are in the role Reader. Retail prices need no account."""


def access(connections: Connections | None = None, region: str = "eastus") -> list[Access]:
    """What the credentials of this environment may read. Takes a call per line."""
    made = Connections() if connections is None else connections

    def identity() -> str:
        if not made.subscription:
            raise NoCredentialsError("no Azure subscription is named", hint=f"set {SUBSCRIPTION}")
        return f"{_who(made.credential.get_token('https://management.azure.com/.default').token)}, {made.subscription}"

    def skus() -> str:
        return f"{sum(1 for _ in made.resource_skus(region))} SKUs in {region}"

    def evictions() -> str:
        query = "SpotResources | take 1"
        return f"{sum(len(rows) for rows in made.graph(query))} row of SpotResources"

    attempts = [("identity", identity), ("resource SKUs", skus), ("eviction rates", evictions)]
    return examine(attempts, in_our_words)


def _who(token: str) -> str:
    """The name in a token's claims; it is not verified, only shown."""
    try:
        claims = token.split(".")[1]
        body = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    except (IndexError, ValueError):
        return "an account without a readable name"
    return str(body.get("upn") or body.get("appid") or body.get("oid") or "an account without a readable name")
