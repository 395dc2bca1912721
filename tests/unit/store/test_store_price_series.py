"""Series of prices for charts: everything of a short one, the peaks of a long one."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from orchestrator.store import Interval, Store
from providers.offer import Offer
from providers.price import PricePoint

PARTS = 10
CALM, LIVELY = "fake/r/z1/t/spot", "fake/r/z2/t/spot"


@pytest.fixture
def prices(store: Store, offer: Callable[..., Offer]) -> dict[str, list[tuple[int, int]]]:
    """Changes by offer: a few of one, hundreds of the other."""
    at = Random(3)
    made = {CALM: [(1_000 * n, 50 + n) for n in range(1, 9)], LIVELY: [(17 * n, at.randint(1, 90)) for n in range(600)]}
    with store.write() as tx:
        tx.put_offers("fake", [offer("z1"), offer("z2")])
        tx.add_prices(PricePoint(name, price, ms, ms, "test") for name, of in made.items() for ms, price in of)
    with store.read() as tx:
        found = tx.price_changes_of([Interval(name, 0, 20_000) for name in made])
    return dict(zip(made, found, strict=True))


def test_a_short_series_is_whole(store: Store, prices: dict[str, list[tuple[int, int]]]) -> None:
    with store.read() as tx:
        calm, nothing = tx.price_series([Interval(CALM, 2_500, 6_500), Interval(CALM, 0, 900)], PARTS)
        unknown = tx.price_series([Interval("fake/r/z9/t/spot", 0, 900)], PARTS)
    assert calm.changes == [each for each in prices[CALM] if 2_000 <= each[0] < 6_500]
    assert calm.whole == 5
    assert (nothing.changes, nothing.whole) == ([], 0)
    assert unknown == [([], 0)]


@pytest.mark.parametrize(("start", "end"), [(0, 10_200), (1_003, 9_007), (-5_000, 10_200)])
def test_a_long_series_keeps_its_ends_and_the_peaks_of_each_part(
    store: Store, prices: dict[str, list[tuple[int, int]]], start: int, end: int
) -> None:
    with store.read() as tx:
        _, found = tx.price_series([Interval(CALM, start, end), Interval(LIVELY, start, end)], PARTS)
        whole = tx.price_changes(LIVELY, start, end)
    assert found.whole == len(whole) > 2 * PARTS
    assert len(found.changes) <= 2 * PARTS + 2
    assert set(found.changes) <= set(whole)
    assert found.changes == sorted(set(found.changes))
    assert (found.changes[0], found.changes[-1]) == (whole[0], whole[-1])
    for part in range(PARTS):
        bounds = [start + (end - start) * each // PARTS for each in (part, part + 1)]
        inside, kept = ([price for at, price in of if bounds[0] <= at < bounds[1]] for of in (whole, found.changes))
        if inside:
            assert (min(kept), max(kept)) == (min(inside), max(inside))
