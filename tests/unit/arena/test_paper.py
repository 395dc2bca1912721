"""The core paper's tables from its own data, and under rules that a bill would follow."""

from __future__ import annotations

import pytest

from orchestrator.arena.paper import HONEST_SETS, honest_costs, honest_options
from orchestrator.arena.paper_data import read
from orchestrator.arena.paper_tables import paper_tables
from orchestrator.errors import SpecError
from tests.shared_data import shared

pytest.importorskip("pyarrow", reason="the paper's data need tradewind[analysis]")

AZURE_BEGINS_MS = 1_582_502_400_000


@pytest.fixture(scope="module")
def tables():
    return {table.title: table for table in paper_tables(shared("market")).tables}


def test_every_published_ratio_is_reproduced(tables):
    printed = [table for title, table in tables.items() if title.startswith("Cost reduction")]
    published = [cell for table in printed for cell in table.cells if cell.published is not None]
    assert len(published) == 120 + 6  # and the data movement of one table
    assert all(abs(cell.value - cell.published) <= 0.01 for cell in published)


@pytest.mark.parametrize("title", ["Moving over staying", "The same, only starts", "Honest rules", "Which GPU wins"])
def test_the_other_tables_lie_within_their_bounds(tables, title):
    found = [table for name, table in tables.items() if name.startswith(title)]
    assert found
    assert all(table.worst <= table.within + 1e-9 for table in found)


def test_moving_gains_nothing_for_a3c_once_azures_log_exists(tables):
    """Of the printed 3.53 what looks dynamic is an artefact: Azure's prices begin after six of the thirty starts."""
    artefact, honest = (
        next(table for name, table in tables.items() if name.startswith(title))
        for title in ("Moving over staying", "The same, only starts")
    )
    gains = {cell.column: cell.value for cell in artefact.cells if cell.row == "A3C"}
    assert gains["8"] > 1.15
    assert [cell.value for cell in honest.cells if cell.row == "A3C"] == pytest.approx([1.0] * 7, abs=5e-4)


def test_ranking_whole_columns_is_what_decide_says():
    """Below a day the sweep ranks with the product's keys; on whole days both ways give the same bill."""
    data = read(shared("market"))
    options = honest_options(data, AZURE_BEGINS_MS, AZURE_BEGINS_MS + 20 * 86_400_000)[HONEST_SETS[3]]
    models = ["A3C", "Transformer (batch size 256)"]
    daily = honest_costs(data, options, models, [0, 24, 48], 24, 24)
    hourly = honest_costs(data, options, models, [0, 24, 48], 24, 1)
    for model in models:
        assert hourly[model] == pytest.approx(daily[model], rel=0.03)


def test_a_folder_without_the_data_is_named(tmp_path):
    with pytest.raises(SpecError, match=r"aws_spot_2020_dispa\.parquet.* does not exist"):
        read(tmp_path)
