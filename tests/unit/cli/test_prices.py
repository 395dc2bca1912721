"""`prices ...`: results on stdout, the rest on stderr, exit codes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pytest
from typer.testing import Result

from orchestrator.cli.render import render
from orchestrator.cli.render.screens.prices import polled
from orchestrator.cli.render.screens.prices import status as price_status
from orchestrator.cli.render.text import Screen
from orchestrator.config import load_config
from orchestrator.installation import Installation, open_installation
from orchestrator.prices.views import CollectedRegion, PricedRegion, PriceStatus
from orchestrator.services.prices import history, prices
from orchestrator.services.prices.history import PriceQuery
from providers.clock import VirtualClock
from providers.offer import CapacityType, Offer
from providers.price import PricePoint
from tests.disks import mounted

Run = Callable[..., Result]
HEAD = "provider,region,zone,instance_type,gpu,gpu_count,capacity_type,price_per_hour,effective_at\n"
OFFER = "aws/r/z/p5/spot"


@pytest.fixture
def imported(tradewind: Run) -> Run:
    rows = [f"aws,r,z,p5,H100,8,spot,{price},2026-01-{day:02}" for day, price in enumerate((8, 16, 12), 1)]
    Path("prices.csv").write_text(HEAD + "\n".join(rows) + "\n")
    assert tradewind("prices", "import", "prices.csv").exit_code == 0
    return tradewind


def test_the_chart_shows_steps_per_gpu_hour_and_names_each_line(imported: Run) -> None:
    result = imported("prices", "history", OFFER, "--since", "2025-12-01")
    assert result.exit_code == 0, result.stderr
    assert "\x1b" not in result.stdout
    assert "aws/z p5" in result.stdout
    assert OFFER in imported("prices", "history", OFFER, "--since", "2025-12-01", "--wide").stdout
    assert "$1.5000/h  $1.0000/h  $2.0000/h        3" in result.stdout
    assert "┤" in result.stdout
    assert "no longer listed" in result.stdout


def test_history_as_csv_and_json_is_exact(imported: Run) -> None:
    table = imported(
        "prices", "history", "--gpu", "h100", "--provider", "aws", "--since", "2025-12-01", "--output", "csv"
    ).stdout
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [row["price_per_hour"] for row in rows] == ["8.000000000", "16.000000000", "12.000000000"]
    assert {row["offer_id"] for row in rows} == {OFFER}
    document = json.loads(imported("prices", "history", OFFER, "--output", "json").stdout)
    assert document["schema"] == "tradewind/price-history/v1"
    assert [point[2] for point in document["series"][0]["points"]] == [12_000_000_000]


def test_an_offer_or_gpu_that_is_unknown_is_met_with_the_nearest(imported: Run) -> None:
    wrong = imported("prices", "history", "aws/r/z/p6/spot")
    assert (wrong.exit_code, OFFER in wrong.stderr) == (4, True)
    assert imported("prices", "history", "--gpu", "H1000").exit_code == 2
    assert imported("prices", "history").exit_code == 2
    assert imported("prices", "history", OFFER, "--since", "then").exit_code == 2


def test_bad_rows_are_reported_and_the_import_exits_with_8(tradewind: Run) -> None:
    Path("prices.csv").write_text(
        HEAD + "aws,r,z,p5,H100,8,spot,dear,2026-01-01\naws,r,z,p5,H100,8,spot,8,2026-01-01\n"
    )
    result = tradewind("prices", "import", "prices.csv")
    assert result.exit_code == 8
    assert "prices.csv:2:1: price_per_hour: 'dear'" in result.stdout
    assert "new: 1 offers, 1 prices" in result.stdout


def test_what_is_exported_can_be_imported_and_changes_nothing(imported: Run) -> None:
    assert "3 price changes" in imported("prices", "export", "out.csv", "--provider", "aws").stdout
    result = imported("prices", "import", "out.csv")
    assert "new: 0 offers, 0 prices, 0 flagged rows" in result.stdout


def test_the_archive_is_in_the_state_folder(imported: Run, state: Path) -> None:
    pytest.importorskip("pyarrow")
    result = imported("prices", "archive")
    assert result.exit_code == 0, result.stderr
    assert (state / "archive" / "prices-2026-01.parquet").exists()
    assert imported("prices", "archive", "--keep-days", "1").exit_code == 2


def test_a_poll_of_the_enabled_providers_shows_in_the_status(tradewind: Run) -> None:
    collected = tradewind("prices", "collect", "--once")
    assert collected.exit_code == 0, collected.stderr
    assert "0 failed" in collected.stdout
    status = tradewind("prices", "status")
    assert [line.split()[:3] for line in status.stdout.splitlines()[1:2]] == [["ok", "fake", "all"]]
    assert "simulated" in status.stdout


def test_an_implausible_price_is_shown_and_accepted_by_name(tradewind: Run) -> None:
    Path("verda.csv").write_text(HEAD.removesuffix(",effective_at\n") + "\nverda,FIN-01,,8H,H100,8,on_demand,0.98\n")
    assert tradewind("prices", "collect", "--once", "--feed", "verda=verda.csv").exit_code == 0
    assert (
        "verda/FIN-01//8H/on_demand: $0.12/h for one H100 on demand, but elsewhere it costs"
        in tradewind("prices", "status").stdout
    )
    accepted = tradewind("prices", "accept", "verda/FIN-01//8H/on_demand")
    assert accepted.exit_code == 0, accepted.stderr
    assert "accepted at $0.9800/h" in accepted.stdout
    again = tradewind("prices", "accept", "verda/FIN-01//8H/on_demand")
    assert (again.exit_code, "not flagged" in again.stderr) == (2, True)
    assert tradewind("prices", "accept", "verda/FIN-01//8J/on_demand").exit_code == 4


def test_a_feed_that_fails_is_marked_with_its_remedy_and_exits_with_8(tradewind: Run) -> None:
    result = tradewind("prices", "collect", "--once", "--feed", "verda=missing.csv")
    assert result.exit_code == 8
    assert "missing.csv cannot be read" in result.stdout
    status = tradewind("prices", "status").stdout
    assert "fail  feed:verda" in status
    assert "never" in status
    assert "hint: check the path of the feed" in status


def test_regions_that_fail_alike_are_reported_in_one_line(tradewind: Run, state: Path) -> None:
    installation = open_installation(load_config({"state_dir": str(state), "providers.enabled": "fake"}, environ={}))
    with installation.store.write() as tx:
        for region in ("eastus", "uksouth", "westus", "westus2", "westus3"):
            why = "no such host" if region != "uksouth" else "it is off"
            tx.record_poll("azure", 1, 2, 0, 0, why, source="azure-prices", region=region, hint="look there")
    installation.close()
    status = tradewind("prices", "status").stdout
    assert "azure-prices eastus, westus, westus2 and 1 more: no such host\n  hint: look there" in status
    assert "azure-prices uksouth: it is off" in status


def test_a_full_disk_keeps_nothing_by_halves_and_the_next_collection_makes_up_for_it(
    tradewind: Run, state: Path
) -> None:
    head = HEAD.removesuffix(",effective_at\n")
    rows = [f"verda,FIN-01,z,{number}H100,H100,8,spot,{number / 1000 + 8}" for number in range(3000)]
    Path("verda.csv").write_text("\n".join([head, *rows]))
    state.mkdir(exist_ok=True)
    with mounted(state, "size=2m"):
        assert tradewind("prices", "collect", "--once").exit_code == 0
        filler = state / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        full = tradewind("prices", "collect", "--once", "--feed", "verda=verda.csv")
        assert full.exit_code != 0
        assert "full" in full.stderr
        assert "rolled back" in full.stderr
        filler.unlink()
        assert "verda" not in tradewind("prices", "status").stdout
        made_up = tradewind("prices", "collect", "--once", "--feed", "verda=verda.csv")
        assert made_up.exit_code == 0, made_up.stderr
        assert "3000" in made_up.stdout.replace(",", "")


@pytest.mark.parametrize("arguments", [("--cloud", "nimbus"), ("--feed", "verda")])
def test_a_source_that_is_none_is_refused(tradewind: Run, arguments: tuple[str, str]) -> None:
    assert tradewind("prices", "collect", "--once", *arguments).exit_code == 2


def test_a_history_goes_by_the_clock_of_its_market_and_never_shows_two(tmp_path: Path) -> None:
    day_ms = 86_400_000
    made = open_installation(load_config({"state_dir": str(tmp_path), "providers.enabled": "fake"}, environ={}))
    ahead_ms = made.clock.now_ms() + 400 * day_ms
    installation = Installation(made.config, VirtualClock(ahead_ms, factor=600.0), made.store, made.providers)
    real = Offer("aws", "us-east-1", "use1-az1", "p3", "V100", 1, 8, 1 << 36, CapacityType.SPOT)
    simulated = Offer("fake", "alpha", "alpha-1", "v100.1", "V100", 1, 8, 1 << 36, CapacityType.SPOT, simulated=True)
    with made.store.write() as tx:
        for offer, now_ms in ((real, installation.outside_clock.now_ms()), (simulated, ahead_ms)):
            tx.put_offers(offer.provider, [offer])
            ago = ((days, now_ms - days * day_ms) for days in (60, 20, 10))
            tx.add_prices(PricePoint(offer.id, days * 10**8, at_ms, at_ms, "x") for days, at_ms in ago)
    both = history.history(installation, PriceQuery(gpu="V100"), since="15d")
    assert [(each.offer_id, len(each.points)) for each in both.series] == [(real.id, 2)]
    assert (both.simulated, both.left_out, both.other_market) == (False, 0, 1)
    assert "1 simulated offers also match" in render(both, Screen())
    alone = history.history(installation, PriceQuery(gpu="V100", provider="fake"), since="15d")
    assert [(each.offer_id, len(each.points)) for each in alone.series] == [(simulated.id, 2)]
    made.close()


def test_watching_tells_changes_and_failures_as_they_come(tmp_path: Path) -> None:
    made = open_installation(load_config({"state_dir": str(tmp_path), "providers.enabled": "fake"}, environ={}))
    prices.collect(made)
    with made.store.read() as tx:
        first = tx.newest_prices()[0]

    class Waking(VirtualClock):
        """Something happens while the watcher sleeps."""

        def sleep(self, wall_s: float) -> None:
            super().sleep(wall_s)
            at = self.now_ms()
            with made.store.write() as tx:
                tx.add_prices([PricePoint(first.offer_id, first.nano_usd_per_hour * 2, at, at, "test")])
                tx.record_poll("fake", at, at, 0, 0, "no answer")

    installation = Installation(made.config, Waking(first.effective_at_ms), made.store, made.providers)
    seen = list(islice(prices.watch(installation), 2))
    assert [(each.offer_id, each.error) for each in seen] == [(first.offer_id, None), (None, "no answer")]
    assert [(each.source, each.simulated) for each in seen] == [("test", True), ("fake", True)]
    assert "+100.0%" in render(seen[0], Screen())
    assert all(" market  " in render(each, Screen()) for each in seen)
    assert "no answer" in render(seen[1], Screen())
    made.close()


def test_skipped_rows_are_counted_by_reason_next_to_flagged_ones() -> None:
    view = CollectedRegion(
        "aws-spot", "us-east-1", 0, 2000, 3, 1, 2, None, "", passed={"no_gpu": 40, "other_product": 2}
    )
    shown = polled(view, Screen())
    assert "2 flagged, 42 ignored (40 no_gpu, 2 other_product), 2 s" in shown
    region = PricedRegion(
        "aws", "aws-spot", "us-east-1", 2000, 1.0, 0, 3, {"outlier": 2}, None, None, None, "40 no_gpu", False
    )
    last = price_status(PriceStatus(3000, (region,), (), 0, False), Screen())
    assert ("ignored" in last, "40 no_gpu" in last, "outlier 2" in last) == (True, True, True)
