"""A claim made in the documentation, with its measured value and its target; printed as a table or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Claim:
    """`target` is the maximum of `value` (with `least`: the minimum), in `unit`; None: reported without a target."""

    claim: str
    value: float
    unit: str
    target: float | None = None
    least: bool = False

    @property
    def met(self) -> bool:
        if self.target is None:
            return True
        return bool(self.value >= self.target if self.least else self.value <= self.target)

    def to_json(self) -> dict[str, object]:
        return {key: value for key, value in asdict(self).items() if key != "least"} | {"met": self.met}


def show(title: str, claims: Sequence[Claim], *, as_json: bool, notes: Sequence[str] = ()) -> int:
    """Print the claims to stdout. Returns the exit code: 1 if a target is missed."""
    if as_json:
        print(json.dumps([claim.to_json() for claim in claims], indent=2))
    else:
        table = Table("claim", "value", "unit", "target", "met", title=title)
        for claim in claims:
            target = "-" if claim.target is None else f"{'>=' if claim.least else '<='} {claim.target:g}"
            met = "-" if claim.target is None else "yes" if claim.met else "NO"
            table.add_row(claim.claim, f"{claim.value:.4g}", claim.unit, target, met)
        console = Console()
        console.print(table)
        for note in notes:
            console.print(note, highlight=False)
    return 0 if all(claim.met for claim in claims) else 1
