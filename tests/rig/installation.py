"""SimulatedInstallation: a complete installation in virtual time, with the real store and engine, the fake cloud and a
simulated site.

Cloud, site and checkpoints outlive control planes. A control plane can be killed at any edge (tests.rig.crash_points)
and is replaced by a new one without memory.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import select, update

from orchestrator.config import load_config
from orchestrator.config.private import private_folder
from orchestrator.engine.calls import Calls
from orchestrator.engine.context import Context
from orchestrator.engine.control import ControlPlane
from orchestrator.engine.jobs.checkpoints import FileCatalog
from orchestrator.engine.machines.shut_down import shut_down
from orchestrator.engine.secret_values import SecretValues
from orchestrator.installation import Installation
from orchestrator.model import TERMINAL, Event, Job, JobSpec, Migration, Run, new_id
from orchestrator.store import Leadership, Store, Tx, schema
from orchestrator.store.leadership.leader import TAKEOVER_S
from providers.base import Provider
from providers.clock import VirtualClock
from providers.fake import Behaviour, FakeCloud, Faults
from providers.instance import Instance
from providers.offer import Offer
from tests.rig.crash_points import FaultInjector, Killed, MortalProvider, MortalStore, WatchedCatalog, mortal_runtime
from tests.rig.database import ScratchDatabase
from tests.rig.folder import Folder
from tests.rig.nap import Nap
from tests.rig.sabotage import Sabotage, Saboteur
from tests.rig.site import SimSite
from tests.rig.trainer import Timings
from tests.rig.wires import Wires

_T = TypeVar("_T")
HOLDER = "simulated"


class SimulatedInstallation:
    """An installation; `plane` is its current control plane. Wall and market seconds are equal. It is deterministic in
    its arguments and calls. `cloud` may be another one with the methods that are used; `connect` makes its client for a
    control plane, by default one of the fake cloud."""

    def __init__(
        self,
        folder: Path,
        database: ScratchDatabase,
        *,
        catalog: Sequence[tuple[Offer, int]],
        seed: int = 1,
        behaviour: Behaviour | None = None,
        timings: Timings | None = None,
        faults: Faults | None = None,
        overrides: Mapping[str, object] | None = None,
        cloud: Callable[[VirtualClock], Any] | None = None,
        clock: VirtualClock | None = None,
        connect: Callable[[SimulatedInstallation], Provider] | None = None,
    ) -> None:
        self.clock = VirtualClock() if clock is None else clock
        self.random = random.Random(seed)
        self.timings = timings or Timings()
        usual = partial(FakeCloud, seed=seed, behaviour=behaviour, catalog=catalog)
        self.cloud: FakeCloud = (cloud or usual)(self.clock)
        self._connect = connect or _client
        self.faults = faults or Faults(seed)
        self.wires = Wires(self.clock, random.Random(f"wires {seed}"))
        self.injector = FaultInjector()
        self.saboteur = Saboteur()
        self.holder, self._rivals = HOLDER, 1
        self.asleep: Nap[bool] | None = None
        self.forced: set[str] = set()  # runs whose machines were up at a forced `down`
        self.database = database
        database.wipe()
        private_folder(folder)
        settings: dict[str, object] = {
            "state_dir": str(folder),
            "providers.enabled": "fake",
            "store_url": database.url,
            **(overrides or {}),
        }
        self.config = load_config(settings, environ={}, cwd=folder)
        root = self.config.state_dir / "checkpoints"
        shutil.rmtree(root, ignore_errors=True)  # of the history before
        self.checkpoints = Folder(root, self.clock)
        self.site = SimSite(self.cloud, self.clock, self.checkpoints, self.timings, lease_s=self.config.lease_s)
        self.store = self.open_store()
        self.start()

    def open_store(self) -> MortalStore:
        """A control plane's own view of the store."""
        store = MortalStore(self.database.backend, self.clock, self.random)
        store.injector = self.injector
        return store

    def control_plane(self, store: Store, leadership: Leadership | None) -> ControlPlane:
        """A new control plane without memory."""
        self.secrets = SecretValues()
        self.installation = self.installed(store)
        ctx = Context(
            self.installation,
            mortal_runtime(self.site, self.injector),
            WatchedCatalog(self.checkpoints, self.site, self.injector),
            self.random,
            leadership=leadership,
            secrets=self.secrets,
            calls=Calls(self.wires.connect()),
            crossing=self.saboteur.crossing,
            crossed=self.saboteur.crossed,
        )
        return ControlPlane(ctx)

    def installed(self, store: Store) -> Installation:
        """The parts of a new process, which has no memory."""
        provider = self._connect(self)
        return Installation(self.config, self.clock, store, {provider.name: provider})

    def start(self) -> None:
        """Starts a new control plane, again if it is killed, until it has taken over."""
        while True:
            try:
                leadership = self.store.campaign(self.holder)
            except Killed:
                continue
            assert leadership is not None, "another one leads"
            self.plane = self.control_plane(self.store, leadership)
            return

    def restart(self) -> None:
        """Like `start`, with the first tick; both may be paused."""
        store, holder = self.store, self.holder

        def call() -> bool:
            leadership = store.campaign(holder)
            if leadership is None:
                return False  # another one leads by now, and this one would stand by
            plane = self.control_plane(store, leadership)
            present = store.leader()
            if store is self.store and present is not None and present.epoch == leadership.epoch:
                self.plane = plane  # else it slept when it had won, and somebody went down and up meanwhile
            return plane.tick()

        try:
            self.doze(call)
        except Sabotage:
            return  # as in `tick`
        except Killed:
            self.start()

    def go_down(self) -> None:
        """Like `tradewind down --force`, which leads the store meanwhile and may be killed. Trainers do not save first
        (`forced`)."""
        self.forced |= {each.tags["tradewind-run"] for each in self.cloud.instances() if each.alive}
        with suppress(Killed):
            leadership = self._campaign()
            assert leadership is not None
            shut_down(self.installation, leadership, lambda _: None)

    # -- sleep --------------------------------------------------------------------------------------------------------
    def doze(self, call: Callable[[], bool]) -> bool:
        """Carry out a pass of a control plane that may fall asleep in it: `asleep` is its pass then, to be woken by
        `go`. Nobody acts until it is, or another one takes over."""
        nap = Nap(call)
        if nap.go():
            return nap.value()
        self.asleep = nap
        return True

    def take_over(self, silent_s: float = TAKEOVER_S + 1) -> None:
        """Another control plane on the same store takes over from the one that is asleep or stopped."""
        self.holder = f"{HOLDER}-{self._rivals}"
        self._rivals += 1
        self.store = self.open_store()
        assert self._campaign() is None
        self.clock.advance(silent_s)
        leadership = self._campaign()
        assert leadership is not None
        self.plane = self.control_plane(self.store, leadership)

    def _campaign(self) -> Leadership | None:
        """Past all edges: this one is not struck."""
        return Store.campaign(self.store, self.holder)

    def fence(self, job: Job, generation: int, manifest: str | None) -> None:
        """By a control plane of which this store knows nothing, as before a backup of it was put in its place."""
        self.site.look()
        FileCatalog().fence(self.checkpoints.root, job.id, generation, manifest)
        self.checkpoints.fence_made(job.id, generation)

    def spoil_row(self, job: Job) -> Callable[[], None]:
        """Make what was asked of a job unreadable in the store, as a bad sector does; returns what puts it right."""
        of_the_job = schema.job.c.id == job.id
        with Store.read(self.store) as tx:
            was = tx._connection.execute(select(schema.job.c.spec).where(of_the_job)).scalar_one()

        def put(spec: str) -> None:
            with Store.write(self.store) as tx:
                tx._connection.execute(update(schema.job).where(of_the_job).values(spec=spec))

        put("{")
        return lambda: put(was)

    # -- users --------------------------------------------------------------------------------------------------------
    def new_job(self, spec: JobSpec) -> Job:
        """A job that is not submitted yet."""
        now_ms = self.clock.now_ms()
        return Job(new_id("job", now_ms, self.random), spec, "me", now_ms, "queued")

    def submit_job(self, spec: JobSpec) -> Job:
        """Another process's transaction: no edge of the control plane's."""
        job = self.new_job(spec)
        with Store.write(self.store) as tx:
            tx.add_job(job)
        return job

    def give_secrets(self, job: Job) -> None:
        """Gives the job's secrets to the current control plane only."""
        self.secrets.give({job.id: dict.fromkeys(job.spec.train.secrets, "a value of many characters")})

    def ask(self, kind: str, job: Job, **args: str) -> str:
        """Adds a user's command and returns its id."""
        with Store.write(self.store) as tx:
            return tx.add_command(kind, job.id, args, "user:me")

    def answer(self, command_id: str) -> str | None:
        """The result of a command; None while it is open."""
        return self.read(lambda tx: tx.command_result(command_id))

    # -- time ---------------------------------------------------------------------------------------------------------
    def tick(self, seconds: float, down_s: float = 0.0) -> bool:
        """One pass of the control plane, and the time until the next. One that is killed is started again `down_s`
        later; one that falls asleep is `asleep` then. Returns whether anything changed."""
        changed = True
        try:
            changed = self.doze(self.plane.tick) if self.injector.tires else self.plane.tick()
        except Sabotage:
            changed = True  # a part of the pass broke as a whole: the daemon says so and tries again
        except Killed:
            self.clock.advance(down_s)
            self.start()
        self.clock.advance(seconds)
        return changed

    @property
    def settled(self) -> bool:
        """True if every job has ended and is compared, or is paused, and every machine is gone and booked."""
        if any(instance.alive for instance in self.cloud.instances()):
            return False
        with self.store.read() as tx:
            done = all(job.state in TERMINAL | {"paused"} for job in tx.jobs())
            return done and not tx.unsettled_runs() and not tx.migrations(open=True) and not tx.uncompared(1)

    # -- results ------------------------------------------------------------------------------------------------------
    def read(self, query: Callable[[Tx], _T]) -> _T:
        """The result of a query in a read transaction."""
        with self.store.read() as tx:
            return query(tx)

    def job(self, job: Job) -> Job:
        """The job as it is stored now."""
        return self.read(lambda tx: tx.job(job.id))

    def runs(self, job: Job) -> list[Run]:
        """The runs of a job."""
        return self.read(lambda tx: tx.runs(job_id=job.id))

    def current(self, job: Job) -> Run | None:
        """The run that trains for this job, as far as the store knows."""
        living = [run for run in self.runs(job) if run.end is None and run.state in ("training", "quiesced")]
        return living[-1] if living else None

    def migrations(self, job: Job) -> list[Migration]:
        """The migrations of a job."""
        return self.read(lambda tx: tx.migrations(job_id=job.id))

    def events(self, job: Job, *kinds: str) -> list[Event]:
        """The events of a job, of these kinds if given."""
        return self.read(lambda tx: tx.events(job_id=job.id, kinds=kinds or None))

    def story(self) -> list[str]:
        """The audit trail as text, for reading and for comparing two histories."""
        return [f"{event.at_ms} {event.kind}: {event.message}" for event in self.read(lambda tx: tx.events())]

    def machine(self, run: Run) -> Instance:
        """The machine of a run."""
        assert run.instance_id is not None
        found = self.cloud.instance(run.instance_id)
        assert found is not None
        return found

    def books(self) -> tuple[int, int]:
        """(ledger total, cloud bill) in nano-USD."""
        return self.read(lambda tx: tx.total_nano_usd()), sum(bill.amount_nano_usd for bill in self.cloud.bills())


def _client(home: SimulatedInstallation) -> MortalProvider:
    provider = MortalProvider(home.clock, cloud=home.cloud, faults=home.faults)
    provider.injector = home.injector
    return provider
