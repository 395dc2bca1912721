"""The judge and the filter of news on real prices of 2019 to 2026 (the shared data; skipped where they are not)."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from providers.collect.judge import Changes, Judge
from providers.money import usd
from providers.offer import CapacityType, Offer
from providers.price import PricePoint
from tests.shared_data import shared


def rows(name: str) -> list[dict[str, Any]]:
    parquet = pytest.importorskip("pyarrow.parquet")
    return parquet.read_table(shared(f"market/{name}")).to_pylist()


def priced(row: dict[str, Any], cloud: str, capacity_type: CapacityType, at: datetime, price: float) -> Any:
    offer = Offer(cloud, row["region"], row["zone"] or "", row["instance_type"], row["gpu"], 1, 0, 0, capacity_type)
    at_ms = round(at.replace(tzinfo=at.tzinfo or UTC).timestamp() * 1000)
    return offer, PricePoint(offer.id, usd(price), at_ms, at_ms, "test")


def test_no_real_price_is_taken_for_an_outlier():
    """26,944 changes of three clouds, spot and on-demand, in order of time."""
    judge, said = Judge(), Counter[str]()
    for row in sorted(rows("market_events.parquet"), key=lambda row: row["observed_at"]):
        kind = CapacityType.SPOT if row["market"] == "spot" else CapacityType.ON_DEMAND
        offer, point = priced(row, row["cloud"], kind, row["observed_at"], row["usd_h"])
        said.update(flagged.flag.value for flagged in judge.judge([offer], [point]).flagged)
    assert said["outlier"] == 0
    assert sum(said.values()) <= 10, said


def test_what_aws_repeats_every_day_is_dropped_and_every_change_kept():
    """Of 16,560 records of AWS's answers, newest first as they came, 45 % repeat the price before."""
    found = [
        priced(row, "aws", CapacityType.SPOT, row["timestamp"], row["spot_price"])[1]
        for row in rows("aws_spot_2020_dispa.parquet")
    ]
    news = Changes().news(reversed(found))
    before: dict[str, int] = {}
    changes = 0
    for point in sorted(found, key=lambda point: (point.offer_id, point.effective_at_ms)):
        changes += before.get(point.offer_id) != point.nano_usd_per_hour
        before[point.offer_id] = point.nano_usd_per_hour
    assert len(news) == changes
    assert 0.4 < 1 - len(news) / len(found) < 0.5
