"""Every page of the dashboard in a real browser: in both themes, on a telephone, and without scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from orchestrator.reports.html.charts.frame import dollars, value_scale
from tests.web.dashboard import HOSTILE, Served
from tests.web.inspection import PAGES, Watched, complaints_on_a_telephone, paths, telephone, watched

LEAST_BYTES, MOST_BYTES, WITH_CHART_DATA = 20_000, 150_000, 250_000


@pytest.fixture(params=PAGES)
def path(request: pytest.FixtureRequest, fleet: Served) -> str:
    return paths(fleet.client)[request.param]


@pytest.fixture(scope="module", params=["light", "dark"])
def window(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Watched]:
    """One for all pages, because each new one is a new process of the browser."""
    with watched(browser, dark=request.param == "dark") as seen:
        yield seen


@pytest.fixture(scope="module")
def narrow(browser: Browser) -> Iterator[Page]:
    with telephone(browser) as page:
        yield page


def test_it_says_nothing_to_the_console_is_accessible_and_small(window: Watched, fleet: Served, path: str) -> None:
    window.open(fleet.url + path)
    window.page.wait_for_load_state()
    if path == "/market":
        window.page.locator(".uplot").wait_for()
    sent = dict(window.transferred)
    assert all(each.startswith(fleet.url) for each in sent)
    assert len(sent) >= 3
    assert sum(sent.values()) > LEAST_BYTES  # nothing of it came from the browser's cache
    data = sum(size for name, size in sent.items() if "series.json" in name)
    assert sum(sent.values()) - data <= MOST_BYTES
    assert sum(sent.values()) <= WITH_CHART_DATA
    assert window.complaints() == []


def test_on_a_telephone_nothing_is_cut_off_or_small_and_scripts_are_not_needed(
    narrow: Page, fleet: Served, path: str
) -> None:
    assert complaints_on_a_telephone(narrow, fleet.url + path) == []


def test_hostile_names_are_shown_as_the_text_that_they_are(browser: Browser, fleet: Served) -> None:
    with watched(browser) as seen:
        page = seen.page
        for path in ("/jobs", "/", *(f"/jobs/{job_id}" for job_id in fleet.jobs.values())):
            page.goto(fleet.url + path)
            assert "pwned" not in page.title() or "<script>" in page.title()
            assert page.locator("main script, main img").count() == 0
        page.goto(fleet.url + "/jobs")
        shown = page.locator("tbody th a").all_text_contents()
        assert set(HOSTILE) <= set(shown)
        assert seen.said == []


@pytest.mark.parametrize(("preferred", "other"), [("light", "dark"), ("dark", "light")])
def test_the_theme_that_a_reader_chooses_stays(browser: Browser, fleet: Served, preferred: str, other: str) -> None:
    scheme: Any = preferred
    context = browser.new_context(color_scheme=scheme, java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(f"{fleet.url}/jobs?sort=cost")
        assert page.locator(".tools a:visible").all_inner_texts() == [other.capitalize()]
        page.click(f"#to-{other}")
        assert page.url == f"{fleet.url}/jobs?sort=cost"
        assert page.locator("html").get_attribute("data-theme") == other
        page.goto(f"{fleet.url}/")
        assert page.locator("html").get_attribute("data-theme") == other
        assert page.locator(".tools a:visible").all_inner_texts() == [preferred.capitalize()]
    finally:
        context.close()


def test_every_page_has_its_twins(fleet: Served, path: str) -> None:
    status, _, body = fleet.get(path)
    if status == 200:
        links = dict(reversed(each) for each in re.findall(r'href="([^"]*)">(JSON|CSV)</a>', body.decode()))
        assert set(links) == {"JSON", "CSV"}
        assert fleet.json(unescape(links["JSON"]))["schema"]
        assert len(fleet.get(unescape(links["CSV"]))[2].splitlines()) > 1


def test_labels_of_amounts_are_exact_and_have_cents_below_ten_dollars() -> None:
    assert [dollars(each) for each in (0.0, 0.5, 0.173, 7.5, 20.0, 999.9, 1234.0)] == [
        "$0", "$0.50", "$0.173", "$7.50", "$20", "$1,000", "$1,234",
    ]  # fmt: skip
    assert [dollars(each) for each in (0.0011, 2.5e-7)] == ["$0.0011", "$0.00000025"]
    assert [label for _, label in value_scale([8.0])[1]] == ["$0", "$2.50", "$5.00", "$7.50"]
