"""Checks what an Azure account may do. Every call is a read."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import partial

from azure.core.exceptions import HttpResponseError

from providers.azure.calls import CALLS
from providers.azure.codes import NO_GROUP
from providers.azure.hardware import sizes
from providers.azure.images import Images
from providers.azure.machines import Machines
from providers.azure.prices.retail import PRICES, VERSION
from providers.azure.session import SUBSCRIPTION, Connections, error_code, to_provider_error
from providers.azure.settings import Settings
from providers.clock import SystemClock
from providers.collect.http import Http, Patience
from providers.collect.pages import Pages
from providers.collect.permissions import Access, Attempt, examine
from providers.errors import FormatError, NoCredentialsError, PermissionDeniedError
from providers.machine.drivers import DRIVER, cuda_of_torch, fitness
from providers.policy import Use, permissions

VERSION_OF_PERMISSIONS = "2022-04-01"


def access(
    connections: Connections | None = None,
    region: str = "eastus",
    prices: str = PRICES,
    settings: Settings | None = None,
) -> list[Access]:
    """What may be read: prices without an account, the rest with the credentials of this environment. With `settings`,
    also what renting with them needs to read, and whether the account has all permissions for it. Makes one or two
    calls per entry.
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
        optional = {"eviction rates", DRIVER}
        account += _machines(made, settings)
    return [
        *examine([("retail prices, without an account", retail)], to_provider_error),
        *examine(account, to_provider_error, optional=optional),
    ]


def _machines(made: Connections, settings: Settings) -> Iterator[Attempt]:
    clock = SystemClock()
    images, machines = Images(made, clock), Machines(settings, made, clock)

    for region in settings.regions:
        yield f"image in {region}", partial(images.checked, settings.image, region)

    def driver() -> str:
        gpus = [size.gpu for each in settings.instance_types if (size := sizes().get(each.lower())) is not None]
        return fitness(settings.image, gpus, "providers.azure.image", cuda_of_torch())

    yield DRIVER, driver

    def listed() -> str:
        machines.owned("")  # of no installation, so nothing is changed
        return f"in the resource group {settings.resource_group}"

    yield "permissions", partial(_granted, made, settings)
    yield "list of machines", listed


def _granted(made: Connections, settings: Settings) -> str:
    """Whether the account has the permissions of the role that `doctor --policy` prints, in the resource group.

    Source: learn.microsoft.com/rest/api/authorization/permissions/list-for-resource-group.
    """
    wanted = permissions(CALLS, Use.PRICES, Use.MACHINES, Use.NETWORKS)
    rows: list[dict[str, list[str]]] = []
    next_page, links = f"{settings.group}/providers/Microsoft.Authorization/permissions", Pages("ARM's permissions")
    try:
        while next_page:
            body = made.send("GET", next_page, VERSION_OF_PERMISSIONS).json()
            rows += body["value"]
            next_page = links.follow(body["nextLink"]) if body.get("nextLink") else ""
    except HttpResponseError as error:
        if error_code(error) != NO_GROUP:
            raise
        return f"not checked: `tradewind up --cloud azure` creates the resource group {settings.resource_group}"
    if missing := [each for each in wanted if not any(_allows(row, each) for row in rows)]:
        raise PermissionDeniedError(
            f"{len(missing)} of {len(wanted)} permissions are missing: {', '.join(missing)}",
            action=missing[0],
            hint="tradewind doctor --policy azure > role.json (insert your subscription); az role definition create "
            "--role-definition @role.json; az role assignment create --role Tradewind --assignee WHO --scope "
            f"/subscriptions/{made.subscription}",
        )
    return f"all {len(wanted)} of the role that `tradewind doctor --policy azure` prints"


def _allows(row: Mapping[str, list[str]], action: str) -> bool:
    """Whether one role of the account grants an action: `*` stands for any characters, and case does not matter."""

    def named(field: str) -> bool:
        return any(fnmatchcase(action.lower(), pattern.lower()) for pattern in row.get(field, []))

    return named("actions") and not named("notActions")


def _who(token: str) -> str:
    """The account name in a token's claims; only shown, not verified."""
    try:
        claims = token.split(".")[1]
        body = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    except (IndexError, ValueError):
        return "an account without a readable name"
    return str(body.get("upn") or body.get("appid") or body.get("oid") or "an account without a readable name")
