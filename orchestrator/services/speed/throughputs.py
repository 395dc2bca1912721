"""Throughputs from outside: a table is read, checked and kept for plans."""

from __future__ import annotations

from pathlib import Path

from orchestrator.installation import Installation
from orchestrator.services.speed.throughput_tables import read_table
from orchestrator.services.views import ImportedTable


def take_over(installation: Installation, path: Path) -> ImportedTable:
    """Keep the rates of a table; an earlier one from a file of the same name goes.

    Raises UsageError when it cannot be read, SpecError with every bad row, and then keeps nothing of it.
    """
    table = read_table(path)
    with installation.store.write() as tx:
        tx.put_rates(path.name, table.rows)
    return ImportedTable(
        source=path.name,
        rates=len(table.rows),
        misfits=len(table.misfits),
        jobs=tuple(sorted({row.job for row in table.rows})),
        families=tuple(sorted({row.family for row in table.rows})),
        gpus=tuple(sorted({row.gpu for row in table.rows})),
    )
