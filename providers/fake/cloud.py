"""FakeCloud: the server side of a FakeProvider, with its own books.

It outlives its clients: after a control plane dies, a new FakeProvider connects to the same cloud and sees its actual
state. It is deterministic in (seed, clock, calls); the state of an instance is computed from its record and the clock
on request, so nothing needs to be advanced.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from providers.base import Landed, LaunchSpec
from providers.billing.charges import ChargeKind, Usage, charges, rate_card
from providers.clock import Clock
from providers.errors import CapacityError, ConflictError, NotFoundError, QuotaError
from providers.hardware import GIB
from providers.instance import EndReason, Instance, InstanceState
from providers.money import cost_nano_usd, usd
from providers.offer import CapacityType, Offer

NAME = "fake"
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How this cloud behaves. Durations are in market seconds, rates per market hour.

    `drift_s`: interval at which spot prices change (None: only by script). `max_instances`: the account's quota.
    `forget_s`: how long an ended instance can be described (None: forever). `describe_every_s` is in wall seconds, as
    in the contract. `most_offers`: how many offers one launch may name; `mixes_types`: also of different types;
    `not_together`: a launch that names several is refused. `owned`: `max_instances` is the number of existing machines,
    not an account's limit; `vcpus_count`: it is a limit of vCPUs.
    """

    boot_s: float = 30.0
    listing_lag_s: float = 10.0
    stop_s: float = 5.0
    late_s: float = 20.0
    drift_s: float | None = None
    preemptions_per_hour: float = 0.0
    notice_s: float | None = 120.0
    max_instances: int | None = None
    forget_s: float | None = None
    describe_every_s: float = 0.0
    most_offers: int = 1
    mixes_types: bool = False
    not_together: bool = False
    owned: bool = False
    vcpus_count: bool = False


@dataclass(frozen=True, slots=True)
class Bill:
    """The bill of one instance: its billed interval and its exact cost up to now, for its time and for each other
    charge.
    """

    instance_id: str
    offer_id: str
    token: str
    tags: Mapping[str, str]
    from_ms: int | None
    to_ms: int | None
    machine_nano_usd: int
    charges: Mapping[ChargeKind, int]
    end_reason: EndReason | None

    @property
    def amount_nano_usd(self) -> int:
        """The total."""
        return self.machine_nano_usd + sum(self.charges.values())


@dataclass(slots=True)
class _Life:
    """The decisions about one instance; None: not yet decided. It ends at `end_ms` or `expires_ms`, whichever is
    earlier."""

    id: str
    spec: LaunchSpec
    accepted_ms: int
    ready_ms: int
    end_ms: int | None = None
    end_reason: EndReason | None = None
    notice_ms: int | None = None
    asked_ms: int | None = None  # terminate was carried out
    expires_ms: int | None = None
    usage: Usage | None = None  # as reported to it

    @property
    def last_ms(self) -> int | None:
        """When it ends, for any reason."""
        return min((at for at in (self.end_ms, self.expires_ms) if at is not None), default=None)

    @property
    def reason(self) -> EndReason | None:
        return self.end_reason if self.last_ms == self.end_ms else EndReason.EXPIRED

    def ended(self, now_ms: int) -> bool:
        return self.last_ms is not None and now_ms >= self.last_ms

    def end_by(self, end_ms: int, reason: EndReason, notice_ms: int | None = None) -> None:
        """End at `end_ms` unless it ends earlier."""
        if self.end_ms is None or end_ms < self.end_ms:
            self.end_ms, self.end_reason, self.notice_ms = end_ms, reason, notice_ms


@dataclass(slots=True)
class _Listing:
    """An offer on sale and its price, as (effective_at_ms, nano-USD per hour): set by script, or drifting."""

    offer: Offer
    base_nano_usd_per_hour: int
    scripted: list[tuple[int, int]] = field(default_factory=list)
    drifted: list[tuple[int, int]] = field(default_factory=list)
    capacity: int | None = None
    withdrawn: bool = False


def default_catalog() -> tuple[tuple[Offer, int], ...]:
    """Three GPU types in two regions of two zones, on demand and as spot at a third of the price: (offer,
    nano-USD/hour).
    """
    catalog = []
    for region in ("alpha", "beta"):
        for zone in ("1", "2"):
            for gpu, price in (("V100", "3.06"), ("A100-80GB", "5.12"), ("H100", "12.29")):
                for kind in CapacityType:
                    offer = Offer(
                        NAME, region, f"{region}-{zone}", f"{gpu.lower()}.1", gpu, 1, 8, 64 * GIB, kind, simulated=True
                    )
                    catalog.append((offer, usd(price) // 3 if offer.spot else usd(price)))
    return tuple(catalog)


class FakeCloud:
    """A cloud in memory. `catalog` lists its offers with their initial price (nano-USD per hour)."""

    def __init__(
        self,
        clock: Clock,
        *,
        seed: int = 0,
        catalog: Sequence[tuple[Offer, int]] | None = None,
        behaviour: Behaviour | None = None,
    ) -> None:
        self.clock = clock
        self.behaviour = behaviour or Behaviour()
        self._seed = seed
        self._opened_ms = clock.now_ms()
        self._listings = {
            offer.id: _Listing(offer, price) for offer, price in (default_catalog() if catalog is None else catalog)
        }
        self._lives: dict[str, _Life] = {}
        self._remembered: dict[str, None] = {}  # ids in order of launch, without forgotten ones
        self.claims: dict[str, str] = {}
        self._launches: dict[str, tuple[LaunchSpec, Landed]] = {}

    # --- scripted events ---

    def set_price(self, offer_id: str, nano_usd_per_hour: int, at_ms: int | None = None) -> None:
        """Change a price (nano-USD per hour) now or later; an offer with a scripted price no longer drifts.

        Raises ValueError for a time in the past or before an earlier scripted change.
        """
        scripted = self._listing(offer_id).scripted
        at_ms = self.clock.now_ms() if at_ms is None else at_ms
        if at_ms < self.clock.now_ms() or (scripted and at_ms < scripted[-1][0]):
            raise ValueError("past prices cannot be changed")
        scripted.append((at_ms, nano_usd_per_hour))

    def set_capacity(self, offer_id: str, machines: int | None) -> None:
        """From now on this pool has `machines` in total; None: unlimited."""
        self._listing(offer_id).capacity = machines

    def withdraw(self, offer_id: str) -> None:
        """Stop selling this offer; running instances continue at its price."""
        self._listing(offer_id).withdrawn = True

    def preempt(self, instance_id: str, notice_s: float | None = None, at_ms: int | None = None) -> None:
        """Preempt a machine at `at_ms` (default: now). With `notice_s`, its notice comes then and it ends `notice_s`
        later.
        """
        life = self._life(instance_id)
        at_ms = self.clock.now_ms() if at_ms is None else at_ms
        if notice_s is None:
            life.end_by(at_ms, EndReason.PREEMPTED)
        else:
            life.end_by(at_ms + int(notice_s * 1000), EndReason.PREEMPTED, at_ms)

    def crash(self, instance_id: str) -> None:
        """Let a machine fail now."""
        self._life(instance_id).end_by(self.clock.now_ms(), EndReason.FAILED)

    # --- the books ---

    def bills(self) -> tuple[Bill, ...]:
        """Every instance that ever existed, in order of launch."""
        now_ms = self.clock.now_ms()
        return tuple(self._bill(life, now_ms) for life in self._lives.values() if life.accepted_ms <= now_ms)

    def bill(self, instance_id: str) -> Bill:
        """The bill of one instance. Raises NotFoundError."""
        return self._bill(self._life(instance_id), self.clock.now_ms())

    # --- requests of clients (faults are added only by the clients) ---

    def offers(self) -> tuple[Offer, ...]:
        """The offers currently on sale."""
        return tuple(listing.offer for listing in self._listings.values() if not listing.withdrawn)

    def price_path(self, offer_id: str, until_ms: int, from_ms: int = 0) -> list[tuple[int, int]]:
        """Price changes from `from_ms` to `until_ms` as (effective_at_ms, nano-USD per hour), ascending, without
        repetitions.

        It starts with the price in force at `from_ms`, or the first one ever.
        """
        listing = self._listing(offer_id)
        path = self._drift(listing, until_ms)
        if listing.scripted:
            first_ms = listing.scripted[0][0]
            path = path[: bisect_left(path, (first_ms, 0))] + listing.scripted
        begin = max(0, bisect_right(path, (from_ms, math.inf)) - 1)
        found: list[tuple[int, int]] = []
        for at_ms, price in path[begin : bisect_right(path, (until_ms, math.inf))]:
            if found and found[-1][0] == at_ms:
                found.pop()
            if not found or found[-1][1] != price:
                found.append((at_ms, price))
        return found

    def launch(self, spec: LaunchSpec, at_ms: int) -> Landed:
        """Accept a request at `at_ms` (later than now: it arrives late), for the first of its offers that has capacity.
        Raises like Provider.launch."""
        spec = replace(spec, tags=dict(spec.tags))
        known = self._launches.get(spec.token)
        if known is not None:
            if known[0] != spec:
                raise ConflictError(
                    f"the token {spec.token} was used for another request", hint="use a new token for a new request"
                )
            for instance_id in known[1].instance_ids:
                self._arrive(self._lives[instance_id], at_ms)
            return known[1]
        placed = self._placed(spec, at_ms)
        landed = Landed(placed.offer_id, tuple(self._id(spec.token, ordinal) for ordinal in range(spec.count)))
        for instance_id in landed.instance_ids:
            self._lives[instance_id] = self._begin(instance_id, placed, self._listings[placed.offer_id], at_ms)
            self._remembered[instance_id] = None
        self._launches[spec.token] = (spec, landed)
        return landed

    def accepted(self, token: str) -> bool:
        """True if a request with that token was accepted, even if it has not arrived yet."""
        return token in self._launches

    def terminate(self, instance_id: str, at_ms: int) -> None:
        """End an instance at `at_ms`; billing stops then, and the instance is gone `stop_s` later."""
        life = self._lives.get(instance_id)
        if life is None or life.ended(at_ms):
            return
        if life.asked_ms is None or at_ms < life.asked_ms:
            life.asked_ms = at_ms
            end_ms = at_ms + int(self.behaviour.stop_s * 1000)
            life.end_by(end_ms, EndReason.USER, life.notice_ms)

    def instances(self) -> tuple[Instance, ...]:
        """All instances that were accepted and are not forgotten, in their current state."""
        found = []
        for instance_id in tuple(self._remembered):
            instance = self.instance(instance_id)
            if instance is not None:
                found.append(instance)
            elif self._forgotten(self._lives[instance_id]):
                self._remembered.pop(instance_id, None)
        return tuple(found)

    def instance(self, instance_id: str) -> Instance | None:
        """One instance in its current state; None if it never existed, has not arrived yet, or is forgotten."""
        now_ms = self.clock.now_ms()
        life = self._lives.get(instance_id)
        if life is None or life.accepted_ms > now_ms or self._forgotten(life):
            return None
        from_ms, to_ms = self._billed(life, now_ms)
        ended = life.ended(now_ms)
        noticed = life.notice_ms is not None and life.notice_ms <= now_ms
        return Instance(
            life.id,
            NAME,
            life.spec.offer_id,
            life.spec.token,
            _state(life, now_ms),
            from_ms,
            to_ms,
            life.reason if ended else None,
            life.end_ms if noticed else None,
            dict(life.spec.tags),
        )

    def listed(self, install: str) -> tuple[Instance, ...]:
        """Live instances with that install tag, except those too recent to be listed."""
        return tuple(
            found
            for found in self.instances()
            if found.alive and found.tags.get("tradewind-install") == install and self._shows(found)
        )

    def found(self, token: str, region: str) -> tuple[Instance, ...]:
        """Instances of that token and region, including ended ones, except those too recent to be listed."""
        _, landed = self._launches.get(token, (None, Landed("", ())))
        known = (self.instance(instance_id) for instance_id in landed.instance_ids)
        return tuple(
            found
            for found in known
            if found is not None and self._shows(found) and self._listing(found.offer_id).offer.region == region
        )

    def renew(self, instance_ids: Sequence[str], time_to_live_s: int, at_ms: int) -> None:
        """Extend the time to live of those that are alive at `at_ms`."""
        for instance_id in instance_ids:
            life = self._lives.get(instance_id)
            if life is not None and not life.ended(at_ms):
                life.expires_ms = at_ms + time_to_live_s * 1000

    def meter(self, instance_id: str, usage: Usage) -> None:
        """Bill this checkpoint usage at the instance's location. Raises NotFoundError."""
        life = self._life(instance_id)
        offer = self._listing(life.spec.offer_id).offer
        life.usage = replace(usage, at=(NAME, offer.region, offer.zone))

    def replace_claim(self, install: str, present: str | None, word: str) -> bool:
        """Replace the claim if it equals `present`; returns whether it did."""
        if self.claims.get(install) != present:
            return False
        self.claims[install] = word
        return True

    def user_data(self, instance_id: str) -> str:
        """The bootstrap script of an instance. Raises NotFoundError."""
        return self._life(instance_id).spec.user_data

    def quota_used(self, at_ms: int) -> int:
        """How much of the quota is used at `at_ms`."""
        return sum(self._units(life.spec.offer_id) for life in self._lives.values() if not life.ended(at_ms))

    def _units(self, offer_id: str) -> int:
        return self._listings[offer_id].offer.vcpu if self.behaviour.vcpus_count else 1

    # --- below: details ---

    def _forgotten(self, life: _Life) -> bool:
        forget_s, last_ms = self.behaviour.forget_s, life.last_ms
        return forget_s is not None and last_ms is not None and self.clock.now_ms() > last_ms + forget_s * 1000

    def _shows(self, found: Instance) -> bool:
        lag_ms = int(self.behaviour.listing_lag_s * 1000)
        return self.clock.now_ms() >= self._lives[found.id].accepted_ms + lag_ms

    def _placed(self, spec: LaunchSpec, at_ms: int) -> LaunchSpec:
        """The request for the first of its offers that has capacity."""
        full: CapacityError | None = None
        for offer_id in (spec.offer_id, *spec.also):
            listing = self._listings.get(offer_id)
            if listing is None or listing.withdrawn:
                raise NotFoundError(f"the fake cloud has no offer {offer_id!r}", hint="list the offers again")
            placed = replace(spec, offer_id=offer_id, also=())
            try:
                self._check_room(placed, listing, at_ms)
            except CapacityError as error:
                full = full or error
            else:
                return placed
        assert full is not None
        raise full

    def _check_room(self, spec: LaunchSpec, listing: _Listing, at_ms: int) -> None:
        quota = self.behaviour.max_instances
        if quota is not None and self.quota_used(at_ms) + spec.count * self._units(spec.offer_id) > quota:
            what = "vCPUs" if self.behaviour.vcpus_count else "instances"
            raise QuotaError(f"the account may have {quota} {what}", hint="request a larger quota", scope="account")
        taken = sum(life.spec.offer_id == spec.offer_id and not life.ended(at_ms) for life in self._lives.values())
        if listing.capacity is not None and taken + spec.count > listing.capacity:
            raise CapacityError(CapacityError.text(spec.count, spec.offer_id), hint="try another zone")

    def _drift(self, listing: _Listing, until_ms: int) -> list[tuple[int, int]]:
        """The seeded price path since the cloud opened, computed once per change."""
        path = listing.drifted
        if not path:
            path.append((self._opened_ms, listing.base_nano_usd_per_hour))
        if self.behaviour.drift_s is not None and listing.offer.spot:
            step_ms = int(self.behaviour.drift_s * 1000)
            for number in range(len(path), (until_ms - self._opened_ms) // step_ms + 1):
                ratio = 0.7 + 0.6 * self._uniform("price", listing.offer.id, number)
                price = int(listing.base_nano_usd_per_hour * ratio)
                path.append((self._opened_ms + number * step_ms, price))
        return path

    def _begin(self, instance_id: str, spec: LaunchSpec, listing: _Listing, at_ms: int) -> _Life:
        life = _Life(instance_id, spec, at_ms, at_ms + int(self.behaviour.boot_s * 1000))
        if spec.time_to_live_s is not None:
            life.expires_ms = at_ms + spec.time_to_live_s * 1000
        if listing.offer.spot and self.behaviour.preemptions_per_hour > 0:
            hours = -math.log1p(-self._uniform("life", instance_id, 0)) / self.behaviour.preemptions_per_hour
            end_ms = at_ms + int(hours * _HOUR_MS)
            notice_s = self.behaviour.notice_s
            notice_ms = None if notice_s is None else max(at_ms, end_ms - int(notice_s * 1000))
            life.end_by(end_ms, EndReason.PREEMPTED, notice_ms)
        return life

    def _arrive(self, life: _Life, at_ms: int) -> None:
        """A repeated request arrives while the first one is still under way."""
        early_ms = life.accepted_ms - at_ms
        if early_ms > 0:
            life.accepted_ms -= early_ms
            life.ready_ms -= early_ms
            if life.expires_ms is not None:
                life.expires_ms -= early_ms

    def _bill(self, life: _Life, now_ms: int) -> Bill:
        from_ms, to_ms = self._billed(life, now_ms)
        ended, path, amount = life.ended(now_ms), [], 0
        if from_ms is not None:
            end_ms = now_ms if to_ms is None else to_ms
            path = self.price_path(life.spec.offer_id, end_ms, from_ms)
            amount = cost_nano_usd(path, from_ms, end_ms)
        besides = charges(rate_card(NAME), path, from_ms, to_ms, now_ms, ended=ended, usage=life.usage)
        reason, spec = life.reason if ended else None, life.spec
        return Bill(life.id, spec.offer_id, spec.token, spec.tags, from_ms, to_ms, amount, besides, reason)

    def _billed(self, life: _Life, now_ms: int) -> tuple[int | None, int | None]:
        """From ready until terminate or the end; an instance that never became ready costs nothing."""
        stops = [at for at in (life.asked_ms, life.last_ms) if at is not None]
        stop_ms = min(stops) if stops else None
        if now_ms < life.ready_ms or (stop_ms is not None and stop_ms <= life.ready_ms):
            return None, None
        return life.ready_ms, stop_ms if stop_ms is not None and stop_ms <= now_ms else None

    def _listing(self, offer_id: str) -> _Listing:
        if offer_id not in self._listings:
            raise NotFoundError(f"the fake cloud never had an offer {offer_id!r}")
        return self._listings[offer_id]

    def _life(self, instance_id: str) -> _Life:
        if instance_id not in self._lives:
            raise NotFoundError(f"the fake cloud never had an instance {instance_id!r}")
        return self._lives[instance_id]

    def _id(self, token: str, ordinal: int) -> str:
        digest = blake2b(f"{self._seed}|{token}|{ordinal}".encode(), digest_size=6).hexdigest()
        return f"{NAME}-{digest}"

    def _uniform(self, what: str, name: str, number: int) -> float:
        digest = blake2b(f"{self._seed}|{what}|{name}|{number}".encode(), digest_size=8).digest()
        return (int.from_bytes(digest, "big") >> 11) / (1 << 53)


def _state(life: _Life, now_ms: int) -> InstanceState:
    if life.ended(now_ms):
        return InstanceState.TERMINATED
    if life.asked_ms is not None and now_ms >= life.asked_ms:
        return InstanceState.STOPPING
    return InstanceState.RUNNING if now_ms >= life.ready_ms else InstanceState.PENDING
