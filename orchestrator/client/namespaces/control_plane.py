"""client.control_plane, client.secrets, client.system: the control plane's process and its installation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.client.arguments import checked
from orchestrator.client.session import Session
from orchestrator.services.control_plane import lifecycle, presence, settings, unmanaged
from orchestrator.services.control_plane.views import ControlPlaneView
from orchestrator.services.doctor import examine, examine_clouds, policy
from orchestrator.services.secrets import submission
from orchestrator.services.setup.outcome import set_up
from orchestrator.services.setup.views import SetUp
from orchestrator.services.views import Accepted, CloudPolicy, Diagnosis, SettingList


def _silent(_text: str) -> None:
    return None


@checked
class ControlPlane:
    """`progress` is called with a line about each action."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def status(self) -> ControlPlaneView:
        """Whether a control plane acts on this store. One on another machine is watched for some seconds."""
        return presence.control_plane(self._session.installation, watch=True)

    def up(
        self, *, progress: Callable[[str], None] = _silent, warn: Callable[[str, str], None] | None = None
    ) -> ControlPlaneView:
        """Start this host's control plane in the background, unless it runs. `warn` is called with each problem that
        does not prevent the start, such as lost limits of a project, and its remedy; if `warn` is None, `progress` is
        called with both in one line. Raises SiteError, also if the control plane is stopped (SIGSTOP) or the disk is
        full, and MissingExtraError if Ray is not installed."""

        def warned(found: str, remedy: str) -> None:
            progress(f"warning: {found}; {remedy}")

        lifecycle.up(self._session.config, progress=progress, warn=warn or warned)
        self._session.handover.give_kept()
        return self.status()

    def down(
        self, *, progress: Callable[[str], None] = _silent, force: bool = False, keep_jobs: bool = False
    ) -> ControlPlaneView:
        """Pause jobs, end the control plane and all machines, and bill the machines.

        With `force`, jobs are not asked for a checkpoint. With `keep_jobs`, only the control plane ends. Raises
        SiteError.
        """
        ended = lifecycle.down(self._session.config, progress=progress, force=force, keep_jobs=keep_jobs)
        return replace(self.status(), ended=ended)


@checked
class Secrets:
    """Secrets come from this process's environment, and are never written unencrypted."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def give(self, job: str) -> Accepted:
        """Give a job's secrets to this host's control plane, which loses them when it restarts. Raises UsageError if a
        secret is not in the environment, SiteError if no control plane takes them."""
        return submission.give(self._session.installation, job)


@checked
class System:
    """The same as `tradewind init`, `doctor`, `config show` and `reap`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def doctor(self, clouds: Sequence[str] = ()) -> Diagnosis:
        """Check everything that Tradewind needs; or, with `clouds`, what the credentials of this environment are
        permitted to do there. Raises UsageError for an unknown cloud, ProviderFailure if its library is missing."""
        return examine_clouds(clouds, self._session.config) if clouds else examine(self._session.config)

    def policy(self, cloud: str, *, prices_only: bool = False) -> CloudPolicy:
        """The minimum permissions that Tradewind needs at a cloud, for everything or only for reading prices, in the
        format of the cloud's own tools. Calls no cloud. Raises UsageError for an unknown cloud."""
        return policy(cloud, self._session.config, prices_only=prices_only)

    def set_up(
        self,
        folder: str | Path,
        *,
        clouds: Sequence[str],
        store: str = "",
        max_usd_per_hour: float,
        replace: bool = False,
    ) -> SetUp:
        """Write tradewind.toml into a folder, check it, and estimate the cost of a first job. Rents nothing. Raises
        UsageError for an invalid value, and if the file exists, unless `replace`; SpecError, StoreError."""
        return set_up(Path(folder), ",".join(clouds), store, str(max_usd_per_hour), replace=replace)

    def settings(self) -> SettingList:
        """Every setting and its origin."""
        return settings.settings(self._session.config)

    def reap(self, instance_id: str) -> Accepted:
        """End a machine of this installation that its store did not rent. Raises UsageError if its store did rent it,
        NotFoundError, ProviderFailure."""
        return unmanaged.reap(self._session.installation, instance_id)
