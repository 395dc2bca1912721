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
    """A plan says where each job would run now, what it would cost, and why other offers are not chosen."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def create(
        self, *work: Work, all_jobs: bool = False, anywhere: bool | None = False, trace: bool = False
    ) -> PlanView:
        """What Tradewind would do now with these jobs, or with all submitted jobs. Starts and moves nothing.

        With `anywhere`, the plan covers all offers of the catalogue, also of clouds that are not enabled, and cannot be
        submitted. None: only if no enabled provider can ever run one of the jobs. With `trace`, each decision shows how
        it was made. Raises SpecError, UsageError.
        """
        specs = [self._session.load(item) for item in work]
        return plan.preview(self._session.installation, specs, all_jobs=all_jobs, anywhere=anywhere, traced=trace)

    def check(self, reviewed: PlanView) -> None:
        """Raises StalePlanError, which says what has changed since, and InfeasibleError, if `apply` would."""
        applying.check(self._session.installation, reviewed)

    def apply(self, reviewed: PlanView | str | Path, *, accept_code: bool = False) -> Accepted:
        """Apply a plan, or a saved plan, exactly as reviewed. For secrets and code of new jobs see `jobs.submit`.
        Raises StalePlanError, which says what has changed since, InfeasibleError, UsageError, StoreError, and for a
        file the errors of `load`."""
        view = reviewed if isinstance(reviewed, PlanView) else self.load(reviewed)
        self._session.handover.prepare(view.new_jobs)
        return applying.apply(self._session.installation, view, caller=self._session.caller, accept_code=accept_code)

    def save(self, view: PlanView, path: str | Path) -> None:
        """Write a plan document for `load` and `apply`. Raises UsageError if it cannot be written."""
        applying.save(view, path_of(path))

    def load(self, path: str | Path) -> PlanView:
        """Read a plan document. Raises NotFoundError, SpecError."""
        return applying.load(self._session.installation, path_of(path))
