"""Claim: recorded prices are imported once, with implausible ones flagged, and a second import changes nothing.

    python -m benchmarks.recorded            every table of the folder `market` of the shared data
    python -m benchmarks.recorded --quick    the four small ones

The folder is `shared/market` next to the repository, or in TRADEWIND_SHARED. Prints for each table: rows, series, gaps
(longer than three times the usual interval; "-" if a table has only changes), and flagged rows by reason.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from time import process_time

from benchmarks._claims import Claim, show
from orchestrator.prices.recorded import import_prices
from orchestrator.prices.views import PriceImport
from orchestrator.store import Store
from providers.clock import SystemClock

SHARED = Path(os.environ.get("TRADEWIND_SHARED", Path(__file__).parents[2] / "shared"))
QUICK = (
    "aws_spot_2020_dispa.parquet",
    "azure_spot_2020_dispa.csv.gz",
    "ondemand_gpu_history_aws_azure.csv.gz",
    "snapshot_cross_cloud.csv.gz",
)


def tables(quick: bool) -> list[Path]:
    """The tables to import: all in the folder, or the small ones; none if there is no folder."""
    folder = SHARED / "market"
    if quick:
        return [folder / name for name in QUICK if (folder / name).exists()]
    return [folder] if folder.is_dir() else []


def lines(found: PriceImport) -> list[str]:
    reported = []
    for each in found.files:
        name = each.path.rpartition("/")[2]
        if each.skipped:
            reported.append(f"{name}: {each.skipped}")
            continue
        flags = ", ".join(f"{flag} {number}" for flag, number in each.flagged.items()) or "none"
        gaps = "-" if each.gaps is None else each.gaps
        reported.append(
            f"{name}: {each.rows} rows, {each.series} series, {gaps} gaps, {each.bad_rows} bad rows; flagged: {flags}"
        )
    return reported


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    files = tables(asked.quick)
    if not files:
        return show("Recorded prices", [], as_json=asked.json, notes=[f"skipped: no tables in {SHARED / 'market'}"])
    clock = SystemClock()
    now = clock.now_ms()
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(f"sqlite:///{folder}/tradewind.db", clock)
        started = process_time()
        first = import_prices(store, files, at_ms=now)
        cpu_s = process_time() - started
        second = import_prices(store, files, at_ms=now)
        store.close()
    claims = [
        Claim("rows read", sum(each.rows for each in first.files), "rows"),
        Claim("price changes stored", first.new_prices, "rows"),
        Claim("series", first.series, "series"),
        Claim("flagged rows", first.new_flags, "rows"),
        Claim("bad rows, skipped and reported", first.bad_rows, "rows"),
        Claim("CPU of the import", cpu_s, "s"),
        Claim("added by a second import", second.new_prices + second.new_flags + second.new_offers, "rows", 0),
    ]
    return show("Recorded prices", claims, as_json=asked.json, notes=lines(first))


if __name__ == "__main__":
    sys.exit(main())
