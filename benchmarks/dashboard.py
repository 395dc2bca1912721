"""The dashboard under load: 50 readers for 60 s on loopback while another process writes to the store. Offline.

    python benchmarks/dashboard.py [--quick] [--json]

The store is the generated fleet (simulated): 1,000 jobs over three months. The server is this process; the readers are
threads of a second one and ask for one page after the other; a third one writes an event and an entry of the audit
trail again and again, as the control plane does, before the readers begin and while they read. CPU time per page is
that of the server and depends less on the load of the machine than the times that readers wait.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any
from urllib.request import urlopen

from benchmarks._claims import Claim, show
from orchestrator.client import Client
from orchestrator.model import Event, new_id
from orchestrator.services.caller import Caller
from orchestrator.store import Store
from orchestrator.web.demo.fleet import Size
from orchestrator.web.demo.opening import NOW_MS, demo_installation
from orchestrator.web.serve import serving
from orchestrator.web.site import Site
from providers.clock import VirtualClock

READERS, QUICK_READERS, LASTS_S, QUICK_LASTS_S = 50, 8, 60.0, 5.0
ALONE_S, QUICK_ALONE_S = 10.0, 2.0
WRITE_EVERY_S = 0.1
PAGES = ("/", "/jobs", "/costs", "/ledger", "/market", "/migrations", "/plans", "/health")
ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="200 jobs, 8 readers for 5 s")
    parser.add_argument("--json", action="store_true", help="print the claims as JSON")
    parser.add_argument("--read", nargs=3, metavar=("URL", "READERS", "SECONDS"), help=argparse.SUPPRESS)
    parser.add_argument("--write", nargs=2, metavar=("STORE", "SECONDS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        return read(options.read[0], int(options.read[1]), float(options.read[2]))
    if options.write:
        return write(options.write[0], float(options.write[1]))
    quick = options.quick
    readers, lasts_s = (QUICK_READERS, QUICK_LASTS_S) if quick else (READERS, LASTS_S)
    with (
        TemporaryDirectory() as folder,
        demo_installation(Path(folder) / "fleet", Size(jobs=200) if quick else Size()) as made,
    ):
        url = made.config.store_url
        with serving(Site(Client.over(made, Caller("benchmark")))) as address:
            for page in PAGES:
                urlopen(address + page).read()
            cost = {page: page_cpu_s(address + page, 3 if quick else 20) for page in PAGES}
            alone = child("--write", url, str(QUICK_ALONE_S if quick else ALONE_S))
            began = time.monotonic()
            writing = start("--write", url, str(lasts_s))
            waited = child("--read", address, str(readers), str(lasts_s))
            beside = json.loads(writing.communicate()[0])
            lasted = time.monotonic() - began
    worst = max(cost, key=lambda page: cost[page])
    cuts = quantiles(waited["seconds"], n=100)
    claims = [
        Claim("pages that failed", waited["errors"], "pages", 0),
        Claim(f"CPU time of the slowest page ({worst})", cost[worst] * 1000, "ms", 200),
        Claim(f"a reader waits, median of {readers} readers", cuts[49] * 1000, "ms"),
        Claim("a reader waits, 99th percentile", cuts[98] * 1000, "ms"),
        Claim("pages per second", len(waited["seconds"]) / lasted, "1/s"),
        Claim(
            "CPU time of a write beside the readers, of one alone",
            median(beside["cpu_s"]) / median(alone["cpu_s"]),
            "x",
            1.1,
        ),
        Claim(
            "a write takes beside the readers, of one alone", median(beside["seconds"]) / median(alone["seconds"]), "x"
        ),
    ]
    return show("Dashboard", claims, as_json=options.json)


def page_cpu_s(url: str, times: int) -> float:
    """The CPU time of this process for a page, the reader's included; median."""
    found = []
    for _ in range(times):
        began = time.process_time()
        urlopen(url).read()
        found.append(time.process_time() - began)
    return median(found)


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.dashboard", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def child(*arguments: str) -> dict[str, Any]:
    with start(*arguments) as process:
        found: dict[str, Any] = json.loads(process.communicate()[0])
    return found


def read(address: str, readers: int, lasts_s: float) -> int:
    seconds: list[float] = []
    errors: list[str] = []
    end = time.monotonic() + lasts_s

    def reader(number: int) -> None:
        place = number
        while time.monotonic() < end:
            began = time.monotonic()
            try:
                urlopen(address + PAGES[place % len(PAGES)], timeout=60).read()
            except OSError as error:
                errors.append(str(error))
            seconds.append(time.monotonic() - began)
            place += 1

    threads = [Thread(target=reader, args=(number,)) for number in range(readers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"seconds": seconds, "errors": len(errors)}))
    return 0


def write(url: str, lasts_s: float) -> int:
    store, at = Store.open(url, VirtualClock(NOW_MS)), Random()
    seconds, cpu_s = [], []
    end = time.monotonic() + lasts_s
    while time.monotonic() < end:
        began, used = time.monotonic(), time.process_time()
        with store.write() as tx:
            tx.add_event(Event(new_id("ev", NOW_MS, at), NOW_MS, "benchmark", "a write", "benchmark"))
        seconds.append(time.monotonic() - began)
        cpu_s.append(time.process_time() - used)
        time.sleep(WRITE_EVERY_S)
    store.close()
    print(json.dumps({"seconds": seconds, "cpu_s": cpu_s}))
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
