"""FakeProvider: a client of a FakeCloud, and the reference implementation of the Provider contract.

Its calls can fail like a real cloud's (see `faults`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from providers.base import Covered, Landed, LaunchSpec, Quota
from providers.billing.charges import Usage
from providers.clock import Clock
from providers.errors import (
    CapacityError,
    NotTogetherError,
    ProviderError,
    SetupError,
    ThrottledError,
    UnavailableError,
)
from providers.fake.cloud import NAME, FakeCloud
from providers.fake.faults import Fault, Faults
from providers.instance import Instance
from providers.offer import Offer, OfferId
from providers.price import PricePoint

SOURCE = "fake cloud (simulated)"
_T = TypeVar("_T")


class FakeProvider:
    """Connects to `cloud`, or to a new one with that `seed`. `faults` decides which calls fail."""

    name = NAME
    simulated = True

    @property
    def listing_lag_s(self) -> float:
        """The cloud's delays of late calls and of listings together, in market seconds."""
        return self.cloud.behaviour.late_s + self.cloud.behaviour.listing_lag_s

    @property
    def describe_every_s(self) -> float:
        """Set by the cloud's behaviour, in wall seconds."""
        return self.cloud.behaviour.describe_every_s

    @property
    def quotas_limit_plans(self) -> bool:
        """See LimitsByQuota: true if the cloud's behaviour sets a quota."""
        return self.cloud.behaviour.max_instances is not None

    def __init__(
        self, clock: Clock, *, seed: int = 0, cloud: FakeCloud | None = None, faults: Faults | None = None
    ) -> None:
        self.cloud = FakeCloud(clock, seed=seed) if cloud is None else cloud
        self.faults = Faults(seed) if faults is None else faults
        self._clock = clock
        self._one_by_one = False  # since a launch that named several offers was refused

    def offers(self) -> Sequence[Offer]:
        """The offers currently on sale."""
        return self._call("offers", lambda _: self.cloud.offers())

    def prices(self) -> Sequence[PricePoint]:
        """The current price of every offer on sale."""

        def effect(now_ms: int) -> list[PricePoint]:
            return [self._points(offer.id, now_ms, now_ms)[-1] for offer in self.cloud.offers()]

        return self._call("prices", effect)

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        """See Provider.launch; raises the faults that are due."""
        return self.launch_any(spec).instance_ids

    @property
    def mixes_types(self) -> bool:
        """See LaunchesAnywhere: set by the cloud's behaviour."""
        return self.cloud.behaviour.mixes_types

    def most_offers(self, _count: int) -> int:
        """See LaunchesAnywhere: set by the cloud's behaviour."""
        return 1 if self._one_by_one else self.cloud.behaviour.most_offers

    def launch_any(self, spec: LaunchSpec) -> Landed:
        """See LaunchesAnywhere; raises the faults that are due. The offers are tried in order."""
        if spec.also and not self.mixes_types:
            kinds = {OfferId.parse(each).instance_type for each in (spec.offer_id, *spec.also)}
            if len(kinds) > 1:
                raise SetupError(f"the offers of one launch differ in their type: {' '.join(sorted(kinds))}")
        accepted = self.cloud.accepted(spec.token)
        if spec.also and self.cloud.behaviour.not_together and not accepted:
            self._one_by_one = True
            raise NotTogetherError("this cloud accepts one offer per launch")
        return self._call("launch", lambda at_ms: self.cloud.launch(spec, at_ms), accepted=accepted)

    def describe(self, instance_ids: Sequence[str]) -> Sequence[Instance]:
        """See Provider.describe; may omit every other instance (Fault.PARTIAL)."""

        def effect(_: int) -> list[Instance]:
            found = (self.cloud.instance(instance_id) for instance_id in instance_ids)
            return [instance for instance in found if instance is not None]

        return self._listing("describe", effect)

    def find(self, token: str, region: str) -> Sequence[Instance]:
        """See Provider.find; may omit every other instance (Fault.PARTIAL)."""
        return self._listing("find", lambda _: self.cloud.found(token, region))

    def renew(self, instance_ids: Sequence[str], time_to_live_s: int) -> None:
        """See Provider.renew."""
        self._call("renew", lambda at_ms: self.cloud.renew(instance_ids, time_to_live_s, at_ms))

    def terminate(self, instance_id: str) -> None:
        """See Provider.terminate."""
        self._call("terminate", lambda at_ms: self.cloud.terminate(instance_id, at_ms))

    def list_owned(self, install: str) -> Sequence[Instance]:
        """See Provider.list_owned; may omit every other instance (Fault.PARTIAL)."""
        return self._listing("list_owned", lambda _: self.cloud.listed(install))

    def quotas(self) -> Sequence[Quota]:
        """The quota of instances, if the cloud's behaviour sets one."""

        def effect(now_ms: int) -> list[Quota]:
            behaviour, used = self.cloud.behaviour, self.cloud.quota_used(now_ms)
            limit = behaviour.max_instances
            covers = Covered("vcpus" if behaviour.vcpus_count else "machines")
            return [] if limit is None else [Quota("instances", "account", limit, used, covers, owned=behaviour.owned)]

        return self._call("quotas", effect)

    def classify(self, error: BaseException) -> ProviderError:
        """ProviderErrors unchanged, anything else as UnavailableError."""
        return error if isinstance(error, ProviderError) else UnavailableError(f"the fake cloud failed: {error!r}")

    def price_history(self, since_ms: int) -> Sequence[PricePoint]:
        """See ProvidesPriceHistory.price_history."""

        def effect(now_ms: int) -> list[PricePoint]:
            found = [point for offer in self.cloud.offers() for point in self._points(offer.id, since_ms, now_ms)]
            return sorted(found, key=lambda point: point.effective_at_ms)

        return self._call("price_history", effect)

    def claim(self, install: str) -> str | None:
        """See KeepsClaims.claim."""
        return self._call("claim", lambda _: self.cloud.claims.get(install))

    def replace_claim(self, install: str, present: str | None, word: str) -> bool:
        """See KeepsClaims.replace_claim."""
        return self._call("replace_claim", lambda _: self.cloud.replace_claim(install, present, word))

    def bill_nano_usd(self, instance_id: str) -> int:
        """The exact amount of the cloud's bill. Raises NotFoundError."""
        return self._call("bill_nano_usd", lambda _: self.cloud.bill(instance_id).amount_nano_usd)

    def meter(self, instance_id: str, usage: Usage) -> None:
        """See MetersUsage.meter. Raises NotFoundError."""
        self._call("meter", lambda _: self.cloud.meter(instance_id, usage))

    def _points(self, offer_id: str, since_ms: int, now_ms: int) -> list[PricePoint]:
        path = self.cloud.price_path(offer_id, now_ms, since_ms)
        return [PricePoint(offer_id, price, at_ms, now_ms, SOURCE) for at_ms, price in path]

    def _listing(self, call: str, effect: Callable[[int], Sequence[Instance]]) -> list[Instance]:
        fault = self.faults.next(call)
        found = self._carry_out(call, effect, None if fault is Fault.PARTIAL else fault)
        return list(found)[1::2] if fault is Fault.PARTIAL else list(found)

    def _call(self, call: str, effect: Callable[[int], _T], *, accepted: bool = False) -> _T:
        """Make a call with the fault that is due; a launch `accepted` before is not refused for capacity."""
        fault = self.faults.next(call)
        return self._carry_out(call, effect, None if accepted and fault is Fault.CAPACITY else fault)

    def _carry_out(self, call: str, effect: Callable[[int], _T], fault: Fault | None) -> _T:
        """Run `effect(at_ms)` or not, as `fault` requires."""
        now_ms = self._clock.now_ms()
        if fault is None:
            return effect(now_ms)
        if fault is Fault.CAPACITY:
            raise CapacityError(f"no capacity ({call})", hint="try another zone")
        if fault is Fault.THROTTLED:
            raise ThrottledError(f"too many calls ({call})", hint="try again later", retry_after_s=1.0)
        with contextlib.suppress(ProviderError):  # a refusal would be in the lost reply, too
            if fault is Fault.LOST_REPLY:
                effect(now_ms)
            elif fault is Fault.LATE:
                effect(now_ms + int(self.cloud.behaviour.late_s * 1000))
        raise UnavailableError(f"no answer ({call})", hint="try again with the same token")
