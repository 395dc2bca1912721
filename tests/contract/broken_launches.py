"""Providers that break one contract of launches, tokens, capacity or quotas each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from providers.base import LaunchSpec, Quota
from providers.errors import (
    CapacityError,
    ConflictError,
    NotFoundError,
    QuotaError,
    ThrottledError,
)
from tests.contract.sound import Sound


class ForgetsTokens(Sound):
    """Every launch is a new one."""

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        number = self.cloud.__dict__["number"] = self.cloud.__dict__.get("number", 0) + 1
        return super().launch(replace(spec, token=f"{spec.token}.{number}" if number > 1 else spec.token))


class KeepsTokensInMemory(Sound):
    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._known: dict[str, tuple[str, ...]] = {}

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        if spec.token not in self._known:
            number = self.cloud.__dict__["number"] = self.cloud.__dict__.get("number", 0) + 1
            self._known[spec.token] = super().launch(replace(spec, token=f"{spec.token}.{number}"))
        return self._known[spec.token]


class LaunchesAgainAfterTheEnd(Sound):
    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        if any(not each.alive for each in self.cloud.instances() if each.token == spec.token):
            spec = replace(spec, token=f"{spec.token}.again")
        return super().launch(spec)


class TakesAnySpecForAToken(Sound):
    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        try:
            return super().launch(spec)
        except ConflictError:
            return tuple(each.id for each in self.cloud.found(spec.token, "alpha"))


class LaunchesOne(Sound):
    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        return super().launch(replace(spec, count=1))


class LaunchesHalfAGang(Sound):
    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        try:
            return super().launch(spec)
        except (CapacityError, QuotaError):
            super().launch(replace(spec, count=1))
            raise


class Reverses(Sound):
    """A repeated launch names machines in another order."""

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        again = self.cloud.accepted(spec.token)
        ids = super().launch(spec)
        return ids[::-1] if again else ids


class TakesUnknownOffers(Sound):
    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        try:
            return super().launch(spec)
        except NotFoundError:
            return ()


class SaysThrottled(Sound):
    """Has one error for everything."""

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        try:
            return super().launch(spec)
        except (CapacityError, QuotaError) as error:
            raise ThrottledError(str(error)) from error


class MistakesQuotaForCapacity(Sound):
    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        try:
            return super().launch(spec)
        except QuotaError as error:
            raise CapacityError(str(error)) from error


class BlamesTheAccountForCapacity(Sound):
    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        try:
            return super().launch(spec)
        except CapacityError as error:
            raise CapacityError(str(error), scope="account") from error


class RemembersRefusals(Sound):
    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        refused = self.cloud.__dict__.setdefault("refused", set())
        if spec.token in refused:
            raise CapacityError("as before")
        try:
            return super().launch(spec)
        except CapacityError:
            refused.add(spec.token)
            raise


class HasNoQuotas(Sound):
    def quotas(self) -> Sequence[Quota]:
        return []


class HasOddQuotas(Sound):
    def quotas(self) -> Sequence[Quota]:
        return [Quota("", "account", 1, 2)]


class NeedsNoNetwork(Sound):
    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        self._made().setdefault(spec.tags["tradewind-install"], 0)
        return super().launch(spec)
