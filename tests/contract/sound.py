"""A provider that keeps all contracts of the kit, and one that says something else about its machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from providers.base import LaunchSpec
from providers.errors import (
    SetupError,
    UnavailableError,
)
from providers.fake import FakeProvider
from providers.instance import Instance
from providers.network import Network, NetworkPart


class Sound(FakeProvider):
    """With networks, which the fake cloud does not have."""

    def _made(self) -> dict[str, int]:
        return self.cloud.__dict__.setdefault("networks", {})

    def networks(self, install: str) -> Sequence[Network]:
        parts = (NetworkPart("network", f"n-{self._made()[install]}"),) if install in self._made() else ()
        return [Network(self.name, "alpha", parts, () if parts else ("network",))]

    def set_up(self, install: str, progress: Callable[[str], None]) -> None:
        self._made().setdefault(install, len(self._made()))

    def tear_down(self, install: str, progress: Callable[[str], None]) -> None:
        if self.cloud.listed(install):
            raise UnavailableError("in use")
        self._made().pop(install, None)

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        if spec.tags["tradewind-install"] not in self._made():
            raise SetupError("no network")
        return super().launch(spec)


class Changed(Sound):
    """Says something else about machines."""

    def change(self, found: Instance) -> Instance:
        raise NotImplementedError

    def describe(self, instance_ids: Sequence[str]) -> Sequence[Instance]:
        return [self.change(each) for each in super().describe(instance_ids)]

    def find(self, token: str, region: str) -> Sequence[Instance]:
        return [self.change(each) for each in super().find(token, region)]
