"""The cheapest frontier: the offers of all kinds of machines that no other offer beats in both price and speed.

It shows how much more the next faster machine costs. Speed is the measured or estimated speed of a job; without a job,
the peak half-precision rate of all GPUs of the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from orchestrator.engine.inputs import snapshot
from orchestrator.formats.csv_cells import table
from orchestrator.installation import Installation
from orchestrator.store import Tx
from providers.hardware import GPUS
from providers.offer import Offer, provider_of

Kind = tuple[str, int]
"""GPU and number of GPUs."""
TFLOP = 1e12


@dataclass(frozen=True, slots=True)
class FrontierRow:
    """The cheapest offer of a kind of machine, on spot or on demand: its price in nano-USD per hour, its speed, the
    price of a unit of work in nano-USD (1,000 steps, or an hour of a TFLOP/s), and whether it is `best`: no other offer
    is at least as fast without costing more."""

    offer_id: str
    gpu: str
    gpu_count: int
    spot: bool
    nano_usd_per_hour: int
    speed: float
    nano_usd_per_unit: float
    best: bool


@dataclass(frozen=True, slots=True)
class FrontierView:
    """Every kind of machine with a price, slowest first. `speed_of` is the unit of the speeds: steps per second of a
    job, or TFLOP/s. `unknown` is the number of kinds whose speed is not known for the job."""

    kind: ClassVar[str] = "frontier"

    at_ms: int
    speed_of: Literal["steps", "tflop"]
    job_id: str | None
    job_name: str | None
    rows: tuple[FrontierRow, ...]
    unknown: int
    simulated: bool


def frontier(
    installation: Installation, job: str | None = None, *, cloud: str | None = None, spot: bool | None = None
) -> FrontierView:
    """The frontier of the offers that are now listed, priced and not flagged. Raises NotFoundError."""
    now = installation.clock.now_ms()
    with installation.store.read() as tx:
        of = None if job is None else tx.find_job(job)
        listed = {each.id: each for each in tx.offers() if each.gpu is not None}
        wanted = (point for point in tx.eligible_as_of(now) if point.offer_id in listed)
        cheapest: dict[tuple[Kind, bool], tuple[int, str]] = {}
        for point in wanted:
            offer = listed[point.offer_id]
            if (cloud is None or provider_of(offer.id) == cloud) and (spot is None or offer.spot == spot):
                key, price = ((offer.gpu or "", offer.gpu_count), offer.spot), (point.nano_usd_per_hour, offer.id)
                cheapest[key] = min(price, cheapest.get(key, price))
        speeds = _speeds(tx, None if of is None else of.id, {kind for kind, _ in cheapest}, now)
    of_job = speeds is not None
    rows = _rows(
        ((listed[name], price) for price, name in cheapest.values()), speeds or _rates(cheapest), of_job=of_job
    )
    return FrontierView(
        at_ms=now,
        speed_of="steps" if of_job else "tflop",
        job_id=None if of is None else of.id,
        job_name=None if of is None else of.name,
        rows=rows,
        unknown=len(cheapest) - len(rows),
        simulated=any(listed[each.offer_id].simulated for each in rows),
    )


def frontier_csv(view: FrontierView) -> str:
    """CSV with a row per kind of machine, in exact nano-USD."""
    columns = ("offer_id", "gpu", "gpu_count", "spot", "nano_usd_per_hour", view.speed_of, "nano_usd_per_unit", "best")
    rows = (
        (
            each.offer_id,
            each.gpu,
            each.gpu_count,
            each.spot,
            each.nano_usd_per_hour,
            each.speed,
            each.nano_usd_per_unit,
            each.best,
        )
        for each in view.rows
    )
    return table(columns, rows)


def _speeds(tx: Tx, job_id: str | None, kinds: Iterable[Kind], now_ms: int) -> dict[Kind, float] | None:
    """The job's speed in steps per second on each kind for which it is known; None without a measured job."""
    if job_id is None:
        return None
    job = tx.job(job_id)
    book = snapshot.perf(tx, now_ms, [job_id])
    known = [kind for kind in kinds if book.evidence(job, [kind]) != "none"]
    return {kind: rate for kind in known if (rate := book.estimate_kind(job, *kind).value) > 0} or None


def _rates(cheapest: Iterable[tuple[Kind, bool]]) -> dict[Kind, float]:
    """TFLOP/s of each kind."""
    return {(gpu, count): GPUS[gpu].fp16_flops * count / TFLOP for (gpu, count), _ in cheapest}


def _rows(found: Iterable[tuple[Offer, int]], speeds: Mapping[Kind, float], *, of_job: bool) -> tuple[FrontierRow, ...]:
    kinds = [((each.gpu or "", each.gpu_count), price, each) for each, price in found]
    known = [(speeds[kind], price, each) for kind, price, each in kinds if kind in speeds]
    made, lowest = list[FrontierRow](), None
    for speed, price, each in sorted(known, key=lambda of: (-of[0], of[1], of[2].id)):  # the fastest first
        best = lowest is None or price < lowest
        lowest = price if lowest is None else min(price, lowest)
        unit = price / 3600 / speed * 1000 if of_job else price / speed
        made.append(FrontierRow(each.id, each.gpu or "", each.gpu_count, each.spot, price, speed, unit, best))
    return tuple(reversed(made))
