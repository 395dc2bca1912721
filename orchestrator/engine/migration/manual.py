"""Manual moves: checks whether a user may move a job, and picks an offer if none was named.

An offer that does not fit (GPU, memory, CPUs, cloud, region, capacity type, simulated or not) stays ruled out. Reasons
that depend on the moment or on an estimate (a stale price, no capacity a minute ago, a higher price) do not block a
user's request.
"""

from __future__ import annotations

from orchestrator.config import Config
from orchestrator.engine.inputs import snapshot
from orchestrator.engine.migration.intent import under_way
from orchestrator.errors import InfeasibleError, NotFoundError, UsageError
from orchestrator.model import Alternative, Job, Run
from orchestrator.policy import decide, ruled_out
from orchestrator.store import Tx
from providers.offer import provider_of


def movable(tx: Tx, job: Job) -> Run:
    """The run that would be moved. Raises UsageError if the job is not running or is already moving."""
    current = snapshot.current_run(tx.runs(job_id=job.id))
    see = f"see its state: tradewind status {tx.typed_name(job.id, job.name)}"
    if under_way(tx, job.id) and current is not None:
        raise UsageError(f"{job.name} is already being moved", hint=see)
    if current is None or job.state != "running":
        raise UsageError(f"{job.name} is {job.state}; only a running job can be moved", hint=see)
    return current


def check_target(tx: Tx, now_ms: int, config: Config, job: Job, current: Run, offer_id: str) -> None:
    """Check that the offer exists and fits. Raises NotFoundError, UsageError, or InfeasibleError if it is ruled out."""
    market = snapshot.market(tx, now_ms, config)
    row = market.row(offer_id)
    if row is None:
        raise NotFoundError(f"offer {offer_id} does not exist", hint="list offers: tradewind offers")
    if offer_id == current.offer_id:
        raise UsageError(f"{job.name} already runs on {offer_id}", hint="list offers: tradewind offers")
    reason = ruled_out(job.spec, market, row, home=provider_of(current.offer_id))
    if reason:
        raise InfeasibleError(
            f"{job.name} cannot move to {offer_id}: {reason}",
            hint=f"see which offers fit: tradewind explain {tx.typed_name(job.id, job.name)}",
        )


def best_other(tx: Tx, now_ms: int, config: Config, job: Job, current: Run) -> str:
    """The policy's best offer other than the present one. Raises InfeasibleError if no other offer fits."""
    for each in _ranked(tx, now_ms, config, job):
        if each.feasible and each.offer_id != current.offer_id:
            return each.offer_id
    raise InfeasibleError(
        f"no other offer fits {job.name}", hint=f"see why: tradewind explain {tx.typed_name(job.id, job.name)}"
    )


def _ranked(tx: Tx, now_ms: int, config: Config, job: Job) -> tuple[Alternative, ...]:
    inputs = snapshot.inputs(tx, now_ms, config, only=[job.id], with_notice=frozenset({job.id}))
    plan = decide(inputs.demands, inputs.market, inputs.perf, inputs.running, limits=snapshot.limits(config))
    return plan.placement(job.id).alternatives
