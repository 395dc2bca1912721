"""The conformance kit: tests of the contract in providers.base, for any provider to inherit.

    class TestMine(ProviderContract):
        offer_id = "mine/region/zone/type/on_demand"
        def connect(self): return MineProvider(...)     # a new client of the same cloud, each time
        def now_ms(self): ...
        def advance(self, market_s): ...

The tests are plain asserts in methods named test_*, which pytest collects; pytest is not imported. Each test needs a
cloud that has no instances yet (use a fresh account, or a fresh tag through `install`). Where machines need networks,
those of `install` have been set up before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from providers.base import (
    KeepsClaims,
    LaunchSpec,
    MetersUsage,
    NeedsNetworks,
    Provider,
    ProvidesBill,
    ProvidesPriceHistory,
)
from providers.billing.charges import Usage, charges, rate_card
from providers.errors import ConflictError, NotFoundError, ProviderError, SetupError, UnavailableError
from providers.instance import EndReason, Instance, InstanceState
from providers.money import cost_nano_usd
from providers.offer import location_of, region_of

_HOUR_S = 3600.0
_ROUNDS = 400


class ProviderContract(ABC):
    """Inherit from this class and implement its hooks; override the attributes where the defaults do not fit.

    `offer_id` must be an offer that has capacity and is not preempted during the test. `step_s` (market seconds) is the
    interval of polling; a test fails after 400 intervals. `late_s` is for a cloud that bills a machine which has ended
    by itself until the next call about it: how long (market seconds) that takes in these tests.
    """

    offer_id: str
    user_data = "exec sleep 1000\n"
    install = "conformance"
    step_s = 5.0
    late_s = 0.0

    @abstractmethod
    def connect(self) -> Provider:
        """A new client of this test's cloud, as after a restart of the caller."""

    @abstractmethod
    def now_ms(self) -> int:
        """The current market time in epoch milliseconds."""

    @abstractmethod
    def advance(self, market_s: float) -> None:
        """Let `market_s` market seconds pass (and give the provider's machines time to run)."""

    # --- launch ---

    def test_launch_gives_as_many_distinct_instances_as_asked_for(self) -> None:
        """`launch` returns `count` distinct ids, and `describe` reports what was requested."""
        provider = self.connect()
        spec = self._spec(count=2)
        ids = provider.launch(spec)
        assert len(set(ids)) == 2
        for instance in provider.describe(ids):
            assert instance.provider == provider.name
            assert instance.offer_id == spec.offer_id
            assert instance.token == spec.token
            assert dict(instance.tags) == dict(spec.tags)
            assert instance.alive
        self._release(provider, *ids)

    def test_launch_with_the_same_token_and_spec_again_gives_the_same_ids(self) -> None:
        """`launch` is idempotent by token."""
        provider = self.connect()
        ids = provider.launch(self._spec())
        assert tuple(provider.launch(self._spec())) == tuple(ids)
        assert len(self._listed(provider, 1)) == 1
        self._release(provider, *ids)

    def test_the_token_holds_after_a_restart_of_the_caller(self) -> None:
        """Idempotency does not depend on the client's memory."""
        ids = self.connect().launch(self._spec())
        assert tuple(self.connect().launch(self._spec())) == tuple(ids)
        self._release(self.connect(), *ids)

    def test_the_token_holds_after_the_end_of_the_instance(self) -> None:
        """A repeated launch returns the ended instance's id and starts nothing."""
        provider = self.connect()
        ids = provider.launch(self._spec())
        self._release(provider, *ids)
        assert tuple(provider.launch(self._spec())) == tuple(ids)
        assert not provider.describe(ids)[0].alive

    def test_the_same_token_with_another_spec_is_a_conflict(self) -> None:
        """A token used for a different spec raises ConflictError."""
        provider = self.connect()
        ids = provider.launch(self._spec())
        spec = self._spec()
        for other in (
            replace(spec, user_data=spec.user_data + "# other"),
            replace(spec, tags={**spec.tags, "other": "1"}),
            replace(spec, count=2),
            replace(spec, time_to_live_s=7),
        ):
            _raises(ConflictError, partial(provider.launch, other))
        self._release(provider, *ids)

    def test_launch_of_an_unknown_offer_is_refused_and_leaves_nothing(self) -> None:
        """An unknown offer raises NotFoundError and does not use up the token."""
        provider = self.connect()
        _raises(NotFoundError, lambda: provider.launch(replace(self._spec(), offer_id=f"{provider.name}/no/such")))
        ids = provider.launch(self._spec())  # the token was not used up
        self._release(provider, *ids)

    def test_an_accepted_instance_is_described_listed_and_found_within_the_listing_lag(self) -> None:
        """After `listing_lag_s`, `describe`, `list_owned` and `find` report a launch, and only for its owner, token,
        region.
        """
        provider = self.connect()
        (instance_id,) = provider.launch(self._spec())
        self.advance(provider.listing_lag_s)
        assert [found.id for found in provider.describe([instance_id])] == [instance_id]
        assert [found.id for found in provider.list_owned(self.install)] == [instance_id]
        assert [found.id for found in provider.find("token-1", self._region)] == [instance_id]
        assert not provider.list_owned(f"{self.install}-other")
        assert not provider.find("token-2", self._region)
        assert not provider.find("token-1", f"{self._region}-other")
        self._release(provider, instance_id)

    def test_what_came_and_went_is_found_by_its_token_for_an_hour(self) -> None:
        """`find` reports ended instances for an hour, as `describe` does."""
        provider = self.connect()
        ids = provider.launch(self._spec(count=2))
        self._release(provider, *ids)
        self.advance(_HOUR_S - 60)
        found = self.connect().find("token-1", self._region)
        assert sorted(each.id for each in found) == sorted(ids)
        assert [each.end_reason for each in found] == [EndReason.USER] * 2
        assert list(found) == list(provider.describe([each.id for each in found]))

    def test_paces_are_durations(self) -> None:
        """`listing_lag_s` and `describe_every_s` are not negative."""
        provider = self.connect()
        assert provider.listing_lag_s >= 0
        assert provider.describe_every_s >= 0

    def test_an_instance_comes_up_and_is_billed_from_then_at_the_latest(self) -> None:
        """An instance reaches RUNNING, and its billing has started by then."""
        provider = self.connect()
        before_ms = self.now_ms()
        (instance_id,) = provider.launch(self._spec())
        instance = self._until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        assert instance.billed_from_ms is not None
        assert before_ms - 1000 <= instance.billed_from_ms <= self.now_ms()
        assert instance.billed_to_ms is None
        assert instance.end_reason is None
        self._release(provider, instance_id)

    def test_time_to_live_ends_an_instance_by_itself(self) -> None:
        """An instance that is not renewed ends as EXPIRED."""
        provider = self.connect()
        (instance_id,) = provider.launch(self._spec(time_to_live_s=int(_HOUR_S)))
        self._until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        self.advance(_HOUR_S)
        ended = self._until(provider, instance_id, lambda found: not found.alive)
        assert ended.end_reason is EndReason.EXPIRED

    def test_an_instance_lives_as_long_as_it_is_renewed_and_not_longer(self) -> None:
        """`renew` extends the time to live, and billing ends with it."""
        provider = self.connect()
        ids = provider.launch(self._spec(count=2, time_to_live_s=int(_HOUR_S)))
        for instance_id in ids:
            self._until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        for _ in range(2):
            self.advance(_HOUR_S - 600)
            self.connect().renew([*ids, "no-such-instance"], int(_HOUR_S))
        assert all(found.alive for found in provider.describe(ids))
        renewed_ms = self.now_ms()
        self.advance(_HOUR_S - 60)
        assert all(found.alive for found in provider.describe(ids))
        self.advance(60)
        for instance_id in ids:
            ended = self._until(provider, instance_id, lambda found: not found.alive)
            assert ended.end_reason is EndReason.EXPIRED
            assert ended.billed_to_ms is not None
            assert ended.billed_to_ms <= renewed_ms + int((_HOUR_S + self.late_s) * 1000) + 1000

    def test_what_ended_by_itself_while_nobody_asked_is_billed_until_then(self) -> None:
        """An expired instance is not billed until the next call, only until its expiry."""
        provider = self.connect()
        (instance_id,) = provider.launch(self._spec(time_to_live_s=int(_HOUR_S)))
        self._until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        due_ms = self.now_ms() + int(_HOUR_S * 1000)
        self.advance(_HOUR_S + 60)
        ended = self._until(self.connect(), instance_id, lambda found: not found.alive)
        assert ended.billed_to_ms is not None
        assert ended.billed_to_ms <= due_ms + int(self.late_s * 1000) + 1000

    def test_renewing_brings_nothing_back(self) -> None:
        """`renew` does not change an ended instance."""
        provider = self.connect()
        (instance_id,) = provider.launch(self._spec(time_to_live_s=int(_HOUR_S)))
        self._until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        ended = self._release(provider, instance_id)
        provider.renew([instance_id], int(_HOUR_S))
        provider.renew([], int(_HOUR_S))
        assert provider.describe([instance_id]) == [ended]

    # --- terminate ---

    def test_terminate_ends_an_instance_and_its_billing(self) -> None:
        """`terminate` ends an instance as USER, and its billing stays closed."""
        provider = self.connect()
        (instance_id,) = provider.launch(self._spec())
        self._until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        self.advance(60)
        ended = self._release(provider, instance_id)
        seen_ms = self.now_ms()
        assert ended.end_reason is EndReason.USER
        assert ended.billed_from_ms is not None
        assert ended.billed_to_ms is not None
        assert ended.billed_from_ms < ended.billed_to_ms <= seen_ms + 1000  # whole seconds may be billed
        self.advance(_HOUR_S / 2)
        assert provider.describe([instance_id])[0].billed_to_ms == ended.billed_to_ms

    def test_terminate_is_idempotent_and_unknown_is_success(self) -> None:
        """`terminate` succeeds for ended and unknown instances."""
        provider = self.connect()
        (instance_id,) = provider.launch(self._spec())
        first = self._release(provider, instance_id)
        provider.terminate(instance_id)
        assert provider.describe([instance_id])[0] == first
        provider.terminate("no-such-instance")

    def test_terminate_works_from_a_client_that_did_not_launch(self) -> None:
        """Any client of the account can end an instance."""
        (instance_id,) = self.connect().launch(self._spec())
        self._release(self.connect(), instance_id)

    def test_terminate_right_after_launch_leaves_nothing_behind(self) -> None:
        """An instance that is terminated before it runs never starts."""
        provider = self.connect()
        (instance_id,) = provider.launch(self._spec())
        self._release(provider, instance_id)
        self.advance(_HOUR_S / 2)
        assert not provider.list_owned(self.install)
        assert provider.describe([instance_id])[0].state is InstanceState.TERMINATED

    # --- describe, list_owned ---

    def test_an_ended_instance_is_described_for_an_hour_and_listed_no_more(self) -> None:
        """`describe` keeps an ended instance for an hour; `list_owned` omits it at once."""
        provider = self.connect()
        (instance_id,) = provider.launch(self._spec())
        ended = self._release(provider, instance_id)
        self.advance(_HOUR_S - 60)
        assert provider.describe([instance_id]) == [ended]
        assert not provider.list_owned(self.install)

    def test_describe_leaves_out_what_never_was(self) -> None:
        """`describe` omits unknown ids instead of raising."""
        provider = self.connect()
        assert not provider.describe(["no-such-instance"])
        assert not provider.describe([])

    # --- offers, prices, money ---

    def test_offers_are_distinct_in_a_fixed_order_and_say_whose_they_are(self) -> None:
        """`offers` is a stable list of distinct offers of this provider."""
        provider = self.connect()
        offers = provider.offers()
        assert list(offers) == list(self.connect().offers())
        assert len({offer.id for offer in offers}) == len(offers) > 0
        assert all(offer.provider == provider.name and offer.simulated == provider.simulated for offer in offers)
        assert self.offer_id in {offer.id for offer in offers}

    def test_every_offer_has_one_price_in_force(self) -> None:
        """`prices` reports one positive price per offer that was observed by now."""
        provider = self.connect()
        points = provider.prices()
        assert sorted(point.offer_id for point in points) == sorted(offer.id for offer in provider.offers())
        for point in points:
            assert point.nano_usd_per_hour > 0
            assert point.effective_at_ms <= point.observed_at_ms <= self.now_ms()
            assert point.source

    def test_price_history_begins_with_the_price_in_force_and_ends_with_the_present(self) -> None:
        """`price_history` connects the prices at `since_ms` with those of now."""
        provider = self.connect()
        if not isinstance(provider, ProvidesPriceHistory):
            return
        since_ms = self.now_ms()
        before = {point.offer_id: point.nano_usd_per_hour for point in provider.prices()}
        self.advance(6 * _HOUR_S)
        points = provider.price_history(since_ms)
        now = {point.offer_id: point.nano_usd_per_hour for point in provider.prices()}
        assert [point.effective_at_ms for point in points] == sorted(point.effective_at_ms for point in points)
        for offer_id, price in before.items():
            path = [point for point in points if point.offer_id == offer_id]
            assert path[0].effective_at_ms <= since_ms
            assert path[0].nano_usd_per_hour == price
            assert all(point.effective_at_ms > since_ms for point in path[1:])
            assert path[-1].nano_usd_per_hour == now[offer_id]

    def test_the_bill_is_the_interval_at_the_prices_of_the_history(self) -> None:
        """`bill_nano_usd` equals the cost of the billed interval plus the declared charges."""
        provider = self.connect()
        if not isinstance(provider, ProvidesBill):
            return
        since_ms = self.now_ms()
        (instance_id,) = provider.launch(self._spec())
        self._until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        self.advance(2 * _HOUR_S)
        living = provider.bill_nano_usd(instance_id)
        self.advance(60)
        ended = self._release(provider, instance_id)
        bill = provider.bill_nano_usd(instance_id)
        assert 0 < living < bill
        self.advance(60)
        assert provider.bill_nano_usd(instance_id) == bill
        if isinstance(provider, ProvidesPriceHistory):
            path = [
                (point.effective_at_ms, point.nano_usd_per_hour)
                for point in provider.price_history(since_ms - 1000)
                if point.offer_id == self.offer_id
            ]
            assert ended.billed_from_ms is not None
            assert ended.billed_to_ms is not None
            interval = ended.billed_from_ms, ended.billed_to_ms
            besides = charges(rate_card(provider.name), path, *interval, self.now_ms(), ended=True)
            assert bill == cost_nano_usd(path, *interval) + sum(besides.values())

    def test_checkpoints_are_billed_by_the_last_report_where_the_machine_is(self) -> None:
        """`meter` replaces earlier reports and bills at the location of the machine."""
        provider = self.connect()
        if not (isinstance(provider, MetersUsage) and isinstance(provider, ProvidesBill)):
            return
        (instance_id,) = provider.launch(self._spec())
        self._until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        self.advance(_HOUR_S)
        ended = self._release(provider, instance_id)
        assert ended.billed_from_ms is not None
        assert ended.billed_to_ms is not None
        at, interval = location_of(self.offer_id), (ended.billed_from_ms, ended.billed_to_ms)
        known = partial(charges, rate_card(provider.name), [(0, 0)], *interval, self.now_ms(), ended=True)
        bill = provider.bill_nano_usd(instance_id) - sum(known().values())
        for moved_bytes, kept_bytes in ((7 * 10**9, 10**9), (3 * 10**9, 0)):
            usage = Usage(at, ("another cloud", "region"), moved_bytes, kept_bytes)
            for _ in range(2):
                provider.meter(instance_id, replace(usage, at=("another cloud", "region")))
            reported = self.connect()
            assert isinstance(reported, ProvidesBill)
            assert reported.bill_nano_usd(instance_id) == bill + sum(known(usage=usage).values())
            assert sum(known(usage=usage).values()) > sum(known().values())
        _raises(NotFoundError, lambda: provider.meter("no-such-instance", Usage(at)))

    def test_the_bill_of_an_unknown_instance_is_not_found(self) -> None:
        """`bill_nano_usd` raises NotFoundError for an unknown instance."""
        provider = self.connect()
        if isinstance(provider, ProvidesBill):
            _raises(NotFoundError, lambda: provider.bill_nano_usd("no-such-instance"))

    # --- claims ---

    def test_a_claim_is_replaced_only_by_who_knows_it(self) -> None:
        """`replace_claim` succeeds only if the current claim is the expected one."""
        provider = self.connect()
        if not isinstance(provider, KeepsClaims):
            return
        assert provider.claim(self.install) is None
        assert not provider.replace_claim(self.install, "made up", "one")
        assert provider.replace_claim(self.install, None, "one")
        again = self.connect()
        assert isinstance(again, KeepsClaims)
        assert again.claim(self.install) == "one"
        assert not again.replace_claim(self.install, None, "two")
        assert again.replace_claim(self.install, "one", "two")
        assert not provider.replace_claim(self.install, "one", "three")
        assert provider.claim(self.install) == "two"
        assert provider.claim(f"{self.install}-other") is None

    # --- networks ---

    def test_networks_are_made_once_and_removed_to_the_last_part(self) -> None:
        """`set_up` and `tear_down` may be repeated, from any client; nothing is left."""
        provider, install = self.connect(), f"{self.install}-networks"
        if not isinstance(provider, NeedsNetworks):
            return
        assert not any(network.parts for network in provider.networks(install))
        self._patiently(lambda: provider.set_up(install, _ignore))
        self.advance(provider.listing_lag_s)
        again = self.connect()
        assert isinstance(again, NeedsNetworks)
        made = again.networks(install)
        assert made
        assert all(network.ready and network.parts for network in made)
        self._patiently(lambda: again.set_up(install, _ignore))
        assert list(again.networks(install)) == list(made)
        for _ in range(2):
            self._patiently(lambda: again.tear_down(install, _ignore))
        self.advance(provider.listing_lag_s)
        assert not any(network.parts for network in again.networks(install))

    def test_nothing_is_launched_without_a_network(self) -> None:
        """`launch` raises SetupError for an installation that has none, and does not use up the token."""
        provider = self.connect()
        if not isinstance(provider, NeedsNetworks):
            return
        other = f"{self.install}-without"
        spec = replace(self._spec(), tags={**self._spec().tags, "tradewind-install": other})
        _raises(SetupError, lambda: provider.launch(spec))
        self.advance(provider.listing_lag_s)
        assert not provider.list_owned(other)
        assert not provider.find(spec.token, self._region)

    def test_a_network_with_a_machine_in_it_is_not_removed(self) -> None:
        """`tear_down` raises UnavailableError, and the machine keeps all that it needs."""
        provider = self.connect()
        if not isinstance(provider, NeedsNetworks):
            return
        (instance_id,) = provider.launch(self._spec())
        self._until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        _raises(UnavailableError, lambda: provider.tear_down(self.install, _ignore))
        here = [network for network in provider.networks(self.install) if network.region == self._region]
        assert [network.ready for network in here] == [True]
        self._release(provider, instance_id)

    # --- quotas, errors ---

    def test_quotas_count_what_is_used(self) -> None:
        """`quotas` reports usage within its limit, by name and scope."""
        provider = self.connect()
        for quota in provider.quotas():
            assert 0 <= quota.used <= quota.limit
            assert quota.name
            assert quota.scope

    def test_classify_gives_an_error_of_ours_for_any_exception(self) -> None:
        """`classify` returns a ProviderError for any exception, and ours unchanged."""
        provider = self.connect()
        ours = ConflictError("ours")
        assert provider.classify(ours) is ours
        assert isinstance(provider.classify(OSError("theirs")), ProviderError)
        assert isinstance(provider.classify(KeyError("theirs")), ProviderError)

    # --- for the tests above ---

    @property
    def _region(self) -> str:
        return region_of(self.offer_id)

    def _spec(self, *, count: int = 1, time_to_live_s: int | None = None) -> LaunchSpec:
        tags = {"tradewind-install": self.install, "tradewind-job": "job-1"}
        return LaunchSpec("token-1", self.offer_id, self.user_data, tags, count, "", time_to_live_s)

    def _until(self, provider: Provider, instance_id: str, reached: Callable[[Instance], bool]) -> Instance:
        instance: Instance | None = None
        for _ in range(_ROUNDS):
            for instance in provider.describe([instance_id]):  # may be empty within the listing lag
                if reached(instance):
                    return instance
            self.advance(self.step_s)
        raise AssertionError(f"the instance never reached the expected state: {instance}")

    def _patiently(self, do: Callable[[], None]) -> None:
        for _ in range(_ROUNDS):
            try:
                return do()
            except UnavailableError:
                self.advance(self.step_s)
        raise AssertionError("it never finished")

    def _listed(self, provider: Provider, count: int) -> list[Instance]:
        for _ in range(_ROUNDS):
            found = list(provider.list_owned(self.install))
            if len(found) >= count:
                return found
            self.advance(self.step_s)
        raise AssertionError(f"{count} instances never showed up in list_owned")

    def _release(self, provider: Provider, *instance_ids: str) -> Instance:
        """Terminate all instances; returns the final state of the last one."""
        for instance_id in instance_ids:
            provider.terminate(instance_id)
        return [self._until(provider, instance_id, lambda found: not found.alive) for instance_id in instance_ids][-1]


def _ignore(_line: str) -> None:
    return None


def _raises(kind: type[ProviderError], call: Callable[[], object]) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")
