"""What is looked at on every page: what it says to the console, if it is accessible, and if all of it can be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Dialog, Page

from orchestrator.client import Client

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
WIDE, TELEPHONE = (1280, 900), (390, 800)
SMALLEST_PX = 12
PAGES = (
    "/",
    "/jobs",
    "/jobs/JOB",
    "/costs",
    "/ledger",
    "/market",
    "/market/frontier",
    "/migrations",
    "/plans",
    "/plans/PLAN",
    "/policies",
    "/health",
    "/jobs/nowhere",
)
_SMALLEST = """() => {
  let least = {size: 99, text: ""};
  for (const node of document.querySelectorAll("body *")) {
    const words = [...node.childNodes].filter(n => n.nodeType === 3).map(n => n.data.trim()).join("");
    if (!words || !node.getClientRects().length) continue;
    const size = parseFloat(getComputedStyle(node).fontSize);
    if (size < least.size) least = {size, text: words};
  }
  return least;
}"""
_WIDER_THAN_ITS_CARD = """() => [...document.querySelectorAll("main .scroll")]
  .filter(node => node.scrollWidth > node.clientWidth + 1).map(node => node.getAttribute("aria-label"))"""
_CUT_OFF = """() => [...document.querySelectorAll("main *")].filter(node => {
  const box = node.getBoundingClientRect();
  return box.width && box.right > innerWidth + 1 && !node.closest(".scroll, pre, .plot, caption");
}).map(node => node.outerHTML.slice(0, 120))"""


@dataclass
class Watched:
    """A page, what it said (console, dialogs, errors), and the bytes of each answer that it was sent, by address."""

    page: Page
    said: list[str] = field(default_factory=list)
    transferred: dict[str, int] = field(default_factory=dict)

    def refuse(self, dialog: Dialog) -> None:
        self.said.append(dialog.message)
        dialog.dismiss()

    def open(self, address: str) -> None:
        """Go there; what was said and sent before is forgotten."""
        self.said.clear()
        self.transferred.clear()
        self.page.goto(address)

    def complaints(self) -> list[str]:
        """All that is wrong with how it looks and what it says in a wide window. Changes what is loaded."""
        found = [f"wider than its card: {each}" for each in self.page.evaluate(_WIDER_THAN_ITS_CARD)]
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        result = self.page.evaluate("axe.run({resultTypes: ['violations']})")
        found += [
            f"axe, {each['id']}: {[node['html'][:120] for node in each['nodes']][:3]}" for each in result["violations"]
        ]
        found += [] if len(result["passes"]) > 10 else ["axe found nothing to look at"]
        return found + [each for each in self.said if "404 (Not Found)" not in each]


def paths(client: Client) -> dict[str, str]:
    """The address of each of PAGES: with the job that moved most often, and the newest plan."""
    busiest = max(client.reports.jobs(limit=1000).jobs, key=lambda each: each.migrations)
    plan_id = client.reports.moves(since="90d").moves[0].migration.plan_id
    return {path: path.replace("JOB", busiest.id).replace("PLAN", plan_id or "") for path in PAGES}


@contextmanager
def watched(browser: Browser, *, dark: bool = False) -> Iterator[Watched]:
    """An empty page in a wide window, which is listened to."""
    theme, size = "dark" if dark else "light", {"width": WIDE[0], "height": WIDE[1]}
    context = browser.new_context(color_scheme=theme, viewport=size, bypass_csp=True)  # type: ignore[arg-type]
    try:
        made = Watched(context.new_page())
        made.page.on("console", lambda message: made.said.append(message.text))
        made.page.on("pageerror", lambda error: made.said.append(str(error)))
        made.page.on("dialog", made.refuse)
        names: dict[str, str] = {}
        session = context.new_cdp_session(made.page)
        session.send("Network.enable")
        session.send("Network.setCacheDisabled", {"cacheDisabled": True})
        session.on("Network.requestWillBeSent", lambda of: names.update({of["requestId"]: of["request"]["url"]}))
        session.on("Network.loadingFinished", lambda of: _count(made, names, of))
        yield made
    finally:
        context.close()


@contextmanager
def telephone(browser: Browser) -> Iterator[Page]:
    """An empty page on a narrow screen, without scripts."""
    context = browser.new_context(viewport={"width": TELEPHONE[0], "height": TELEPHONE[1]}, java_script_enabled=False)
    try:
        yield context.new_page()
    finally:
        context.close()


def complaints_on_a_telephone(page: Page, address: str) -> list[str]:
    """All that is wrong with an address there."""
    page.goto(address)
    wide, least = page.evaluate("document.documentElement.scrollWidth"), page.evaluate(_SMALLEST)
    found = [f"cut off: {each}" for each in page.evaluate(_CUT_OFF)]
    found += [] if wide <= TELEPHONE[0] else [f"the page is {wide} px wide"]
    found += [] if least["size"] >= SMALLEST_PX else [f"{least['size']} px: {least['text'][:40]}"]
    return found + ([] if page.locator("h1").count() == 1 else ["it has no title"])


def _count(watched: Watched, names: dict[str, str], ended: dict[str, Any]) -> None:
    name = names.get(ended["requestId"], "")
    if name.startswith("data:"):
        return  # an image in a style sheet
    watched.transferred[name] = watched.transferred.get(name, 0) + int(ended["encodedDataLength"])
