"""Crash points: kill or pause a control plane before or after any call with an external effect (an *edge*), and before
any operation on a checkpoint file.

A transaction is killed just before its commit (it is rolled back) or just after. Between two edges nothing external
changes, so a crash there equals one at the previous edge. A pause differs: data read before a transaction is old when
it begins. So "paused before a transaction" means before its first statement, which is refused if another control plane
leads by then. Edges are named after the call: `after step verify>cutover`, `before launch`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Unpack

from orchestrator.engine.jobs.checkpoints import FileCatalog, ManifestInfo, Newest
from orchestrator.engine.runtime import Runtime
from orchestrator.model import STEP_ORDER, Entry, Event, Job, JobState, Member, Migration, Step
from orchestrator.store import JobFactFields, Leadership, MigrationFields, RunFields, Store, Tx
from providers.base import Landed, LaunchSpec
from providers.billing.charges import Usage
from providers.fake import FakeProvider
from tests.rig.file_edges import watching
from tests.rig.folder import Folder
from tests.rig.nap import Nap
from tests.rig.site import SimSite
from trainers.objects.opening import Root

STEPS = tuple(f"step {a}>{b}" for a, b in pairwise(STEP_ORDER))
WRITES = (  # the name of a transaction: the first of these that it does
    *STEPS, "abort", "attempt", "command", "intent", "settle", "adopt", "resolve", "end of run", "accrue", "collect",
    "compare", "task", "progress", "submit", "ask", "job", "sign", "event",
)  # fmt: skip
CALLS = ("launch", "terminate", "meter", "prepare", "start", "quiesce", "resume", "stop", "kill", "fence", "void")
FILES = (  # file operations of fencing and of finding the checkpoint to start from
    "list fence", "read fence", "list manifest", "read manifest", "status chunk", "write manifest", "tidy manifest",
    "write fence", "link fence", "tidy fence", "sync fence",
)  # fmt: skip
KINDS = (*WRITES, "beat", "campaign", *CALLS)
EDGES = (
    *(f"{moment} {kind}" for kind in KINDS for moment in ("before", "after")),
    *(f"before {operation}" for operation in FILES),
)
BY_USERS = ("submit", "ask")  # each is its own process: a paused one just comes later
PAUSE_EDGES = tuple(edge for edge in EDGES if edge.split(" ", 1)[1] not in BY_USERS)


BYTE_STANDS_FOR = 1_000_000


class Killed(BaseException):
    """Simulates kill -9 of the control plane."""


class _Undone(BaseException):
    """Rolls back a transaction that begins only after a pause."""


class FaultInjector:
    """Counts edges, kills at one of them, selected by number (`at`) or by name (`when`), and pauses at another
    (`sleep_at`, `sleep_when`): only a call that can be paused (Nap), and never within a transaction, which would block
    others.

    `deaths` and `pauses` count the edges of kills and pauses; `slept` is the last of the latter. `trespasses` are the
    transactions that a control plane began although another one led.
    """

    def __init__(self) -> None:
        self.at: int | None = None
        self.when: Callable[[str], bool] | None = None
        self.sleep_at: int | None = None
        self.sleep_when: Callable[[str], bool] | None = None
        self.count = 0
        self.deaths: Counter[str] = Counter()
        self.pauses: Counter[str] = Counter()
        self.slept = ""
        self.trespasses: list[str] = []
        self._inside = 0

    @property
    def tires(self) -> bool:
        """True if a pause is armed."""
        return self.sleep_at is not None or self.sleep_when is not None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Prevents pauses within the block."""
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    def edge(self, name: str) -> None:
        """Counts an edge. Raises Killed at the selected one, pauses at the other one."""
        self.count += 1
        if self.count == self.at or (self.when is not None and self.when(name)):
            self.at = self.when = None
            self.deaths[name] += 1
            raise Killed(name)
        if not self._inside and self.falls_asleep(name):
            self.sleep()

    def falls_asleep(self, name: str) -> bool:
        """True if the caller must pause at this edge."""
        if Nap.here() is None:
            return False
        if self.sleep_at is not None:
            if self.count < self.sleep_at:
                return False
        elif self.sleep_when is None or not self.sleep_when(name):
            return False
        if name not in PAUSE_EDGES:
            return False
        self.sleep_at = self.sleep_when = None
        self.slept = name
        self.pauses[name] += 1
        return True

    def sleep(self) -> None:
        """Pauses until it is resumed."""
        nap = Nap.here()
        assert nap is not None
        nap.sleep()


class _Witness(Tx):
    """A transaction that records its writes."""

    def __init__(self, tx: Tx) -> None:
        super().__init__(tx._connection, tx._clock, tx._random)
        self.done: set[str] = set()

    @property
    def kind(self) -> str | None:
        """Its name in WRITES; None if it changed nothing."""
        return next((kind for kind in WRITES if kind in self.done), None)

    def advance(self, migration_id: str, expected: Step, to: Step, **fields: Unpack[MigrationFields]) -> bool:
        done = super().advance(migration_id, expected, to, **fields)
        if done:
            self.done.add("abort" if to is Step.ABORTED else "attempt" if to is expected else f"step {expected}>{to}")
        return done

    def update_run(self, run_id: str, **fields: Unpack[RunFields]) -> None:
        super().update_run(run_id, **fields)
        if fields.get("billed_to_ms") is not None:
            self.done.add("settle")
        elif "instance_id" in fields:
            self.done.add("adopt")
        elif fields.get("end") is not None:
            self.done.add("end of run")
        elif fields.get("state") == "ended":
            self.done.add("resolve")
        else:
            self.done.add("progress")

    def set_machines(self, run_id: str, machines: Sequence[Member]) -> None:
        fresh = {each.instance_id for each in machines} - {None, *self.run(run_id).instance_ids}
        super().set_machines(run_id, machines)
        self.done.add("adopt" if fresh else "progress")

    def add_migration(self, new: Migration) -> None:
        super().add_migration(new)
        self.done.add("intent")

    def add_entries(self, entries: Any) -> None:
        rows: list[Entry] = list(entries)
        super().add_entries(rows)
        self.done.add("accrue")

    def add_comparisons(self, new: Any) -> None:
        super().add_comparisons(new)
        self.done.add("compare")

    def record_poll(self, *args: Any, **fields: Any) -> None:
        super().record_poll(*args, **fields)
        self.done.add("collect")

    def close_command(self, command_id: str, result: str) -> None:
        super().close_command(command_id, result)
        self.done.add("command")

    def set_task_done(self, name: str, at_ms: int) -> None:
        super().set_task_done(name, at_ms)
        self.done.add("task")

    def add_job(self, new: Job, token: str | None = None) -> None:
        super().add_job(new, token)
        self.done.add("submit")

    def add_command(self, *args: Any, **fields: Any) -> str:
        self.done.add("ask")
        return super().add_command(*args, **fields)

    def set_job_state(self, job_id: str, state: JobState, **fields: Any) -> bool:
        self.done.add("job")
        return super().set_job_state(job_id, state, **fields)

    def set_job_facts(self, job_id: str, **facts: Unpack[JobFactFields]) -> None:
        self.done.add("job")
        super().set_job_facts(job_id, **facts)

    def add_availability(self, *args: Any, **fields: Any) -> None:
        super().add_availability(*args, **fields)
        self.done.add("sign")

    def add_event(self, new: Event) -> None:
        super().add_event(new)
        self.done.add("event")


class MortalStore(Store):
    """A store whose write transactions are edges."""

    injector = FaultInjector()

    @contextmanager
    def write(self, leadership: Leadership | None = None) -> Iterator[Tx]:
        try:
            with self.injector.transaction(), super().write(leadership) as tx:
                witness = _Witness(tx)
                yield witness
                if witness.kind is not None:
                    self.injector.edge(f"before {witness.kind}")
                    if leadership is not None and self.injector.falls_asleep(f"before {witness.kind}"):
                        raise _Undone
        except _Undone:
            self.injector.sleep()
            with super().write(leadership):  # refused if another control plane leads by now
                pass
            leads = self.leader()
            if leadership is not None and leads is not None and leads.epoch != leadership.epoch:
                self.injector.trespasses.append(witness.kind or "")
            raise Killed(f"before {witness.kind}") from None  # records what it would have done
        if witness.kind is not None:
            self.injector.edge(f"after {witness.kind}")

    def beat(self, leadership: Leadership) -> None:
        self.injector.edge("before beat")
        super().beat(leadership)
        self.injector.edge("after beat")

    def campaign(self, holder: str) -> Leadership | None:
        self.injector.edge("before campaign")
        won = super().campaign(holder)
        self.injector.edge("after campaign")
        return won


class MortalProvider(FakeProvider):
    """A client of the fake cloud whose launches, terminations and meters are edges."""

    injector = FaultInjector()

    def launch_any(self, spec: LaunchSpec) -> Landed:
        self.injector.edge("before launch")
        landed = super().launch_any(spec)
        self.injector.edge("after launch")
        return landed

    def terminate(self, instance_id: str) -> None:
        self.injector.edge("before terminate")
        super().terminate(instance_id)
        self.injector.edge("after terminate")

    def meter(self, instance_id: str, usage: Usage) -> None:
        self.injector.edge("before meter")
        super().meter(instance_id, usage)
        self.injector.edge("after meter")


class _Mortal:
    """A proxy for another object whose calls with an effect are edges."""

    def __init__(self, inner: object, injector: FaultInjector) -> None:
        self._inner = inner
        self._injector = injector

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        if name not in CALLS:
            return call

        def mortal(*args: object, **named: object) -> object:
            self._injector.edge(f"before {name}")
            result = call(*args, **named)
            self._injector.edge(f"after {name}")
            return result

        return mortal


def mortal_runtime(inner: Runtime, injector: FaultInjector) -> Runtime:
    """The same site, with commands to trainers as edges."""
    wrapped: Any = _Mortal(inner, injector)
    return wrapped  # type: ignore[no-any-return]


class WatchedCatalog(FileCatalog):
    """The real catalogue, with file operations and fences as edges. Trainers are simulated up to the call first.

    Checkpoints of simulated trainers are tiny: each of their bytes represents BYTE_STANDS_FOR.
    """

    def __init__(self, folder: Folder, site: SimSite, injector: FaultInjector) -> None:
        super().__init__()
        self._folder, self._site, self._injector = folder, site, injector

    def newest(self, root: Root, job_id: str, generation: int) -> Newest:
        with self._looked_on():
            newest = super().newest(root, job_id, generation)
        return newest if newest.found is None else replace(newest, found=_as_large_as_real(newest.found))

    def find(self, root: Root, job_id: str, name: str) -> ManifestInfo | None:
        with self._looked_on():
            found = super().find(root, job_id, name)
        return None if found is None else _as_large_as_real(found)

    def fence(self, root: Root, job_id: str, generation: int, manifest: str | None) -> bool:
        self._injector.edge("before fence")
        with self._looked_on(fences=(job_id, generation)):
            done = super().fence(root, job_id, generation, manifest)
        self._injector.edge("after fence")
        return done

    def void(self, root: Root, job_id: str, generation: int) -> bool:
        self._injector.edge("before void")
        with self._looked_on():
            done = super().void(root, job_id, generation)
        self._injector.edge("after void")
        return done

    def taken(self, root: Root, job_id: str) -> int:
        with self._looked_on():
            return super().taken(root, job_id)

    def fenced(self, root: Root, job_id: str) -> int:
        with self._looked_on():
            return super().fenced(root, job_id)

    @contextmanager
    def _looked_on(self, fences: tuple[str, int] | None = None) -> Iterator[None]:
        self._site.look()

        def look(operation: str, path: Path) -> None:
            self._injector.edge(f"before {operation}")
            if fences is not None and operation == "link fence":
                self._site.look()  # after a pause the trainers must be simulated again
                if not path.exists():
                    self._folder.fence_made(*fences)

        with watching(look):
            yield


def _as_large_as_real(found: ManifestInfo) -> ManifestInfo:
    return replace(found, size_bytes=found.size_bytes * BYTE_STANDS_FOR)
