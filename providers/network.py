"""The networks that a cloud needs before a machine can be rented there; they let nothing in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from providers.errors import ProviderError


@dataclass(frozen=True, slots=True)
class NetworkPart:
    """One resource of the cloud: `kind` in words ("subnet"), and the cloud's own `id`."""

    kind: str
    id: str


@dataclass(frozen=True, slots=True)
class Network:
    """The parts that an installation has in a region. `missing` describes what `set_up` would create or correct;
    `wanted` is False for a region that is no longer configured."""

    provider: str
    region: str
    parts: tuple[NetworkPart, ...]
    missing: tuple[str, ...] = ()
    wanted: bool = True

    @property
    def ready(self) -> bool:
        """Whether machines can be rented in it."""
        return self.wanted and not self.missing


def in_each(regions: Iterable[str], do: Callable[[str], None]) -> None:
    """Run `do` in every region, even if it fails in another. Raises the first ProviderError at the end."""
    failed: ProviderError | None = None
    for region in regions:
        try:
            do(region)
        except ProviderError as error:
            failed = failed or error
    if failed is not None:
        raise failed
