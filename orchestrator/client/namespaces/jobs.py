"""client.jobs: submits, follows and controls jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.client.arguments import checked
from orchestrator.client.paths import path_of
from orchestrator.client.session import Session
from orchestrator.errors import UsageError
from orchestrator.services.jobs import code, commands, current, explain, fetch, logs, plan, submit, wait
from orchestrator.services.views import (
    Accepted,
    CodeView,
    Explanation,
    Fetched,
    JobList,
    JobView,
    LogLine,
    PlanView,
    StatusView,
)

if TYPE_CHECKING:
    from orchestrator.client.session import Work


@checked
class Jobs:
    """`job` is an id, the beginning of an id, or a name (the newest job of that name)."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def submit(self, work: PlanView | Work, *, token: str | None = None, accept_code: bool = False) -> JobView:
        """Submit one job as the caller, with its secrets from this process's environment. If no control plane runs yet,
        `control_plane.up` hands them over later. With a `token` of your choice, unique in its project, the job is
        submitted only once, even if you repeat the call. If the job may run on other machines than this host, its code
        is uploaded; with `accept_code` also if the code is large or may contain secrets (see `code`). Raises SpecError,
        UsageError, InfeasibleError, StoreError, TokenConflictError if the token belongs to a different job."""
        if not isinstance(work, PlanView):
            if token is not None and (known := self.submitted(work, token)):
                return known
            work = plan.preview(self._session.installation, [self._session.load(work)])
        if len(work.new_jobs) != 1:
            raise UsageError("this submits one job at a time", hint="for several, use client.plans.apply")
        self._session.handover.prepare(work.new_jobs)
        return submit.submit(
            self._session.installation, work, caller=self._session.caller, token=token, accept_code=accept_code
        )

    def code(self, work: Work) -> CodeView | None:
        """What part of its code a job would upload on submission, and whether you have to accept it; None: nothing.
        Raises SpecError, UsageError if the code cannot be packed."""
        return code.code_of(self._session.installation, self._session.load(work))

    def submitted(self, work: Work, token: str) -> JobView | None:
        """The job that was submitted with `token`; None if there is none. Its deadline may have passed since. Raises
        SpecError, UsageError, TokenConflictError if the token belongs to a different job."""
        spec = self._session.load(work, submitted_before=True)
        return submit.submitted_before(self._session.installation, spec, token)

    def list(
        self,
        *,
        ended: bool = False,
        project: str | None = None,
        group: str | None = None,
        limit: int | None = 100,
        cursor: str | None = None,
    ) -> JobList:
        """Jobs that have not ended, with `ended` also jobs that have ended; the oldest first. `group` is a group's name
        or id. Raises UsageError for an invalid limit or cursor, NotFoundError for an unknown group."""
        return current.jobs(
            self._session.installation, ended=ended, project=project, group=group, limit=limit, cursor=cursor
        )

    def get(self, job: str) -> JobView:
        """One job."""
        return current.job(self._session.installation, job)

    def status(self, job: str) -> StatusView:
        """One job in detail: its runs, the migration in progress, its latest events."""
        return current.status(self._session.installation, job)

    def explain(self, what: str) -> Explanation:
        """Why a job runs where it does, what a plan decided, or why a migration or run happened. `what` is a job, or
        the id of a plan, migration or run."""
        return explain.explain(self._session.installation, what)

    def logs(self, job: str, *, follow: bool = False, rank: int | None = None) -> Iterator[LogLine]:
        """The output of the job in all its runs, or of one of its processes (`rank`); with `follow`, until the job
        ends."""
        return logs.logs(self._session.installation, job, follow=follow, rank=rank)

    def wait(
        self,
        job: str,
        *,
        timeout_s: float | None = None,
        progress: Callable[[JobView], None] | None = None,
    ) -> JobView:
        """Wait until the job has ended or is paused (its `note` says why) and its cost is final; return the job.
        `progress` is called with it every 0.3 real seconds. Raises PartialFailure after `timeout_s` real seconds."""
        return wait.wait(self._session.installation, job, timeout_s=timeout_s, progress=progress)

    def fetch(
        self,
        job: str,
        to: str | Path | None = None,
        *,
        paths: Sequence[str] = (),
        progress: Callable[[str, int, int], None] = lambda _path, _done, _total: None,
    ) -> Fetched:
        """Copy the job's outputs to `to` (default: ./<job name>, unless it contains outputs of another job of that
        name): `paths`, or the outputs in the job file. Outputs that do not exist are in `missing`. `progress` is called
        with a file, the bytes copied and the total. Raises NotFoundError, UsageError, StoreError, PartialFailure."""
        folder = None if to is None else path_of(to)
        return fetch.fetch(self._session.installation, job, folder, paths, progress)

    def migrate(self, job: str, offer_id: str | None = None) -> Accepted:
        """Move a running job, to this offer or to the best other offer. Raises UsageError, InfeasibleError,
        LimitError."""
        return commands.migrate(self._session.installation, job, offer_id, caller=self._session.caller)

    def pause(self, job: str) -> Accepted:
        """Save a checkpoint and release the machine. Raises UsageError."""
        return commands.pause(self._session.installation, job, caller=self._session.caller)

    def resume(self, job: str) -> Accepted:
        """Resume a paused job. Raises UsageError."""
        return commands.resume(self._session.installation, job, caller=self._session.caller)

    def set_budget(self, job: str, amount: str | float) -> Accepted:
        """Set a job's budget in US dollars, as in the job file. Raises UsageError."""
        return commands.set_budget(self._session.installation, job, amount, caller=self._session.caller)

    def cancel(self, job: str) -> Accepted:
        """Cancel a job permanently; its checkpoints, outputs and costs are kept. Raises UsageError."""
        return commands.cancel(self._session.installation, job, caller=self._session.caller)
