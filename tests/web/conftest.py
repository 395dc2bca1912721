"""A report page of recorded history, open in a real browser, in light and dark; what it asked for and said is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, Dialog, Page, sync_playwright

from orchestrator.config import load_config
from orchestrator.installation import Installation
from orchestrator.reports.html import page
from orchestrator.reports.report import report
from orchestrator.reports.views import ReportView
from orchestrator.store import Store
from providers.clock import VirtualClock
from providers.fake import FakeCloud, FakeProvider
from scripts.browser import REMEDY, find
from tests.unit.services.recorded_history import HOUR_MS, record, submit_job
from tests.web.dashboard import Served, small_fleet

LIGHT = ("--disable-gpu", "--disable-site-isolation-trials")  # pages of one site need no process each
HOSTILE = "<script>alert(1)</script>"
EXACTLY = "document.querySelectorAll('data[title]').forEach(each => { each.textContent = each.title; })"
"""Amounts are shown to the cent, and exactly on hover: sums are checked on the latter."""


@dataclass
class Opened:
    """A page, and what it did while it was open."""

    page: Page
    view: ReportView
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def refuse(self, dialog: Dialog) -> None:
        self.complaints.append(dialog.message)
        dialog.dismiss()

    def cells(self, caption: str, selector: str) -> list[list[str]]:
        """The rows of the table of that caption."""
        table = self.page.locator("table", has=self.page.locator("caption", has_text=caption))
        return [row.locator("th,td").all_text_contents() for row in table.locator(selector).all()]


@pytest.fixture(scope="session")
def view(tmp_path_factory: pytest.TempPathFactory) -> ReportView:
    folder = tmp_path_factory.mktemp("web")
    settings = {"state_dir": str(folder), "providers.enabled": "fake"}
    config = load_config(settings, environ={}, cwd=folder)
    clock = VirtualClock(1_700_000_000_000)
    provider = FakeProvider(clock, cloud=FakeCloud(clock, seed=1))
    installation = Installation(config, clock, Store.open(config.store_url, clock), {"fake": provider})
    record(installation)
    submit_job(installation, HOSTILE, project=HOSTILE)
    clock.advance(3 * HOUR_MS / 1000)
    made = report(installation)
    installation.close()
    return made


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with small_fleet(tmp_path_factory.mktemp("dashboard")) as served:
        yield served


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    executable = find()
    assert executable is not None, f"the page tests need a browser: {REMEDY}"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", *LIGHT])
        yield launched
        launched.close()


@pytest.fixture(scope="module", params=["light", "dark"])
def opened(
    request: pytest.FixtureRequest, browser: Browser, view: ReportView, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Opened]:
    """Loaded once in each theme: no test changes what it shows."""
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(page(view), encoding="utf-8")
    context = browser.new_context(color_scheme=request.param, viewport={"width": 1180, "height": 900})
    context.set_default_timeout(10_000)
    shown = Opened(context.new_page(), view)
    shown.page.on("request", lambda asked: shown.asked.append(asked.url))
    shown.page.on("dialog", shown.refuse)
    shown.page.on("console", lambda message: shown.complaints.append(message.text))
    shown.page.on("pageerror", lambda error: shown.complaints.append(str(error)))
    shown.page.goto(file.as_uri())
    shown.page.evaluate(EXACTLY)
    yield shown
    context.close()
