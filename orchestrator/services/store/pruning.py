"""Pruning: deletes from `store_root` the code, logs and, on request, outputs of jobs that ended long ago, and versions
of Tradewind's own code that no machine has used for a while.

It considers only objects of this installation's jobs, and runtimes. It keeps no list of what to delete but looks at the
store, so the next prune finds what a killed one has left. Objects of an unknown job (its submission was killed after
the upload) are deleted by their age.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import suppress

from orchestrator.errors import RowError, UsageError
from orchestrator.installation import Installation
from orchestrator.jobfile.units import BadValueError, parse_duration
from orchestrator.model import Event, Job, Run, new_id
from orchestrator.nodes.boot.launching import RUNTIMES, UNUSED_S, digest_in
from orchestrator.nodes.log_pieces import LOGS
from orchestrator.nodes.outputs import OUTPUTS
from orchestrator.nodes.unpacking import CODE
from orchestrator.services.caller import Caller
from orchestrator.services.jobs.run_files import PRUNED, readable
from orchestrator.services.store.views import PrunedJob, PrunedRuntime, StorePruned
from trainers.objects.base import Listed, ObjectStore
from trainers.objects.opening import open_store

AT_ONCE = 1000


def prune(
    installation: Installation, older_than: str, *, outputs: bool = False, dry_run: bool = False, caller: Caller
) -> StorePruned:
    """Delete code and logs, with `outputs` also outputs, of jobs that ended longer ago than `older_than` ("30d") and
    whose machines have ended; and runtimes that were not used for so long. With `dry_run`, only report.

    Raises UsageError for an invalid duration, StoreError.
    """
    older_than_s = _seconds(older_than)
    written_before_ms = installation.outside_clock.now_ms() - int(max(older_than_s, UNUSED_S) * 1000)
    with readable():
        root = open_store(str(installation.config.store_root))
        place = f"jobs/{installation.store.install_id}"
        by_job = _by_job(root.list(place), place)
        over = _over(installation, by_job, older_than_s)
        with installation.store.read() as tx:
            unknown = by_job.keys() - {job.id for job in tx.outlines_of(by_job)}
        jobs, kept_bytes = list[PrunedJob](), 0
        for job_id, found in sorted(by_job.items()):
            job = over.get(job_id)
            if job is None and not (job_id in unknown and all(each.modified_ms < written_before_ms for each in found)):
                continue
            chosen = [each for each in found if outputs or job is None or _part(each) != OUTPUTS]
            kept_bytes += _size(found) - _size(chosen)
            if not chosen:
                continue
            pruned = PrunedJob(
                job.name if job is not None else "",
                job_id,
                len(chosen),
                *(_size(each for each in chosen if _part(each) == part) for part in (CODE, LOGS, OUTPUTS)),
            )
            jobs.append(pruned)
            if not dry_run:
                if job is not None:
                    _record(installation, caller, job, pruned)
                _delete(root, sorted(chosen, key=_turn))
        runtimes = _runtimes(root, written_before_ms, dry_run=dry_run)
    freed = sum(each.code_bytes + each.log_bytes + each.output_bytes for each in jobs)
    freed += sum(each.size_bytes for each in runtimes)
    return StorePruned(dry_run, root.url, older_than_s, tuple(jobs), tuple(runtimes), freed, kept_bytes)


def _seconds(older_than: str) -> float:
    try:
        return parse_duration(older_than)
    except BadValueError as error:
        raise UsageError(f"--older-than: {error}", hint=error.hint or 'write it like "30d"') from error


def _by_job(listed: Iterable[Listed], place: str) -> dict[str, list[Listed]]:
    """The objects of each job below `place`; objects of unknown kinds are ignored."""
    found: dict[str, list[Listed]] = defaultdict(list)
    for each in listed:
        job_id, _, rest = each.key.removeprefix(f"{place}/").partition("/")
        if "/" in rest and _part(each) in (CODE, LOGS, OUTPUTS):
            found[job_id].append(each)
    return found


def _over(installation: Installation, job_ids: Collection[str], older_than_s: float) -> dict[str, Job]:
    """The jobs that ended so long ago, and whose machines can no longer write."""
    damaged: set[str] = set()

    def hear(job_id: str, _error: RowError) -> None:
        damaged.add(job_id)

    with installation.store.read() as tx:
        ended = tx.ended_between(0, installation.clock.now_ms() - int(older_than_s * 1000))
        jobs = {job.id: job for job in ended if job.id in job_ids}
        runs = tx.runs_of(jobs, hear)
    return {
        job_id: job for job_id, job in jobs.items() if job_id not in damaged and not any(map(_may_write, runs[job_id]))
    }


def _may_write(run: Run) -> bool:
    return run.end is None or any(each.instance_id is not None and each.billed_to_ms is None for each in run.machines)


def _part(listed: Listed) -> str:
    """CODE, LOGS, OUTPUTS, or something else."""
    return listed.key.split("/")[3]


def _turn(listed: Listed) -> tuple[int, str]:
    """Older generations of outputs are deleted first, so that a killed prune leaves the newest content of a file."""
    generation = listed.key.split("/")[4].partition("-")[0]
    return (int(generation) if _part(listed) == OUTPUTS and generation.isdecimal() else 0), listed.key


def _size(listed: Iterable[Listed]) -> int:
    return sum(each.size_bytes for each in listed)


def _record(installation: Installation, caller: Caller, job: Job, pruned: PrunedJob) -> None:
    """Records the deletion in an event, before anything is deleted."""
    parts = {"code": pruned.code_bytes, "logs": pruned.log_bytes, "outputs": pruned.output_bytes}
    names = [name for name, size_bytes in parts.items() if size_bytes]
    now_ms = installation.clock.now_ms()
    event = Event(
        id=new_id("ev", now_ms, random.SystemRandom()),
        at_ms=now_ms,
        kind=PRUNED,
        message=f"deleting its {' and '.join(names) or 'empty files'} from the store: {sum(parts.values()):,} bytes",
        actor=caller.actor,
        job_id=job.id,
        data={**{f"{name}_bytes": size_bytes for name, size_bytes in parts.items()}, "objects": pruned.objects},
        project=job.project,
        owner=job.owner,
        labels=job.spec.labels,
    )
    with installation.store.write() as tx:
        tx.add_event(event)


def _runtimes(root: ObjectStore, written_before_ms: int, *, dry_run: bool) -> list[PrunedRuntime]:
    """The runtimes that no launch of any installation has used since then: launches rewrite the runtimes that they use
    from time to time."""
    done = []
    for listed in sorted(root.list(RUNTIMES)):
        digest = digest_in(listed.key)
        if digest is None or listed.modified_ms >= written_before_ms:
            continue
        if not dry_run:
            now = root.head(listed.key)  # a launch may have rewritten it since
            if now is None or now.modified_ms >= written_before_ms:
                continue
            _delete(root, [listed])
        done.append(PrunedRuntime(digest, listed.size_bytes))
    return done


def _delete(root: ObjectStore, listed: list[Listed]) -> None:
    keys = [each.key for each in listed]
    for begin in range(0, len(keys), AT_ONCE):
        root.delete(*keys[begin : begin + AT_ONCE])
    if not root.remote:
        _tidy(root, {key.rpartition("/")[0] for key in keys})


def _tidy(root: ObjectStore, folders: Iterable[str]) -> None:
    """Remove leftovers of interrupted writes in these folders on disk, and empty folders."""
    for folder in folders:
        root.sweep(folder, lambda _key: True)
        above = folder
        with suppress(OSError):  # not empty
            while above.count("/") >= 2:
                os.rmdir(root.where(above))
                above = above.rpartition("/")[0]
