"""Imports published throughputs for plans."""

from __future__ import annotations

from pathlib import Path

from orchestrator.installation import Installation
from orchestrator.services.speed.throughput_tables import read_table
from orchestrator.services.speed.views import ImportedTable


def import_throughputs(installation: Installation, path: Path) -> ImportedTable:
    """Stores the rates of a table, replacing those of an earlier file with the same name.

    Raises UsageError if it cannot be read, SpecError with every invalid row; then nothing is stored.
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
