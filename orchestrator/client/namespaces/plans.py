"""client.plans: creates plans, saves them for review, and applies them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.client.arguments import checked
from orchestrator.client.paths import path_of
from orchestrator.client.session import Session
from orchestrator.services.jobs import apply as applying
from orchestrator.services.jobs import plan
from orchestrator.services.views import Accepted, PlanView

if TYPE_CHECKING:
    from orchestrator.client.session import Work


@checked
class Plans:
    """A plan says where each job would run now, what that would cost, and why not elsewhere."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def create(
        self, *work: Work, all_jobs: bool = False, anywhere: bool | None = False, trace: bool = False
    ) -> PlanView:
        """What would be done now with these jobs, or with all submitted ones. Starts and moves nothing.

        With `anywhere` the plan is about the offers of the catalogue, of clouds that are not enabled, and cannot be
        submitted. None: only if no enabled provider can ever run one of the jobs. With `trace`, each decision says how
        it came about. Raises SpecError, UsageError.
        """
        specs = [self._session.load(item) for item in work]
        return plan.preview(self._session.installation, specs, all_jobs=all_jobs, anywhere=anywhere, traced=trace)

    def check(self, reviewed: PlanView) -> None:
        """Raises StalePlanError with what changed since, and InfeasibleError, where `apply` would."""
        applying.check(self._session.installation, reviewed)

    def apply(self, reviewed: PlanView | str | Path, *, accept_code: bool = False) -> Accepted:
        """Act on a plan, or a saved one, exactly as reviewed, with the secrets and the code of its new jobs as
        `jobs.submit` has them. Raises StalePlanError with what changed since, InfeasibleError, UsageError, StoreError,
        and for a file what `load` raises."""
        view = reviewed if isinstance(reviewed, PlanView) else self.load(reviewed)
        self._session.handover.prepare(view.new_jobs)
        return applying.apply(self._session.installation, view, caller=self._session.caller, accept_code=accept_code)

    def save(self, view: PlanView, path: str | Path) -> None:
        """Write a plan document for `load` and `apply`. Raises UsageError when it cannot be written."""
        applying.save(view, path_of(path))

    def load(self, path: str | Path) -> PlanView:
        """Read a plan document. Raises NotFoundError, SpecError."""
        return applying.load(self._session.installation, path_of(path))
