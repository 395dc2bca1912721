"""Every page of the dashboard in a real browser: in both themes, on a telephone, and without scripts."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog

from tests.web.dashboard import HOSTILE, Served

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
PAGES = (
    "/",
    "/jobs",
    "/jobs/JOB",
    "/costs",
    "/ledger",
    "/market",
    "/migrations",
    "/plans",
    "/plans/PLAN",
    "/policies",
    "/health",
    "/jobs/nowhere",
)
SMALLEST = """() => {
  let least = {size: 99, text: ""};
  for (const node of document.querySelectorAll("body *")) {
    const words = [...node.childNodes].filter(n => n.nodeType === 3).map(n => n.data.trim()).join("");
    if (!words || !node.getClientRects().length) continue;
    const size = parseFloat(getComputedStyle(node).fontSize);
    if (size < least.size) least = {size, text: words};
  }
  return least;
}"""
WIDER_THAN_ITS_CARD = """() => [...document.querySelectorAll("main .scroll")]
  .filter(node => node.scrollWidth > node.clientWidth + 1).map(node => node.getAttribute("aria-label"))"""
CUT_OFF = """() => [...document.querySelectorAll("main *")].filter(node => {
  const box = node.getBoundingClientRect();
  return box.width && box.right > innerWidth + 1 && !node.closest(".scroll, pre, .plot, caption");
}).map(node => node.outerHTML.slice(0, 120))"""


def refuse(dialog: Dialog, said: list[str]) -> None:
    said.append(dialog.message)
    dialog.dismiss()


@pytest.fixture(params=PAGES)
def path(request: pytest.FixtureRequest, fleet: Served) -> str:
    busiest = max(fleet.client.reports.jobs(limit=1000).jobs, key=lambda each: each.migrations)
    plan_id = fleet.client.reports.moves(since="90d").moves[0].migration.plan_id
    return str(request.param).replace("JOB", busiest.id).replace("PLAN", plan_id or "")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_says_nothing_to_the_console_and_is_accessible(
    browser: Browser, fleet: Served, path: str, theme: str
) -> None:
    context = browser.new_context(color_scheme=theme, viewport={"width": 1280, "height": 900}, bypass_csp=True)
    said: list[str] = []
    try:
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: refuse(dialog, said))
        page.goto(fleet.url + path)
        asked = page.evaluate("performance.getEntriesByType('resource').map(each => each.name)")
        assert all(each.startswith(fleet.url) for each in asked)
        assert page.evaluate(WIDER_THAN_ITS_CARD) == []
        page.evaluate(AXE.read_text(encoding="utf-8"))
        result = page.evaluate("axe.run()")
        found = [(each["id"], [node["html"][:120] for node in each["nodes"]][:3]) for each in result["violations"]]
        assert found == []
        assert len(result["passes"]) > 10
        assert [each for each in said if "404 (Not Found)" not in each] == []
    finally:
        context.close()


def test_on_a_telephone_nothing_is_cut_off_or_small_and_scripts_are_not_needed(
    browser: Browser, fleet: Served, path: str
) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 800}, java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(fleet.url + path)
        assert page.locator("h1").count() == 1
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.evaluate(CUT_OFF) == []
        assert page.evaluate(SMALLEST)["size"] >= 12
    finally:
        context.close()


def test_a_page_is_small_on_the_wire(fleet: Served, path: str) -> None:
    status, headers, body = fleet.get(path, **{"Accept-Encoding": "gzip"})
    assert status == (404 if path.endswith("nowhere") else 200)
    text = gzip.decompress(body).decode() if headers.get("content-encoding") == "gzip" else body.decode()
    loaded = len(body)
    for address in set(text.split('"')):
        if address.startswith("/static/"):
            loaded += len(fleet.get(address, **{"Accept-Encoding": "gzip"})[2])
    assert loaded <= 150_000


def test_hostile_names_are_shown_as_the_text_that_they_are(browser: Browser, fleet: Served) -> None:
    context = browser.new_context()
    said: list[str] = []
    try:
        page = context.new_page()
        page.on("dialog", lambda dialog: refuse(dialog, said))
        page.on("console", lambda message: said.append(message.text))
        for path in ("/jobs", "/", *(f"/jobs/{job_id}" for job_id in fleet.jobs.values())):
            page.goto(fleet.url + path)
            assert "pwned" not in page.title() or "<script>" in page.title()
            assert page.locator("main script, main img").count() == 0
        page.goto(fleet.url + "/jobs")
        shown = page.locator("tbody th a").all_text_contents()
        assert set(HOSTILE) <= set(shown)
        assert said == []
    finally:
        context.close()


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
