"""The image that machines of a region start from: its newest version is looked up once an hour and requested by its
exact number."""

from __future__ import annotations

from collections.abc import Mapping

from azure.core.exceptions import ResourceNotFoundError

from providers.azure.session import Connections
from providers.clock import Clock
from providers.errors import SetupError

NEWEST = "latest"
FRESH_S = 3600.0


class Images:
    """Methods raise azure.core's exceptions."""

    def __init__(self, connections: Connections, clock: Clock) -> None:
        self._connections, self._clock = connections, clock
        self._known: dict[tuple[str, str], tuple[float, Mapping[str, str]]] = {}

    def named(self, name: str, region: str) -> Mapping[str, str]:
        """The reference to an image, for a machine's storage profile. `name` is publisher:offer:sku:version, or an id.
        Raises SetupError."""
        if name.startswith("/"):
            return {"id": name}
        found_s, image = self._known.get((name, region), (0.0, None))
        now_s = self._clock.monotonic_s()
        if image is None or now_s - found_s > FRESH_S:
            image = self._found(name, region)
            self._known[name, region] = now_s, image
        return image

    def checked(self, name: str, region: str) -> str:
        """The version of an image that machines of a region start from. Looked up in the region even if the name
        includes a version, which launches use without a look-up. Raises SetupError."""
        if name.startswith("/"):
            return f"{name} (not looked up: an id is used as it is)"
        *_, version = name.split(":")
        versions = self._versions(name, region)
        if not versions or version not in (NEWEST, *versions):
            raise _absent(name, region)
        return versions[-1] if version == NEWEST else version

    def _found(self, name: str, region: str) -> Mapping[str, str]:
        publisher, offer, sku, version = name.split(":")
        if version == NEWEST:
            versions = self._versions(name, region)
            if not versions:
                raise _absent(name, region)
            version = versions[-1]
        return {"publisher": publisher, "offer": offer, "sku": sku, "version": version}

    def _versions(self, name: str, region: str) -> list[str]:
        """All versions that a region has, the newest one last."""
        publisher, offer, sku, _ = name.split(":")
        try:
            rows = self._connections.compute.virtual_machine_images.list(region, publisher, offer, sku)
        except ResourceNotFoundError:  # the publisher, offer or SKU does not exist
            rows = []
        return sorted((str(row.name) for row in rows), key=_number)


def _absent(name: str, region: str) -> SetupError:
    return SetupError(
        f"the image {name} does not exist in {region}",
        hint="correct providers.azure.image in tradewind.toml",
        scope="region",
    )


def _number(version: str) -> list[int]:
    return [int(part) if part.isdigit() else 0 for part in version.split(".")]
