"""Manual moves: whether a user may move a job, and to which offer if none was named.

What is ruled out by what an offer is (GPU, memory, CPUs, cloud, region, capacity type, simulated or not) stays so. What
only the moment or an estimate speaks against (a stale price, no capacity a minute ago, a higher price) is the user's to
judge.
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
    """The run that would be moved. Raises UsageError."""
    current = snapshot.current_run(tx.runs(job_id=job.id))
    see = f"see where it stands: tradewind status {job.name}"
    if under_way(tx, job.id) and current is not None:
        raise UsageError(f"a move of {job.name} is under way already", hint=see)
    if current is None or job.state != "running":
        raise UsageError(f"{job.name} is {job.state}: only a running job can be moved", hint=see)
    return current


def check_target(tx: Tx, now_ms: int, config: Config, job: Job, current: Run, offer_id: str) -> None:
    """Raises NotFoundError, UsageError, and InfeasibleError for an offer that the job file rules out."""
    market = snapshot.market(tx, now_ms, config)
    row = market.row(offer_id)
    if row is None:
        raise NotFoundError(f"there is no offer {offer_id}", hint="see all: tradewind offers")
    if offer_id == current.offer_id:
        raise UsageError(f"{job.name} runs on {offer_id} already", hint="see others: tradewind offers")
    reason = ruled_out(job.spec, market, row, home=provider_of(current.offer_id))
    if reason:
        raise InfeasibleError(
            f"{job.name} can't go to {offer_id}: {reason}",
            hint=f"see what fits and what does not: tradewind explain {job.name}",
        )


def best_other(tx: Tx, now_ms: int, config: Config, job: Job, current: Run) -> str:
    """The policy's best offer besides the present one. Raises InfeasibleError."""
    for each in _ranked(tx, now_ms, config, job):
        if each.feasible and each.offer_id != current.offer_id:
            return each.offer_id
    raise InfeasibleError(
        f"there is no other offer that fits {job.name}", hint=f"see why: tradewind explain {job.name}"
    )


def _ranked(tx: Tx, now_ms: int, config: Config, job: Job) -> tuple[Alternative, ...]:
    inputs = snapshot.inputs(tx, now_ms, config, only=[job.id], with_notice=frozenset({job.id}))
    plan = decide(inputs.demands, inputs.market, inputs.perf, inputs.running, limits=snapshot.limits(config))
    return plan.placement(job.id).alternatives
