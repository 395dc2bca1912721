"""Money: offers, prices and bills."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from providers.base import MetersUsage, ProvidesBill, ProvidesPriceHistory
from providers.billing.charges import Usage, charges, rate_card
from providers.errors import NotFoundError
from providers.instance import InstanceState
from providers.money import cost_nano_usd
from providers.offer import location_of
from providers.testing.kit import HOUR_S, Kit, raises


class Paying(Kit):
    """Tests of `offers`, `prices`, and of the optional `price_history`, `bill_nano_usd` and `meter`."""

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
        self.advance(6 * HOUR_S)
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
        (instance_id,) = provider.launch(self.spec())
        self.until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        self.advance(2 * HOUR_S)
        living = provider.bill_nano_usd(instance_id)
        self.advance(60)
        ended = self.release(provider, instance_id)
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
        (instance_id,) = provider.launch(self.spec())
        self.until(provider, instance_id, lambda found: found.state is InstanceState.RUNNING)
        self.advance(HOUR_S)
        ended = self.release(provider, instance_id)
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
        raises(NotFoundError, lambda: provider.meter("no-such-instance", Usage(at)))

    def test_the_bill_of_an_unknown_instance_is_not_found(self) -> None:
        """`bill_nano_usd` raises NotFoundError for an unknown instance."""
        provider = self.connect()
        if isinstance(provider, ProvidesBill):
            raises(NotFoundError, lambda: provider.bill_nano_usd("no-such-instance"))
