"""The committed files are exactly what their sources compile to. Needs the shared price lists, else skips."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from providers.catalog.files import DATA
from scripts import compile_catalog
from tests.shared_data import shared

HAND_WRITTEN = {
    "accelerators.csv",
    "continents.csv",
    "egress.csv",
    "excluded.csv",
    "instance_types.csv",
    "known_regions.csv",
    "prices_by_hand.csv",
    "sources.csv",
}
FROM_PARQUET = {"instance_types_marketplace.csv", "prices_marketplace.csv"}


def test_a_run_again_gives_the_committed_files() -> None:
    files = compile_catalog.compile_from(shared("market"), parquet=False)
    assert {path.name for path in DATA.glob("*.csv")} == files.keys() | HAND_WRITTEN | FROM_PARQUET
    for name, text in files.items():
        assert text == (DATA / name).read_text(), f"{name} is stale: python -m scripts.compile_catalog ../shared/market"


def test_a_run_again_gives_the_committed_marketplace() -> None:
    pytest.importorskip("pyarrow", reason="the marketplace's file is Parquet, and pyarrow is not installed")
    for name, text in compile_catalog.compile_from(shared("market")).items():
        assert text == (DATA / name).read_text()


def test_an_undescribed_type_stops_it(tmp_path: Path) -> None:
    for name in ("snapshot_cross_cloud", "ondemand_gpu_history_aws_azure", "aws_spot_advisor_gpu", "egress_prices"):
        text = gzip.decompress(shared(f"market/{name}.csv.gz").read_bytes()).decode()
        (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress(text.replace("gpu_8x_v100", "gpu_9x_v100").encode()))
    with pytest.raises(SystemExit, match=r"lambda gpu_9x_v100 is neither in instance_types\.csv nor in excluded\.csv"):
        compile_catalog.compile_from(tmp_path, parquet=False)
