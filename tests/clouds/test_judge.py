"""Rows that are left out of decisions, and what counts as news."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.collect.anchors import Anchors
from providers.collect.facts import Flag, FlaggedFinding, PollResult, Signal
from providers.collect.judge import JUMP, Changes, Judge
from providers.collect.wire import BATCH, Batch, Ended, Regions, decode, encode, of_result
from providers.errors import FormatError, PermissionDeniedError, ThrottledError
from providers.money import usd
from providers.offer import CapacityType, Offer
from providers.price import PricePoint

SPOT = Offer("x", "r", "z1", "t", "H100", 8, 96, 1 << 40, CapacityType.SPOT)
OTHER_ZONE = Offer("x", "r", "z2", "t", "H100", 8, 96, 1 << 40, CapacityType.SPOT)
ELSEWHERE = Offer("x", "r2", "z", "t", "H100", 8, 96, 1 << 40, CapacityType.SPOT)
ON_DEMAND = Offer("x", "r", "", "t", "H100", 8, 96, 1 << 40, CapacityType.ON_DEMAND)
OFFERS = [SPOT, OTHER_ZONE, ELSEWHERE, ON_DEMAND]


def at(offer: Offer, dollars: float, ms: int = 1000, seen_ms: int | None = None) -> PricePoint:
    return PricePoint(offer.id, usd(dollars), ms, ms if seen_ms is None else seen_ms, "test")


def judged(judge: Judge, *points: PricePoint) -> list[str]:
    """What is said of each point that was left out."""
    found = judge.judge(OFFERS, points)
    unpaid = [row for row in found.flagged if row.flag is Flag.OUTLIER]
    assert len([each for each in found.payable if each in points]) + len(unpaid) == len(points)
    return [row.flag.value for row in found.flagged]


def test_spot_not_clearly_below_on_demand_is_payable_and_not_to_be_chosen():
    judge = Judge()
    expensive, just = at(SPOT, 10.0), at(OTHER_ZONE, 9.49)
    found = judge.judge(OFFERS, [expensive, just, at(ON_DEMAND, 10.0)])
    assert [row.flag for row in found.flagged] == [Flag.SPOT_NOT_BELOW_ON_DEMAND]
    assert [row.point for row in found.flagged] == [expensive]
    assert {expensive, just} <= set(found.payable)
    assert judged(judge, at(ELSEWHERE, 11.0)) == [], "another region has another on-demand price"


def test_what_has_passed_by_the_time_it_is_reported_bars_no_offer() -> None:
    """A history with a spike in it, as a first poll or one after a pause brings: only the present is a choice."""
    judge = Judge([(ON_DEMAND, at(ON_DEMAND, 10.0))])
    spike, fell = at(SPOT, 12.0, 1000), at(SPOT, 3.0, 2000)
    found = judge.judge(OFFERS, [at(SPOT, 2.5, 500), spike, fell])
    assert found.flagged == []
    assert spike in found.payable, "it was paid all the same"
    assert judged(judge, at(SPOT, 3.1, 3000), at(SPOT, 12.5, 4000)) == ["spot_not_below_on_demand"]


def test_an_on_demand_price_that_arrives_later_flags_what_was_accepted_before():
    judge = Judge()
    assert judged(judge, at(SPOT, 12.0)) == []
    assert judged(judge, at(ON_DEMAND, 10.0)) == ["spot_not_below_on_demand"]
    assert judged(judge, at(ON_DEMAND, 10.0, 2000)) == [], "once"


def test_known_prices_of_earlier_collectors_count():
    judge = Judge([(ON_DEMAND, at(ON_DEMAND, 10.0)), (SPOT, at(SPOT, 3.0))])
    assert judged(judge, at(OTHER_ZONE, 10.0)) == ["spot_not_below_on_demand"]
    assert judged(judge, at(SPOT, 0.25)) == ["outlier"]


def test_a_leap_is_left_out_until_it_is_reported_again():
    judge = Judge()
    assert judged(judge, at(SPOT, 1.0)) == []
    assert judged(judge, at(SPOT, 10.1)) == ["outlier"]
    found = judge.judge(OFFERS, [at(SPOT, 10.2, 2000)])
    assert ([point.nano_usd_per_hour for point in found.payable], found.flagged) == ([usd(10.1), usd(10.2)], [])


def test_a_report_near_the_old_price_confirms_no_leap():
    judge = Judge()
    assert judged(judge, at(SPOT, 1.0), at(SPOT, 10.1, 2000)) == ["outlier"]
    found = judge.judge(OFFERS, [at(SPOT, 1.05, 3000)])
    assert ([point.nano_usd_per_hour for point in found.payable], found.flagged) == ([usd(1.05)], [])


def test_two_different_leaps_do_not_confirm_each_other():
    judge = Judge()
    assert judged(judge, at(SPOT, 1.0), at(SPOT, 11.0, 2000), at(SPOT, 1000.0, 3000)) == ["outlier"] * 2


def test_one_wrong_report_does_not_harm_the_right_one_after_it():
    judge = Judge()
    points = [at(SPOT, 1.0, 1000), at(SPOT, 50.0, 2000), at(SPOT, 1.1, 3000)]
    found = judge.judge(OFFERS, points)
    assert (found.payable, [row.point for row in found.flagged]) == ([points[0], points[2]], [points[1]])


def test_spot_far_below_anything_ever_sold_is_implausible():
    assert judged(Judge(), at(ON_DEMAND, 100.0), at(SPOT, 1.99)) == ["implausible"]


LISTED = Anchors(lambda: [(ON_DEMAND, at(ON_DEMAND, 20.0))])


def test_no_price_walks_out_of_what_is_plausible_in_small_steps():
    judge = Judge(anchors=LISTED)
    walk = [20.0, 11.0, 7.0, 4.0, 2.5, 1.5, 1.0, 0.6]
    assert [judged(judge, at(ON_DEMAND, dollars, ms)) for ms, dollars in enumerate(walk)] == [[]] * 3 + [
        ["implausible"]
    ] * 5
    assert judged(judge, at(ON_DEMAND, 7.5, 9)) == []


def test_a_confirmed_price_stays_accepted_at_about_its_value_and_for_the_same_hardware():
    judge = Judge([(ON_DEMAND, at(ON_DEMAND, 1.0))], anchors=LISTED)
    assert judged(judge, at(ON_DEMAND, 1.0, 1001), at(ON_DEMAND, 0.9, 1002)) == []
    larger = replace(ON_DEMAND, gpu_count=16)
    (flagged,) = judge.judge([larger], [at(ON_DEMAND, 0.9, 1003)]).flagged
    assert flagged.flag is Flag.IMPLAUSIBLE


def test_a_wrong_on_demand_price_flags_no_spot_price():
    judge = Judge()
    judged(judge, at(ON_DEMAND, 30.0), at(SPOT, 9.0))
    assert judged(judge, at(ON_DEMAND, 0.3, 2000)) == ["outlier"]
    assert judged(judge, at(SPOT, 9.1, 2000)) == []


@given(st.lists(st.floats(1.0, 100.0), min_size=1, max_size=30))
def test_law_a_price_that_never_leaps_is_never_an_outlier(dollars):
    steady = [dollars[0]]
    for price in dollars[1:]:
        steady.append(min(max(price, steady[-1] / (JUMP - 1)), steady[-1] * (JUMP - 1)))
    assert judged(Judge(), *[at(SPOT, price, ms) for ms, price in enumerate(steady)]) == []


def test_a_repeated_price_is_not_a_change_and_a_new_one_is():
    changes = Changes()
    first = changes.news([at(SPOT, 1.0, 1), at(SPOT, 1.0, 2), at(SPOT, 2.0, 3)])
    assert [point.effective_at_ms for point in first] == [1, 3]
    changes.keep(first)
    assert changes.news([at(SPOT, 2.0, 9)]) == []
    assert [point.effective_at_ms for point in changes.news([at(SPOT, 1.0, 10)])] == [10]


def test_a_price_older_than_the_newest_known_is_not_a_change():
    changes = Changes([(SPOT, at(SPOT, 2.0, 100))])
    assert changes.news([at(SPOT, 1.0, 50), at(SPOT, 2.0, 100)]) == []


def test_what_is_missing_in_a_history_is_new_whenever_it_is_reported():
    changes = Changes([(SPOT, at(SPOT, 2.0, 100))])
    reported = [at(SPOT, 1.0, 50), at(SPOT, 1.0, 60), at(SPOT, 3.0, 70), at(SPOT, 2.0, 100), at(SPOT, 2.0, 110)]
    missing = changes.missing(reported)
    assert [point.effective_at_ms for point in missing] == [50, 70]
    changes.keep(missing)
    assert changes.news([at(SPOT, 2.0, 120)]) == [], "the newest known is still the newest"


def test_a_source_of_the_past_does_not_say_what_holds_now():
    changes = Changes([(SPOT, at(SPOT, 2.0, 100))])
    assert [point.effective_at_ms for point in changes.past([at(SPOT, 9.0, 99), at(SPOT, 9.0, 101)])] == [99]


def test_a_provider_that_corrects_itself_changes_the_price_from_when_we_saw_it():
    changes = Changes([(SPOT, at(SPOT, 2.0, 100))])
    (news,) = changes.news([at(SPOT, 3.0, 100, seen_ms=900)])
    assert (news.effective_at_ms, news.nano_usd_per_hour) == (900, usd(3.0))


points = st.lists(st.tuples(st.sampled_from(OFFERS), st.integers(1, 50), st.integers(1, 5)), max_size=40)


@given(points)
def test_law_news_are_ascending_changes_and_telling_them_again_is_none(rows):
    reported = [at(offer, dollars, ms, seen_ms=60) for offer, ms, dollars in {row[:2]: row for row in rows}.values()]
    changes = Changes()
    news = changes.news(reported)
    for offer in OFFERS:
        series = [point for point in news if point.offer_id == offer.id]
        assert all(a.effective_at_ms < b.effective_at_ms for a, b in pairwise(series))
        assert all(a.nano_usd_per_hour != b.nano_usd_per_hour for a, b in pairwise(series))
    changes.keep(news)
    assert changes.news(news) == []


@given(points, st.booleans())
def test_law_facts_survive_the_wire(rows, failed):
    prices = tuple(at(offer, dollars, ms) for offer, ms, dollars in rows)
    flagged = tuple(FlaggedFinding(Flag.OUTLIER, "s", "d \u00e9\n", offer, None) for offer, _, _ in rows)
    flagged += tuple(FlaggedFinding(Flag.MALFORMED, "s", "d", None, point) for point in prices)
    signals = (Signal("k", "p", "r", "", "t", 0.5, 1.0, 1, 2, "s"),)
    error = ThrottledError("slow", hint="wait", retry_after_s=2.5) if failed else None
    result = PollResult("r", tuple(OFFERS), prices, flagged, signals, error, 3, 4)
    sent = list(of_result("x", result, 10, 20))
    got = [decode(encode(message)) for message in sent]
    assert [message for message in got if isinstance(message, Batch)] == sent[:-1]
    ended = got[-1]
    assert isinstance(ended, Ended)
    assert (ended.pages, ended.rows, ended.started_at_ms, ended.ended_at_ms) == (3, 4, 10, 20)
    assert (type(ended.error), getattr(ended.error, "retry_after_s", None)) == (type(error), 2.5 if failed else None)


def test_a_denied_permission_keeps_its_action_on_the_wire():
    sent = Regions("x", ("a", "b"), PermissionDeniedError("no", action="ec2:X", hint="add"))
    got = decode(encode(sent))
    assert isinstance(got, Regions)
    assert isinstance(got.error, PermissionDeniedError)
    assert (got.names, got.error.action, got.error.hint, got.error.scope) == (("a", "b"), "ec2:X", "add", "account")


def test_no_part_divides_the_prices_of_one_offer():
    many = [at(offer, 1.0, ms) for offer in (SPOT, OTHER_ZONE) for ms in range(BATCH + 10)]
    parts = [message for message in of_result("x", PollResult("r", points=tuple(many)), 0, 0)]
    assert [len(part.points) for part in parts if isinstance(part, Batch)] == [BATCH + 10] * 2


@pytest.mark.parametrize("line", ["hello", "[]", '{"batch": [1]}', "{}", '{"ended": []}'])
def test_a_line_that_is_none_of_ours_is_refused(line):
    with pytest.raises(FormatError) as caught:
        decode(line)
    assert line in str(caught.value)


def test_no_machine_of_a_cloud_is_free_however_often_it_is_reported():
    """The ledger would book nothing, and no budget would end."""
    judge = Judge([(ON_DEMAND, at(ON_DEMAND, 98.0))])
    for ms in (2000, 3000, 4000):
        found = judge.judge(OFFERS, [at(ON_DEMAND, 0.0, ms), at(SPOT, 0.0, ms)])
        assert [each.flag for each in found.flagged] == [Flag.MALFORMED, Flag.MALFORMED]
        assert found.payable == []
    assert judged(judge, at(SPOT, 20.0, 5000)) == []


def test_the_declared_price_of_an_owned_machine_is_not_compared_with_those_of_clouds():
    owned = replace(ON_DEMAND, provider="static")
    for dollars in (0.0, 0.1, 900.0):
        found = Judge(anchors=Anchors()).judge([owned], [at(owned, dollars)], "static")
        assert (found.flagged, len(found.payable)) == ([], 1)
