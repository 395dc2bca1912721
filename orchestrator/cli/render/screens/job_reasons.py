"""Why jobs wait, are paused, failed or need attention, and what continues them: sentences below a table of jobs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from orchestrator.cli.render.text import Screen, clean, counted, fitted
from orchestrator.formats.readable import some_of
from orchestrator.services.views import JobView

SHOWN_NAMES = 8
_ORDER = re.compile(r"(\btradewind (?:[a-z]+ )+)(\S+?)(?=[;,.)`]*(?:\s|$))")
_STEP = re.compile(r"^paused at step \d+ ")


def has_reason(job: JobView) -> bool:
    """Whether the note of a job says why it does not train, failed or has a problem, or names a command to run."""
    stopped = job.state in ("queued", "pausing", "paused", "failed") or job.quarantine is not None
    return bool(job.note) and (stopped or bool(job.warnings) or "tradewind " in job.note)


def reasons(jobs: Sequence[JobView], names: Mapping[str, str], screen: Screen) -> list[str]:
    """The reasons, each fitted to the screen. Jobs with the same reason share one, with their number; commands in it
    then name JOB. Empty on a screen without a limit: the rows of the table have the reasons there."""
    if screen.limit is None:
        return []
    alike: dict[str, list[JobView]] = {}
    for job in filter(has_reason, jobs):
        alike.setdefault(_without_job(job), []).append(job)
    said = []
    for common, those in alike.items():
        called = [clean(names[job.id]) for job in those]
        if len(those) == 1:
            said.append(f"{called[0]}: {clean(those[0].note)}")
        else:
            said.append(f"{counted(len(those))} ({some_of(called, SHOWN_NAMES)}): {clean(common)}")
    return [fitted(each, screen.limit) for each in said]


def _without_job(job: JobView) -> str:
    """The note without what differs between jobs that stopped for the same reason: their names in commands, and the
    steps at which they were paused (a column of the table)."""

    def order(found: re.Match[str]) -> str:
        return f"{found[1]}JOB" if found[2] in (job.name, job.id) else found[0]

    return _STEP.sub("paused ", _ORDER.sub(order, job.note))
