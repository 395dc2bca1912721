"""What people open the dashboard for, in at most three clicks, and without scripts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.web.dashboard import Served


@pytest.fixture
def page(browser: Browser, fleet: Served) -> Iterator[Page]:
    context = browser.new_context(java_script_enabled=False)
    made = context.new_page()
    made.goto(fleet.url)
    yield made
    context.close()


def test_a_manager_finds_what_each_project_cost_last_month_and_why_in_two_clicks(page: Page, fleet: Served) -> None:
    page.get_by_role("link", name="Where it went").click()
    page.get_by_role("link", name="2026-10", exact=True).click()
    view = fleet.client.reports.costs("project", month="2026-10")
    body = page.locator("table").inner_text()
    for row in view.rows:
        amounts = page.locator("tr", has=page.get_by_role("link", name=row.name, exact=True)).locator("data")
        assert amounts.first.get_attribute("value") == str(row.amount_nano_usd)
    assert "machine hours" in body
    assert "price per hour" in body


def test_an_engineer_finds_why_a_job_moved_last_night_in_three_clicks(page: Page, fleet: Served) -> None:
    moved = next(
        each for each in fleet.client.reports.moves(since="1d").moves if each.migration.source_run_id is not None
    )
    assert moved.from_offer_id is not None
    page.get_by_role("link", name="Why jobs moved").click()
    row = page.locator("tbody tr", has=page.get_by_role("link", name=moved.job_name, exact=True)).first
    assert moved.migration.reason in row.inner_text()
    row.get_by_role("link", name=moved.job_name, exact=True).click()
    runs = page.locator("table", has=page.locator("caption", has_text="Runs")).inner_text()
    assert moved.migration.reason in runs
    page.get_by_role("link", name="the decision").first.click()
    offers = page.locator("tbody tr").all_inner_texts()
    assert len(offers) > 2
    assert any("chosen" in each for each in offers)
