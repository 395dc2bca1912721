"""Savings as text: the definition of each baseline and the verdict of each comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.ledger import Baseline, Comparison, baseline_totals
from orchestrator.model import Run
from orchestrator.reports.views import BaselineSum, Compared, JobReport, LeftOut
from providers.money import format_usd

NAMES: Mapping[Baseline, str] = {
    "same_machine": "same machine on demand",
    "at_submission": "cheapest choice at submission",
    "in_hindsight": "static best in hindsight",
}
DEFINITIONS: Mapping[Baseline, str] = {
    "same_machine": "its machines at on-demand prices, without the time that preemptions and migrations added",
    "at_submission": "the on-demand machine that was expected to be cheapest at its first placement, kept to the end",
    "in_hindsight": "the single machine, spot or on demand, that would have cost least at the actual prices, kept to "
    "the end and never preempted",
}


def compared(found: Comparison, runs: Sequence[Run]) -> Compared:
    """The view of a comparison for a job with these runs."""
    rates = () if found.inputs is None else found.inputs.rates
    return Compared(
        baseline=found.baseline,
        name=NAMES[found.baseline],
        definition=DEFINITIONS[found.baseline],
        paid_nano_usd=found.paid_nano_usd,
        saved_nano_usd=found.saved_nano_usd,
        baseline_nano_usd=found.baseline_nano_usd,
        left_out=found.left_out,
        offer_ids=found.offer_ids,
        speed="; ".join(f"{rate.machine}: {rate.provenance}" for rate in rates),
        verdict=_verdict(found, runs),
    )


def totals(rows: Sequence[JobReport]) -> tuple[BaselineSum, ...]:
    """The sums of each baseline over all rows."""
    sums = []
    for of in baseline_totals([each for row in rows for each in row.compared]):
        cells = [(row, row.against(of.baseline)) for row in rows]
        out = tuple(
            LeftOut(row.job.id, row.job.name, row.paid_nano_usd, cell.left_out) for row, cell in cells if cell.left_out
        )
        sums.append(
            BaselineSum(
                baseline=of.baseline,
                name=NAMES[of.baseline],
                definition=DEFINITIONS[of.baseline],
                jobs=of.jobs,
                provisional=sum(row.provisional and not cell.left_out for row, cell in cells),
                paid_nano_usd=of.paid_nano_usd,
                saved_nano_usd=of.saved_nano_usd,
                baseline_nano_usd=of.baseline_nano_usd,
                left_out=out,
                left_out_nano_usd=sum(each.paid_nano_usd for each in out),
            )
        )
    return tuple(sums)


def _verdict(found: Comparison, runs: Sequence[Run]) -> str:
    """The result in one sentence, also if nothing was saved."""
    name, saved, cost = NAMES[found.baseline], found.saved_nano_usd, found.baseline_nano_usd
    if saved is None or cost is None:
        return f"not compared with {name}: {found.left_out}"
    if saved > 0:
        share = f" ({saved / cost:.0%})" if cost > 0 else ""  # refunds can make the baseline 0
        return f"saved {format_usd(saved)}{share} compared with {name}"
    if saved == 0:
        return f"cost as much as {name}"
    words = f"cost {format_usd(-saved)} more than {name}"
    if found.baseline == "in_hindsight":
        return words  # in hindsight only
    if any(run.end == "moved" for run in runs):
        return f"{words}: migrating saved nothing"
    return f"{words}: spot saved nothing" if any(run.offer_id.endswith("/spot") for run in runs) else words
