"""The dashboard of a large installation: its pages in a real browser, and 50 readers beside a control plane. Offline.

    python benchmarks/dashboard.py [--quick] [--json]

The store is the generated fleet (simulated): 1,000 jobs over three months, 100,000 ledger entries, a million prices. In
Chromium, each page is opened in both themes and on a telephone without scripts, as in tests/web; the bytes are those
sent to the browser. The server time of a page is CPU time, which depends least on other work on the machine; for one
reader on an idle machine it is nearly all of the time until the answer is complete, which is also reported.

Then the same fleet is served by a separate process, with the priority and cores of a dashboard (benchmarks._server),
while a real control plane with 100 running jobs works on the same SQLite file in another process (benchmarks._ticks).
Twelve times, five seconds without readers and five seconds with 50 readers, which run in a third process, follow each
other, in alternating order. The benchmark compares the median tick of the two periods of each pair, in CPU time and in
wall time, and reports the median ratio of all pairs: a virtual machine changes its speed within minutes, and that
changes both periods of a pair alike. CPU time is the additional work that readers cause in the control plane. Wall time
also includes the wait for a core. The ratio may be below one: without readers the cores sleep between two ticks, and a
sleeping core of a virtual machine takes milliseconds to wake.

`--quick`: 100 jobs, three pages in one theme each, eight readers for three seconds, a control plane with 10 jobs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from shutil import copytree
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.request import urlopen

from playwright.sync_api import sync_playwright

from benchmarks._claims import Claim, show
from orchestrator.client import Client
from orchestrator.installation import Installation
from orchestrator.services.caller import Caller
from orchestrator.store import Interval
from orchestrator.web.demo.fleet import Size, write_fleet
from orchestrator.web.demo.opening import NOW_MS, demo_installation, generated
from orchestrator.web.serve import serving
from orchestrator.web.site import Site
from scripts.browser import REMEDY, find
from tests.web.inspection import PAGES, complaints_on_a_telephone, paths, telephone, watched

JOBS, ENTRIES, PRICES = 1000, 100_000, 1_000_000
MISSING = "/jobs/nowhere"
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Extent:
    """The size of the measurement."""

    size: Size
    pages: Sequence[str]
    both_themes: bool
    requests: int  # of each page
    readers: int
    jobs: int  # that the control plane runs
    rounds: int
    period_s: float


def extent(*, quick: bool) -> Extent:
    """The sizes of a quick and of a full run."""
    if quick:
        return Extent(Size(jobs=100), ("/", "/jobs/JOB", "/market"), False, 5, 8, 10, 4, 1.0)
    return Extent(Size(JOBS, 330.0, 112), PAGES, True, 20, 50, 100, 12, 5.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small fleet and few readers; under 50 s")
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    options = parser.parse_args()
    if find() is None:
        sys.exit(f"the pages need a browser: {REMEDY}")
    how, claims, machine_load = extent(quick=options.quick), list[Claim](), os.getloadavg()[0]
    with TemporaryDirectory() as folder:
        home, load = Path(folder) / "fleet", Path(folder) / "load"
        home.mkdir()
        began_s = time.process_time()
        with generated(home) as made:
            write_fleet(made, how.size)
        claims.append(Claim("CPU time of generating the fleet", time.process_time() - began_s, "s"))
        copytree(home, load)
        with demo_installation(home) as made:
            client = Client.over(made, Caller("benchmark"))
            claims += of_the_fleet(made, client, how)
            with serving(Site(client, demo=True)) as address:
                pages = {page: address + path for page, path in paths(client).items() if page in how.pages}
                claims += of_the_browser(pages, both_themes=how.both_themes)
                claims += of_the_server(pages, how.requests)
        claims += of_the_load(load, how)
    notes = [f"{os.cpu_count()} cores; load of the machine at the start: {machine_load:.1f}."]
    return show("Dashboard", claims, as_json=options.json, notes=notes)


def of_the_fleet(made: Installation, client: Client, how: Extent) -> list[Claim]:
    """The size of the store."""
    with made.store.read() as tx:
        jobs = tx.count_jobs()
        prices = sum(of.whole for of in tx.price_series([Interval(o.id, 0, NOW_MS) for o in tx.find_offers()], 1))
    entries = client.reports.ledger(limit=1).count
    whole = how.size.jobs == JOBS
    return [
        Claim("jobs", jobs, "jobs", JOBS if whole else None, least=True),
        Claim("ledger entries", entries, "entries", ENTRIES if whole else None, least=True),
        Claim("price points", prices, "points", PRICES if whole else None, least=True),
    ]


def of_the_browser(pages: Mapping[str, str], *, both_themes: bool) -> list[Claim]:
    """The claims about pages in Chromium. Problems on a page are written to stderr."""
    wrong, narrow, without, with_data = list[str](), list[str](), dict[str, int](), dict[str, int]()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find(), args=["--no-sandbox"])
        for number, (page, address) in enumerate(pages.items()):
            for dark in (False, True) if both_themes else (number % 2 == 1,):
                with watched(browser, dark=dark) as seen:
                    seen.page.goto(address, wait_until="networkidle" if page == "/market" else "load")
                    data = sum(size for name, size in seen.transferred.items() if "series.json" in name)
                    with_data[page] = sum(seen.transferred.values())
                    without[page] = with_data[page] - data
                    wrong += [f"{page}: {each}" for each in seen.complaints()]
            with telephone(browser) as small:
                narrow += [f"{page}: {each}" for each in complaints_on_a_telephone(small, address)]
        browser.close()
    for each in (*wrong, *narrow):
        print(each, file=sys.stderr)
    heavy, heaviest = max(without, key=lambda page: without[page]), max(with_data, key=lambda page: with_data[page])
    return [
        Claim(f"{len(pages)} pages: complaints of the console and of axe-core", len(wrong), "complaints", 0),
        Claim("at 390 px: cut off, sideways, or under 12 px", len(narrow), "complaints", 0),
        Claim(f"transferred before chart data, largest page ({heavy})", without[heavy] / 1000, "kB", 150),
        Claim(f"transferred, largest page ({heaviest})", with_data[heaviest] / 1000, "kB", 250),
    ]


def of_the_server(pages: Mapping[str, str], requests: int) -> list[Claim]:
    """The time of each page for one reader in the same process."""
    cpu, wall = dict[str, list[float]](), list[float]()
    for page, address in pages.items():
        if page == MISSING:
            continue
        for number in range(requests + 1):
            began_s, used_s = time.monotonic(), time.process_time()
            urlopen(address).read()
            if number:  # the first one warms caches
                cpu.setdefault(page, []).append(time.process_time() - used_s)
                wall.append(time.monotonic() - began_s)
    slow = max(cpu, key=lambda page: median(cpu[page]))
    every = [seconds for of in cpu.values() for seconds in of]
    return [
        Claim("server time of a page (CPU), median", 1000 * median(every), "ms"),
        Claim("server time of a page (CPU), 95th percentile", 1000 * part(every, 95), "ms", 200),
        Claim(f"- of the slowest page ({slow}), 95th percentile", 1000 * part(cpu[slow], 95), "ms", 200),
        Claim("until a page is there (wall), 95th percentile", 1000 * part(wall, 95), "ms"),
    ]


def of_the_load(home: Path, how: Extent) -> list[Claim]:
    """Readers and their cost for a control plane."""
    ticking = process("_ticks", str(home), str(how.jobs), stdin=subprocess.PIPE)
    assert ticking.stdin is not None
    assert ticking.stdout is not None
    try:
        training = int(ticking.stdout.readline().split()[1])
        waits, errors, read_s = list[float](), list[str](), 0.0
        quiet, crowded = list[tuple[float, float]](), list[tuple[float, float]]()
        served = process("_server", str(home), stdin=subprocess.PIPE)
        assert served.stdout is not None
        try:
            site = json.loads(served.stdout.readline())
            address, pages = site["address"], [path for page, path in site["paths"].items() if page != MISSING]
            for page in pages:
                urlopen(address + page).read()
            for number in range(how.rounds):
                for with_readers in (False, True) if number % 2 == 0 else (True, False):
                    if not with_readers:
                        began_s = time.monotonic()
                        time.sleep(how.period_s)
                        quiet.append((began_s, time.monotonic()))
                        continue
                    reading = process("_readers", address, str(how.readers), str(how.period_s), *pages)
                    found = json.loads(reading.communicate()[0])
                    crowded.append((found["began_s"], found["ended_s"]))
                    read_s += found["ended_s"] - found["began_s"]
                    waits += found["seconds"]
                    errors += found["errors"]
        finally:
            served.communicate()  # closes its input, at which it ends
    finally:
        printed, _ = ticking.communicate()  # closes its input, at which it ends
    ticks = [Tick(*each) for each in json.loads(printed)]
    pairs = [[[tick for tick in ticks if tick.within(of)] for of in pair] for pair in zip(quiet, crowded, strict=True)]
    alone, beside = ([tick for pair in pairs for tick in pair[number]] for number in (0, 1))
    cpu, wall = ([median(map(of, pair[1])) / median(map(of, pair[0])) for pair in pairs] for of in (CPU, WALL))
    for each in sorted(set(errors)):
        print(each, file=sys.stderr)
    return [
        Claim("runs of the control plane that train", training, "runs", how.jobs, least=True),
        Claim(f"{how.readers} readers for {read_s:.0f} s: pages that failed", len(errors), "pages", 0),
        Claim("a reader waits, median", 1000 * median(waits), "ms"),
        Claim("a reader waits, 99th percentile", 1000 * part(waits, 99), "ms"),
        Claim("pages per second", len(waits) / read_s, "1/s"),
        Claim("CPU time of a tick beside readers, of one without", median(cpu), "x", 1.1),
        Claim(f"- without, median of {len(alone)}", 1000 * median(map(CPU, alone)), "ms"),
        Claim(f"- beside, median of {len(beside)}", 1000 * median(map(CPU, beside)), "ms"),
        Claim("wall time of a tick beside readers, of one without", median(wall), "x", 1.1),
        Claim(f"- lowest of {len(wall)} pairs", min(wall), "x"),
        Claim(f"- highest of {len(wall)} pairs", max(wall), "x"),
        Claim("- without, median", 1000 * median(map(WALL, alone)), "ms"),
        Claim("- beside, median", 1000 * median(map(WALL, beside)), "ms"),
    ]


class Tick(NamedTuple):
    """The start of a tick on the monotonic clock, and its time without the simulated cloud and trainers."""

    began_s: float
    cpu_s: float
    wall_s: float

    def within(self, period: tuple[float, float]) -> bool:
        """Whether it began and ended in this period."""
        return period[0] <= self.began_s and self.began_s + self.wall_s <= period[1]


CPU, WALL = attrgetter("cpu_s"), attrgetter("wall_s")


def process(module: str, *arguments: str, stdin: int | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdin=stdin, stdout=subprocess.PIPE, text=True)


def part(values: Sequence[float], percent: int) -> float:
    """A percentile."""
    return quantiles(values, n=100)[percent - 1]


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
