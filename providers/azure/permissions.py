"""Checks what an Azure account may do. Every call is a read."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from functools import partial

from providers.azure.images import Images
from providers.azure.machines import Machines
from providers.azure.prices.retail import PRICES, VERSION
from providers.azure.session import SUBSCRIPTION, Connections, to_provider_error
from providers.azure.settings import Settings
from providers.clock import SystemClock
from providers.collect.http import Http, Patience
from providers.collect.permissions import Access, Attempt, examine
from providers.errors import FormatError, NoCredentialsError


def access(
    connections: Connections | None = None,
    region: str = "eastus",
    prices: str = PRICES,
    settings: Settings | None = None,
) -> list[Access]:
    """What may be read: prices without an account, the rest with the credentials of this environment; with `settings`,
    also what renting as they say needs to read. Makes one or two calls per entry. Whether something may be created is
    not known before it is.
    """
    if settings is not None:
        region, prices = settings.regions[0], settings.prices
        connections = connections or Connections(settings.subscription, settings.management)
    made = Connections() if connections is None else connections

    def retail() -> str:
        asked = {
            "api-version": VERSION,
            "$filter": f"serviceName eq 'Virtual Machines' and armRegionName eq '{region}'",
        }
        body = Http(Patience(attempts=1)).get_json(prices, asked)
        items = body.get("Items") if isinstance(body, dict) else None
        if not isinstance(items, list):
            raise FormatError("the retail prices' answer has no list 'Items'")
        return f"{len(items)} prices of {region} on the first page"

    def identity() -> str:
        if not made.subscription:
            raise NoCredentialsError("no Azure subscription is configured", hint=f"set {SUBSCRIPTION}")
        return f"{_who(made.credential.get_token('https://management.azure.com/.default').token)}, {made.subscription}"

    def skus() -> str:
        return f"{sum(1 for _ in made.resource_skus(region))} SKUs in {region}"

    def evictions() -> str:
        query = "SpotResources | take 1"
        return f"{sum(len(rows) for rows in made.graph(query))} row of SpotResources"

    account: list[Attempt] = [("identity", identity), ("resource SKUs", skus), ("eviction rates", evictions)]
    optional = {what for what, _ in account}
    if settings is not None:
        optional = {"eviction rates"}
        account += _machines(made, settings)
    return [
        *examine([("retail prices, without an account", retail)], to_provider_error),
        *examine(account, to_provider_error, optional=optional),
    ]


def _machines(made: Connections, settings: Settings) -> Iterator[Attempt]:
    clock = SystemClock()
    images, machines = Images(made, clock), Machines(settings, made, clock)

    def image(region: str) -> str:
        found = images.named(settings.image, region)
        return found.get("id") or found["version"]

    for region in settings.regions:
        yield f"image in {region}", partial(image, region)

    def listed() -> str:
        machines.owned("")  # of no installation: it changes nothing
        return f"of the resource group {settings.resource_group}"

    yield "list of machines", listed


def _who(token: str) -> str:
    """The account name in a token's claims; only shown, not verified."""
    try:
        claims = token.split(".")[1]
        body = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    except (IndexError, ValueError):
        return "an account without a readable name"
    return str(body.get("upn") or body.get("appid") or body.get("oid") or "an account without a readable name")
