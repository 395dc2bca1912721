"""Client: the entry point for Python programs. The command line uses it, too."""

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

if TYPE_CHECKING:  # namespaces load when first used: a program that uses only the catalogue loads no database
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
    """One installation, used by one caller.

        with orchestrator.Client() as client:
            job = client.jobs.submit("gpt.yaml")
            client.control_plane.up()
            print(client.jobs.wait(job.id).paid_nano_usd / 1e9)

    It works in this process and opens the state folder when a method first needs it. Any number of threads may use one
    Client at the same time; they share the open state folder, and each method runs its own transactions. `close`, or
    the end of `with`, closes the state folder; jobs continue.

    Arguments and results are frozen dataclasses; `orchestrator.to_json` serialises every result. Money is integer
    nano-USD, instants are epoch milliseconds of market time, durations are market seconds (`_s`) or real ones
    (`_wall_s`). Jobs are named by id, by the beginning of an id, or by name (the newest job of that name). Every
    method that takes a job raises NotFoundError for an unknown one; every method may raise StoreError.
    """

    def __init__(
        self,
        config: Config | str | None = None,
        *,
        state_dir: str | Path | None = None,
        caller: Caller | None = None,
    ) -> None:
        """Open the installation in the folder `state_dir`, which needs no configuration file; or that of `config`; or
        the configured one. `caller` is who submits jobs and gives orders, by default the operating system's user.

        Raises SpecError for an invalid setting, UsageError.
        """
        if isinstance(config, str):
            raise UsageError(
                f"not yet: a client of {config}", hint="use Client(), on the machine where the control plane runs"
            )
        if config is not None and state_dir is not None:
            raise UsageError("a configuration already names a state folder", hint="give config or state_dir, not both")
        if not isinstance(state_dir, str | Path | None) or not isinstance(caller, Caller | None):
            raise UsageError(
                "state_dir must be a path, and caller an orchestrator.Caller",
                hint='for example Client(state_dir="state", caller=Caller("ann"))',
            )
        if config is None:
            config = load_config({} if state_dir is None else {"state_dir": path_of(state_dir)})
        self._session = Session(config, Caller.from_environment() if caller is None else caller)

    @classmethod
    def over(cls, installation: Installation, caller: Caller) -> Self:
        """A client of an installation that is already open, such as the control plane's."""
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
        """Close the store; jobs continue. A method that is called later opens it again."""
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
        """Read and check job files, and convert task files of other tools."""
        from orchestrator.client.namespaces.job_files import JobFiles

        return JobFiles(self._session)

    @cached_property
    def plans(self) -> Plans:
        """Create, save and apply plans: what Tradewind would do with jobs now."""
        from orchestrator.client.namespaces.plans import Plans

        return Plans(self._session)

    @cached_property
    def jobs(self) -> Jobs:
        """Submit, follow and control jobs."""
        from orchestrator.client.namespaces.jobs import Jobs

        return Jobs(self._session)

    @cached_property
    def groups(self) -> Groups:
        """Groups of jobs, which are planned and submitted together."""
        from orchestrator.client.namespaces.groups import Groups

        return Groups(self._session)

    @cached_property
    def nodes(self) -> Nodes:
        """The running machines, their costs and their latest reports."""
        from orchestrator.client.namespaces.nodes import Nodes

        return Nodes(self._session)

    @cached_property
    def events(self) -> Events:
        """The audit trail: who did what, when and why."""
        from orchestrator.client.namespaces.events import Events

        return Events(self._session)

    @cached_property
    def speed(self) -> Speed:
        """Measure or import a job's speed before it runs."""
        from orchestrator.client.namespaces.speed import Speed

        return Speed(self._session)

    @cached_property
    def reports(self) -> Reports:
        """What jobs cost, and what they would have cost without Tradewind."""
        from orchestrator.client.namespaces.reports import Reports

        return Reports(self._session)

    @cached_property
    def ledger(self) -> Ledger:
        """The entries of every cost, and their correction."""
        from orchestrator.client.namespaces.ledger import Ledger

        return Ledger(self._session)

    @cached_property
    def offers(self) -> Offers:
        """What can be rented, and at what price."""
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
        """The networks and buckets that clouds need before machines can be rented there."""
        from orchestrator.client.namespaces.networks import Networks

        return Networks(self._session)

    @cached_property
    def secrets(self) -> Secrets:
        """Secrets for jobs that wait for them."""
        from orchestrator.client.namespaces.control_plane import Secrets

        return Secrets(self._session)

    @cached_property
    def system(self) -> System:
        """This installation: its health, its settings and its unmanaged machines."""
        from orchestrator.client.namespaces.control_plane import System

        return System(self._session)

    @cached_property
    def checkpoints(self) -> Checkpoints:
        """List, verify, prune and export the checkpoints of jobs."""
        from orchestrator.client.namespaces.checkpoints import Checkpoints

        return Checkpoints(self._session)

    @cached_property
    def store(self) -> Store:
        """Check, back up and restore the database."""
        from orchestrator.client.namespaces.store import Store

        return Store(self._session)
