"""Providers that break one contract of descriptions, ends, bills, prices or networks each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from providers.base import LaunchSpec
from providers.billing.charges import Usage
from providers.errors import (
    NotFoundError,
    ProviderError,
)
from providers.instance import EndReason, Instance, InstanceState
from providers.offer import Offer
from providers.price import PricePoint
from tests.contract.sound import Changed, Sound


class ShowsNothing(Sound):
    def find(self, token: str, region: str) -> Sequence[Instance]:
        return []


class FindsOnlyTheLiving(Sound):
    def find(self, token: str, region: str) -> Sequence[Instance]:
        return [each for each in super().find(token, region) if each.alive]


class IsSlow(Sound):
    listing_lag_s = property(lambda _: -1.0)  # type: ignore[assignment]


class SaysEndedBeforeShown(Sound):
    def describe(self, instance_ids: Sequence[str]) -> Sequence[Instance]:
        found = list(super().describe(instance_ids))
        pending = [each for each in found if each.state is InstanceState.PENDING]
        ended = [replace(each, state=InstanceState.TERMINATED) for each in pending]
        return [*ended, *(each for each in found if each not in pending)]


class NeverRuns(Changed):
    def change(self, found: Instance) -> Instance:
        return replace(found, state=InstanceState.PENDING) if found.state is InstanceState.RUNNING else found


class BillsForEver(Changed):
    """The bill goes on with every look."""

    def change(self, found: Instance) -> Instance:
        ends = found.billed_to_ms is not None
        return replace(found, billed_to_ms=self._clock.now_ms() + 3_600_000) if ends else found


class SaysFailed(Changed):
    """Every end is a failure."""

    def change(self, found: Instance) -> Instance:
        return found if found.alive else replace(found, end_reason=EndReason.FAILED)


class NotesNothing(Changed):
    """A notice has no deadline."""

    def change(self, found: Instance) -> Instance:
        return replace(found, notice_deadline_ms=None)


class ListsOthers(Sound):
    def list_owned(self, install: str) -> Sequence[Instance]:
        return [each for each in self.cloud.instances() if each.alive]


class ListsTheEnded(Sound):
    def list_owned(self, install: str) -> Sequence[Instance]:
        return [each for each in self.cloud.instances() if each.tags.get("tradewind-install") == install]


class LosesTags(Sound):
    def list_owned(self, install: str) -> Sequence[Instance]:
        return [replace(each, tags={}) for each in super().list_owned(install)]


class KeepsWhatIsNotRenewed(Sound):
    """Machines have no time to live."""

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        return super().launch(replace(spec, time_to_live_s=None))


class RenewsNothing(Sound):
    def renew(self, instance_ids: Sequence[str], time_to_live_s: int) -> None:
        return None


class RenewsAll(Sound):
    def renew(self, instance_ids: Sequence[str], time_to_live_s: int) -> None:
        super().renew([each.id for each in self.cloud.instances()], time_to_live_s)


class RenewsTheEnded(Changed):
    def change(self, found: Instance) -> Instance:
        renewed = found.id in self.cloud.__dict__.get("renewed", ())
        return replace(found, state=InstanceState.RUNNING) if renewed else found

    def renew(self, instance_ids: Sequence[str], time_to_live_s: int) -> None:
        self.cloud.__dict__.setdefault("renewed", set()).update(instance_ids)
        super().renew(instance_ids, time_to_live_s)


class NeverEnds(Sound):
    def terminate(self, instance_id: str) -> None:
        return None


class EndsAll(Sound):
    def terminate(self, instance_id: str) -> None:
        for each in self.cloud.instances():
            super().terminate(each.id)


class EndsOnlyOnce(Sound):
    """The second time, and for what it does not know, it complains."""

    def terminate(self, instance_id: str) -> None:
        found = self.cloud.instance(instance_id)
        asked = self.cloud.__dict__.setdefault("asked", set())
        if found is None or instance_id in asked:
            raise NotFoundError(instance_id)
        asked.add(instance_id)
        super().terminate(instance_id)


class EndsOnlyItsOwn(Sound):
    """What another client launched is unknown to it."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._own: set[str] = set()

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        ids = super().launch(spec)
        self._own |= {*ids}
        return ids

    def terminate(self, instance_id: str) -> None:
        if instance_id in self._own:
            super().terminate(instance_id)


class ForgetsTheEnded(Sound):
    """After ten minutes."""

    def describe(self, instance_ids: Sequence[str]) -> Sequence[Instance]:
        seen_ms, now_ms = self.cloud.__dict__.setdefault("ended", {}), self._clock.now_ms()
        found = list(super().describe(instance_ids))
        for each in found:
            if not each.alive:
                seen_ms.setdefault(each.id, now_ms)
        return [each for each in found if seen_ms.get(each.id, now_ms) > now_ms - 600_000]


class RaisesForTheUnknown(Sound):
    def describe(self, instance_ids: Sequence[str]) -> Sequence[Instance]:
        if any(self.cloud.instance(each) is None for each in instance_ids):
            raise NotFoundError("no such machine")
        return super().describe(instance_ids)


class HidesAllForOneUnknown(Sound):
    def describe(self, instance_ids: Sequence[str]) -> Sequence[Instance]:
        found = super().describe(instance_ids)
        return found if len(found) == len(instance_ids) else []


class OffersTwice(Sound):
    def offers(self) -> Sequence[Offer]:
        return [*super().offers(), *super().offers()]


class HasNoPrice(Sound):
    def prices(self) -> Sequence[PricePoint]:
        return list(super().prices())[1:]


class HasNoPast(Sound):
    def price_history(self, since_ms: int) -> Sequence[PricePoint]:
        return [each for each in super().price_history(since_ms) if each.effective_at_ms > since_ms]


class RoundsItsBill(Sound):
    def bill_nano_usd(self, instance_id: str) -> int:
        return round(super().bill_nano_usd(instance_id), -9)


class BillsTheUnknown(Sound):
    def bill_nano_usd(self, instance_id: str) -> int:
        return super().bill_nano_usd(instance_id) if self.cloud.instance(instance_id) else 0


class MetersNothing(Sound):
    def meter(self, instance_id: str, usage: Usage) -> None:
        return None


class ReplacesAnyClaim(Sound):
    def replace_claim(self, install: str, present: str | None, word: str) -> bool:
        return super().replace_claim(install, super().claim(install), word)


class ClassifiesNothing(Sound):
    def classify(self, error: BaseException) -> ProviderError:
        return error  # type: ignore[return-value]


class LeavesNetworks(Sound):
    def tear_down(self, install: str, progress: Callable[[str], None]) -> None:
        return None


class CutsNetworks(Sound):
    def tear_down(self, install: str, progress: Callable[[str], None]) -> None:
        self._made().pop(install, None)
