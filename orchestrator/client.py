"""Client: the SDK. The command line stands on it; a shared daemon will speak its methods over HTTP.

In-process: it opens the state folder itself, when the first method needs it. Arguments and results are frozen
dataclasses that serialise (orchestrator.services.views.to_json).

    client = orchestrator.Client()
    plan = client.plan("gpt.yaml")
    job, = client.submit(plan)
    client.wait(job.id)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.client_trial import TrialClient
from orchestrator.config import Config, load_config
from orchestrator.errors import UsageError
from providers.clock import SystemClock

if TYPE_CHECKING:  # each method loads what it needs: a command that asks the catalogue alone loads no database
    from orchestrator.model import JobSpec
    from orchestrator.prices.views import (
        AcceptedPrice,
        CollectedRegion,
        PriceArchive,
        PriceChange,
        PriceCollection,
        PriceExport,
        PriceHistory,
        PriceImport,
        PriceStatus,
    )
    from orchestrator.reports.views import ReportView
    from orchestrator.services.catalog.views import CatalogUpdate, CatalogVerdict, CatalogView
    from orchestrator.services.offers.filters import OfferQuery
    from orchestrator.services.offers.listing import Grouping
    from orchestrator.services.offers.views import OfferList
    from orchestrator.services.views import (
        Accepted,
        ControlPlaneView,
        Diagnosis,
        EventList,
        Explanation,
        Fetched,
        JobList,
        JobView,
        LogLine,
        PlanView,
        SettingList,
        StatusView,
    )

Progress = Callable[[str], None]


def _silent(_text: str) -> None:
    return None


class Client(TrialClient):
    """Everything a user can do. Not for use from several threads at once; `with` closes it.

    Jobs are named by id, by the beginning of one, or by name (the newest of that name). Every method that takes one
    raises NotFoundError; any may raise StoreError.
    """

    def __init__(self, config: Config | str | None = None) -> None:
        """A client of the configured state folder, or of `config`. Raises SpecError, UsageError."""
        if isinstance(config, str):
            raise UsageError(
                f"not yet: a client of {config}", hint="use Client(), on the machine where the control plane runs"
            )
        super().__init__(load_config() if config is None else config)
        self._to_give: dict[str, Mapping[str, str]] = {}  # secrets of jobs that no control plane has taken yet

    # Planning

    def plan(self, *work: JobSpec | str | Path, all_jobs: bool = False, anywhere: bool | None = False) -> PlanView:
        """What would be done now with these jobs (specs or job files), or with all submitted ones. Changes nothing.

        With `anywhere` the plan is about the offers of the catalogue, of clouds that are not enabled: it can't be
        submitted. None: only if no enabled provider can ever run one of the jobs. Raises SpecError, UsageError.
        """
        from orchestrator.services.jobs import plan

        specs = [self.load(item) if isinstance(item, str | Path) else item for item in work]
        return plan.preview(self._opened, specs, all_jobs=all_jobs, anywhere=anywhere)

    def submit(self, work: PlanView | JobSpec | str | Path, *, token: str | None = None) -> JobView:
        """Hand one job over, with its secrets from this process's environment; where no control plane runs yet, `up`
        gives them. With a `token` of your choice, unique in its project, it is submitted once, however often you try.
        Raises SpecError, UsageError, InfeasibleError, TokenConflictError for the token of another job."""
        from orchestrator.services.jobs import submit
        from orchestrator.services.views import PlanView

        work = self.load(work) if isinstance(work, str | Path) else work
        if token is not None and not isinstance(work, PlanView) and (known := self.submitted(work, token)):
            return known
        view = work if isinstance(work, PlanView) else self.plan(work)
        if len(view.new_jobs) != 1:
            raise UsageError("this submits one job at a time", hint="apply a plan of several with Client.apply")
        self._check_entries(view)
        self._give(view)
        return submit.submit(self._opened, view, token=token)

    def submitted(self, spec: JobSpec, token: str) -> JobView | None:
        """The job that was submitted with `token`, None if none was. Raises UsageError, TokenConflictError."""
        from orchestrator.services.jobs import submit

        return submit.submitted_before(self._opened, spec, token)

    def apply(self, reviewed: PlanView | str | Path) -> Accepted:
        """Act on a plan exactly as reviewed, with the secrets of its new jobs as `submit` has them. Raises
        StalePlanError that says what moved, InfeasibleError."""
        from orchestrator.services.jobs import apply as applying

        view = self.load_plan(Path(reviewed)) if isinstance(reviewed, str | Path) else reviewed
        self._check_entries(view)
        self._give(view)
        return applying.apply(self._opened, view)

    def check_plan(self, reviewed: PlanView) -> None:
        """Raises StalePlanError, InfeasibleError, where `apply` would."""
        from orchestrator.services.jobs import apply as applying

        applying.check(self._opened, reviewed)

    def save_plan(self, view: PlanView, path: Path) -> None:
        """Write a plan document for `apply`. Raises UsageError when it cannot be written."""
        from orchestrator.services.jobs import apply as applying

        applying.save(view, path)

    def load_plan(self, path: Path) -> PlanView:
        """Read a plan document. Raises NotFoundError, SpecError."""
        from orchestrator.services.jobs import apply as applying

        return applying.load(self._opened, path)

    # Jobs

    def jobs(self, *, ended: bool = False, project: str | None = None) -> JobList:
        """All jobs that have not ended, with `ended` also those that have."""
        from orchestrator.services.jobs import current

        return current.jobs(self._opened, ended=ended, project=project)

    def job(self, ref: str) -> JobView:
        """One job."""
        from orchestrator.services.jobs import current

        return current.job(self._opened, ref)

    def status(self, ref: str) -> StatusView:
        """One job in detail."""
        from orchestrator.services.jobs import current

        return current.status(self._opened, ref)

    def logs(self, ref: str, *, follow: bool = False) -> Iterator[LogLine]:
        """What the job wrote, across its runs; with `follow` until it ends."""
        from orchestrator.services.jobs import logs

        return logs.logs(self._opened, ref, follow=follow)

    def wait(
        self,
        ref: str,
        *,
        timeout_s: float | None = None,
        progress: Callable[[JobView], None] | None = None,
    ) -> JobView:
        """The job once it has ended or is paused (its `note` says why) and its cost is final. Raises PartialFailure
        after `timeout_s` real seconds."""
        from orchestrator.services.jobs import wait

        return wait.wait(self._opened, ref, timeout_s=timeout_s, progress=progress)

    def events(self, ref: str | None = None, *, kinds: Sequence[str] | None = None, limit: int = 100) -> EventList:
        """The newest events, oldest first."""
        from orchestrator.services.jobs import events

        return events.events(self._opened, ref, kinds=kinds, limit=limit)

    def follow_events(self, ref: str | None = None, *, limit: int = 100) -> Iterator[EventList]:
        """The newest events and those to come, in batches; ends with the job."""
        from orchestrator.services.jobs import events

        return events.follow(self._opened, ref, limit=limit)

    def fetch(self, ref: str, to: str | Path | None = None) -> Fetched:
        """Copy the job's outputs below `to` (default: ./<job name>). Raises PartialFailure."""
        from orchestrator.services.jobs import fetch

        return fetch.fetch(self._opened, ref, None if to is None else Path(to))

    # Orders to the control plane

    def migrate(self, ref: str, offer_id: str | None = None) -> Accepted:
        """Move a running job, to an offer or to the best other one. Raises UsageError."""
        from orchestrator.services.jobs import commands

        return commands.migrate(self._opened, ref, offer_id)

    def pause(self, ref: str) -> Accepted:
        """Checkpoint and let the machine go. Raises UsageError."""
        from orchestrator.services.jobs import commands

        return commands.pause(self._opened, ref)

    def resume(self, ref: str) -> Accepted:
        """Let a paused job go on. Raises UsageError."""
        from orchestrator.services.jobs import commands

        return commands.resume(self._opened, ref)

    def set_budget(self, ref: str, amount: str | float) -> Accepted:
        """Give a job another budget: US dollars, as in the job file. Raises UsageError."""
        from orchestrator.services.jobs import commands

        return commands.set_budget(self._opened, ref, amount)

    def cancel(self, ref: str) -> Accepted:
        """End a job for good. Raises UsageError."""
        from orchestrator.services.jobs import commands

        return commands.cancel(self._opened, ref)

    def give_secrets(self, ref: str) -> Accepted:
        """Give a job's secrets, from this process's environment, to the control plane of this host, which has lost them
        when it was restarted. Raises UsageError when one is not there, SiteError when no control plane takes them."""
        from orchestrator.services.secrets import submission

        return submission.give(self._opened, ref)

    def _give(self, view: PlanView | None = None) -> None:
        """Before the jobs are stored, so that none has to wait for its secrets."""
        from orchestrator.services.secrets.socket import PATIENCE_S, hand_over
        from orchestrator.services.secrets.submission import from_environment

        self._to_give |= from_environment(view.new_jobs if view is not None else ())
        if self._to_give and hand_over(self.config.state_dir, self._to_give, patience_s=0.0 if view else PATIENCE_S):
            self._to_give = {}

    # Insight

    def explain(self, ref: str) -> Explanation:
        """Why: of a job, a plan, a migration or a run."""
        from orchestrator.services.jobs import explain

        return explain.explain(self._opened, ref)

    def report(self, ref: str | None = None) -> ReportView:
        """What one job, or all, cost, beside what they would have cost otherwise: paid + saved = baseline.

        That of a job whose books are open is `provisional`. Once they are closed it never changes, but for what is
        booked later, which makes another `version`.
        """
        from orchestrator.reports import report

        return report.report(self._opened, ref)

    def write_html(self, view: ReportView, path: str | Path) -> None:
        """A report as one self-contained page. Raises UsageError when it cannot be written."""
        from orchestrator.reports.html import page

        _write(Path(path), page(view))

    def offers(
        self,
        query: OfferQuery | None = None,
        *,
        work: JobSpec | str | Path | None = None,
        group_by: Grouping | None = None,
        limit: int | None = None,
    ) -> OfferList:
        """What can be rented, cheapest first: now at the enabled providers, and elsewhere as the catalogue says.

        With `work`, a spec or job file, in the figures and the order of a plan of that job. `limit`: so many simulated
        and so many real ones. Raises UsageError when a filter leaves nothing, SpecError, InfeasibleError when nothing
        fits the job.
        """
        from orchestrator.services.offers import listing
        from orchestrator.services.offers.filters import OfferQuery

        spec = self.load(work) if isinstance(work, str | Path) else work
        return listing.offers(
            self.config,
            lambda: self._opened,
            query or OfferQuery(),
            now_ms=SystemClock().now_ms(),
            spec=spec,
            group_by=group_by,
            limit=limit,
        )

    # Prices

    def price_status(self) -> PriceStatus:
        """When each source and region was polled last, with what result, and what is flagged."""
        from orchestrator.services.prices import prices

        return prices.status(self._opened)

    def price_history(
        self,
        offer_id: str | None = None,
        *,
        gpu: str | None = None,
        provider: str | None = None,
        region: str | None = None,
        spot: bool | None = None,
        since: str = "30d",
        limit: int = 6,
    ) -> PriceHistory:
        """How the price of an offer went, or of those that match and are cheapest per GPU. Raises UsageError."""
        from orchestrator.services.prices import prices

        installation = self._opened
        return prices.history(
            installation,
            offer_id,
            gpu=gpu,
            provider=provider,
            region=region,
            spot=spot,
            since=since,
            limit=limit,
        )

    def watch_prices(self, *, gpu: str | None = None) -> Iterator[PriceChange]:
        """Prices that change and polls that fail from now on. Raises UsageError."""
        from orchestrator.services.prices import prices

        return prices.watch(self._opened, gpu=gpu)

    def accept_price(self, offer_id: str) -> AcceptedPrice:
        """Vouch for a price that is kept and not believed. Raises NotFoundError, UsageError."""
        from orchestrator.services.prices.accept import accept

        return accept(self._opened, offer_id)

    def collect_prices(
        self,
        *,
        clouds: Sequence[str] = (),
        feeds: Sequence[tuple[str, str]] = (),
        once: bool = True,
        reported: Callable[[CollectedRegion], None] = lambda _: None,
    ) -> PriceCollection:
        """Poll clouds and feeds (name, file or URL), or else the enabled providers and the configured sources.
        `reported` hears of each poll."""
        from orchestrator.services.prices import prices

        return prices.collect(self._opened, clouds=clouds, feeds=feeds, once=once, reported=reported)

    def import_prices(
        self,
        paths: Sequence[str | Path],
        *,
        provider: str = "",
        at: str = "",
        progress: Callable[[str, int, int | None], None] = lambda _text, _done, _total: None,
    ) -> PriceImport:
        """Take tables of recorded prices, or folders of them, into the store. Raises UsageError, MissingExtraError."""
        from orchestrator.prices.recorded import import_prices
        from orchestrator.services.prices import prices

        installation = self._opened
        at_ms = prices.instant_of(at, installation.clock.now_ms()) if at else None
        files = [Path(path) for path in paths]
        return import_prices(
            installation.store,
            files,
            provider=provider,
            at_ms=at_ms,
            now_ms=installation.outside_clock.now_ms(),
            reserved=installation.providers.keys(),
            progress=progress,
        )

    def export_prices(
        self, path: str | Path, *, gpu: str | None = None, provider: str | None = None, since: str = ""
    ) -> PriceExport:
        """Write every price change to a CSV or Parquet file. Raises UsageError, MissingExtraError."""
        from orchestrator.prices.archive import export
        from orchestrator.services.prices import prices

        installation = self._opened
        from_ms = prices.instant_of(since, installation.clock.now_ms()) if since else 0
        return export(installation.store, Path(path), gpu=gpu, provider=provider, from_ms=from_ms)

    def archive_prices(self, *, keep_days: int = 400) -> PriceArchive:
        """Archive months that are over, and let prices older than `keep_days` leave the store. Raises UsageError."""
        from orchestrator.prices.archive import archive

        installation = self._opened
        now_ms = installation.outside_clock.now_ms()
        return archive(installation.store, installation.state_dir / "archive", now_ms, keep_days=keep_days)

    # Tradewind itself

    def doctor(self, clouds: Sequence[str] = ()) -> Diagnosis:
        """Check everything that Tradewind needs; or, with `clouds`, what the credentials of this environment may read
        there. Raises UsageError for an unknown cloud, ProviderFailure when its library is missing."""
        from orchestrator.services.doctor import examine, examine_clouds

        return examine_clouds(clouds) if clouds else examine(self.config)

    def catalog(self, path: str | Path | None = None) -> CatalogView:
        """What the offline catalogue holds and how old it is, with the rows of a file of your own. Raises SpecError."""
        from orchestrator.services.catalog import contents

        return contents.show(SystemClock().now_ms(), None if path is None else Path(path))

    def update_catalog(self, at: str, *, sha256: str | None = None, force: bool = False) -> CatalogUpdate:
        """Install the catalogue that is published at a URL or path, for all of this user's commands. Raises UsageError
        for one that is refused, SpecError for a damaged one, NotFoundError, ProviderFailure, StoreError."""
        from orchestrator.services.catalog import update

        return update.update(SystemClock().now_ms(), at, sha256=sha256, force=force)

    def verify_catalog(self, path: str | Path | None = None) -> CatalogVerdict:
        """Look for what is wrong with the offline catalogue, or with a file of your own. Raises NotFoundError."""
        from orchestrator.services.catalog import contents

        return contents.verify(SystemClock().now_ms(), None if path is None else Path(path))

    def settings(self) -> SettingList:
        """Every setting and its origin."""
        from orchestrator.services.control_plane import settings

        return settings.settings(self.config)

    def control_plane(self) -> ControlPlaneView:
        """Whether a control plane acts on this store. One of another machine is watched for some seconds."""
        from orchestrator.services.control_plane.presence import control_plane

        return control_plane(self._opened, watch=True)

    def up(self, *, progress: Progress = _silent) -> ControlPlaneView:
        """Start this host's site and control plane in the background, unless they run. Raises SiteError."""
        from orchestrator.services.control_plane import lifecycle

        lifecycle.up(self.config, progress=progress)
        self._give()
        return self.control_plane()

    def down(self, *, progress: Progress = _silent, force: bool = False, keep_jobs: bool = False) -> ControlPlaneView:
        """Pause jobs, end the control plane, every local instance and the site; bill what was used.

        `force` does not ask jobs for a checkpoint; `keep_jobs` ends nothing but the control plane.
        """
        from orchestrator.services.control_plane import lifecycle

        lifecycle.down(self.config, progress=progress, force=force, keep_jobs=keep_jobs)
        return self.control_plane()


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", hint="choose another path") from error
