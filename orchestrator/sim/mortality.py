"""Mortality: kill a control plane before or after any call that changes something outside its memory (an *edge*).

A transaction dies just before it is committed (it is undone) or just after. Between two edges nothing outside its
memory changes, so that a death there is the same as one at the edge before. What an edge is called is what the call
does: `after step verify>cutover`, `before launch`. Must not know: what a control plane is for, when to strike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Unpack

from orchestrator.engine.checkpoints import CheckpointCatalog
from orchestrator.engine.runtime import Runtime
from orchestrator.model import STEP_ORDER, Entry, Event, Job, JobState, Migration, Step
from orchestrator.store import JobFactFields, Leadership, MigrationFields, RunFields, Store, Tx
from providers.base import LaunchSpec
from providers.fake import FakeProvider

STEPS = tuple(f"step {a}>{b}" for a, b in pairwise(STEP_ORDER))
WRITES = (  # what a transaction is called: the first of these that it does
    *STEPS, "abort", "attempt", "command", "intent", "settle", "adopt", "resolve", "end of run", "accrue", "collect",
    "duty", "progress", "submit", "ask", "job", "sign", "event",
)  # fmt: skip
CALLS = ("launch", "terminate", "prepare", "start", "hold", "unhold", "stop", "kill", "fence", "void")
KINDS = (*WRITES, "beat", "campaign", *CALLS)
EDGES = tuple(f"{moment} {kind}" for kind in KINDS for moment in ("before", "after"))


class Killed(BaseException):
    """kill -9 of the control plane."""


class Scythe:
    """Counts edges and strikes at one of them: by number (`at`), or by what it is about (`when`).

    `deaths` counts the edges at which it struck.
    """

    def __init__(self) -> None:
        self.at: int | None = None
        self.when: Callable[[str], bool] | None = None
        self.count = 0
        self.deaths: Counter[str] = Counter()

    def edge(self, name: str) -> None:
        """Raises Killed when this is the one."""
        self.count += 1
        if self.count == self.at or (self.when is not None and self.when(name)):
            self.at = self.when = None
            self.deaths[name] += 1
            raise Killed(name)


class _Witness(Tx):
    """A transaction that remembers what was done in it."""

    def __init__(self, tx: Tx) -> None:
        super().__init__(tx._connection, tx._clock, tx._random)
        self.done: set[str] = set()

    @property
    def kind(self) -> str | None:
        """Its name among WRITES; None when it changed nothing."""
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

    def add_migration(self, new: Migration) -> None:
        super().add_migration(new)
        self.done.add("intent")

    def add_entries(self, entries: Any) -> None:
        rows: list[Entry] = list(entries)
        super().add_entries(rows)
        self.done.add("accrue")

    def record_poll(self, *args: Any, **fields: Any) -> None:
        super().record_poll(*args, **fields)
        self.done.add("collect")

    def close_command(self, command_id: str, result: str) -> None:
        super().close_command(command_id, result)
        self.done.add("command")

    def set_duty(self, name: str, at_ms: int) -> None:
        super().set_duty(name, at_ms)
        self.done.add("duty")

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
    """A store whose changes are edges."""

    scythe = Scythe()

    @contextmanager
    def write(self, leadership: Leadership | None = None) -> Iterator[Tx]:
        with super().write(leadership) as tx:
            witness = _Witness(tx)
            yield witness
            if witness.kind is not None:
                self.scythe.edge(f"before {witness.kind}")
        if witness.kind is not None:
            self.scythe.edge(f"after {witness.kind}")

    def beat(self, leadership: Leadership) -> None:
        self.scythe.edge("before beat")
        super().beat(leadership)
        self.scythe.edge("after beat")

    def campaign(self, holder: str) -> Leadership | None:
        self.scythe.edge("before campaign")
        won = super().campaign(holder)
        self.scythe.edge("after campaign")
        return won


class MortalProvider(FakeProvider):
    """A client of the fake cloud whose launches and terminations are edges."""

    scythe = Scythe()

    def launch(self, spec: LaunchSpec) -> tuple[str, ...]:
        self.scythe.edge("before launch")
        ids = super().launch(spec)
        self.scythe.edge("after launch")
        return ids

    def terminate(self, instance_id: str) -> None:
        self.scythe.edge("before terminate")
        super().terminate(instance_id)
        self.scythe.edge("after terminate")


class _Mortal:
    """Any other object, whose calls with an effect are edges."""

    def __init__(self, inner: object, scythe: Scythe) -> None:
        self._inner = inner
        self._scythe = scythe

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        if name not in CALLS:
            return call

        def mortal(*args: object) -> object:
            self._scythe.edge(f"before {name}")
            result = call(*args)
            self._scythe.edge(f"after {name}")
            return result

        return mortal


def mortal_runtime(inner: Runtime, scythe: Scythe) -> Runtime:
    """The same site, whose orders to trainers are edges."""
    wrapped: Any = _Mortal(inner, scythe)
    return wrapped  # type: ignore[no-any-return]


def mortal_catalog(inner: CheckpointCatalog, scythe: Scythe) -> CheckpointCatalog:
    """The same checkpoints, whose fences are edges."""
    wrapped: Any = _Mortal(inner, scythe)
    return wrapped  # type: ignore[no-any-return]
