"""Client: the way in for Python programs. The command line stands on it, too."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from orchestrator.client.paths import path_of
from orchestrator.client.session import Session
from orchestrator.config import Config, load_config
from orchestrator.errors import UsageError
from orchestrator.services.caller import Caller

if TYPE_CHECKING:  # each namespace loads when it is first used: whoever asks the catalogue alone loads no database
    from orchestrator.client.namespaces.catalog import Catalog
    from orchestrator.client.namespaces.checkpoints import Checkpoints
    from orchestrator.client.namespaces.control_plane import ControlPlane, Secrets, System
    from orchestrator.client.namespaces.events import Events
    from orchestrator.client.namespaces.groups import Groups
    from orchestrator.client.namespaces.job_files import JobFiles
    from orchestrator.client.namespaces.jobs import Jobs
    from orchestrator.client.namespaces.ledger import Ledger
    from orchestrator.client.namespaces.networks import Networks
    from orchestrator.client.namespaces.nodes import Nodes
    from orchestrator.client.namespaces.offers import Offers
    from orchestrator.client.namespaces.plans import Plans
    from orchestrator.client.namespaces.prices import Prices
    from orchestrator.client.namespaces.reports import Reports
    from orchestrator.client.namespaces.speed import Speed
    from orchestrator.client.namespaces.store import Store
    from orchestrator.installation import Installation


class Client:
    """One installation, seen by one caller.

        with orchestrator.Client() as client:
            job = client.jobs.submit("gpt.yaml")
            client.control_plane.up()
            print(client.jobs.wait(job.id).paid_nano_usd / 1e9)

    It works in this process and opens the state folder when a method first needs it. Any number of threads may use one
    Client at the same time; they share that opening, and each method is one or more transactions of its own. `close`,
    or the end of `with`, lets go of the state folder; jobs go on.

    Arguments and results are frozen dataclasses; `orchestrator.to_json` serialises every result. Money is integer
    nano-USD, instants are epoch milliseconds of market time, durations are market seconds (`_s`) or real ones
    (`_wall_s`). Jobs are named by id, by the beginning of an id, or by name (the newest of that name). Every method
    that takes such a name raises NotFoundError for an unknown one; every method may raise StoreError.
    """

    def __init__(
        self,
        config: Config | str | None = None,
        *,
        state_dir: str | Path | None = None,
        caller: Caller | None = None,
    ) -> None:
        """The installation in the folder `state_dir`, which needs no configuration file; or that of `config`; or the
        configured one. `caller` is who submits and gives orders, by default the operating system's user.

        Raises SpecError for a setting that is wrong, UsageError.
        """
        if isinstance(config, str):
            raise UsageError(
                f"not yet: a client of {config}", hint="use Client(), on the machine where the control plane runs"
            )
        if config is not None and state_dir is not None:
            raise UsageError("a configuration names its own state folder", hint="give config or state_dir, not both")
        if not isinstance(state_dir, str | Path | None) or not isinstance(caller, Caller | None):
            raise UsageError(
                "state_dir is a path and caller an orchestrator.Caller",
                hint='for example Client(state_dir="state", caller=Caller("ann"))',
            )
        if config is None:
            config = load_config({} if state_dir is None else {"state_dir": path_of(state_dir)})
        self._session = Session(config, Caller.from_environment() if caller is None else caller)

    @classmethod
    def over(cls, installation: Installation, caller: Caller) -> Self:
        """A client of an installation that is open already, such as the control plane's own."""
        client = cls(installation.config, caller=caller)
        client._session = Session(installation.config, caller, installation)
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the store; jobs go on. A method that is called later opens it again."""
        self._session.close()

    @property
    def config(self) -> Config:
        """The settings in force."""
        return self._session.config

    @property
    def caller(self) -> Caller:
        """Who submits jobs and gives orders through this client."""
        return self._session.caller

    @cached_property
    def job_files(self) -> JobFiles:
        """Job files read, checked, and converted from other tools' task files."""
        from orchestrator.client.namespaces.job_files import JobFiles

        return JobFiles(self._session)

    @cached_property
    def plans(self) -> Plans:
        """Create, save and apply plans: what Tradewind would do with jobs now."""
        from orchestrator.client.namespaces.plans import Plans

        return Plans(self._session)

    @cached_property
    def jobs(self) -> Jobs:
        """Jobs submitted, followed and steered."""
        from orchestrator.client.namespaces.jobs import Jobs

        return Jobs(self._session)

    @cached_property
    def groups(self) -> Groups:
        """Groups of jobs: planned and submitted together."""
        from orchestrator.client.namespaces.groups import Groups

        return Groups(self._session)

    @cached_property
    def nodes(self) -> Nodes:
        """The machines that are up, what they cost and what they reported last."""
        from orchestrator.client.namespaces.nodes import Nodes

        return Nodes(self._session)

    @cached_property
    def events(self) -> Events:
        """The audit trail: who did what, when and why."""
        from orchestrator.client.namespaces.events import Events

        return Events(self._session)

    @cached_property
    def speed(self) -> Speed:
        """What is known of a job's speed before it runs."""
        from orchestrator.client.namespaces.speed import Speed

        return Speed(self._session)

    @cached_property
    def reports(self) -> Reports:
        """What jobs cost, and what they would have cost otherwise."""
        from orchestrator.client.namespaces.reports import Reports

        return Reports(self._session)

    @cached_property
    def ledger(self) -> Ledger:
        """The entries behind every cost, and their correction."""
        from orchestrator.client.namespaces.ledger import Ledger

        return Ledger(self._session)

    @cached_property
    def offers(self) -> Offers:
        """What can be rented, and for how much."""
        from orchestrator.client.namespaces.offers import Offers

        return Offers(self._session)

    @cached_property
    def prices(self) -> Prices:
        """Collect, read, import and export prices."""
        from orchestrator.client.namespaces.prices import Prices

        return Prices(self._session)

    @cached_property
    def catalog(self) -> Catalog:
        """The offline catalogue of offers and list prices."""
        from orchestrator.client.namespaces.catalog import Catalog

        return Catalog()

    @cached_property
    def control_plane(self) -> ControlPlane:
        """The process that collects prices, decides, moves jobs and bills."""
        from orchestrator.client.namespaces.control_plane import ControlPlane

        return ControlPlane(self._session)

    @cached_property
    def networks(self) -> Networks:
        """What clouds need before machines can be rented there."""
        from orchestrator.client.namespaces.networks import Networks

        return Networks(self._session)

    @cached_property
    def secrets(self) -> Secrets:
        """Secrets for jobs that wait for them."""
        from orchestrator.client.namespaces.control_plane import Secrets

        return Secrets(self._session)

    @cached_property
    def system(self) -> System:
        """This installation: its health, its settings, its unmanaged machines."""
        from orchestrator.client.namespaces.control_plane import System

        return System(self._session)

    @cached_property
    def checkpoints(self) -> Checkpoints:
        """What jobs have saved: listed, verified, pruned, exported."""
        from orchestrator.client.namespaces.checkpoints import Checkpoints

        return Checkpoints(self._session)

    @cached_property
    def store(self) -> Store:
        """The database behind everything: checked, backed up, restored."""
        from orchestrator.client.namespaces.store import Store

        return Store(self._session)
