"""The settings in `[providers.azure]` of tradewind.toml."""

from __future__ import annotations

import os
from dataclasses import dataclass

from providers.azure.prices.retail import PRICES
from providers.azure.session import MANAGEMENT, SUBSCRIPTION
from providers.errors import NoCredentialsError


def subscription(configured: str | None) -> str:
    """The subscription that pays: the configured one, or the one of the environment. Raises NoCredentialsError."""
    if found := configured or os.environ.get(SUBSCRIPTION, ""):
        return found
    raise NoCredentialsError(
        "no Azure subscription is configured", hint=f"set providers.azure.subscription, or {SUBSCRIPTION}"
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """Machines of these `instance_types` may be rented in these `regions`; they are created in `resource_group`.

    `image` is `publisher:offer:sku:version` of the marketplace, where the version may be `latest`, or the id of an
    image. `disk_gb` is the size of a machine's disk in GiB, without LaunchSpec.disk_gb. `management` and `prices` are
    the addresses of Azure Resource Manager and of the retail prices.
    """

    subscription: str
    resource_group: str
    regions: tuple[str, ...]
    instance_types: tuple[str, ...]
    image: str
    disk_gb: int
    management: str = MANAGEMENT
    prices: str = PRICES

    @property
    def group(self) -> str:
        """The id of the resource group."""
        return f"/subscriptions/{self.subscription}/resourceGroups/{self.resource_group}"
