"""Jobs with checkpoints or code in a former `store_root`, for `doctor` and `up`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from orchestrator.engine.jobs.left_behind import LeftBehind, has_code, left_behind
from orchestrator.installation import Installation
from orchestrator.model import Job
from orchestrator.services.control_plane.presence import control_plane
from trainers.checkpoint.fences import generations
from trainers.errors import TrainerError
from trainers.objects.opening import open_store
from trainers.objects.retry import Patience

_PATIENCE = Patience(connect_s=2.0, request_s=10.0, tries=1)
MOST_NAMED = 3


def elsewhere(installation: Installation) -> list[tuple[str, str]]:
    """For each former `store_root` with data of jobs that have not ended: a sentence that names these jobs, and the
    remedy. Raises StoreError."""
    with installation.store.read() as tx:
        if not installation.has_former_root(tx):
            return []
        found = [(job, left_behind(installation, tx, job)) for job in tx.outlines(ended=False)]
    by_root: dict[str, list[Job]] = defaultdict(list)
    for job, left in found:
        if left is not None and not is_copied(installation, job, left):
            by_root[left.root].append(job)
    with installation.store.read() as tx:
        names = {job.id: tx.typed_name(job.id, job.name) for jobs in by_root.values() for job in jobs[:MOST_NAMED]}
    meanwhile = _meanwhile(installation)
    return [
        (_words(installation, root, jobs, names), _remedy(root, names[jobs[0].id], meanwhile))
        for root, jobs in by_root.items()
    ]


def is_copied(installation: Installation, job: Job, left: LeftBehind) -> bool:
    """Whether the checkpoints of the job's latest run, or its code, are also in the current `store_root`. False if it
    cannot be read."""
    try:
        if left.latest is None:
            return has_code(installation, job)
        root = open_store(installation.checkpoint_root(job.spec.checkpoint.to), _PATIENCE)
        return max(generations(root, job.id), default=0) >= left.latest.generation
    except TrainerError:
        return False


def _words(installation: Installation, root: str, jobs: list[Job], names: Mapping[str, str]) -> str:
    named = ", ".join(names[job.id] for job in jobs[:MOST_NAMED])
    more = f" and {len(jobs) - MOST_NAMED} more" if len(jobs) > MOST_NAMED else ""
    count = "1 job that has not ended has" if len(jobs) == 1 else f"{len(jobs)} jobs that have not ended have"
    present = installation.config.store_root
    return f"{count} checkpoints or code in {root}, but store_root is now {present}: {named}{more}"


def _meanwhile(installation: Installation) -> str:
    """What happens to the jobs until then. A running control plane keeps the `store_root` that it started with."""
    if (used := installation.root_in_use()) is not None and control_plane(installation).running:
        return f"the running control plane keeps using {used}, and the jobs pause after its next start"
    return "until then they pause"


def _remedy(root: str, name: str, meanwhile: str) -> str:
    return (
        f"set store_root back to {root} (tradewind down, then tradewind up), or copy what "
        f"`tradewind checkpoints ls {name}` names; {meanwhile}; tradewind cancel still works"
    )
