"""What `[providers.azure]` of tradewind.toml says."""

from __future__ import annotations

from dataclasses import dataclass

from providers.azure.prices.retail import PRICES
from providers.azure.session import MANAGEMENT


@dataclass(frozen=True, slots=True)
class Settings:
    """Machines of these `instance_types` may be rented in these `regions`; they are in `resource_group`.

    `image` is `publisher:offer:sku:version` of the marketplace, where the version may be `latest`, or the id of an
    image. `disk_gb` is the size of a machine's disk in GiB. `management` and `prices` are the addresses of Azure
    Resource Manager and of the retail prices.
    """

    subscription: str
    resource_group: str
    regions: tuple[str, ...]
    instance_types: tuple[str, ...]
    image: str
    disk_gb: int
    management: str = MANAGEMENT
    prices: str = PRICES

    def network(self, region: str) -> str:
        """The id of the virtual network of a region."""
        return f"{self.group}/providers/Microsoft.Network/virtualNetworks/tradewind-{region}"

    def firewall(self, region: str) -> str:
        """The id of the network security group of a region."""
        return f"{self.group}/providers/Microsoft.Network/networkSecurityGroups/tradewind-{region}"

    def subnet(self, region: str) -> str:
        """The id of the subnet that machines of a region are in."""
        return f"{self.network(region)}/subnets/machines"

    @property
    def group(self) -> str:
        """The id of the resource group."""
        return f"/subscriptions/{self.subscription}/resourceGroups/{self.resource_group}"
