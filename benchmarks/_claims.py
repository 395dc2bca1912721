"""A claim of the documents, its measured value and its target; as a table, or as JSON. Must not know any benchmark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Claim:
    """`target` is the most that `value` may be, in `unit`; None where the figure is only told."""

    claim: str
    value: float
    unit: str
    target: float | None = None

    @property
    def met(self) -> bool:
        return self.target is None or self.value <= self.target


def show(title: str, claims: Sequence[Claim], *, as_json: bool, notes: Sequence[str] = ()) -> int:
    """Print them to stdout. Returns the exit code: 1 when a target is missed."""
    if as_json:
        print(json.dumps([{**asdict(claim), "met": claim.met} for claim in claims], indent=2))
    else:
        table = Table("claim", "value", "unit", "at most", "met", title=title)
        for claim in claims:
            target = "-" if claim.target is None else f"{claim.target:g}"
            met = "-" if claim.target is None else "yes" if claim.met else "NO"
            table.add_row(claim.claim, f"{claim.value:.3g}", claim.unit, target, met)
        console = Console()
        console.print(table)
        for note in notes:
            console.print(note, highlight=False)
    return 0 if all(claim.met for claim in claims) else 1
