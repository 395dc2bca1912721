"""Trace files that are damaged, of another kind or too large are refused with their name; reading waits for no pipe."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import random
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.arena.formats import load
from orchestrator.arena.price_export import Prices
from orchestrator.errors import SpecError
from tests.unit.arena.test_traces import EXPORT, SOUND, exported, npz, write_export

pa = pytest.importorskip("pyarrow", reason="Parquet needs tradewind[analysis]")
import pyarrow.parquet as pq  # noqa: E402

P3 = Prices(machine="p3")
LISTED = Prices(3.06, 0.92)
ZONE = "us-west-2a_v100_1"


def refusal(path: Path, prices: Prices = P3) -> str:
    """The message that refuses a trace, which names its file."""
    with pytest.raises(SpecError) as error:
        load(path, prices)
    assert path.name in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("suffix", ["npz", "csv", "csv.gz", "parquet"])
def test_a_pipe_or_a_folder_is_no_trace_file(tmp_path: Path, suffix: str) -> None:
    os.mkfifo(tmp_path / f"pipe.{suffix}")
    assert "is a pipe or a device, not a file" in refusal(tmp_path / f"pipe.{suffix}")
    os.symlink("loop", tmp_path / "loop")
    assert "cannot be read: Too many levels of symbolic links" in refusal(tmp_path / "loop")


def test_what_is_no_file_in_a_folder_of_traces_is_named(tmp_path: Path) -> None:
    for name, make in {
        "pipe": os.mkfifo,
        "folder": os.mkdir,
        "link": lambda path: os.symlink("nowhere", path),
    }.items():
        folder = tmp_path / name
        folder.mkdir()
        make(folder / f"{ZONE}.json")
        assert f"{ZONE}.json: trace: " in refusal(folder, LISTED)


@pytest.mark.parametrize(
    "content",
    ["[" * 200_000, '{"a":' * 200_000, "", "\x00", '{"metadata": {"gap_seconds": true}, "data": [1]}', "[]"],
)
def test_text_that_is_no_trace_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / f"{ZONE}.json").write_text(content)
    assert ZONE in refusal(tmp_path, LISTED)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"data": [0, 2]}, "data: row 2 is 2 (write 1 where the machine is preempted, else 0)"),
        ({"prices": [1, True]}, "prices: row 2 is True"),
        ({"prices": [1, 1e7]}, "prices: row 2 is 10000000.0"),
    ],
)
def test_a_value_of_skynomad_that_has_no_meaning_is_refused(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    (tmp_path / ZONE).mkdir()
    metadata = {"gap_seconds": 300, "price_info": {"on_demand_price": 3.0}}
    content = {"metadata": metadata, "data": [0, 1], "prices": [1, 1], **change}
    (tmp_path / ZONE / "full.json").write_text(json.dumps(content))
    assert named in refusal(tmp_path, Prices())


def test_an_npz_of_other_contents_is_refused(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**13,)})
    for content, suffix in ((header.getvalue(), ".npy"), (b"text", ".npy"), (b"text", "")):
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
            for name in ("zones", "capacity", "spot_price", "on_demand_price", "tick_seconds"):
                file.writestr(name + suffix, content)
        assert refusal(tmp_path / "a.npz", Prices())
    assert "meta: is not valid JSON" in refusal(npz(tmp_path / "b.npz", meta=np.array("[" * 200_000)), Prices())
    complex_counts = npz(tmp_path / "c.npz", capacity=np.ones((2, 3), complex))
    assert "capacity: must contain numbers, not complex128" in refusal(complex_counts, Prices())
    huge = npz(tmp_path / "d.npz", spot_price=np.full((2, 3), 1e308))
    assert "spot_price: us-east-1a has 1e+308 in tick 0" in refusal(huge, Prices())


def long_table(path: Path, **columns: Any) -> Path:
    start = datetime(2025, 1, 1, tzinfo=UTC)
    usual: dict[str, Any] = {
        "at": [start + timedelta(minutes=10 * tick) for tick in range(4)],
        "zone": ["us-east-1a"] * 4,
        "capacity": [1] * 4,
        "spot_usd_per_hour": [0.5] * 4,
        "on_demand_usd_per_hour": [2.0] * 4,
    }
    pq.write_table(pa.table({**usual, **columns}), path)
    return path


def test_a_parquet_with_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    assert "zone: must be text, not list" in refusal(long_table(path, zone=[["us-east-1a"]] * 4), Prices())
    assert "filled: must be true or false, not string" in refusal(long_table(path, filled=["false"] * 4), Prices())
    assert "filled: must be true or false, not list" in refusal(long_table(path, filled=[[0]] * 4), Prices())
    assert not load(long_table(path, filled=[0] * 4)).filled.any()


def test_zones_of_distant_times_make_no_endless_table(tmp_path: Path) -> None:
    start = datetime(2025, 1, 1, tzinfo=UTC)
    at = [start + timedelta(days=9000 * later, milliseconds=tick) for later in (0, 1) for tick in (0, 1)]
    zones = ["us-east-1a"] * 2 + ["us-east-1b"] * 2
    assert "at: 777600000002 ticks of 0.001 s" in refusal(
        long_table(tmp_path / "a.parquet", at=at, zone=zones), Prices()
    )


@pytest.mark.parametrize("name", ["prices.parquet", "prices.csv.gz"])
def test_damage_anywhere_in_an_export_is_refused_or_changes_a_value(tmp_path: Path, name: str) -> None:
    sound = list(exported(*SOUND))
    if name.endswith(".gz"):
        text = io.StringIO()
        csv.writer(text).writerows([EXPORT, *sound * 30])
        whole = gzip.compress(text.getvalue().encode())
    else:
        whole = write_export(tmp_path / "sound.parquet", sound).read_bytes()
    at, refused = random.Random(0), 0
    for _ in range(150):
        damaged = bytearray(whole)
        damaged[at.randrange(len(whole))] ^= 1 << at.randrange(8)
        (tmp_path / name).write_bytes(damaged)
        try:
            load(tmp_path / name, P3)
        except SpecError as error:
            refused += name in str(error)
    assert refused > 20


def test_a_mark_of_the_encoding_is_no_part_of_a_column_of_an_export(tmp_path: Path) -> None:
    path = write_export(tmp_path / "prices.csv", list(exported(*SOUND)))
    ticks = load(path, P3).ticks
    path.write_text("\ufeff" + path.read_text())
    assert load(path, P3).ticks == ticks
