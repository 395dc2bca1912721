"""Trace files: what is read, and what is refused with file and row."""

from __future__ import annotations

import csv
import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from orchestrator.arena.formats import load
from orchestrator.arena.price_export import Prices
from orchestrator.arena.traces import checked, egress_usd_per_gb, mixed, region_of
from orchestrator.errors import SpecError
from tests.unit.arena.small_markets import trace


def npz(path, **changes):
    columns = {
        "zones": np.array(["us-east-1a", "us-west-2a"]),
        "capacity": np.array([[1, 0, 1], [1, 1, 0]], np.uint8),
        "spot_price": np.full((2, 3), 0.5, np.float32),
        "on_demand_price": np.array([2.0, 2.0], np.float32),
        "tick_seconds": np.int32(600),
        "start_utc": np.array("2025-10-04"),
        "meta": np.array('{"gpu": "V100", "cloud": "aws", "gapfill": [1, 2]}'),
    }
    np.savez(path, **{key: value for key, value in {**columns, **changes}.items() if value is not None})
    return path


def test_our_npz(tmp_path):
    read = load(npz(tmp_path / "a.npz"))
    assert read.zones == ("us-east-1a", "us-west-2a")
    assert (read.tick_ms, read.gpu, read.cloud, read.ticks) == (600_000, "V100", "aws", 3)
    assert read.start_ms == datetime(2025, 10, 4, tzinfo=UTC).timestamp() * 1000
    assert read.filled.any(axis=0).tolist() == [False, True, False]
    assert read.availability() == (1.0, 0.5)  # the filled tick is left out
    assert read.window(0, 3).filled == 1


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (
            {"spot_price": np.array([[0.5, 0.5, 0.5], [0.5, -1.0, 0.5]])},
            ":2:1: spot_price: us-west-2a has -1.0 in tick 1",
        ),
        (
            {"spot_price": np.array([[0.5, 0.5, np.nan], [0.5, 0.5, 0.5]])},
            ":3:1: spot_price: us-east-1a has nan in tick 2",
        ),
        ({"on_demand_price": np.array([2.0, 0.0])}, "us-west-2a has 0.0"),
        ({"zones": np.array(["us-east-1a", "us-east-1a"])}, "twice"),
        ({"zones": np.array(["us-east-1a", "nowhere"])}, "'nowhere' is not an availability zone"),
        ({"spot_price": np.ones((2, 2))}, "spot_price: has the shape"),
        ({"capacity": None}, "capacity: is missing"),
        ({"capacity": np.array([1, 1, 1])}, "capacity: has the shape (3,)"),
        ({"capacity": np.array([["x"] * 3] * 2)}, "capacity: must contain numbers"),
        ({"capacity": np.array([[1, 1, 1], [1, np.nan, 1]])}, ":2:1: capacity: us-west-2a has nan in tick 1"),
        ({"zones": np.array("us-east-1a")}, "for zones of shape ()"),
        ({"tick_seconds": np.int32(0)}, "tick_seconds: must be one positive number, not 0"),
        ({"start_utc": np.array("yesterday")}, "start_utc: 'yesterday' is not a time"),
        ({"meta": np.array("{oops")}, "meta: is not valid JSON"),
        ({"meta": np.array("[1]")}, "meta: must be a JSON object"),
        ({"meta": np.array('{"gapfill": [5]}')}, "meta.gapfill: must be [from, to) in ticks, not [5]"),
        ({"meta": np.array('{"gapfill": [2, 1]}')}, "meta.gapfill: [2, 1) is not inside the 3 ticks"),
        ({"meta": np.array('{"gapfill": [1, 4]}')}, "meta.gapfill: [1, 4) is not inside the 3 ticks"),
        ({"capacity": np.array([[1, 1, 1], [1, 0.5, 1]])}, ":2:1: capacity: us-west-2a has 0.5 in tick 1"),
        ({"at_seconds": np.array([0, 600])}, "at_seconds: has the shape (2,) for 3 ticks"),
        ({"at_seconds": np.array([0, 600, 1800])}, ":3:1: at_seconds: tick 2 has a gap"),
        ({"at_seconds": np.array([0, 600, 600])}, ":3:1: at_seconds: tick 2 is duplicated"),
        ({"at_seconds": np.array([600, 0, 600])}, ":2:1: at_seconds: tick 1 is out of order"),
    ],
)
def test_a_wrong_npz_is_refused_with_file_and_row(tmp_path, changes, named):
    path = npz(tmp_path / "a.npz", **changes)
    with pytest.raises(SpecError) as error:
        load(path)
    assert str(path) in str(error.value)
    assert named in str(error.value)


@pytest.mark.parametrize(("tick_s", "at_s"), [(195.1, 195.1 * np.arange(3)), (1000 / 3, [0, 333.333, 666.667])])
def test_ticks_are_even_to_the_millisecond(tmp_path, tick_s, at_s):
    path = npz(tmp_path / "a.npz", tick_seconds=np.float64(tick_s), at_seconds=np.array(at_s))
    assert load(path).tick_ms == round(tick_s * 1000)
    late = np.add(at_s, [0, 0, 0.01])
    with pytest.raises(SpecError, match="tick 2 has a gap"):
        load(npz(tmp_path / "a.npz", tick_seconds=np.float64(tick_s), at_seconds=late))


def test_a_damaged_npz_is_refused_with_its_name(tmp_path):
    empty, damaged = tmp_path / "empty.npz", tmp_path / "damaged.npz"
    empty.touch()
    with damaged.open("wb") as file:
        np.savez_compressed(file, zones=np.arange(5000), **{key: np.ones(5000) for key in _OTHERS})
    content = bytearray(damaged.read_bytes())
    content[200:260] = b"\xff" * 60
    damaged.write_bytes(content)
    for path in (empty, damaged):
        with pytest.raises(SpecError, match=rf"{path.name}.*is not a readable \.npz file"):
            load(path)


_OTHERS = ("capacity", "spot_price", "on_demand_price", "tick_seconds")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (Prices(on_demand=3.0), "on_demand"),
        (Prices(spot=1.0), "spot"),
        (Prices(machine="p3"), "machine"),
        (Prices(tick_ms=1), "tick"),
    ],
)
def test_a_field_that_the_file_answers_itself_is_refused(tmp_path, given, field):
    with pytest.raises(SpecError, match=rf"{field}: would be ignored.*remove the field"):
        load(npz(tmp_path / "a.npz"), given)
    if field == "spot":
        with pytest.raises(SpecError, match="takes on_demand, machine, tick"):
            load(write_export(tmp_path / "prices.csv", list(exported(*SOUND))), given)


def test_a_file_that_is_none_is_refused(tmp_path):
    for name, text in (("a.npz", "x"), ("a.csv", "x"), ("missing.npz", None)):
        path = tmp_path / name
        if text is not None:
            path.write_text(text)
        with pytest.raises(SpecError, match=name):
            load(path)


def parquet(path, rows):
    pa = pytest.importorskip("pyarrow", reason="Parquet needs tradewind[analysis]")
    import pyarrow.parquet as pq

    names = ("at", "zone", "capacity", "spot_usd_per_hour", "on_demand_usd_per_hour", "filled")
    pq.write_table(pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)}), path)
    return path


def rows(ticks_of):
    start = datetime(2025, 1, 1, tzinfo=UTC)
    return [
        (start + timedelta(minutes=10 * tick), zone, 1, 0.5, 2.0, tick == 1)
        for zone, ticks in ticks_of.items()
        for tick in ticks
    ]


def test_our_parquet_and_a_series_that_ends(tmp_path):
    read = load(parquet(tmp_path / "a.parquet", rows({"us-east-1a": [0, 1, 2], "us-west-2a": [1, 2]})))
    assert read.tick_ms == 600_000
    assert read.known.tolist() == [[True, True, True], [False, True, True]]
    assert read.filled.tolist() == [[False, True, False], [False, True, False]]
    assert read.window(1, 2).ticks == 2
    with pytest.raises(SpecError, match="us-west-2a starts or ends inside the window"):
        read.window(0, 3)
    assert read.window(0, 3, zones=["us-east-1a"]).zones == ("us-east-1a",)


@pytest.mark.parametrize(
    ("ticks", "named"),
    [
        ([0, 1, 3], ":3:1: at: us-east-1a has a gap before this tick"),
        ([0, 1, 1], ":3:1: at: the tick of us-east-1a is duplicated"),
        ([0, 2, 1], ":3:1: at: the tick of us-east-1a is out of order"),
    ],
)
def test_a_wrong_parquet_is_refused_with_its_row(tmp_path, ticks, named):
    with pytest.raises(SpecError, match=r"a\.parquet") as error:
        load(parquet(tmp_path / "a.parquet", rows({"us-east-1a": ticks})))
    assert named in str(error.value)


def test_an_empty_cell_is_refused_with_its_row(tmp_path):
    good = rows({"us-east-1a": [0, 1, 2]})
    for column, name in enumerate(("at", "zone", "capacity", "spot_usd_per_hour", "on_demand_usd_per_hour")):
        bad = [
            tuple(None if i == column and row == 1 else cell for i, cell in enumerate(line))
            for row, line in enumerate(good)
        ]
        with pytest.raises(SpecError, match=rf"a\.parquet:2:1: {name}: is empty"):
            load(parquet(tmp_path / "a.parquet", bad))


@pytest.mark.parametrize(
    ("column", "value", "named"),
    [
        (2, 0.5, ":5:1: capacity: us-west-2a has 0.5"),
        (2, -1.0, ":5:1: capacity: us-west-2a has -1"),
        (3, -2.0, ":5:1: spot_usd_per_hour: us-west-2a has -2"),
        (4, 0.0, ":5:1: on_demand_usd_per_hour: us-west-2a has 0"),
    ],
)
def test_a_wrong_value_is_refused_with_its_row_of_the_file(tmp_path, column, value, named):
    lines = rows({"us-east-1a": [0, 1, 2], "us-west-2a": [0, 1, 2]})
    bad = [tuple(float(cell) if i == column else cell for i, cell in enumerate(line)) for line in lines]
    bad[4] = tuple(value if i == column else cell for i, cell in enumerate(bad[4]))
    with pytest.raises(SpecError, match=re.escape(named)):
        load(parquet(tmp_path / "a.parquet", bad))


@pytest.mark.parametrize(
    ("gap", "data", "named"),
    [
        ("300", "[1, Infinity]", ":2:1: data: row 2 is inf"),
        ("300", "[NaN, 1]", ":1:1: data: row 1 is nan"),
        ("300", "[1, 0.5]", ":2:1: data: row 2 is 0.5"),
        ("Infinity", "[1, 1]", "metadata.gap_seconds: must be a positive number of seconds, not inf"),
        ("NaN", "[1, 1]", "metadata.gap_seconds: must be a positive number of seconds, not nan"),
    ],
)
def test_numbers_that_are_none_are_refused_with_their_file(tmp_path, gap, data, named):
    (tmp_path / "us-west-2a_v100_1.json").write_text(f'{{"metadata": {{"gap_seconds": {gap}}}, "data": {data}}}')
    with pytest.raises(SpecError, match=re.escape("us-west-2a_v100_1.json")) as error:
        load(tmp_path, Prices(3.06, 0.92))
    assert named in str(error.value)


def test_spot_traces_of_skypilot_have_no_prices(tmp_path):
    for zone, data in (("us-west-2a_v100_1", [1, 0, 4]), ("us-west-2b_v100_1", [0, 1])):
        (tmp_path / f"{zone}.json").write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": data}))
    read = load(tmp_path, Prices(3.06, 0.92))
    assert read.zones == ("us-west-2a", "us-west-2b")
    assert (read.tick_ms, read.gpu) == (300_000, "V100")
    assert read.capacity[0].tolist() == [1, 0, 4]
    assert read.known[1].tolist() == [True, True, False]
    with pytest.raises(SpecError, match="have no prices"):
        load(tmp_path)


def test_skynomad_says_preempted(tmp_path):
    file = tmp_path / "us-central1-a_h100_16" / "full.json"
    file.parent.mkdir()
    content: dict[str, Any] = {
        "metadata": {"gap_seconds": 600, "zone": "us-central1-a", "price_info": {"on_demand_price": 82.5}},
        "data": [0, 1, 0],
        "prices": [18.9, 19.0, 19.1],
    }
    file.write_text(json.dumps(content))
    read = load(tmp_path)
    assert read.capacity.tolist() == [[1, 0, 1]]
    assert read.spot.tolist() == [[18.9, 19.0, 19.1]]
    assert read.on_demand.tolist() == [82.5]
    file.write_text(json.dumps({**content, "data": [0, None, 0]}))
    with pytest.raises(SpecError, match=r"full\.json:2:1: data: row 2 is None"):
        load(tmp_path)
    file.write_text(json.dumps({**content, "prices": [18.9, 19.0, 0]}))
    with pytest.raises(SpecError, match=r"full\.json:3:1: prices: row 3 is 0"):
        load(tmp_path)
    file.write_text(json.dumps({**content, "metadata": {**content["metadata"], "zone": "nowhere"}}))
    with pytest.raises(SpecError, match=r"full\.json.*'nowhere' is not an availability zone"):
        load(tmp_path)


def test_a_window_must_lie_inside_and_name_its_zones():
    small = trace([[1, 1, 2], [1, 1, 1]])
    assert small.window(0, 3, gang=2).up.tolist() == [[False, False, True], [False] * 3]
    with pytest.raises(SpecError, match=r"ticks 2 to 4 .* which has 3"):
        small.window(2, 2)
    with pytest.raises(SpecError, match=r"no zone 'us-east-1c'.*did you mean"):
        small.window(0, 2, zones=["us-east-1c"])
    with pytest.raises(SpecError, match="small:2:1: capacity"):
        checked(trace([[1, -1]]))


def test_zones_and_egress():
    assert [region_of(z) for z in ("us-east-1a", "us-central1-a", "asia-southeast1-b", "ap-northeast-1c")] == [
        "us-east-1",
        "us-central1",
        "asia-southeast1",
        "ap-northeast-1",
    ]
    assert egress_usd_per_gb("us-east-1a", "us-east-1b") == 0
    assert egress_usd_per_gb("us-east-2a", "us-east-1b") == 0.01
    assert egress_usd_per_gb("us-east-1a", "us-west-2b") == 0.02
    assert egress_usd_per_gb("asia-southeast1-b", "us-west1-a") == 0.02
    assert egress_usd_per_gb("ap-south-1a", "ap-northeast-1a") == 0.08
    assert egress_usd_per_gb("us-east-1a", "us-east1-b") == 0.09  # from AWS over the internet
    assert egress_usd_per_gb("H100/us-east1-b", "V100/us-east-1a") == 0.12
    assert egress_usd_per_gb("V100:1/us-east-1a", "V100:8/us-east-1b") == 0


def test_traces_of_one_time_are_mixed():
    one, eight = trace([[1, 1, 0], [1, 1, 1]]), trace([[0, 1, 1, 1]], 7.0, 20.0)
    both = mixed([(one, "V100:1", 1.0), (eight, "V100:8", 7.5)])
    assert both.zones == ("V100:1/us-east-1a", "V100:1/us-east-1b", "V100:8/us-east-1a")
    window = both.window(0, 3, zones=both.zones[1:])
    assert (window.speed, window.on_demand.tolist(), window.mixed) == ((1.0, 7.5), [3.0, 20.0], True)
    assert window.only(1.0).zones == both.zones[1:2]
    assert not window.only(1.0).mixed
    with pytest.raises(SpecError, match="another trace"):
        mixed([(one, "V100", 1.0), (eight, "V100", 7.5)])
    with pytest.raises(SpecError, match="does not have the ticks or the start of small"):
        mixed([(one, "V100:1", 1.0), (trace([[1]], tick_ms=300_000), "V100:8", 7.5)])


# What `tradewind prices export` writes: a row per change.
EXPORT = (
    *("provider", "region", "zone", "instance_type", "gpu", "gpu_count", "vcpu", "memory_gib", "capacity_type"),
    *("price_per_hour", "effective_at", "observed_at", "source", "simulated"),
)


def exported(*changes):
    """Rows from (zone, instance type, capacity type, price, minute)."""
    start = datetime(2025, 1, 1, tzinfo=UTC)
    for zone, kind, capacity, price, minute in changes:
        at = start + timedelta(minutes=minute)
        yield ("aws", "us-east-1", zone, kind, "V100", 1, 8, 61.0, capacity, Decimal(price), at, at, "aws", False)


SOUND = (
    ("us-east-1a", "p3", "spot", "0.900000001", 0),
    ("us-east-1a", "p3", "spot", "0.8", 21),
    ("us-east-1b", "p3", "spot", "0.7", 10),
    ("", "p3", "on_demand", "3.06", 0),
)


def write_export(path, rows):
    """As the product does it, in Parquet or CSV."""
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([EXPORT, *rows])
        return path
    pa = pytest.importorskip("pyarrow", reason="Parquet needs tradewind[analysis]")
    import pyarrow.parquet as pq

    kinds = {"price_per_hour": pa.decimal128(18, 9), "gpu_count": pa.int32(), "vcpu": pa.int32()}
    kinds |= {"memory_gib": pa.float64(), "simulated": pa.bool_()}
    kinds |= dict.fromkeys(("effective_at", "observed_at"), pa.timestamp("ms", tz="UTC"))
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in EXPORT])
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), path, compression="zstd")
    return path


@pytest.mark.parametrize("name", ["prices.parquet", "prices.csv"])
def test_exported_prices_are_a_trace_without_capacity(tmp_path, name):
    other = ("us-east-1a", "p2", "spot", "0.2", 45)
    path = write_export(tmp_path / name, list(exported(*SOUND, other)))
    read = load(path, Prices(machine="p3"))
    assert (read.zones, read.tick_ms, read.gpu, read.assumed) == (("us-east-1a", "us-east-1b"), 600_000, "V100", True)
    assert read.spot[0].tolist() == [0.900000001] * 3 + [0.8] * 2  # up to the last instant of the file
    assert read.known[1].tolist() == [False, True, True, True, True]
    assert read.on_demand.tolist() == [3.06, 3.06]
    assert read.window(1, 4, gang=100).up.all()
    with pytest.raises(SpecError, match="us-east-1b starts or ends inside the window"):
        read.window(0, 4)
    assert load(path, Prices(5.0, machine="p3", tick_ms=300_000)).on_demand.tolist() == [5.0, 5.0]
    with pytest.raises(SpecError, match="prices of 2 instance types"):
        load(path)
    with pytest.raises(SpecError, match=r"no prices of 'p33'.*did you mean"):
        load(path, Prices(machine="p33"))


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ([("us-east-1a", "p3", "spot", "-1", 30)], r":6:1: price_per_hour: '-1' is not a price"),
        ([("us-east-1a", "p3", "spot", "0.5", 21)], r"effective_at: row \d has another price for the same time"),
        ([("", "p3", "on_demand", "4", 30)], r":6:1: price_per_hour: the on-demand price of us-east-1a changes"),
        ([("nowhere", "p3", "spot", "0.5", 21), ("nowhere", "p3", "on_demand", "3", 0)], "'nowhere' is not an availab"),
        ([("us-east-1a", "p3", "spot", "0.5", 10**9)], "are too many"),
    ],
)
def test_a_wrong_export_is_refused_with_its_row(tmp_path, more, named):
    path = write_export(tmp_path / "prices.csv", list(exported(*SOUND, *more)))
    with pytest.raises(SpecError, match=r"prices\.csv") as error:
        load(path)
    assert re.search(named, str(error.value)), error.value


def test_an_export_with_a_row_that_was_cut_short_is_refused_with_its_row(tmp_path):
    path = write_export(tmp_path / "prices.csv", list(exported(*SOUND)))
    whole = path.read_text()
    path.write_text(whole.rstrip().rpartition(",")[0] + "\n")
    with pytest.raises(SpecError, match=r"prices\.csv:5:1: .*truncated"):
        load(path)


def test_an_export_with_a_nul_character_is_refused_with_its_row_and_column(tmp_path):
    path = write_export(tmp_path / "prices.csv", list(exported(*SOUND)))
    path.write_text(path.read_text().replace("us-east-1b,p3", "us-east-1b,p\0003"))
    with pytest.raises(SpecError, match=r"prices\.csv:\d:1: .*has a NUL character in 'instance_type'"):
        load(path)


def test_prices_of_two_providers_are_not_one_series(tmp_path):
    aws = list(exported(*SOUND))
    other = [("gcp", "us-central1", "us-central1-a", *line[3:]) for line in exported(*SOUND[:2], SOUND[3])]
    assert load(write_export(tmp_path / "a.csv", [*aws, *other])).zones == ("us-east-1a", "us-east-1b", "us-central1-a")
    same_place = [("reseller", *line[1:9], Decimal("0.4"), *line[10:]) for line in aws]
    with pytest.raises(SpecError, match="us-east-1a has prices of several providers"):
        load(write_export(tmp_path / "b.csv", [*aws, *same_place]))


def test_an_export_without_what_a_trace_needs_says_so(tmp_path):
    with pytest.raises(SpecError, match="has no on-demand price for us-east-1a"):
        load(write_export(tmp_path / "a.csv", list(exported(*SOUND[:3]))))
    with pytest.raises(SpecError, match="has no spot prices"):
        load(write_export(tmp_path / "b.csv", list(exported(SOUND[3]))))
    (tmp_path / "c.csv").write_text("provider,zone\naws,us-east-1a\n")
    with pytest.raises(SpecError, match="region: is not a column of this file"):
        load(tmp_path / "c.csv")
    (tmp_path / "d.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(SpecError, match="not a valid Parquet file"):
        load(tmp_path / "d.parquet")
