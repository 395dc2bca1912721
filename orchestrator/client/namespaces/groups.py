"""client.groups: jobs that are planned and submitted together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.client.arguments import checked
from orchestrator.client.paths import path_of
from orchestrator.client.session import Session
from orchestrator.jobfile import group as files
from orchestrator.model import GroupSpec, Job
from orchestrator.services.groups import orders, plan, single_jobs, submit
from orchestrator.services.groups.views import GroupPlanView, GroupView
from orchestrator.services.views import Accepted, PlanView


@checked
class Groups:
    """`work` is a GroupSpec or the path of a group file. `group` is the id or name of a submitted group: the newest of
    that name in `project`. You can omit `project` if no other project has a group of that name."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def is_group_file(self, path: str | Path) -> bool:
        """Whether a file describes a group, not a job. Raises SpecError if it cannot be read."""
        return files.is_group_file(path_of(path))

    def load(self, work: GroupSpec | str | Path) -> GroupSpec:
        """The spec of a group file. Raises SpecError with every problem in it and in its job files."""
        return self._load(work, self._session.installation.clock.now_ms())

    def _load(self, work: GroupSpec | str | Path, now_ms: int | None) -> GroupSpec:
        if isinstance(work, GroupSpec):
            return work
        return files.load_group(path_of(work), now_ms=now_ms, submitting=True, project=self._session.caller.project)

    def plan(self, work: GroupSpec | str | Path, *, what_if: Sequence[str] = ()) -> GroupPlanView:
        """Where the jobs of the group would run now; with `what_if`, such as "quota.aws.us-east-1.p5=384", also what
        would change with another quota. Raises SpecError, UsageError, LimitError if the budget is too small, and
        InfeasibleError, which names the jobs and limits that conflict."""
        return plan.plan_group(self._session.installation, self.load(work), what_if)

    def decisions(self, work: GroupSpec | str | Path) -> PlanView:
        """The decision about each job of the group as if it were alone, with the reasons for and against each offer.
        Raises SpecError, UsageError."""
        return single_jobs.decided_alone(self._session.installation, self.load(work))

    def prepare(self, work: GroupSpec | str | Path) -> tuple[Job, ...]:
        """The jobs as `submit` would submit them, each with its part of the group's budget. Raises the same errors as
        `plan`."""
        return submit.prepared(self._session.installation, self.load(work))

    def submitted(self, work: GroupSpec | str | Path, token: str) -> GroupView | None:
        """The group that was submitted with `token`; None if there is none. Its deadlines may have passed since. Raises
        TokenConflictError if the token belongs to another submission."""
        return submit.submitted_before(self._session.installation, self._load(work, None), token)

    def submit(
        self,
        work: GroupSpec | str | Path,
        *,
        jobs: tuple[Job, ...] | None = None,
        token: str | None = None,
        accept_code: bool = False,
        accept_risk: bool = True,
    ) -> GroupView:
        """Submit all jobs of a group, or none. `jobs` is the result of `prepare`, if you called it before; for `token`
        and `accept_code` see `jobs.submit`. Without `accept_risk`, raises LimitError if a job is less than 80 % likely
        to meet its deadline and its part of the budget. Raises SpecError, UsageError, InfeasibleError, StoreError,
        TokenConflictError, LimitError if the budget is too small."""
        if token is not None and (known := self.submitted(work, token)) is not None:
            return known
        spec = self.load(work)
        made = submit.prepared(self._session.installation, spec) if jobs is None else jobs
        self._session.handover.prepare(made)
        return submit.submit_group(
            self._session.installation,
            spec,
            made,
            caller=self._session.caller,
            token=token,
            accept_code=accept_code,
            accept_risk=accept_risk,
        )

    def get(self, group: str, *, project: str | None = None) -> GroupView:
        """A submitted group and its jobs. Raises NotFoundError; UsageError if several projects have a group of that
        name."""
        installation = self._session.installation
        with installation.store.read() as tx:
            return submit.group_view(installation, tx, tx.only_group(group, project))

    def set_budget(self, group: str, amount: str | float, *, project: str | None = None) -> Accepted:
        """Set the budget of a group in US dollars, as in the group file. Its jobs keep their parts of the budget; only
        if all that is left of it is the part of a single job does that part change, too. A group's first budget is
        divided among its jobs without a budget. Raises NotFoundError, UsageError."""
        return orders.set_group_budget(self._session.installation, group, amount, project, caller=self._session.caller)

    def cancel(self, group: str, *, project: str | None = None) -> Accepted:
        """Cancel all jobs of a group that have not ended. Raises NotFoundError; UsageError if all have ended, or if
        several projects have a group of that name."""
        return orders.cancel_group(self._session.installation, group, project, caller=self._session.caller)

    def pause(self, group: str, *, project: str | None = None) -> Accepted:
        """Pause the jobs of a group that are not paused and have not ended. Raises NotFoundError; UsageError if there
        are no such jobs, or if several projects have a group of that name."""
        return orders.pause_group(self._session.installation, group, project, caller=self._session.caller)

    def resume(self, group: str, *, project: str | None = None) -> Accepted:
        """Resume the paused jobs of a group. Raises the same errors as `pause`."""
        return orders.resume_group(self._session.installation, group, project, caller=self._session.caller)
