"""docs/dashboard-*.webp: the dashboard of the generated fleet, as the browser shows it.

`python -m scripts.picture_dashboard [FOLDER]`; `--all` takes every page in both themes and at 390 px, for review.
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from orchestrator.client import Client
from orchestrator.services.caller import Caller
from orchestrator.web.demo.opening import demo_installation
from orchestrator.web.serve import serving
from orchestrator.web.site import Site
from scripts.browser import REMEDY, find

DOCS = Path(__file__).resolve().parent.parent / "docs"
WIDE, NARROW = (1240, 900), (390, 844)
SHOWN = {  # name: address, theme, window, whole page
    "overview": ("/", "light", WIDE, False),
    "job": ("/jobs/JOB", "dark", WIDE, False),
    "market": ("/market?gpu=A100-40GB", "dark", WIDE, False),
}
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
    "/policies",
    "/health",
)
QUALITY = 82


def main() -> None:
    every = "--all" in sys.argv
    named = [each for each in sys.argv[1:] if each != "--all"]
    folder = Path(named[0]) if named else DOCS
    executable = find()
    if executable is None:
        sys.exit(f"the pictures need a browser: {REMEDY}")
    wanted = SHOWN
    if every:
        wanted = {
            f"{path.strip('/').replace('/', '-') or 'overview'}-{theme}-{window[0]}": (path, theme, window, True)
            for path in PAGES
            for theme, window in (("light", WIDE), ("dark", WIDE), ("light", NARROW))
        }
    with demo_installation() as made, sync_playwright() as playwright:
        client = Client.over(made, Caller("demo"))
        running = client.reports.jobs(limit=200).jobs
        job = max((each for each in running if each.state == "running"), key=lambda each: each.migrations)
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        with serving(Site(client, demo=True)) as address:
            for name, (path, theme, window, whole) in wanted.items():
                image = picture(browser, address + path.replace("JOB", job.id), theme, window, whole=whole)
                (folder / f"dashboard-{name}.webp").write_bytes(image)
                print(f"dashboard-{name}.webp", len(image))
        browser.close()


def picture(browser: Browser, address: str, theme: str, window: tuple[int, int], *, whole: bool) -> bytes:
    """A page as WebP."""
    context = browser.new_context(
        color_scheme="dark" if theme == "dark" else "light", viewport={"width": window[0], "height": window[1]}
    )
    page = context.new_page()
    page.goto(address)
    page.wait_for_timeout(500)  # for the chart that a script draws
    size = page.evaluate("({width: innerWidth, height: document.documentElement.scrollHeight})")
    clip = {"x": 0, "y": 0, "scale": 1, "width": window[0], "height": size["height"] if whole else window[1]}
    asked = {"format": "webp", "quality": QUALITY, "clip": clip, "captureBeyondViewport": True}
    taken = context.new_cdp_session(page).send("Page.captureScreenshot", asked)
    context.close()
    return base64.b64decode(taken["data"])


if __name__ == "__main__":
    main()
