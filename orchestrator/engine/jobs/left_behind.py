"""Left behind: a job's files in a former `store_root`, where the control plane no longer looks for them.

Such a job is paused before a machine is rented for it, so that the user can set `store_root` back or copy the files. If
the user resumes the job without them, it continues from the files in the present `store_root`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from orchestrator.engine.calls import Answer
from orchestrator.engine.context import ACTOR, Context
from orchestrator.engine.inputs.snapshot import left_out
from orchestrator.engine.jobs.background_catalog import AGAIN_S, LIMIT_S, PLACE
from orchestrator.engine.jobs.checkpoints import CheckpointUnusable
from orchestrator.engine.jobs.pausing import pause, paused_for_root
from orchestrator.engine.migration.intent import newest_generation
from orchestrator.installation import Installation
from orchestrator.model import Job, Run, latest_trained
from orchestrator.nodes.unpacking import code_key
from orchestrator.store import Tx
from trainers.objects.opening import open_store
from trainers.objects.retry import Patience

_HURRIED = Patience(connect_s=2.0, request_s=5.0, tries=2)


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A job's files in `root`, a former `store_root`. `what` and `remedy` are texts for the user. `latest`: the run
    that saved a checkpoint there; None: there is only the job's code."""

    root: str
    what: str
    remedy: str
    latest: Run | None


def left_behind(installation: Installation, tx: Tx, job: Job) -> LeftBehind | None:
    """The files that the job saved under a former `store_root`, according to the store of the installation: they may
    have been copied since then. None: there are no such files. Raises StoreError."""
    latest = latest_trained(tx.runs(job_id=job.id, unreadable=left_out))
    if latest is None:
        at_ms = None if job.spec.train.code is None else job.submitted_at_ms
    else:
        at_ms = latest.training_from_ms if job.spec.checkpoint.to is None else None
    root = None if at_ms is None else installation.former_root(tx, at_ms)
    if root is None or (latest is not None and latest.saved_step == 0 and paused_for_root(tx, job) != root):
        return None
    places = [] if latest is None else [f"checkpoints/{job.id}"]
    places += [] if job.spec.train.code is None else [installation.job_place(job.id)]
    if latest is None:
        what = f"its code is in {root}/{places[0]}"
    else:
        step = f" of step {latest.saved_step}" if latest.saved_step else "s"
        what = f"its checkpoint{step} {'is' if latest.saved_step else 'are'} in {root}/{places[0]}"
    copies = " and ".join(f"{root}/{place} to {installation.stored(place)}" for place in places)
    remedy = f"set store_root back to {root} (tradewind down, then tradewind up), or copy {copies}"
    return LeftBehind(root, what, remedy, latest)


def has_code(installation: Installation, job: Job) -> bool:
    """Whether the job's code is below the present `store_root`. Raises TrainerError."""
    code = job.spec.train.code
    return code is None or open_store(installation.job_root(job.id), _HURRIED).head(code_key(code)) is not None


def pauses_left_behind(ctx: Context, job: Job) -> bool:
    """Pause a job that waits for a machine if files that it needs were left behind, once for each place. Returns
    whether it cannot be placed now: it is paused, or the store has not answered yet."""
    if job.state != "queued":
        return False
    with ctx.installation.store.read() as tx:
        left = left_behind(ctx.installation, tx, job)
        if left is None or paused_for_root(tx, job) == left.root:
            return False
    if (here := _is_here(ctx, job, left)) is not False:
        return here is None
    without = "without it, the job fails" if left.latest is None else "without them, the job starts from step 0"
    why = (
        f"{left.what}, but store_root is now {ctx.installation.config.store_root}: {left.remedy}; "
        f"then run: tradewind resume {ctx.typed_name(job)} ({without})"
    )
    with ctx.write() as tx:
        if left.latest is not None:
            tx.update_run(left.latest.id, saved_step=0)
        pause(ctx, tx, job, None, why, actor=ACTOR, left_root=left.root)
    return True


def _is_here(ctx: Context, job: Job, left: LeftBehind) -> bool | None:
    """Whether the files are also in the present place, or whether this is not known; None: the store has not answered
    yet."""
    if left.latest is not None:
        try:
            return newest_generation(ctx, job) >= left.latest.generation
        except CheckpointUnusable:
            return True  # if they are missing, engine.jobs.missing_checkpoint pauses the job later
    key = f"left-code/{job.id}"
    place = (PLACE, ctx.installation.job_root(job.id))
    answer: Answer[bool] | None = ctx.answer(key, keep=True)
    if answer is None and ctx.may_ask(key, place, AGAIN_S):
        answer = ctx.begin(key, place, partial(has_code, ctx.installation, job), LIMIT_S, keep=True)
    return None if answer is None else answer.error is not None or answer.result()
