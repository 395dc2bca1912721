"""Every page of the dashboard in a real browser: in both themes, on a telephone, and without scripts."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from tests.web.dashboard import HOSTILE, Served
from tests.web.inspection import PAGES, on_a_telephone, paths, watched

MOST_BYTES, WITH_CHART_DATA = 150_000, 250_000


@pytest.fixture(params=PAGES)
def path(request: pytest.FixtureRequest, fleet: Served) -> str:
    return paths(fleet.client)[request.param]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_says_nothing_to_the_console_is_accessible_and_small(
    browser: Browser, fleet: Served, path: str, dark: bool
) -> None:
    with watched(browser, dark=dark) as seen:
        seen.page.goto(fleet.url + path)
        seen.page.wait_for_load_state()
        if path == "/market":
            seen.page.locator(".uplot").wait_for()
        assert all(each.startswith(fleet.url) for each in seen.transferred)
        assert len(seen.transferred) >= 3
        data = sum(size for name, size in seen.transferred.items() if "series.json" in name)
        assert sum(seen.transferred.values()) - data <= MOST_BYTES
        assert sum(seen.transferred.values()) <= WITH_CHART_DATA
        assert seen.complaints() == []


def test_on_a_telephone_nothing_is_cut_off_or_small_and_scripts_are_not_needed(
    browser: Browser, fleet: Served, path: str
) -> None:
    assert on_a_telephone(browser, fleet.url + path) == []


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


def test_the_theme_that_a_reader_chooses_stays(browser: Browser, fleet: Served) -> None:
    context = browser.new_context(color_scheme="light", java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(f"{fleet.url}/jobs?sort=cost")
        page.click("#theme")
        assert page.url == f"{fleet.url}/jobs?sort=cost"
        assert page.locator("html").get_attribute("data-theme") == "dark"
        page.goto(f"{fleet.url}/")
        assert page.locator("html").get_attribute("data-theme") == "dark"
    finally:
        context.close()
