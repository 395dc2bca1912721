"""Risk: sends each run the expected rate of machine losses and the charge for a checkpoint.

The trainer uses them to choose the interval between its checkpoints (trainers.loop.tuner). A run gets new figures when
they have changed by a quarter: the interval depends on their square root, and each order is a write to the store.
"""

from __future__ import annotations

import math
from contextlib import suppress
from functools import partial

from orchestrator.engine.compartment import Compartment, contained
from orchestrator.engine.context import Context
from orchestrator.errors import RowError, SiteError
from orchestrator.market import Market
from orchestrator.model import Run
from orchestrator.store import JobFacts
from providers.billing.charges import Location, checkpoint_objects
from trainers.control import Risk

TELL_EVERY_S = 30.0
AT_ONCE = 10  # runs in one tick, so that none takes long
_CHANGED = math.log(1.25)
WRITE_NANO_USD = {"aws": 5_000, "gcp": 5_000, "azure": 6_500}
"""One write request by the list prices of 2026-11 in the home region: S3 standard PUT, Cloud Storage standard class A,
Blob hot LRS write."""


def tell_risks(ctx: Context) -> bool:
    """Send new figures to the training runs, to some of them in each tick. Changes no rows of the store."""
    runs = [run for run in ctx.work.runs if run.end is None and run.state in ("training", "quiesced")]
    asked = ctx.few_due("risk", runs, lambda run: run.id, TELL_EVERY_S, AT_ONCE)
    if not asked:
        return False
    unreadable: dict[str, RowError] = {}
    with ctx.installation.store.read() as tx:
        market = ctx.markets.read(tx, ctx.now_ms, ctx.installation.config, ctx.used_offers)
        facts = tx.job_facts_of([run.job_id for run in asked], unreadable=unreadable.setdefault)
    for run in asked:
        step = partial(_tell, ctx, market, run, facts.get(run.job_id), unreadable.get(run.job_id))
        contained(ctx, Compartment.TELL_RISK, step, None, job_id=run.job_id)
    return False


def _tell(ctx: Context, market: Market, run: Run, facts: JobFacts | None, error: RowError | None) -> None:
    if error is not None:
        raise error
    found = None if facts is None else _risk(ctx, market, run, facts.checkpoint_bytes or 0)
    if found is None or not _differs(ctx.risks.get(run.id), found):
        return
    with suppress(SiteError):  # the run gets them at its next turn
        ctx.runtime.risk(run.id, found)
        ctx.risks[run.id] = found


def _risk(ctx: Context, market: Market, run: Run, size_bytes: int) -> Risk | None:
    row, factor = market.listing.row(run.offer_id), ctx.installation.clock.factor
    if row is None:
        return None
    losses_per_h = float(market.hazard[row]) * run.nodes * factor
    bucket, price = ctx.bucket_of(ctx.work.jobs[run.job_id]), int(market.price[row]) * run.nodes
    market_s = charge_s(bucket, size_bytes, price)
    return Risk(losses_per_h, None if market_s is None else market_s / factor)


def charge_s(bucket: Location | None, size_bytes: int, price_nano_usd_per_h: int) -> float | None:
    """The charge for storing a checkpoint, as the number of seconds of machine rent that it would pay for; None if it
    is unknown.

    `bucket`: where the checkpoints are; None: in a folder.
    """
    if bucket is None:
        return 0.0
    write = WRITE_NANO_USD.get(bucket[0])
    if write is None or price_nano_usd_per_h <= 0:
        return None
    return checkpoint_objects(size_bytes) * write * 3600 / price_nano_usd_per_h


def _differs(known: Risk | None, found: Risk) -> bool:
    if known is None:
        return True
    pairs = ((known.losses_per_h, found.losses_per_h), (known.charge_s or 0.0, found.charge_s or 0.0))
    return any(abs(math.log((one + 1e-3) / (other + 1e-3))) > _CHANGED for one, other in pairs)
