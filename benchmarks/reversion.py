"""Claim: on recorded markets, future mean prices lie within their intervals, and choosing by them costs at most 0.5 %
more.

    python -m benchmarks.reversion            recorded spot markets of the folder `market` of the shared data
    python -m benchmarks.reversion --quick    6 instants of each market instead of 24

At instants spread over each record, the benchmark learns from the 14 days before, as the engine does, and forecasts the
mean price over the next 1 to 168 hours for the offer of each GPU that would be chosen: the one with the lowest expected
mean. It measures how many means lie within the 90 % interval, how far they are from the forecast, and the cost of this
choice compared with choosing by the present price. (Most recorded prices hardly change; benchmarks.forecast shows the
gain on markets where they do.) Nothing is fitted to these records, which are in `shared/market` next to the repository,
or in TRADEWIND_SHARED.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks._claims import Claim, show
from orchestrator.engine.inputs.price_courses import LOOKED_BACK_MS
from orchestrator.market import History, PriceForecast
from orchestrator.market.reversion import HOUR_MS, course

SHARED = Path(os.environ.get("TRADEWIND_SHARED") or Path(__file__).parents[2] / "shared")
HORIZONS_H = (1.0, 8.0, 24.0, 72.0, 168.0)
INSTANTS, QUICK_INSTANTS = 24, 6
EVENTS = "market_events.parquet"
NEOCLOUDS = "neocloud_by_provider_2025.parquet"
MARKETS = {
    ("aws", "training_on_a_dime 2020"): "AWS spot 2020",
    ("aws", "skynomad-artifact 2023"): "AWS spot 2023",
    ("azure", "training_on_a_dime 2020"): "Azure spot 2020",
    ("gcp", "Cyclenerd pricing.yml"): "GCP spot 2023 to 2026",
}
NEOCLOUD = "lowest prices of neo-clouds 2025"


class Series(NamedTuple):
    """An offer's recorded prices, USD per GPU-hour, ascending in time."""

    gpu: str
    at_ms: NDArray[np.int64]
    price: NDArray[np.float64]


class Forecast(NamedTuple):
    """USD per GPU-hour of the offer with the lowest expected mean: that mean, its interval and the actual mean; and the
    actual mean of the offer that was cheapest at that instant."""

    expected: float
    low: float
    high: float
    came: float
    of_cheapest: float


def markets(folder: Path) -> Iterator[tuple[str, list[Series]]]:
    """The recorded spot markets by name."""
    rows: dict[str, list[tuple[tuple[str, ...], str, int, float]]] = defaultdict(list)
    for row in pq.read_table(folder / EVENTS).to_pylist():
        name = MARKETS.get((row["cloud"], row["source"]))
        if name is not None and row["market"] == "spot":
            key = (row["region"], row["zone"], row["instance_type"])
            rows[name].append((key, row["gpu"], _ms(row["observed_at"]), row["usd_h"] / row["gpus"]))
    for row in pq.read_table(folder / NEOCLOUDS).to_pylist():
        rows[NEOCLOUD].append(((row["gpu"], row["provider"]), row["gpu"], _ms(row["t"]), row["min_usd_gpu_h"]))
    for name, said in rows.items():
        yield name, list(_series(said))


def _ms(at: object) -> int:
    assert hasattr(at, "timestamp")
    return int(at.timestamp() * 1000)


def _series(rows: Iterable[tuple[tuple[str, ...], str, int, float]]) -> Iterator[Series]:
    by_offer: dict[tuple[str, ...], dict[int, float]] = defaultdict(dict)
    gpus = {}
    for key, gpu, at_ms, price in rows:
        by_offer[key][at_ms] = price
        gpus[key] = gpu
    for key, prices in by_offer.items():
        instants = sorted(prices)
        yield Series(gpus[key], np.array(instants, np.int64), np.array([prices[at_ms] for at_ms in instants]))


def forecasts(market: list[Series], instants: int) -> Iterator[Forecast]:
    """Forecasts for the offer of each GPU that is expected to be cheapest, at instants spread over the record."""
    begin_ms = min(int(each.at_ms[0]) for each in market) + LOOKED_BACK_MS
    end_ms = max(int(each.at_ms[-1]) for each in market) - int(max(HORIZONS_H)) * HOUR_MS
    for now_ms in np.linspace(begin_ms, end_ms, instants).astype(np.int64).tolist():
        sold = [each for each in market if each.at_ms[0] <= now_ms - HOUR_MS and each.at_ms[-1] > now_ms]
        known = [_until(each, now_ms) for each in sold]
        if not sold:
            continue
        price = np.array([each.price[-1] for each in known])
        level = np.array([_mean(each, int(each.at_ms[0]), now_ms) for each in known])
        rows = np.zeros(len(sold), np.int64)
        ahead = PriceForecast(
            (price * 1e9).astype(np.int64), level * 1e9, np.ones(len(sold), bool), rows, [course(known)]
        )
        for hours in HORIZONS_H:
            seconds = np.array([hours * 3600])
            expected = price * ahead.mean(seconds, rows)
            low, high = (expected * each for each in ahead.range(seconds, rows))
            for gpu in sorted({each.gpu for each in sold}):
                of_gpu = [row for row, each in enumerate(sold) if each.gpu == gpu]
                best = min(of_gpu, key=lambda row: float(expected[row]))
                cheapest = min(of_gpu, key=lambda row: float(price[row]))
                came = [_came(sold[row], now_ms, hours) for row in (best, cheapest)]
                yield Forecast(*(float(each[best]) for each in (expected, low, high)), *came)


def _came(series: Series, now_ms: int, hours: float) -> float:
    whole = History(series.at_ms, series.price, int(series.at_ms[-1]) + LOOKED_BACK_MS)
    return _mean(whole, now_ms, now_ms + int(hours * HOUR_MS))


def _until(series: Series, now_ms: int) -> History:
    """The market as the engine knows it at an instant."""
    since_ms = now_ms - LOOKED_BACK_MS
    first = max(int(np.searchsorted(series.at_ms, since_ms, side="right")) - 1, 0)
    last = int(np.searchsorted(series.at_ms, now_ms, side="right"))
    return History(np.maximum(series.at_ms[first:last], since_ms), series.price[first:last], now_ms)


def _mean(history: History, start_ms: int, end_ms: int) -> float:
    at = np.append(history.at_ms, history.until_ms).astype(np.float64)
    paid = np.concatenate(([0.0], np.cumsum(history.price * np.diff(at))))
    since, until = np.interp((start_ms, end_ms), at, paid)
    return float((until - since) / (end_ms - start_ms))


def claims_of(found: Mapping[str, list[Forecast]]) -> list[Claim]:
    claims = []
    for name, each in found.items():
        expected, low, high, came, of_cheapest = np.array(each).T
        inside = 100 * float(np.mean((low <= came) & (came <= high)))
        error = 100 * float(np.median(np.abs(np.log(came / expected))))
        claims += [
            Claim(f"{name}: means within the interval", inside, "%", 80.0, least=True),
            Claim(f"{name}: paid / when choosing by present price", float(np.mean(came / of_cheapest)), "ratio", 1.005),
            Claim(f"{name}: median error", error, "%"),
            Claim(f"{name}: forecasts", len(each), "forecasts"),
        ]
    return claims


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    folder = SHARED / "market"
    if not folder.is_dir():
        return show("Future mean prices", [], as_json=asked.json, notes=[f"no recorded markets in {folder}"])
    instants = QUICK_INSTANTS if asked.quick else INSTANTS
    found = {name: list(forecasts(market, instants)) for name, market in markets(folder)}
    return show("Future mean prices", claims_of(found), as_json=asked.json)


if __name__ == "__main__":
    sys.exit(main())
