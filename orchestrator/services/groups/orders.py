"""Pauses, resumes or cancels the jobs of a group, all in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.engine.jobs.pausing import halted
from orchestrator.errors import UsageError
from orchestrator.installation import Installation
from orchestrator.model import TERMINAL, Job
from orchestrator.services.caller import Caller
from orchestrator.services.control_plane.presence import control_plane
from orchestrator.services.jobs.commands import being_cancelled, may_pause
from orchestrator.services.views import Accepted
from orchestrator.store import Command, Tx


def pause_group(installation: Installation, ref: str, project: str | None = None, *, caller: Caller) -> Accepted:
    """Pause the jobs of a group (of `project`, if one is given) that are neither paused nor ended. Those that run save
    a checkpoint first. Raises NotFoundError, UsageError if no such job is left, or if several projects have groups of
    this name."""
    effect = "will pause; what runs saves a checkpoint first, if it has reported a step"

    def wanted(tx: Tx, job: Job, waiting: Sequence[Command]) -> bool:
        return may_pause(tx, job, waiting) and not being_cancelled(job, waiting)

    return _order(installation, "pause", ref, project, wanted, effect, caller)


def resume_group(installation: Installation, ref: str, project: str | None = None, *, caller: Caller) -> Accepted:
    """Resume the paused jobs of a group. Raises as `pause_group`."""
    effect = "will resume from their checkpoints, each on the offer that is best then"

    def wanted(tx: Tx, job: Job, waiting: Sequence[Command]) -> bool:
        return halted(tx, job) and not being_cancelled(job, waiting)

    return _order(installation, "resume", ref, project, wanted, effect, caller)


def cancel_group(installation: Installation, ref: str, project: str | None = None, *, caller: Caller) -> Accepted:
    """Cancel the jobs of a group that have not ended. Raises as `pause_group`."""
    effect = "will end; checkpoints, outputs and costs are kept"
    return _order(installation, "cancel", ref, project, lambda *_: True, effect, caller)


def _order(
    installation: Installation,
    kind: str,
    ref: str,
    project: str | None,
    wanted: Callable[[Tx, Job, Sequence[Command]], bool],
    effect: str,
    caller: Caller,
) -> Accepted:
    with installation.store.write() as tx:
        group = tx.only_group(ref, project)
        living = [each for each in tx.outlines_of(tx.job_ids_of_group(group.id)) if each.state not in TERMINAL]
        if not living:
            raise UsageError(
                f"all jobs of {group.name} have ended", hint=f"list them: tradewind queue --all --group {group.id}"
            )
        waiting = tx.open_commands()
        jobs = [job for job in living if wanted(tx, job, waiting)]
        if not jobs:
            raise UsageError(
                f"no job of {group.name} is left to {kind}", hint=f"list them: tradewind queue --group {group.id}"
            )
        for job in jobs:
            tx.add_command(kind, job.id, {}, caller.actor)
    count = "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
    running = control_plane(installation).running
    return Accepted(kind, tuple(job.id for job in jobs), f"{count} of {group.name} {effect}", running)
