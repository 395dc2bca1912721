"""Listings page by page: each row exactly once, however many are added, and however prices move, between two pages."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from orchestrator import pages
from orchestrator.engine.machines.collect import collect
from orchestrator.errors import UsageError
from orchestrator.installation import Installation
from orchestrator.services.jobs import current, events
from orchestrator.services.offers import listing
from orchestrator.services.offers.filters import OfferQuery
from orchestrator.services.prices import history, prices
from orchestrator.services.prices.history import PriceQuery
from orchestrator.services.store import ledger_entries
from providers.clock import VirtualClock
from providers.fake import FakeCloud
from tests.unit.services.recorded_history import Past, spec, submit_job

Rows = Callable[[Any], Iterable[str]]


def read_through(listed: Callable[..., Any], rows: Rows, add: Callable[[], object], limit: int) -> list[str]:
    """The rows of all pages, with `add` between them. Checks that no page is longer than two times the limit (so many
    simulated and so many real offers), that nothing comes twice, and that what was there at first all comes."""
    before = list(rows(listed(limit=None)))
    seen: list[str] = []
    for page in pages(listed, limit=limit):
        found = list(rows(page))
        assert 0 < len(found) <= 2 * limit
        seen += found
        add()
    assert len(seen) == len(set(seen))
    assert set(before) <= set(seen)
    return seen


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_jobs(installation: Installation, clock: VirtualClock, past: Past, limit: int) -> None:
    left = iter(range(3))

    def add() -> None:
        if next(left, None) is not None:  # else there would always be a next page
            submit_job(installation, "later")

    listed = partial(current.jobs, installation, ended=True)
    seen = read_through(listed, lambda page: [job.id for job in page.jobs], add, limit)
    whole = listed().jobs
    assert seen == [job.id for job in whole if job.id in seen]
    two = current.jobs(installation, ended=True, limit=2)
    assert two.jobs == whole[:2]
    assert two.paid_nano_usd == sum(job.paid_nano_usd for job in whole[:2])


@pytest.mark.parametrize("limit", [1, 4, 100])
def test_events_go_back_in_time(installation: Installation, past: Past, limit: int) -> None:
    listed = partial(events.events, installation)
    before = [event.id for event in listed(limit=None).events]
    seen: list[str] = []
    for page in pages(listed, limit=limit):
        seen = [event.id for event in page.events] + seen
        submit_job(installation, "later")
    assert seen == before
    of_one = pages(events.events, installation, "gpt", kinds=["migration.done"], limit=2)
    assert [[event.run_id for event in page.events] for page in of_one] == [
        [past.runs[1], past.runs[2]],
        [past.runs[0]],
    ]


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_ledger_entries(installation: Installation, past: Past, limit: int) -> None:
    with installation.store.read() as tx:
        model = tx.entries(run_id=past.runs[3])[-1]
    added = iter(range(4))

    def add() -> None:
        number = next(added, None)
        if number is not None:
            with installation.store.write() as tx:
                tx.add_entries(
                    [replace(model, id=f"later-{number}", kind="disk", period_start_ms=model.period_start_ms + number)]
                )

    listed = partial(ledger_entries.entries, installation)
    seen = read_through(listed, lambda page: [entry.id for entry in page.entries], add, limit)
    with installation.store.read() as tx:
        assert seen == [entry.id for entry in tx.entries()][: len(seen)]
        of_one = [entry.id for entry in tx.entries(job_id=past.conv)]
    assert [entry.id for page in pages(listed, "conv", limit=1) for entry in page.entries] == of_one


def moved(installation: Installation, cloud: FakeCloud, clock: VirtualClock) -> Callable[[], None]:
    """Prices leap at random and are polled: what was cheap is expensive, and the other way round."""
    chance = random.Random(1)

    def move() -> None:
        clock.advance(120)
        for offer in cloud.offers():
            cloud.set_price(offer.id, chance.randrange(10**8, 10**10))
        clock.advance(1)
        collect(installation)

    return move


@pytest.mark.parametrize("limit", [1, 5, 100])
@pytest.mark.parametrize("with_job", [False, True])
def test_offers_at_the_prices_of_the_first_page(
    installation: Installation, cloud: FakeCloud, clock: VirtualClock, with_job: bool, limit: int
) -> None:
    query, work = OfferQuery.of(cloud=["fake"]), spec() if with_job else None

    def listed(**arguments: Any) -> Any:
        now_ms = clock.now_ms()
        return listing.offers(installation.config, lambda: installation, query, now_ms=now_ms, spec=work, **arguments)

    collect(installation)
    first = listed(limit=None)
    move = moved(installation, cloud, clock)
    seen = read_through(listed, lambda page: [row.id for row in page.offers], move, limit)
    assert seen == [row.id for row in first.offers]
    assert first.next_cursor is None


def test_offers_page_through_simulated_and_real_ones_side_by_side(
    installation: Installation, clock: VirtualClock
) -> None:
    def listed(**arguments: Any) -> Any:
        query = OfferQuery.of(gpu="V100")
        return listing.offers(installation.config, lambda: installation, query, now_ms=clock.now_ms(), **arguments)

    all_rows = listed(limit=None).offers
    assert {row.simulated for row in all_rows} == {False, True}
    read = [list(page.offers) for page in pages(listed, limit=7)]
    assert all(sum(row.simulated is kind for row in page) <= 7 for page in read for kind in (False, True))
    in_order = [row for kind in (True, False) for page in read for row in page if row.simulated is kind]
    assert [row.id for row in in_order] == [row.id for row in all_rows]
    assert [row.nano_usd_per_hour for row in in_order] == [row.nano_usd_per_hour for row in all_rows]


@pytest.mark.parametrize("limit", [1, 4, 100])
def test_the_price_history_as_of_the_first_page(
    installation: Installation, cloud: FakeCloud, clock: VirtualClock, limit: int
) -> None:
    collect(installation)
    listed = partial(history.history, installation, PriceQuery(provider="fake"), since="1h")
    whole = listed(limit=None)
    seen = read_through(
        listed, lambda page: [each.offer_id for each in page.series], moved(installation, cloud, clock), limit
    )
    assert seen == [each.offer_id for each in whole.series]


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_polls_go_back_in_time(installation: Installation, clock: VirtualClock, limit: int) -> None:
    for _ in range(5):
        clock.advance(60)
        collect(installation)
    listed = partial(prices.polls, installation)
    before = [poll.started_ms for poll in listed("fake", limit=None).polls]
    assert before == sorted(before, reverse=True)
    seen = []
    for page in pages(listed, "fake", limit=limit):
        seen += [poll.started_ms for poll in page.polls]
        clock.advance(60)
        collect(installation)
    assert seen == before
    assert listed("aws").polls == ()


def test_a_cursor_belongs_to_one_listing_with_its_arguments(installation: Installation, past: Past) -> None:
    cursor = current.jobs(installation, ended=True, limit=1).next_cursor
    assert cursor is not None
    first, *others = current.jobs(installation, ended=True).jobs
    assert list(current.jobs(installation, ended=True, limit=2, cursor=cursor).jobs) == others
    assert first not in others
    assert len(cursor) < 100  # it is part of a command that people paste
    refused: list[Callable[[], object]] = [
        lambda: current.jobs(installation, cursor=cursor),
        lambda: current.jobs(installation, ended=True, project="vision", cursor=cursor),
        lambda: events.events(installation, cursor=cursor),
        lambda: current.jobs(installation, cursor=7),  # type: ignore[arg-type]
    ]
    for text in ("", "x", "?" * 9, cursor[:-8], cursor[::-1], cursor + "A" * 5000, "e30", "\ud800"):
        refused.append(partial(current.jobs, installation, ended=True, cursor=text))
    for call in refused:
        with pytest.raises(UsageError, match=r"not a cursor of the listing of .* with these arguments"):
            call()


@pytest.mark.parametrize("limit", [0, -1, 10_001, True, 2.0, "7"])
def test_a_limit_is_a_number_of_rows(installation: Installation, clock: VirtualClock, limit: Any) -> None:
    asked: list[Callable[[], object]] = [
        lambda: current.jobs(installation, limit=limit),
        lambda: events.events(installation, limit=limit),
        lambda: ledger_entries.entries(installation, limit=limit),
        lambda: prices.polls(installation, limit=limit),
        lambda: history.history(installation, PriceQuery(provider="fake"), limit=limit),
        lambda: listing.offers(installation.config, lambda: installation, now_ms=clock.now_ms(), limit=limit),
    ]
    for call in asked:
        with pytest.raises(UsageError, match="is not a number of rows"):
            call()
