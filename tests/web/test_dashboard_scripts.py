"""What scripts add in a real browser: an open page shows news and leaves its reader alone; a long chart zooms."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, Page, expect

from orchestrator.client import Client
from orchestrator.model import Event
from orchestrator.services.caller import Caller
from orchestrator.web.demo.lives import DAY_MS
from orchestrator.web.demo.opening import NOW_MS, generated
from orchestrator.web.serve import serving
from orchestrator.web.site import Site
from providers.offer import CapacityType, Offer
from providers.price import PricePoint
from tests.web.dashboard import HOSTILE, Served
from tests.web.inspection import paths, watched

SOON_MS = 20_000


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with watched(browser) as seen:
        yield seen.page
        assert seen.said == []


def happen(fleet: Served, words: str) -> None:
    """Another process writes an event of a job."""
    job_id = fleet.jobs[HOSTILE[2]]
    with fleet.installation.store.write() as tx:
        tx.add_event(Event(f"ev_{words}", fleet.installation.clock.now_ms(), "job.note", words, "tester", job_id))


def open_job(page: Page, fleet: Served) -> None:
    page.goto(f"{fleet.url}/jobs/{fleet.jobs[HOSTILE[2]]}")
    expect(page.locator("#live-state")).to_have_text(", live", timeout=SOON_MS)


def test_an_open_page_shows_an_event_without_a_reload_and_keeps_focus_and_place(page: Page, fleet: Served) -> None:
    open_job(page, fleet)
    page.evaluate("window.stayed = true")
    page.set_viewport_size({"width": 1280, "height": 300})
    page.locator("#to-dark").focus()
    page.evaluate("scrollTo(0, 250)")
    happen(fleet, "news_that_is_shown")
    expect(page.locator("main")).to_contain_text("news_that_is_shown", timeout=SOON_MS)
    assert page.evaluate("window.stayed")
    assert page.evaluate("scrollY") == 250
    assert page.evaluate("document.activeElement.id") == "to-dark"


def test_a_page_whose_reader_is_in_the_middle_of_something_is_left_alone_and_says_that_there_is_news(
    page: Page, fleet: Served
) -> None:
    open_job(page, fleet)
    link = page.locator("main a").first
    link.focus()
    happen(fleet, "news_that_waits")
    expect(page.locator("#live-state")).to_contain_text("newer data is available", timeout=SOON_MS)
    assert "news_that_waits" not in page.locator("main").inner_text()
    expect(link).to_be_focused()
    page.reload()
    expect(page.locator("main")).to_contain_text("news_that_waits")


def test_local_time_is_that_of_the_whole_page_which_names_it(browser: Browser, fleet: Served) -> None:
    context = browser.new_context(timezone_id="America/New_York")
    page = context.new_page()
    page.goto(fleet.url + paths(fleet.client)["/jobs/JOB"])
    in_utc = page.locator("footer time").text_content(), page.locator(".plot .x").all_inner_texts()
    expect(page.locator("#zone-name")).to_have_text("UTC")
    page.locator("#zone").click()
    for _ in range(2):  # also after a reload
        expect(page.locator("#zone-name")).to_have_text("local time (America/New_York)")
        instants = page.evaluate("[...document.querySelectorAll('time')].map(of => [of.dateTime, of.textContent])")
        assert len({at for at, _ in instants}) > 10
        for at, shown in instants:
            local = datetime.fromisoformat(at).astimezone(ZoneInfo("America/New_York"))
            forms = ("%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d", "%H:%M", "%-d %b %H:%M")
            assert shown in [local.strftime(form) for form in forms], (at, shown)
        page.reload()
    page.locator("#zone").click()
    assert (page.locator("footer time").text_content(), page.locator(".plot .x").all_inner_texts()) == in_utc
    charts = page.locator("figure", has=page.locator("figcaption", has_text="Where it ran"))
    assert charts.locator(".x time").count() == charts.locator(".x span").count() > 2
    context.close()


@pytest.fixture
def long_history(tmp_path: Path) -> Iterator[Served]:
    """A dashboard of a store with one offer, whose price changed 4,000 times in 80 days."""
    offer = Offer("aws", "us-east-1", "us-east-1a", "g6.xlarge", "L4", 1, 4, 16 << 30, CapacityType.SPOT)
    times = range(NOW_MS - 80 * DAY_MS, NOW_MS - DAY_MS, 80 * DAY_MS // 4000)
    with generated(tmp_path) as made:
        with made.store.write() as tx:
            tx.put_offers("aws", [offer])
            tx.add_prices(
                PricePoint(offer.id, 10**8 + n * 37 % 101 * 10**6, at, at, "test") for n, at in enumerate(times)
            )
        client = Client.over(made, Caller("tester"))
        with serving(Site(client)) as url:
            yield Served(url, client, made)


def test_a_zoomed_chart_gets_the_prices_that_were_left_out_and_its_period_is_in_the_address(
    page: Page, long_history: Served
) -> None:
    page.goto(f"{long_history.url}/market?since=90d")
    box = page.locator(".u-over").bounding_box()
    assert box is not None
    with page.expect_response(lambda answer: "until=" in answer.url) as finer:
        page.mouse.move(box["x"] + 300, box["y"] + 50)
        page.mouse.down()
        page.mouse.move(box["x"] + 360, box["y"] + 50, steps=4)
        page.mouse.up()
    page.wait_for_url("**until=*")
    whole, part = long_history.json("/market/series.json?since=90d")["times"], finer.value.json()["times"]
    assert len(whole) < 600
    assert part[-1] - part[0] < (whole[-1] - whole[0]) / 10
    assert len(part) > 2 * len([at for at in whole if part[0] < at < part[-1]])
    query = urlsplit(page.url).query
    assert long_history.json(f"/market.json?{query}")["from_ms"] / 1000 == part[0]
    page.reload()
    expect(page.locator(".u-over")).to_be_visible()
    assert urlsplit(page.url).query == query
