"""Import, export, archive, status and history of prices, on stores with a past."""

from __future__ import annotations

import csv
import gzip
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import NotFoundError, UsageError
from orchestrator.prices.archive import archive, export
from orchestrator.prices.recorded import import_prices
from orchestrator.prices.views import PriceImport
from orchestrator.services.prices.history import instant_of
from orchestrator.store import Store
from providers.clock import VirtualClock
from providers.money import usd
from providers.offer import CapacityType, Offer
from providers.price import PricePoint
from tests.shared_data import shared

NOW = 1_790_000_000_000  # 2026-09-21
DAY = 86_400_000
RECORDED = (  # all of it: benchmarks/recorded.py
    "aws_spot_2020_dispa.parquet",
    "azure_spot_2020_dispa.csv.gz",
    "ondemand_gpu_history_aws_azure.csv.gz",
    "snapshot_cross_cloud.csv.gz",
)
HEAD = "provider,region,zone,instance_type,gpu,gpu_count,capacity_type,price_per_hour,effective_at"


@pytest.fixture
def store(tmp_path: Path, template: Path) -> Iterator[Store]:
    shutil.copy(template, tmp_path / "tradewind.db")
    opened = Store.open(f"sqlite:///{tmp_path}/tradewind.db", VirtualClock(NOW))
    yield opened
    opened.close()


def write(path: Path, *rows: str, head: str = HEAD) -> Path:
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


def changes(store: Store, offer_id: str) -> list[int]:
    with store.read() as tx:
        return [price for _, price in tx.price_changes(offer_id, 0, NOW)]


def flags(store: Store, offer_id: str) -> list[tuple[str, int | None]]:
    with store.read() as tx:
        return [(row.flag, row.nano_usd_per_hour) for row in tx.flags_of(offer_id)]


def series(days: list[str], *, market: str = "spot", provider: str = "aws", kind: str = "p3") -> list[str]:
    return [f"{provider},r,z,{kind},V100,1,{market},{price},2026-01-{day:02}" for day, price in enumerate(days, 1)]


def test_an_import_is_looked_back_at_and_never_rented(store: Store, tmp_path: Path) -> None:
    found = import_prices(store, [write(tmp_path / "a.csv", *series(["1.5", "1.5", "2"]))])
    assert (found.new_offers, found.new_prices, found.bad_rows) == (1, 2, 0)
    assert changes(store, "aws/r/z/p3/spot") == [usd("1.5"), usd(2)]
    with store.read() as tx:
        assert tx.offers() == []
        assert [offer.gpu for offer in tx.find_offers(provider="aws")] == ["V100"]


def test_a_real_price_of_the_future_is_a_bad_row(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", *series(["1.5"]), "aws,r,z,p3,V100,1,spot,2,2035-01-01")
    found = import_prices(store, [path], now_ms=NOW)
    assert changes(store, "aws/r/z/p3/spot") == [usd("1.5")]
    assert [problem.partition(": ")[2] for problem in found.problems] == [
        "effective_at: is in the future (correct it and import again)"
    ]


def test_the_good_rows_of_a_file_count_and_the_bad_ones_are_reported_with_file_row_and_field(
    store: Store, tmp_path: Path
) -> None:
    path = write(
        tmp_path / "a.csv",
        "aws,r,z,p3,V100,1,spot,cheap,2026-01-01",
        "aws,r,z,p3,V100,1,spot,1.5,yesterday",
        "aws,r,z,p3,V100,1,block,1.5,2026-01-01",
        "aws,r,z,p3,V100,many,spot,1.5,2026-01-01",
        "aws,r/s,z,p3,V100,1,spot,1.5,2026-01-01",
        "aws,r,z,p3,V100,1,spot,-1,2026-01-01",
        "aws,r,z,p3,V100,1,spot,1.5,2026-01-02",
    )
    found = import_prices(store, [path])
    assert changes(store, "aws/r/z/p3/spot") == [usd("1.5")]
    assert found.bad_rows == 6
    fields = ["price_per_hour", "effective_at", "capacity_type", "gpu_count", "region", "price_per_hour"]
    for line, (problem, field) in enumerate(zip(found.problems, fields, strict=True), 2):
        assert problem.startswith(f"{path}:{line}:1: {field}: ")
        assert "import again" in problem


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"what,ever\n1,2\n", "no machine prices"),
        ("a.csv", b"region,instance_type,spot_price,date\nr,t,1,2026-01-01\n", "provider"),
        ("a.csv", b"provider,region,instance_type,spot_price\naws,r,t,1\n", "for the time"),
        ("a.csv", b"\xff\xfe\x00", "UTF-8"),
        ("a.csv.gz", b"not packed", "cannot be read"),
        ("a.csv.gz", gzip.compress(HEAD.encode(), mtime=0)[:-12], "is incomplete"),
        ("a.parquet", b"PAR1 and no more", "Parquet|cannot be read"),
    ],
)
def test_a_file_that_is_not_a_table_of_prices_is_refused_with_the_remedy(
    store: Store, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        import_prices(store, [tmp_path / name])
    assert caught.value.hint


def test_rows_before_the_end_of_a_truncated_file_are_kept_and_the_end_is_reported(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    rows = [f"aws,r,z{number},p3,V100,1,spot,1.{number:04},2026-01-01" for number in range(2000)]
    path.write_bytes(gzip.compress("\n".join([HEAD, *rows]).encode())[:-2000])
    found = import_prices(store, [path])
    assert 0 < found.new_prices < 2000
    assert found.bad_rows >= 1
    assert "is incomplete (download it again)" in found.problems[-1]


def test_rows_that_are_cut_short_or_have_too_many_fields_are_counted_and_reported_with_their_lines(
    store: Store, tmp_path: Path
) -> None:
    path = write(
        tmp_path / "a.csv",
        "aws,r,z,p3,V100,1,spot,1.5,2026-01-01",
        "aws,r,z,p3,V100,1,spot",
        "aws,r,z,p3,V100,1,spot,1.5",
        "aws,r,z,p3,V100,1,spot,1,500,2026-01-01",
        "",
        "aws,r,z,p3,V100,1,spot,2,2026-01-02",
        "aws,r",
    )
    found = import_prices(store, [path])
    assert changes(store, "aws/r/z/p3/spot") == [usd("1.5"), usd(2)]
    assert found.bad_rows == 4
    reported = [problem.removeprefix(f"{path}:") for problem in found.problems]
    assert [each.partition(":")[0] for each in reported] == ["3", "4", "5", "8"]
    assert "has 7 fields, but the header names 9" in reported[0]
    assert "has 10 fields, but the header names 9" in reported[2]


def test_a_folder_is_read_as_one_history_and_what_is_none_is_named(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    write(folder / "notes.csv", "1", head="what")
    write(folder / "spot.csv", *series(["1"]))
    found = import_prices(store, [folder])
    assert [(Path(file.path).name, file.skipped) for file in found.files] == [
        ("notes.csv", "no machine prices"),
        ("spot.csv", ""),
    ]
    with pytest.raises(NotFoundError):
        import_prices(store, [tmp_path / "missing.csv"])


def test_spot_that_is_not_cheaper_than_on_demand_is_payable_and_not_eligible(store: Store, tmp_path: Path) -> None:
    """On-demand of the same type and region, at that time, in any file of the import."""
    on_demand = write(tmp_path / "od.csv", "aws,r,,p3,V100,1,on-demand,3.00,2026-01-02")
    spot = write(tmp_path / "spot.csv", *series(["2.9", "2.9", "2.84", "2.86"]))
    import_prices(store, [spot, on_demand])
    assert changes(store, "aws/r/z/p3/spot") == [usd("2.9"), usd("2.84"), usd("2.86")], "each is what it cost"
    assert flags(store, "aws/r/z/p3/spot") == [
        ("spot_not_below_on_demand", usd("2.9")),
        ("spot_not_below_on_demand", usd("2.86")),
    ]
    with store.read() as tx:
        priced = [
            {point.offer_id for point in tx.eligible_as_of(instant_of(f"2026-01-{day:02}T12:00", NOW))}
            for day in (1, 2, 3, 4)
        ]
    assert ["aws/r/z/p3/spot" in each for each in priced] == [True, False, True, True]  # the last flag ends at once
    with store.read() as tx:
        assert tx.flags() == []


@pytest.mark.parametrize(
    ("prices", "outliers"),
    [
        (["2", "10", "2"], ["10"]),  # the slip of a pen
        (["2", "0.5", "2.1"], ["0.5"]),
        (["2", "10", "10", "2"], []),  # confirmed
        (["2", "10", "9"], []),  # it went on
        (["2", "5", "2"], []),
        (["2", "21"], ["21"]),  # a leap that nothing confirms yet
        (["2", "19"], []),
        (["10", "2", "2"], []),
    ],
)
def test_a_price_that_its_neighbours_contradict_is_an_outlier(
    store: Store, tmp_path: Path, prices: list[str], outliers: list[str]
) -> None:
    import_prices(store, [write(tmp_path / "a.csv", *series(prices))])
    assert flags(store, "aws/r/z/p3/spot") == [("outlier", usd(price)) for price in outliers]


def test_a_price_where_no_hardware_is_known_is_a_phantom(store: Store, tmp_path: Path) -> None:
    """GCP lists prices for regions without the machine: only what some table of the import says is offered counts."""
    head = "provider,region,instance_type,gpu,gpu_count,spot_usd_h,ondemand_usd_h,observed_at,offered_known"
    rows = [f"gcp,{region},a3,H100,8,2,20,2026-01-01,{offered}" for region, offered in
            (("has", "True"), ("lacks", "False"), ("unknown", ""))]  # fmt: skip
    known = write(tmp_path / "known.csv", *rows, head=head)
    events = write(tmp_path / "events.csv", *(f"gcp,{each},,a3,H100,8,spot,3,2026-02-01" for each in ("has", "lacks")))
    import_prices(store, [events, known])
    assert changes(store, "gcp/has//a3/spot") == [usd(2), usd(3)]
    assert flags(store, "gcp/has//a3/spot") == []
    assert [flag for flag, _ in flags(store, "gcp/lacks//a3/spot")] == ["no_hardware"] * 2
    assert [flag for flag, _ in flags(store, "gcp/unknown//a3/on_demand")] == ["no_hardware"]
    assert changes(store, "gcp/unknown//a3/spot") == []


def test_gaps_are_shown_where_a_table_repeats_what_has_not_changed(store: Store, tmp_path: Path) -> None:
    rows = [f"aws,r,z,p3,V100,1,spot,{1 + day // 40},2026-{1 + day // 28:02}-{1 + day % 28:02}" for day in range(80)]
    del rows[20:30]
    (daily,) = import_prices(store, [write(tmp_path / "a.csv", *rows)]).files
    (events,) = import_prices(store, [write(tmp_path / "b.csv", *series(["1", "2", "1.5", "1"]))]).files
    assert (daily.gaps, events.gaps) == (1, None)


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet"])
def test_what_was_exported_is_imported_exactly(store: Store, tmp_path: Path, name: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    rows = [*series(["1.234567891", "0.987654321"]), "verda,eu,,big,,0,on-demand,7,2026-01-01T00:00:00.123Z"]
    import_prices(store, [write(tmp_path / "a.csv", *rows)])
    written = export(store, tmp_path / name)
    assert written.rows == 3
    other = Store.open(f"sqlite:///{tmp_path}/other.db", VirtualClock(NOW))
    import_prices(other, [tmp_path / name])
    with store.read() as one, other.read() as two:
        assert list(two.points_between(0, NOW)) == list(one.points_between(0, NOW))
    assert import_prices(store, [tmp_path / name]).new_prices == 0
    other.close()


def test_an_export_of_gcp_comes_back_and_knocks_no_live_offer_out(store: Store, tmp_path: Path) -> None:
    """Whatever has a price in the store was offered: only others' tables of GCP list what is not there."""
    live = Offer("gcp", "us-central1", "us-central1-a", "a3", "H100", 8, 208, 2**40, CapacityType.SPOT)
    with store.write() as tx:
        tx.put_offers("gcp", [live], source="gcp-prices", region="us-central1")
        tx.add_prices([PricePoint(live.id, usd(9), NOW - DAY, NOW - DAY, "gcp")])
    export(store, tmp_path / "out.csv")
    other = Store.open(f"sqlite:///{tmp_path}/other.db", VirtualClock(NOW))
    assert (import_prices(other, [tmp_path / "out.csv"]).new_flags, changes(other, live.id)) == (0, [usd(9)])
    other.close()
    foreign = write(tmp_path / "b.csv", "gcp,us-central1,us-central1-a,a3,H100,8,spot,3,2026-09-20")
    assert import_prices(store, [tmp_path / "out.csv", foreign]).new_flags == 0  # the export says that it is offered
    assert import_prices(store, [foreign]).new_flags == 1
    with store.read() as tx:
        assert [each.offer_id for each in tx.eligible_as_of(NOW)] == [live.id]


def test_an_export_that_cannot_be_written_says_so(store: Store, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not known"):
        export(store, tmp_path / "out.xlsx")
    with pytest.raises(UsageError, match="cannot be written"):
        export(store, tmp_path / "missing" / "out.csv")


def test_the_archive_holds_what_leaves_the_store_and_brings_it_back(store: Store, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    days = [f"aws,r,z,p3,V100,1,spot,{1 + day % 3},2025-{1 + day // 28:02}-{1 + day % 28:02}" for day in range(300)]
    import_prices(store, [write(tmp_path / "a.csv", *days)])
    with store.read() as tx:
        everything = list(tx.points_between(0, NOW))
    done = archive(store, tmp_path / "archive", NOW, keep_days=400)
    assert sum(month.rows for month in done.months) == len(everything)
    assert done.prices_removed > 100
    cut = done.kept_from_ms
    with store.read() as tx:
        in_force = max(each[1].effective_at_ms for each in everything if each[1].effective_at_ms <= cut)
        assert list(tx.points_between(0, NOW)) == [each for each in everything if each[1].effective_at_ms >= in_force]
    again = archive(store, tmp_path / "archive", NOW, keep_days=400)
    assert (again.months, again.prices_removed, again.rolled_up) == ((), 0, 0)
    assert import_prices(store, [tmp_path / "archive"]).new_prices == done.prices_removed
    with store.read() as tx:
        assert list(tx.points_between(0, NOW)) == everything
    with pytest.raises(UsageError, match="at least 31"):
        archive(store, tmp_path / "archive", NOW, keep_days=3)


def test_history_learned_late_is_added_to_the_month_that_is_archived(store: Store, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import_prices(store, [write(tmp_path / "a.csv", *series(["1", "2"]))])
    archive(store, tmp_path / "archive", NOW)
    import_prices(store, [write(tmp_path / "b.csv", *series(["3"], kind="p4"))])
    (month,) = archive(store, tmp_path / "archive", NOW).months
    assert (month.month, month.rows) == ("2026-01", 3)


def test_history_learned_after_its_months_left_is_archived_before_it_leaves(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    clock = VirtualClock(NOW)
    store = Store.open(f"sqlite:///{tmp_path}/late.db", clock)
    early = [f"aws,r,z,p3,V100,1,spot,{month},2026-{month:02}-02" for month in range(5, 10)]
    import_prices(store, [write(tmp_path / "a.csv", *early)])
    assert archive(store, tmp_path / "archive", clock.now_ms(), keep_days=31).prices_removed > 0
    late = [f"aws,r,z,p3,V100,1,spot,{day},2026-01-{day:02}" for day in (10, 20)]
    import_prices(store, [write(tmp_path / "b.csv", *late)])
    clock.advance(40 * 86_400)
    archive(store, tmp_path / "archive", clock.now_ms(), keep_days=31)
    store.close()
    other = Store.open(f"sqlite:///{tmp_path}/other.db", clock)
    import_prices(other, [tmp_path / "archive"])
    assert changes(other, "aws/r/z/p3/spot") == [usd(price) for price in (10, 20, *range(5, 10))]
    other.close()


def test_times_are_read_as_people_write_them() -> None:
    assert instant_of("2d", NOW) == NOW - 2 * DAY
    assert instant_of("2026-01-01", NOW) == instant_of("2026-01-01T00:00:00Z", NOW) == 1_767_225_600_000
    for wrong, hint in (
        ("recently", "write 30d, 12h, 2026-11-21 or 2026-11-21T13:00:00Z"),
        ("2026-13", "write 30d, 12h, 2026-11-21 or 2026-11-21T13:00:00Z"),
        ("2026-1", "write 2026-01-01"),
        ("2026/1/9", "write 2026-01-09"),
        ("11/2026", "write 2026-11-01"),
    ):
        with pytest.raises(UsageError, match="not a time") as caught:
            instant_of(wrong, NOW)
        assert caught.value.hint == hint


def test_the_real_recorded_prices_are_imported_once(store: Store) -> None:
    """Numbers that the data's own README gives."""
    pytest.importorskip("pyarrow")
    folder = shared("market")
    files = [folder / name for name in RECORDED]
    found = import_prices(store, files, at_ms=NOW)
    of = {Path(file.path).name: file for file in found.files}
    assert _csv_rows(folder / "azure_spot_2020_dispa.csv.gz") == of["azure_spot_2020_dispa.csv.gz"].rows == 812
    assert of["azure_spot_2020_dispa.csv.gz"].flagged == {"outlier": 1}  # the typo that is kept as is
    assert of["snapshot_cross_cloud.csv.gz"].gaps is None  # nothing to tell in a table of one instant
    assert of["aws_spot_2020_dispa.parquet"].rows == 16_560
    assert of["aws_spot_2020_dispa.parquet"].flagged == {}
    assert of["snapshot_cross_cloud.csv.gz"].flagged["spot_not_below_on_demand"] >= 29
    phantoms = sum(file.flagged.get("no_hardware", 0) for file in found.files)
    assert phantoms > 1000
    with store.read() as tx:
        priced = {point.offer_id for point in tx.eligible_as_of(NOW)}
        offered = {offer.region for offer in tx.find_offers(gpus=["H100"], provider="gcp") if offer.id in priced}
    assert 8 <= len(offered) < 20  # of 40 regions that have a price
    assert found.new_prices > 10_000
    second = import_prices(store, files, at_ms=NOW)
    assert (second.new_prices, second.new_flags, second.new_offers) == (0, 0, 0)
    assert _without_new(second) == _without_new(found)


def _without_new(found: PriceImport) -> object:
    return found.files, found.series, found.problems


def _csv_rows(path: Path) -> int:
    with gzip.open(path, "rt") as stream:
        return sum(1 for _ in csv.reader(stream)) - 1


@pytest.mark.parametrize(
    ("bad", "field", "said"),
    [
        ("aws,r,z,p3\x1b[2J,V100,1,spot,1,2026-01-01", "instance_type", "U+001B"),
        ("aws,r\u202e,z,p3,V100,1,spot,1,2026-01-01", "region", "U+202E"),
        (f"aws,r,{'z' * 60_000},p3,V100,1,spot,1,2026-01-01", "zone", "60000 characters"),
        ("aws,r,z,p3,V100,1,spot,1e-320,2026-01-01", "price_per_hour", "billionth of a dollar"),
        ("aws,r,z,p3,V100,1,spot,1,0001-01-01", "effective_at", "between the years 2000 and 2999"),
        ("aws,r,z,p3,V100,1,spot,1,9999-12-31T23:59:59-12:00", "effective_at", "between the years 2000 and 2999"),
        ("=cmd(),r,z,p3,V100,1,spot,1,2026-01-01", "provider", "like a formula"),
    ],
)
def test_a_row_that_a_stranger_made_up_is_refused_with_file_line_and_field(
    store: Store, tmp_path: Path, bad: str, field: str, said: str
) -> None:
    done = import_prices(store, [write(tmp_path / "made_up.csv", *series(["1.0"]), bad)])
    (problem,) = done.problems
    assert f"made_up.csv:3:1: {field}: " in problem
    assert said in problem
    assert problem.endswith("(correct it and import again)")
    assert problem.isprintable()
    assert len(problem) < 500
    assert done.new_prices == 1


def test_a_table_that_is_too_large_is_refused_with_the_remedy(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "large.csv.gz"
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write(f"{HEAD}\n")
        file.write(f"{series(['1.0'])[0]},{'x' * 70_000}\n")
    with pytest.raises(
        UsageError, match=r"large\.csv\.gz is too large: a line has more than 65536 characters"
    ) as caught:
        import_prices(store, [path])
    assert caught.value.hint == "import it in parts"
