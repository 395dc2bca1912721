"""What collectors find, in the store: whole polls, half polls, flagged rows, and a child process that reads a feed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.engine.machines.collect import collector
from orchestrator.prices import sink as price_sink
from orchestrator.prices.sink import StoreSink
from orchestrator.store import Store
from providers.clock import VirtualClock
from providers.collect.facts import Flag, FlaggedFinding, Signal
from providers.collect.runner import PollOutcome, SourceSpec
from providers.errors import ThrottledError
from providers.money import usd
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

NOW = 1_790_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path}/tradewind.db", VirtualClock(NOW))
    yield opened
    opened.close()


def offer(zone: str, region: str = "us") -> Offer:
    return Offer("aws", region, zone, "p5", "H100", 8, 192, 2**40, CapacityType.SPOT)


def point(each: Offer, price: int, at: int) -> PricePoint:
    return PricePoint(each.id, price, at, at, "test")


def poll(at: int, *, region: str = "us", failed: bool = False) -> PollOutcome:
    error = ThrottledError("too many calls", hint="wait") if failed else None
    return PollOutcome("aws-spot", region, at, at + 1, newest_ms=None if failed else at, error=error)


def priced(store: Store, at: int) -> dict[str, int]:
    with store.read() as tx:
        return {each.offer_id: each.nano_usd_per_hour for each in tx.eligible_as_of(at)}


def test_nothing_is_stored_before_a_poll_has_ended_and_then_all_of_it(store: Store) -> None:
    reported: list[PollOutcome] = []
    sink = StoreSink(store, reported.append)
    sink.offers("aws-spot", "us", [offer("a"), offer("b")])
    sink.prices("aws-spot", "us", [point(offer("a"), 5, 10)])
    sink.signals("aws-spot", "us", [Signal("interruption_percent", "aws", "us", "", "p5", 5, 10, 10, 10, "x")])
    assert priced(store, 99) == {}
    sink.ended(poll(10))
    assert priced(store, 99) == {offer("a").id: 5}
    assert [each.region for each in reported] == ["us"]
    with store.read() as tx:
        assert tx.offers() == [offer("a"), offer("b")]
        assert [risk.low for risk in tx.risks_as_of(99)] == [5]
        (state,) = tx.poll_states()
        assert (state.provider, state.offers_seen, state.newest_ms, state.error) == ("aws", 2, 10, None)


def test_the_last_poll_of_a_region_tells_what_it_passed_over_and_why(store: Store) -> None:
    sink = StoreSink(store)
    for at, skipped in ((10, {"no_gpu": 40, "other_product": 2}), (20, {"not_yet": 1}), (30, {})):
        for failed in (False, True):
            sink.ended(replace(poll(at, failed=failed), skipped=skipped))
            with store.read() as tx:
                (state,) = tx.poll_states()
            assert state.passed == (", ".join(f"{rows} {why}" for why, rows in skipped.items()) or None)


def test_a_long_history_is_stored_before_the_poll_and_no_decision_uses_half_of_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(price_sink, "AT_ONCE", 10)
    reported: list[int] = []

    def ended(_: PollOutcome) -> None:
        with store.read() as tx:
            reported.append(len(tx.price_changes(offer("a").id, 0, 99)))

    sink = StoreSink(store, ended)
    sink.offers("aws-spot", "us", [offer("a")])
    sink.prices("aws-spot", "us", [point(offer("a"), price, price) for price in range(35, 0, -1)])
    sink.ended(poll(40))
    assert reported == [35]
    assert priced(store, 99) == {offer("a").id: 35}
    with store.read() as tx:
        assert [each.changed for each in tx.polls()] == [35]
        assert tx.offers() == [offer("a")]


def test_half_a_poll_keeps_what_it_found_and_takes_nothing_away(store: Store) -> None:
    sink = StoreSink(store)
    sink.offers("aws-spot", "us", [offer("a"), offer("b")])
    sink.ended(poll(10))
    sink.offers("aws-spot", "us", [offer("c")])
    sink.prices("aws-spot", "us", [point(offer("c"), 7, 20)])
    sink.ended(poll(20, failed=True))
    with store.read() as tx:
        assert [each.zone for each in tx.offers()] == ["a", "b", "c"]
        (state,) = tx.poll_states()
        assert (state.error, state.hint, state.good_started_ms) == ("too many calls", "wait", 10)
    sink.offers("aws-spot", "us", [offer("b"), offer("c")])
    sink.ended(poll(30))
    with store.read() as tx:
        assert [each.zone for each in tx.offers()] == ["b", "c"]


def test_a_region_that_fails_disturbs_no_other(store: Store) -> None:
    sink = StoreSink(store)
    sink.offers("aws-spot", "us", [offer("a")])
    sink.ended(poll(10, region="eu", failed=True))
    sink.ended(poll(11))
    with store.read() as tx:
        assert [(state.region, state.error) for state in tx.poll_states()] == [("eu", "too many calls"), ("us", None)]
        assert tx.offers() == [offer("a")]


def test_a_flagged_price_is_kept_and_its_offer_left_out_until_it_is_reported_sound(store: Store) -> None:
    sink = StoreSink(store)
    a, phantom = offer("a"), offer("ghost")
    sink.offers("aws-spot", "us", [a])
    sink.prices("aws-spot", "us", [point(a, 5, 10)])
    sink.ended(poll(10))
    sink.offers("aws-spot", "us", [a])
    sink.flagged("aws-spot", "us", [FlaggedFinding(Flag.OUTLIER, a.id, "leapt", a, point(a, 99, 20))])
    ghost = FlaggedFinding(Flag.NO_HARDWARE, phantom.id, "none", phantom, point(phantom, 1, 20))
    sink.flagged("aws-spot", "us", [ghost])
    sink.ended(poll(20))
    assert priced(store, 30) == {}
    sink.offers("aws-spot", "us", [a])
    sink.flagged("aws-spot", "us", [ghost])
    sink.ended(poll(30))
    assert priced(store, 40) == {a.id: 5}
    with store.read() as tx:
        assert tx.offers() == [a]
        assert [(row.flag, row.nano_usd_per_hour) for row in tx.flags_of(phantom.id)] == [("no_hardware", 1)]
        assert tx.flag_counts() == {("aws-spot", "us"): {"no_hardware": 1}}
    sink.offers("aws-spot", "us", [a])
    sink.ended(poll(40))
    with store.read() as tx:
        assert tx.flag_counts() == {}


def test_a_flag_that_a_later_price_has_overtaken_and_a_second_price_leave_nothing_out(store: Store) -> None:
    sink = StoreSink(store)
    a, b = offer("a"), offer("b")
    sink.offers("aws-spot", "us", [a, b])
    sink.flagged("aws-spot", "us", [FlaggedFinding(Flag.OUTLIER, a.id, "leapt", a, point(a, 99, 5))])
    sink.flagged("aws-spot", "us", [FlaggedFinding(Flag.AMBIGUOUS, b.id, "also at 3", b, point(b, 3, 10))])
    sink.prices("aws-spot", "us", [point(a, 5, 4), point(a, 6, 8), point(b, 4, 10)])
    sink.ended(poll(10))
    assert priced(store, 20) == {a.id: 6, b.id: 4}
    with store.read() as tx:
        assert [(row.flag, row.cleared_ms) for row in tx.flags_of(a.id)] == [("outlier", 11)]
        assert [row.subject for row in tx.flags()] == [b.id]


def test_of_several_flagged_prices_of_one_offer_only_the_newest_is_of_the_present(store: Store) -> None:
    sink = StoreSink(store)
    a, ghost = offer("a"), offer("ghost")
    sink.offers("aws-spot", "us", [a])
    rows = [FlaggedFinding(Flag.NO_HARDWARE, ghost.id, "none", ghost, point(ghost, at, at)) for at in (5, 9, 7)]
    sink.flagged("aws-spot", "us", rows)
    sink.ended(poll(10))
    with store.read() as tx:
        assert [(row.effective_at_ms, row.cleared_ms) for row in tx.flags(open=False)] == [(9, None), (7, 11), (5, 11)]
        assert tx.flag_counts() == {("aws-spot", "us"): {"no_hardware": 1}}


def test_a_source_of_the_past_neither_lists_an_offer_nor_takes_it_from_its_own_source(store: Store) -> None:
    sink = StoreSink(store)
    a, gone = (Offer("gcp", "us", zone, "a3", "H100", 8, 208, 2**40, CapacityType.SPOT) for zone in "ab")
    sink.offers("gcp-prices", "us", [a])
    sink.ended(PollOutcome("gcp-prices", "us", 10, 11))
    sink.offers("gcp-history", "us", [a, gone])
    sink.prices("gcp-history", "us", [point(a, 5, 4), point(gone, 5, 4)])
    sink.ended(PollOutcome("gcp-history", "us", 20, 21))
    sink.ended(PollOutcome("gcp-history", "us", 30, 31))
    with store.read() as tx:
        assert tx.offers() == [a]
        assert [each.zone for each in tx.find_offers(provider="gcp")] == ["a", "b"]
        assert tx.priced_to_ms(a.id) == 10


def test_a_feed_is_collected_by_a_child_process_and_the_next_round_stores_only_changes(
    store: Store, tmp_path: Path
) -> None:
    table = tmp_path / "verda.csv"
    head = "provider,region,instance_type,gpu,gpu_count,capacity_type,price_per_hour\n"
    table.write_text(head + "verda,fin,h1,H100,1,spot,0.8\nverda,fin,h8,H100,8,spot,cheap\n")
    specs = [SourceSpec("feed:verda", {"at": str(table)}, cadence_s=60)]
    clock = VirtualClock(NOW)
    (first,) = collector(store, clock, specs, random.Random(1)).collect()
    assert (first.error, first.offers, first.changed, first.flagged) == (None, 1, 1, 1)
    assert list(priced(store, 2**50).values()) == [usd("0.8")]
    (second,) = collector(store, clock, specs, random.Random(1)).collect()  # another process, later: nothing is news
    assert (second.error, second.changed) == (None, 0)
    with store.read() as tx:
        assert [each.changed for each in tx.polls()] == [0, 1]
        assert [row.flag for row in tx.flags()] == ["malformed"]
        assert tx.polled() == [("verda", "fin", True, second.started_at_ms)]
