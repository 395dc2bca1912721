"""A user's orders to the control plane: written to the store, carried out by whoever leads. Must not know: how."""

from __future__ import annotations

from orchestrator.engine.snapshot import current_run
from orchestrator.engine.world import World
from orchestrator.errors import NotFoundError, UsageError
from orchestrator.model import TERMINAL, Job
from orchestrator.services.actor import actor
from orchestrator.services.control_plane import control_plane
from orchestrator.services.views import Accepted
from orchestrator.store import Tx


def pause(world: World, ref: str) -> Accepted:
    """Checkpoint and let the machine go. Raises NotFoundError, UsageError."""
    with world.store.write() as tx:
        job = _living(tx, ref)
        if job.state in ("paused", "pausing"):
            raise UsageError(f"{job.name} is {job.state} already", hint=f"go on: tradewind resume {job.name}")
        tx.add_command("pause", job.id, {}, actor())
    return _accepted(world, "pause", job, f"{job.name} will pause at its next step, with a checkpoint")


def resume(world: World, ref: str) -> Accepted:
    """Let a paused job go on. Raises NotFoundError, UsageError."""
    with world.store.write() as tx:
        job = _living(tx, ref)
        if job.state not in ("paused", "pausing"):
            raise UsageError(f"{job.name} is {job.state}, not paused", hint="only a paused job can be resumed")
        tx.add_command("resume", job.id, {}, actor())
    return _accepted(world, "resume", job, f"{job.name} goes on from its checkpoint, where it is best now")


def cancel(world: World, ref: str) -> Accepted:
    """End a job for good. Raises NotFoundError, UsageError."""
    with world.store.write() as tx:
        job = _living(tx, ref)
        tx.add_command("cancel", job.id, {}, actor())
    return _accepted(world, "cancel", job, f"{job.name} will end; its checkpoints, outputs and costs stay")


def migrate(world: World, ref: str, offer_id: str | None) -> Accepted:
    """Move a running job, to `offer_id` or to the best other offer. Raises NotFoundError, UsageError."""
    with world.store.write() as tx:
        job = _living(tx, ref)
        current = current_run(tx.runs(job_id=job.id))
        if current is None:
            raise UsageError(
                f"{job.name} is {job.state}: only a running job can be moved",
                hint=f"see where it stands: tradewind status {job.name}",
            )
        if offer_id is not None and offer_id not in {offer.id for offer in tx.offers()}:
            raise NotFoundError(f"there is no offer {offer_id}", hint="see all: tradewind offers")
        if offer_id == current.offer_id:
            raise UsageError(f"{job.name} runs on {offer_id} already", hint="see others: tradewind offers")
        tx.add_command("migrate", job.id, {"offer_id": offer_id}, actor())
    target = offer_id or "the best other offer"
    return _accepted(world, "migrate", job, f"{job.name} will move from {current.offer_id} to {target}")


def _living(tx: Tx, ref: str) -> Job:
    job = tx.find_job(ref)
    if job.state in TERMINAL:
        raise UsageError(f"{job.name} is {job.state}", hint=f"see how it went: tradewind report {job.name}")
    return job


def _accepted(world: World, command: str, job: Job, message: str) -> Accepted:
    return Accepted(command, (job.id,), message, control_plane(world).running)
