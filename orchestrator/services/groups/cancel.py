"""Cancels all jobs of a group in one transaction."""

from __future__ import annotations

from orchestrator.errors import UsageError
from orchestrator.installation import Installation
from orchestrator.model import TERMINAL
from orchestrator.services.caller import Caller
from orchestrator.services.control_plane.presence import control_plane
from orchestrator.services.views import Accepted


def cancel_group(installation: Installation, ref: str, project: str | None = None, *, caller: Caller) -> Accepted:
    """Cancel the jobs of a group (of `project`, if one is given) that have not ended. Raises NotFoundError, UsageError
    if all have, or if several projects have groups of this name."""
    with installation.store.write() as tx:
        group = tx.only_group(ref, project)
        jobs = [each for each in tx.outlines_of(tx.job_ids_of_group(group.id)) if each.state not in TERMINAL]
        if not jobs:
            raise UsageError(
                f"all jobs of {group.name} have ended", hint=f"list them: tradewind queue --all --group {group.id}"
            )
        for job in jobs:
            tx.add_command("cancel", job.id, {}, caller.actor)
    ids = tuple(job.id for job in jobs)
    count = "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
    message = f"{count} of {group.name} will end; checkpoints, outputs and costs are kept"
    return Accepted("cancel", ids, message, control_plane(installation).running)
