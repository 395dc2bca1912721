"""Tables of strangers: what is no name, price or time is refused by row, and what is too large before it is there."""

from __future__ import annotations

import csv
import gzip
import io
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from providers import tables
from providers.collect.facts import hourly_price
from providers.tables import (
    MAX_LINE_CHARACTERS,
    MAX_NAME_CHARACTERS,
    MAX_ROWS,
    TableTooLargeError,
    bounded_lines,
    bounded_rows,
    checked_instant,
    checked_name,
    parquet_rows,
    shown,
    text_of,
)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("p3\x1b[2J", "U+001B"),
        ("p3\u202egnp", "U+202E"),
        ("p3\u200b", "U+200B"),
        ("p3\x00", "U+0000"),
        ("p3\x9b", "U+009B"),
        ("x" * 100_000, "100000 characters"),
        ("a/b", "slash"),
        ("a b", "space"),
        ("=cmd()", "formula"),
        ("@x", "formula"),
    ],
)
def test_unreadable_or_executable_text_is_not_a_valid_name(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why.replace("+", r"\+")) as caught:
        checked_name(name)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("name", ["", "-", "us-east-1a", "Standard_NC24ads_A100_v4", "\u5317\u4eac-1", "8H100.80S"])
def test_names_of_clouds_are_names(name: str) -> None:
    assert checked_name(name) == name


@given(st.text(max_size=300))
def test_what_a_message_quotes_is_short_and_plain(text: str) -> None:
    assert shown(text).isascii()
    assert shown(text).isprintable()


@pytest.mark.parametrize("price", ["1e-320", "1e-10", "0", "-1", "nan", "inf", "1e9", "9" * 100_000, "1e-999999999"])
def test_an_impossible_amount_is_not_a_valid_price(price: str) -> None:
    with pytest.raises(ValueError, match=r"price|billionth|between"):
        hourly_price(price)


@pytest.mark.parametrize(
    "at",
    [
        datetime(1, 1, 1),  # noqa: DTZ001 - as a file has it
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
        datetime(9999, 12, 31, 23, 59, tzinfo=timezone(timedelta(hours=-12))),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(3000, 1, 1, tzinfo=UTC),
    ],
)
def test_a_time_outside_of_all_markets_is_refused(at: datetime) -> None:
    with pytest.raises(ValueError, match="not between the years 2000 and 2999"):
        checked_instant(at)


def test_lines_and_rows_have_an_end() -> None:
    with pytest.raises(TableTooLargeError, match="a line has more than"):
        list(bounded_lines(io.StringIO("x" * (MAX_LINE_CHARACTERS + 1))))
    assert list(bounded_lines(io.StringIO("a,b\r\nc\n"))) == ["a,b\r\n", "c\n"]
    with pytest.raises(TableTooLargeError, match=f"more than {MAX_ROWS} rows"):
        for _ in bounded_rows(iter(range(MAX_ROWS + 1))):
            pass


def test_a_quoted_field_over_many_lines_is_one_that_csv_refuses() -> None:
    text = 'a\n"' + "x\n" * 200_000
    with pytest.raises(csv.Error):
        list(csv.reader(bounded_lines(io.StringIO(text)), strict=True))


MEMORY = """
import io, resource, sys
from providers import tables
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    {read}
except tables.TableTooLargeError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def peak_mib(read: str) -> tuple[str, int]:
    """What was said, and how much memory it took in a process of its own."""
    done = subprocess.run([sys.executable, "-c", MEMORY.format(read=read)], capture_output=True, text=True, check=True)
    said, _, peak = done.stdout.strip().rpartition("\n")
    return said, int(peak)


def test_packed_text_that_unpacks_to_a_gigabyte_takes_next_to_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(300 * 18):
            file.write(b"aws,r,z," * 7_282 + b"\n")
    assert path.stat().st_size < 4_000_000
    said, mib = peak_mib(
        f"with open({str(path)!r}, 'rb') as raw, tables.text_of(raw, packed=True) as text:\n"
        "        for line in tables.bounded_lines(text): pass"
    )
    assert "more than 256 MiB" in said
    assert mib < 50


def test_parquet_with_a_long_value_in_every_row_takes_no_more_than_a_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    indices = pyarrow.array([0] * 20_000, pyarrow.int32())
    column = pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array(["a" * 4_000_000]))
    parquet.write_table(
        pyarrow.table({"region": column}),
        path,
        compression="zstd",
        store_schema=False,
        dictionary_pagesize_limit=1 << 30,
    )
    assert path.stat().st_size < 400_000
    said, mib = peak_mib(
        f"from pyarrow import parquet; list(tables.parquet_rows(parquet.ParquetFile({str(path)!r}), ['region']))"
    )
    assert "4000000 bytes; the limit is 65536" in said
    assert mib < 600  # 80 GB if it were read as it says


def test_parquet_that_says_itself_that_it_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "long.parquet"
    parquet.write_table(pyarrow.table({"region": pyarrow.nulls(MAX_ROWS + 1, pyarrow.int8())}), path)
    with pytest.raises(TableTooLargeError, match="rows; the limit is 1000000"):
        next(parquet_rows(parquet.ParquetFile(path), ["region"]))
    parquet.write_table(pyarrow.table({f"c{number}": [1] for number in range(tables.MAX_COLUMNS + 1)}), path)
    with pytest.raises(TableTooLargeError, match="columns"):
        tables.require_bounded_parquet(parquet.ParquetFile(path).metadata)


def test_only_the_columns_that_are_asked_for_are_read_and_no_lists(tmp_path: Path) -> None:
    path = tmp_path / "wide.parquet"
    columns = {"region": ["a", None], "ballast": ["x" * 1_000_000] * 2, "zone": [[1], [2]]}
    parquet.write_table(pyarrow.table(columns), path)
    rows = list(parquet_rows(parquet.ParquetFile(path), ["region", "zone"]))
    assert rows == [{"region": "a"}, {"region": None}]


def test_a_byte_order_mark_is_not_part_of_the_first_column_name() -> None:
    with text_of(io.BytesIO("\ufeffprovider\n".encode()), packed=False) as text:
        assert list(bounded_lines(text)) == ["provider\n"]
    assert MAX_NAME_CHARACTERS < MAX_LINE_CHARACTERS
