"""LocalProvider: a cloud on this machine. Its machines are real processes, its market is simulated.

Nothing runs in the background: `describe`, `list_owned` and `tick` bring all instances up to date (machines start,
notices are given, deadlines end machines). Anything that became due between calls is done at the next call. Every
decision is in the books before it is carried out, so another process can complete it.

Billing is by whole market seconds: from the acceptance of the launch (rounded down) to the confirmed end (rounded up),
or to the end of the time to live even if that is seen later, at the market's prices; plus the charges of
providers.billing.charges.
"""

from __future__ import annotations

import contextlib
import difflib
import signal
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

from providers import processes
from providers.base import Covered, LaunchSpec, Quota
from providers.billing.charges import Usage, charges, rate_card
from providers.clock import Clock
from providers.errors import (
    CapacityError,
    ConflictError,
    NotFoundError,
    ProviderError,
    QuotaError,
    SetupError,
    UnavailableError,
)
from providers.instance import EndReason, Instance, InstanceState
from providers.local import process, switch
from providers.local.books import Books, Record
from providers.local.market import PROVIDER, SOURCE, LocalMarket
from providers.local.metadata import write_notice
from providers.local.prices import PriceOverride, PricePath
from providers.money import cost_nano_usd
from providers.notice import Notice
from providers.offer import Offer, location_of, region_of
from providers.price import PricePoint

GRACE_S = 1.0
"""Wall seconds between SIGTERM and SIGKILL for a preemption with notice."""
PRICE_LEAD_S = 0.1
"""How many wall seconds a price is set ahead of taking effect: longer than storing it takes, so the old price is never
used for a time at which the new one is already in force.
"""
HISTORY_MS = 90 * 24 * 3_600_000
"""How far back the price history of an offer goes that has not been rented since."""


class LocalProvider:
    """The cloud whose books are in `state_dir`; any number of processes may use the same folder.

    `seed` determines the market and is stored in the books. `background_preemptions=False` disables the market's own
    preemptions (those by `preempt` remain); their notice is `notice_s` market seconds. `max_instances` protects this
    machine. Raises SetupError for damaged books or another seed, UnavailableError if the folder cannot be used.
    """

    name = PROVIDER
    simulated = True
    listing_lag_s = 0.0
    describe_every_s = 0.0

    def __init__(
        self,
        state_dir: Path,
        clock: Clock,
        seed: int = 0,
        *,
        background_preemptions: bool = True,
        notice_s: float = 120.0,
        max_instances: int = 16,
    ) -> None:
        self.market = LocalMarket(seed)
        self._folder = state_dir.absolute()
        self._clock = clock
        self._books = Books(self._folder / "books.db", seed)
        self._background_preemptions = background_preemptions
        self._notice_s = notice_s
        self._max_instances = max_instances
        self._started: set[str] = set()
        self._children: set[int] = set()

    # --- Provider ---

    def offers(self) -> Sequence[Offer]:
        """All offers of the simulated market."""
        return self.market.offers

    def prices(self) -> Sequence[PricePoint]:
        """The current price of every offer, including manual overrides."""
        now_ms = self._clock.now_ms()
        path = self._prices()
        return [self._point(offer.id, *path.in_force(offer.id, now_ms), now_ms) for offer in self.market.offers]

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        """See Provider.launch; starts one process session per instance."""
        fingerprint = spec.fingerprint
        with self._books.transaction():
            known = self._books.fingerprint(spec.token)
            if known is None:
                self._check_offer(spec.offer_id)
                now_ms = self._clock.now_ms()
                self._check_room(spec, now_ms)
                self._books.accept(spec.token, fingerprint, self._new_records(spec, now_ms))
            elif known != fingerprint:
                raise ConflictError(
                    f"the token {spec.token} was used for another request",
                    hint="use a new token for a new request",
                )
        records = self._books.of_token(spec.token)
        for record in records:
            if record.ended_ms is None and record.leader is None:
                self._boot(record)
        return tuple(record.id for record in records)

    def describe(self, instance_ids: Sequence[str]) -> Sequence[Instance]:
        """See Provider.describe; brings all instances up to date first."""
        self.tick()
        now_ms = self._clock.now_ms()
        records = (self._books.record(instance_id) for instance_id in instance_ids)
        return [_instance(record, now_ms) for record in records if record is not None]

    def find(self, token: str, region: str) -> Sequence[Instance]:
        """See Provider.find; brings all instances up to date first."""
        self.tick()
        now_ms = self._clock.now_ms()
        records = self._books.of_token(token)
        return [_instance(record, now_ms) for record in records if region_of(record.offer_id) == region]

    def renew(self, instance_ids: Sequence[str], time_to_live_s: int) -> None:
        """See Provider.renew."""
        with self._books.transaction():
            now_ms = self._clock.now_ms()
            self._books.renew(instance_ids, now_ms, now_ms + time_to_live_s * 1000)
        for record in map(self._books.record, instance_ids):
            if record is not None and record.ended_ms is None and process.was_started(self._home(record.id)):
                self._arm(record)

    def terminate(self, instance_id: str) -> None:
        """See Provider.terminate; returns once all processes have ended."""
        if self._books.record(instance_id) is not None:
            self._end_now(instance_id, EndReason.USER)

    def list_owned(self, install: str) -> Sequence[Instance]:
        """See Provider.list_owned; brings all instances up to date first."""
        self.tick()
        now_ms = self._clock.now_ms()
        return [
            _instance(record, now_ms)
            for record in self._books.living()
            if record.tags.get("tradewind-install") == install
        ]

    @property
    def quotas_limit_plans(self) -> bool:
        """See LimitsByQuota."""
        return True

    def quotas(self) -> Sequence[Quota]:
        """The limit `max_instances` of machines on this computer."""
        used = len(self._books.living())
        return [Quota("machines", "this computer", self._max_instances, used, Covered("machines"), owned=True)]

    def classify(self, error: BaseException) -> ProviderError:
        """SetupError for damaged books, otherwise UnavailableError; ProviderErrors unchanged."""
        if isinstance(error, ProviderError):
            return error
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            return SetupError(f"the books of the local provider are damaged: {error}")
        return UnavailableError(
            f"the local provider failed: {error!r}", hint="check the free disk space and the running processes"
        )

    # --- KeepsClaims, ProvidesPriceHistory, ProvidesBill, MetersUsage ---

    def price_history(self, since_ms: int) -> Sequence[PricePoint]:
        """Follows the protocol for every offer that was billed since; other offers go back HISTORY_MS at most.

        Market time passes so fast that after a weekend the full history of all offers would take half a minute to
        compute, but prices that a bill depends on must have no gap.
        """
        now_ms = self._clock.now_ms()
        path = self._prices()
        # a bill is rounded up to whole seconds
        billed = self._books.offers_rented_since(since_ms - 1000)
        points = []
        for offer in self.market.offers:
            from_ms = since_ms if offer.id in billed else max(since_ms, now_ms - HISTORY_MS)
            changes = path.changes(offer.id, from_ms, max(from_ms, now_ms))
            points += [self._point(offer.id, effective_ms, price, now_ms) for effective_ms, price in changes]
        return sorted(points, key=lambda point: point.effective_at_ms)

    def claim(self, install: str) -> str | None:
        """See KeepsClaims.claim."""
        return self._books.claim(install)

    def replace_claim(self, install: str, present: str | None, word: str) -> bool:
        """See KeepsClaims.replace_claim."""
        with self._books.transaction():
            if self._books.claim(install) != present:
                return False
            self._books.set_claim(install, word)
        return True

    def bill_nano_usd(self, instance_id: str) -> int:
        """The exact amount billed up to now, including charges. Raises NotFoundError."""
        record = self._known(instance_id)
        end_ms = self._clock.now_ms() if record.ended_ms is None else record.ended_ms
        from_ms, to_ms = _floor_second(record.accepted_ms), _ceil_second(end_ms)
        path, ended = self._prices().changes(record.offer_id, from_ms, to_ms), record.ended_ms is not None
        billed_to_ms, usage = to_ms if ended else None, self._books.usage(instance_id)
        besides = charges(rate_card(PROVIDER), path, from_ms, billed_to_ms, to_ms, ended=ended, usage=usage)
        return cost_nano_usd(path, from_ms, to_ms) + sum(besides.values())

    def meter(self, instance_id: str, usage: Usage) -> None:
        """See MetersUsage.meter. Raises NotFoundError."""
        record = self._known(instance_id)
        self._books.meter(instance_id, replace(usage, at=location_of(record.offer_id)))

    # --- time and scripted events, for demos and tests ---

    def tick(self) -> None:
        """Bring every live instance up to date. Short; call it as often as you like."""
        processes.reap(self._children)
        for record in self._books.living():
            # A machine that cannot start or end stays PENDING or STOPPING, is tried again at the next tick, and does
            # not affect the others. The call that requested it has raised the error.
            with contextlib.suppress(UnavailableError):
                self._advance(record)

    def set_price(
        self, offer_id: str, nano_usd_per_hour: int, from_ms: int | None = None, to_ms: int | None = None
    ) -> int:
        """Override a price from `from_ms` (default: now) to `to_ms` (default: forever); returns when it takes effect
        (epoch ms).

        Past prices never change: it takes effect PRICE_LEAD_S wall seconds from now at the earliest. Whole seconds.
        Raises NotFoundError for an unknown offer.
        """
        self._check_offer(offer_id)
        with self._books.transaction():
            earliest_ms = self._clock.now_ms() + int(PRICE_LEAD_S * self._clock.factor * 1000)
            begin_ms = _ceil_second(max(earliest_ms, from_ms or 0))
            end_ms = _ceil_second(to_ms) if to_ms is not None else 1 << 62
            self._books.override_price(PriceOverride(offer_id, nano_usd_per_hour, begin_ms, max(begin_ms, end_ms)))
        return begin_ms

    def set_capacity(self, offer_id: str, machines: int, until_ms: int) -> None:
        """Until `until_ms` this pool has `machines` in total (0: launches raise CapacityError). Raises NotFoundError
        for an unknown offer.
        """
        self._check_offer(offer_id)
        self._books.override_capacity(offer_id, machines, until_ms)

    def preempt(self, instance_id: str, notice_s: float | None = None) -> None:
        """Preempt a machine now, or with a notice `notice_s` market seconds ahead. Raises NotFoundError."""
        self._known(instance_id)
        if notice_s is None:
            self._end_now(instance_id, EndReason.PREEMPTED)
            return
        self._give_notice(instance_id, notice_s)
        if (record := self._known(instance_id)).ended_ms is None:
            self._announce(record)

    def crash(self, instance_id: str) -> None:
        """Let a machine fail: all its processes end at once. Raises NotFoundError."""
        self._known(instance_id)
        self._end_now(instance_id, EndReason.FAILED)

    def processes_left(self) -> list[int]:
        """Pids of all live processes of all instances that ever existed."""
        return [found.pid for found in processes.living(self._books.leaders())]

    # --- launching ---

    def _check_offer(self, offer_id: str) -> None:
        if offer_id in self.market:
            return
        near = difflib.get_close_matches(offer_id, [offer.id for offer in self.market.offers], n=1)
        raise NotFoundError(
            f"the local provider has no offer {offer_id!r}", hint=f"did you mean {near[0]!r}?" if near else ""
        )

    def _check_room(self, spec: LaunchSpec, now_ms: int) -> None:
        living = self._books.living()
        if len(living) + spec.count > self._max_instances:
            raise QuotaError(
                f"this machine runs {len(living)} instances; at most {self._max_instances} are allowed",
                hint="end some of them, or raise max_instances of the local provider",
                scope="cloud",
            )
        capacity = self._books.capacity_override(spec.offer_id, now_ms)
        if capacity is None:
            capacity = self.market.capacity(spec.offer_id, now_ms)
        taken = sum(record.offer_id == spec.offer_id for record in living)
        if capacity is not None and taken + spec.count > capacity:
            raise CapacityError(CapacityError.text(spec.count, spec.offer_id), hint="try another zone, or on-demand")

    def _new_records(self, spec: LaunchSpec, now_ms: int) -> list[Record]:
        expires_ms = None if spec.time_to_live_s is None else now_ms + spec.time_to_live_s * 1000
        return [
            Record(
                self._id(spec.token, ordinal),
                spec.token,
                spec.offer_id,
                spec.user_data,
                spec.tags,
                now_ms,
                expires_ms,
            )
            for ordinal in range(spec.count)
        ]

    def _id(self, token: str, ordinal: int) -> str:
        """Unique among all books on this machine, because processes are found by it."""
        digest = blake2b(f"{self._books.uid}|{token}|{ordinal}".encode(), digest_size=6).hexdigest()
        return f"local-{digest}"

    def _boot(self, record: Record) -> None:
        """Start the machine unless it was started before. Tries only once per object; another caller may try again."""
        if record.id in self._started or process.was_started(self._home(record.id)):
            return
        self._arm(record)
        self._children.add(process.start(record.id, self._home(record.id), record.user_data))
        self._started.add(record.id)

    def _arm(self, record: Record) -> None:
        """Set the machine's time to live; repeated at every tick, so a crash in between loses no renewal."""
        if record.expires_ms is not None:
            left_s = (record.expires_ms - self._clock.now_ms()) / 1000 / self._clock.factor
            try:
                switch.arm(self._home(record.id), record.expires_ms, left_s)
            except OSError as error:
                raise self.classify(error) from error

    # --- moving forward ---

    def _advance(self, record: Record) -> None:
        now_ms = self._clock.now_ms()
        started = process.was_started(self._home(record.id))  # read this before looking for its processes
        if record.leader is None and (leader := process.claimed_by(self._home(record.id))) is not None:
            self._books.adopt(record.id, leader)
        if record.expires_ms is not None and now_ms >= record.expires_ms:
            self._books.begin_ending(record.id, EndReason.EXPIRED, record.expires_ms)
        elif record.ending_at_ms is None:
            self._reclaim(record, now_ms)
        record = self._known(record.id)
        if record.ended_ms is not None:
            return
        if record.ending_at_ms is not None and now_ms >= record.ending_at_ms:
            self._end(record)
        elif not started:
            self._boot(record)
        elif self._gone(record):
            if switch.fired(self._home(record.id)):
                self._books.begin_ending(record.id, EndReason.EXPIRED, now_ms)
            self._kill(self._known(record.id))  # ends the switch, too
        else:
            self._arm(record)
            self._announce(record)

    def _reclaim(self, record: Record, now_ms: int) -> None:
        """The market's own preemptions: one that is due is carried out now, with its full notice."""
        if not self._background_preemptions or not self.market.is_spot(record.offer_id):
            return
        reclaim = self.market.reclaim_after(record.offer_id, record.accepted_ms)
        if reclaim is None or reclaim.at_ms > now_ms:
            return
        if reclaim.with_notice:
            self._give_notice(record.id, self._notice_s)
        else:
            self._books.begin_ending(record.id, EndReason.PREEMPTED, now_ms)

    def _give_notice(self, instance_id: str, notice_s: float) -> None:
        self._books.begin_ending(
            instance_id,
            EndReason.PREEMPTED,
            self._clock.now_ms() + int(notice_s * 1000),
            gentle=True,
            notice_deadline_s=self._clock.monotonic_s() + notice_s / self._clock.factor,
        )

    def _announce(self, record: Record) -> None:
        """Give the machine the notice in the books; repeated at every tick, so a crash in between loses no notice."""
        if record.notice_deadline_s is not None and self._home(record.id).exists():
            try:
                notice = Notice("preemption", record.notice_deadline_s)
                write_notice(self._home(record.id) / "metadata.json", notice)
            except OSError as error:
                raise self.classify(error) from error

    def _gone(self, record: Record) -> bool:
        if record.leader is not None and processes.is_alive(record.leader):
            return False
        home = self._home(record.id)
        return all(switch.is_switch(each, home) for each in processes.living({record.id: record.leader}))

    def _end_now(self, instance_id: str, reason: EndReason) -> None:
        self._books.begin_ending(instance_id, reason, self._clock.now_ms())
        record = self._known(instance_id)
        if record.ended_ms is None:
            self._kill(record)

    def _end(self, record: Record) -> None:
        """Carry out an end that is due; one with SIGTERM first takes two calls, GRACE_S apart."""
        if record.gentle and not self._gone(record):
            now_s = self._clock.monotonic_s()
            if record.sigterm_at_s is None:
                processes.signal_all(record.id, record.leader, signal.SIGTERM)
                self._books.sigterm_sent(record.id, now_s)
                return
            if now_s - record.sigterm_at_s < GRACE_S:
                return
        self._kill(record)

    def _kill(self, record: Record) -> None:
        try:
            process.prevent_start(self._home(record.id))
            leader = record.leader or process.claimed_by(self._home(record.id))
        except OSError as error:
            raise self.classify(error) from error
        processes.kill_all(record.id, leader)
        processes.reap(self._children)
        ended_ms = self._clock.now_ms()
        if record.ending_reason is EndReason.EXPIRED and record.ending_at_ms is not None:
            ended_ms = record.ending_at_ms
        self._books.ended(record.id, ended_ms)

    # --- reading ---

    def _home(self, instance_id: str) -> Path:
        return self._folder / "instances" / instance_id

    def _known(self, instance_id: str) -> Record:
        record = self._books.record(instance_id)
        if record is None:
            raise NotFoundError(f"the local provider never had an instance {instance_id!r}")
        return record

    def _prices(self) -> PricePath:
        return PricePath(self.market, self._books.price_overrides())

    def _point(self, offer_id: str, effective_at_ms: int, nano_usd_per_hour: int, now_ms: int) -> PricePoint:
        return PricePoint(offer_id, nano_usd_per_hour, effective_at_ms, now_ms, SOURCE)


def _instance(record: Record, now_ms: int) -> Instance:
    if record.ended_ms is not None:
        state = InstanceState.TERMINATED
    elif record.ending_at_ms is not None and now_ms >= record.ending_at_ms:
        state = InstanceState.STOPPING
    else:
        state = InstanceState.PENDING if record.leader is None else InstanceState.RUNNING
    return Instance(
        record.id,
        PROVIDER,
        record.offer_id,
        record.token,
        state,
        _floor_second(record.accepted_ms),
        None if record.ended_ms is None else _ceil_second(record.ended_ms),
        record.ending_reason if state is InstanceState.TERMINATED else None,
        record.notice_deadline_ms,
        record.tags,
    )


def _floor_second(at_ms: int) -> int:
    return at_ms // 1000 * 1000


def _ceil_second(at_ms: int) -> int:
    return -(-at_ms // 1000) * 1000
