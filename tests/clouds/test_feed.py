"""Prices from files and URLs: good rows count, bad rows say where they are, bad files say what they lack."""

from __future__ import annotations

import gzip
import os

import pytest

from providers.collect.facts import PollResult
from providers.errors import CutOffError, FormatError, NotFoundError
from providers.feed.source import Feed
from tests.clouds.conftest import flags
from tests.clouds.server import Fault, LoopbackServer, Response

NOW = 1_790_000_000_000
HEADER = (
    "provider,region,zone,instance_type,gpu,gpu_count,vcpu,memory_gib,capacity_type,price_per_hour,currency,"
    "effective_at"
)
GOOD = "verda,FIN-01,,8H100.80S,H100,8,176,1480,spot,9.12,USD,2026-09-01T00:00:00Z"


def poll(at: object, **options) -> PollResult:
    return Feed(at=str(at), attempts=1, read_s=0.5, **options).poll("all", NOW, None)


@pytest.fixture
def file(tmp_path):
    def write(*rows: str, header: str = HEADER, name: str = "prices.csv"):
        path = tmp_path / name
        path.write_text("\n".join([header, *rows]) + "\n")
        return path

    return write


@pytest.mark.parametrize(("gpu", "count"), [("H100", "0"), ("H100", "0.5"), ("H100", "7.9"), ("", "0.25")])
def test_an_impossible_count_of_gpus_is_malformed(file, gpu, count):
    found = poll(file(GOOD.replace("H100,8,", f"{gpu},{count},")))
    assert (found.offers, [row.flag.value for row in found.flagged]) == ((), ["malformed"])
    assert "gpu_count" in found.flagged[0].detail


def test_a_row_is_an_offer_and_a_price(file):
    result = poll(file(GOOD))
    (offer,), (point,) = result.offers, result.points
    assert offer.id == "verda/FIN-01//8H100.80S/spot"
    assert (offer.gpu, offer.gpu_count, offer.vcpu, offer.memory_bytes >> 30) == ("H100", 8, 176, 1480)
    assert (point.nano_usd_per_hour, point.observed_at_ms) == (9_120_000_000, NOW)
    assert point.effective_at_ms == 1_788_220_800_000
    assert point.source.endswith("prices.csv")


def test_optional_columns_may_be_absent(file):
    header = "provider,region,instance_type,gpu_count,capacity_type,price_per_hour"
    result = poll(file("mine,cellar,big-box,0,on-demand,0.5", header=header))
    assert (result.offers[0].id, result.offers[0].gpu) == ("mine/cellar//big-box/on_demand", None)
    assert result.points[0].effective_at_ms == NOW


@pytest.mark.parametrize(
    ("bad", "field", "flag"),
    [
        (GOOD.replace("9.12", "cheap"), "price_per_hour", "malformed"),
        (GOOD.replace("9.12", "-9"), "price_per_hour", "malformed"),
        (GOOD.replace("9.12", "NaN"), "price_per_hour", "malformed"),
        (GOOD.replace("9.12", ""), "price_per_hour", "malformed"),
        (GOOD.replace("spot", "sometimes"), "capacity_type", "malformed"),
        (GOOD.replace(",8,", ",eight,"), "gpu_count", "malformed"),
        (GOOD.replace("FIN-01", "FIN/01"), "region", "malformed"),
        (GOOD.replace("verda,", ","), "provider", "malformed"),
        (GOOD.replace("2026-09-01T00:00:00Z", "yesterday"), "effective_at", "malformed"),
        (GOOD.replace("2026-09-01", "2031-09-01"), "effective_at", "malformed"),
        (GOOD.replace("USD", "EUR"), "currency", "currency"),
    ],
)
def test_a_bad_row_names_file_line_and_field_and_costs_only_itself(file, bad, field, flag):
    path = file(bad, GOOD)
    result = poll(path)
    assert len(result.points) == 1
    assert flags(result) == [(flag, f"{path}:2")]
    assert f"{path}, row 2, field {field}: " in result.flagged[0].detail


@pytest.mark.parametrize("bad", [GOOD.rpartition(",")[0], GOOD + ",more"])
def test_a_row_that_is_cut_short_or_too_long_is_flagged_and_no_default_stands_in_for_what_it_lacks(file, bad):
    path = file(GOOD, bad)
    result = poll(path)
    assert len(result.points) == 1
    (flagged,) = result.flagged
    assert f"{path}, row 3: has " in flagged.detail
    assert "the header names" in flagged.detail


def test_of_two_prices_for_one_offer_and_instant_the_higher_counts(file):
    for rows in ([GOOD, GOOD.replace("9.12", "8.00")], [GOOD.replace("9.12", "8.00"), GOOD], [GOOD, GOOD]):
        result = poll(file(*rows))
        assert [point.nano_usd_per_hour for point in result.points] == [9_120_000_000]
        assert [flag for flag, _ in flags(result)] == ["ambiguous"] * (rows[0] != rows[1])


def test_an_unknown_gpu_is_kept_and_flagged(file):
    result = poll(file(GOOD.replace("H100,8", "Z900,8")))
    assert flags(result) == [("unknown_gpu", "verda/FIN-01//8H100.80S/spot")]
    assert result.flagged[0].point is not None


def test_other_currencies_count_at_a_given_rate(file):
    assert (
        poll(file(GOOD.replace("USD", "EUR")), usd_per_unit={"EUR": "1.10"}).points[0].nano_usd_per_hour
        == 10_032_000_000
    )


def test_a_file_without_a_required_column_is_refused_with_the_list(file):
    failed = poll(file("x", header="provider,price")).error
    assert isinstance(failed, FormatError)
    assert "region, instance_type, gpu_count, capacity_type, price_per_hour" in str(failed)
    assert "optional: zone" in failed.hint


def test_a_missing_file_and_a_binary_file_are_named(tmp_path):
    assert isinstance(poll(tmp_path / "none.csv").error, NotFoundError)
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00")
    assert isinstance(poll(tmp_path / "x.csv").error, FormatError)


def test_a_pipe_and_a_folder_are_not_feeds_and_do_not_block(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for name in ("pipe.csv", ""):
        assert "not a regular file" in str(poll(tmp_path / name).error)


def test_packed_files_are_unpacked_and_half_of_one_is_named(tmp_path, file):
    whole = gzip.compress(file(GOOD).read_bytes())
    (tmp_path / "prices.csv.gz").write_bytes(whole)
    assert len(poll(tmp_path / "prices.csv.gz").points) == 1
    (tmp_path / "half.csv.gz").write_bytes(whole[: len(whole) // 2])
    assert isinstance(poll(tmp_path / "half.csv.gz").error, CutOffError)
    (tmp_path / "none.csv.gz").write_bytes(b"not gzip")
    assert isinstance(poll(tmp_path / "none.csv.gz").error, FormatError)


def test_parquet_holds_the_same_columns(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = dict(zip(HEADER.split(","), ([value] for value in GOOD.split(",")), strict=True))
    columns |= {"gpu_count": [8], "price_per_hour": [9.12], "vcpu": [176], "memory_gib": [1480.0]}
    path = tmp_path / "prices.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    (point,) = poll(path).points
    assert (point.offer_id, point.nano_usd_per_hour) == ("verda/FIN-01//8H100.80S/spot", 9_120_000_000)
    path.write_bytes(path.read_bytes()[:200])
    assert isinstance(poll(path).error, FormatError)


def test_a_url_is_read_and_its_query_is_never_shown(server: LoopbackServer, file):
    body = file(GOOD).read_bytes()
    server.serve(lambda request: Response(body=body, content_type="text/csv"))
    result = poll(f"{server.url}/prices.csv?token=secret")
    assert len(result.points) == 1
    assert "secret" not in result.points[0].source
    server.faults = [Fault(lambda request: True, None, Response(404, b"no"))]
    failed = poll(f"{server.url}/prices.csv?token=secret").error
    assert isinstance(failed, NotFoundError)
    assert "secret" not in str(failed)


def test_half_a_download_changes_nothing(server: LoopbackServer, file):
    body = file(GOOD, GOOD.replace("FIN-01", "FIN-02")).read_bytes()
    server.serve(lambda request: Response(body=body))
    server.faults = [Fault(lambda request: True, None, cut=True)]
    result = poll(f"{server.url}/prices.csv")
    assert (result.points, type(result.error)) == ((), CutOffError)


def test_a_moved_file_is_followed(server: LoopbackServer, file):
    body = file(GOOD).read_bytes()
    server.serve(lambda r: Response(302, headers={"Location": "/new.csv"}) if "old" in r.path else Response(body=body))
    assert len(poll(f"{server.url}/old.csv").points) == 1


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (GOOD.replace("8H100.80S", "8H100\x1b[2J"), "instance_type"),
        (GOOD.replace("FIN-01", "FIN\u202e"), "region"),
        (GOOD.replace("verda", "v" * 60_000), "provider"),
        (GOOD.replace("verda", "=cmd()"), "provider"),
        (GOOD.replace("9.12", "1e-320"), "price_per_hour"),
        (GOOD.replace("2026-09-01", "0001-01-01"), "effective_at"),
        (GOOD.replace("2026-09-01T00:00:00Z", "9999-12-31T23:59:59-12:00"), "effective_at"),
    ],
)
def test_what_a_stranger_made_up_is_flagged_and_steers_no_terminal(file, bad, field):
    result = poll(file(GOOD, bad))
    (flagged,) = result.flagged
    assert f"field {field}: " in flagged.detail
    assert flagged.detail.isprintable()
    assert len(flagged.detail) < 500
    assert len(result.points) == 1


def test_a_feed_that_unpacks_to_more_than_prices_are_is_refused(tmp_path):
    path = tmp_path / "feed.csv.gz"
    path.write_bytes(gzip.compress(f"{HEADER}\n{'x' * 70_000}".encode()))
    assert "too large: a line has more than 65536 characters" in str(poll(path).error)
