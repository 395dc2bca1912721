"""Trainer: one run in virtual time on one machine, which saves into the real checkpoint store.

It is simulated lazily, from the previous observation to now. In a save, and when it voids a handover that did not
happen, it can be paused before any file operation and resumed later at the same point.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from orchestrator.engine.runtime import RunSpec, TrainerState
from providers.clock import Clock
from providers.instance import Instance
from tests.rig.file_edges import Look
from tests.rig.folder import Folder
from tests.rig.nap import Nap
from trainers.checkpoint.manifest import ManifestName
from trainers.errors import DamagedCheckpoint, FencedError, TrainerError

T = TypeVar("T")
BUG = "ValueError: a bug at step"
QUIESCE_S = 30.0
YIELD_MARGIN_S = 2.0  # before the deadline of a notice
SAVE_OPERATIONS = (
    "read chunk", "write chunk", "link chunk", "tidy chunk", "sync chunk", "list fence", "read fence", "write manifest",
    "link manifest", "tidy manifest", "sync manifest", "list chunk", "list manifest", "read manifest",
    "remove manifest", "remove chunk",
)  # fmt: skip
VOID_OPERATIONS = ("write fence", "link fence", "tidy fence", "sync fence")
OF_A_VOID = " of a void"
SAVE_EDGES = (
    *(f"before {operation}" for operation in SAVE_OPERATIONS),
    "after save",
    *(f"before {operation}{OF_A_VOID}" for operation in VOID_OPERATIONS),
)


@dataclass(frozen=True, slots=True)
class Timings:
    """Wall seconds: of one step, of loading libraries, of restoring, between two checkpoints. `saving`: how long saves
    take, as a share of the time of the steps."""

    step_s: float = 1.0
    prepare_s: float = 2.0
    restore_s: float = 1.0
    checkpoint_every_s: float = 20.0
    saving: float = 0.0


class LeaseOver(Exception):
    """The lease of a trainer has expired."""


@dataclass
class Naps:
    """When trainers are paused: at the next edge of a save or a void for which `when` is true. `pauses` counts the
    edges of pauses; `asleep` is called for each."""

    when: Callable[[str], bool] | None = None
    asleep: Callable[[Trainer], None] = lambda _: None
    pauses: Counter[str] = field(default_factory=Counter)

    def edge(self, name: str) -> bool:
        """True if a trainer must pause here."""
        if self.when is None or not self.when(name):
            return False
        self.when = None
        self.pauses[name] += 1
        return True


@dataclass(frozen=True)
class Surroundings:
    """What all trainers of a site share. `bugs`: the steps at which the code of a job raises, once each."""

    clock: Clock
    folder: Folder
    timings: Timings
    lease_s: float
    naps: Naps = field(default_factory=Naps)
    bugs: dict[str, list[int]] = field(default_factory=dict)


@dataclass
class _Save:
    """A save in progress, of `step` at `at_s`; `then` is the trainer's next state."""

    step: int
    at_s: float
    then: TrainerState | None


@dataclass
class Trainer:
    """`at_s` is the wall instant up to which it has been simulated; `over`: that was its last one. It has been out of
    reach since `silent_since_s` (it keeps training) or asleep since `asleep_since_s`, `with_host`: its agent, too."""

    run_id: str
    token: str
    around: Surroundings
    at_s: float
    state: TrainerState = "starting"
    ready_s: float = 0.0
    spec: RunSpec | None = None
    steps: int = 0
    speed: float = 1.0  # steps per wall second, while it does not save
    step: float = 0.0
    start_step: int = 0
    saved_step: int = 0
    saved_s: float = 0.0
    manifest: str | None = None
    quiesced_until_s: float | None = None
    stop: bool = False
    silent_since_s: float | None = None
    asleep_since_s: float | None = None
    with_host: bool = False
    slept: bool = False
    error: str | None = None
    over: bool = False
    _successor: int = 0  # for which it was asked to hold last
    _successors: set[int] = field(default_factory=set)  # for which it held since it trained
    _lease_over: bool = False
    _nap: Nap[Any] | None = None
    _then: Callable[[Callable[[], Any]], None] | None = None  # what follows from what it is at

    @property
    def asleep(self) -> bool:
        """True while it is paused."""
        return self.asleep_since_s is not None

    @property
    def unreachable_since_s(self) -> float | None:
        """Since when no word gets through in either direction; None: it does."""
        if self.silent_since_s is not None:
            return self.silent_since_s
        return self.asleep_since_s if self.with_host else None

    # -- commands -----------------------------------------------------------------------------------------------------
    def begin(self, spec: RunSpec, restore_s: float) -> None:
        """Restore, which takes so long, then wait for the fence."""
        steps, throttle = spec.trainer["steps"], spec.trainer["throttle"]
        assert isinstance(steps, int)
        assert isinstance(throttle, float)
        self.spec, self.steps, self.speed = spec, steps, throttle / self.around.timings.step_s
        self.state = "starting"
        self.ready_s = self.around.clock.monotonic_s() + restore_s

    def quiesce(self, successor: int) -> None:
        """Write a checkpoint and wait for a generation; one that sleeps finds the order when it wakes."""
        now = self.around.clock.monotonic_s()
        if self.spec is None or self.state not in ("training", "quiesced"):
            return
        self.quiesced_until_s, self._successor = now + QUIESCE_S, successor
        if self.asleep:
            return
        self._successors.add(successor)
        if self.state == "training":
            self._begin_save(int(self.step), now, "quiesced")

    def sleep(self, *, with_host: bool) -> None:
        """Until `wake`; called by the code that decides how deeply (Naps.asleep)."""
        self.asleep_since_s, self.with_host, self.slept = self.around.clock.monotonic_s(), with_host, True

    def wake(self, machine: Instance | None, *, renewed: bool) -> None:
        """Go on with what it was at, unless its machine is gone. `renewed`: its agent, which woke, too, gave it a new
        lease before it could look at the old one."""
        since_s, now = self.asleep_since_s, self.around.clock.monotonic_s()
        if since_s is None:
            return
        if machine is None or not machine.alive:
            self.abandon()
            return
        self._lease_over = self.with_host and not renewed and now - since_s >= self.around.lease_s
        self.asleep_since_s, self.at_s, self.with_host = None, now, False
        if self._nap is not None:
            self._go_on()
        if self.state == "training" and not self.asleep and now < (self.quiesced_until_s or 0.0):
            self._successors.add(self._successor)
            self._begin_save(int(self.step), now, "quiesced")
        if self._lease_over and self.state in ("training", "quiesced"):
            self.state = "fenced"

    def abandon(self) -> None:
        """It is killed, or its machine is gone: what it was at stays as it is."""
        if self._nap is not None:
            self._nap.abandon()
            self._nap, self.over = None, True

    # -- simulation ---------------------------------------------------------------------------------------------------
    def advance(self, machine: Instance) -> None:
        """Bring it from where it was last looked at to now, or to the end of its machine."""
        now = self.around.clock.monotonic_s()
        if machine.billed_to_ms is not None:
            now, self.over = self._wall_s(machine.billed_to_ms), not machine.alive
        if self.asleep:
            return
        spec = self.spec
        if self.state == "starting" and now >= self.ready_s:
            self.state = "prepared" if spec is None else "restored"
            if spec is not None:
                manifest = spec.trainer["manifest"]
                self._restore(spec, manifest if isinstance(manifest, str) else None)
        if spec is None:
            return
        folder = self.around.folder
        begun_s = folder.fenced_s.get((spec.job_id, spec.generation))
        shut_out_s = folder.shut_out_s(spec.job_id, spec.generation)
        lapsed_s = None if self.silent_since_s is None else self.silent_since_s + self.around.lease_s
        ends = [at for at in (shut_out_s, lapsed_s) if at is not None and at <= now]
        now = min([now, *ends])
        if self.state == "restored" and begun_s is not None:
            self._take_over(spec, begun_s)
        if self.state == "quiesced":
            if self.stop or machine.notice_deadline_ms is not None:
                self.state = "checkpointed_and_stopped"
            elif self.quiesced_until_s is None or now >= self.quiesced_until_s:
                self._keep_the_job(spec, self.quiesced_until_s or now)
        if self.state == "training" and now > self.at_s:
            self._train(spec, machine, now)
        if ends and not self.asleep and self.state in ("restored", "training", "quiesced"):
            self.state = "fenced"

    def _restore(self, spec: RunSpec, start: str | None) -> None:
        try:
            self.manifest = self.around.folder.restored(spec.job_id, spec.generation, start)
        except DamagedCheckpoint as damage:
            self.state, self.error = "failed", str(damage)
            return
        self.start_step = ManifestName.parse(self.manifest).step if self.manifest else 0
        self.step, self.saved_step = float(self.start_step), self.start_step

    def _take_over(self, spec: RunSpec, begun_s: float) -> None:
        """Its fence exists; it may name another checkpoint than was restored."""
        try:
            named = self.around.folder.fences(spec.job_id)[spec.generation]
        except DamagedCheckpoint as damage:
            self.state, self.error = "failed", str(damage)
            return
        if named != self.manifest and self.manifest is not None:
            self._restore(spec, named)
        if self.state == "restored":
            self.state, self.at_s, self.saved_s = "training", begun_s, begun_s

    def _keep_the_job(self, spec: RunSpec, at_s: float) -> None:
        """Nobody took it over in time: from now on nobody can, so it may keep training."""
        folder, successors = self.around.folder, sorted(self._successors)

        def void(look: Look | None) -> bool:
            return all(folder.void(spec.job_id, successor, look=look) for successor in successors)

        self._do(void, partial(self._kept, at_s), OF_A_VOID)

    def _kept(self, at_s: float, value: Callable[[], bool]) -> None:
        try:
            kept = value()
        except TrainerError as error:
            self.state, self.error = "failed", repr(error)
            return
        if kept:
            self.state, self.at_s, self.quiesced_until_s = "training", max(at_s, self.at_s), None
            self._successors.clear()
        else:
            self.state = "fenced"

    def _train(self, spec: RunSpec, machine: Instance, now: float) -> None:
        """From `at_s` to `now`: whatever comes first of the last step, a bug, and the deadline of a notice ends it."""
        bugs = self.around.bugs.get(spec.job_id, [])
        speed = self.speed / (1 + self.around.timings.saving)
        last_step = min([self.steps, *bugs[:1]])
        until = min(now, self.at_s + (last_step - self.step) / speed)
        leave_s = math.inf
        if machine.notice_deadline_ms is not None:
            leave_s = max(self.at_s, self._wall_s(machine.notice_deadline_ms) - YIELD_MARGIN_S)
        until = min(until, leave_s)
        begun, from_s = self.step, self.at_s
        every_s = self.around.timings.checkpoint_every_s
        saved_s, due = self.saved_s, math.floor((until - self.saved_s) / every_s)
        each = self.around.naps.when is not None or spec.job_id in self.around.folder.spoilt
        first = 1 if each else max(1, due)  # the earlier ones are never asked for
        for number in range(first, due + 1):
            at_s = max(from_s, saved_s + number * every_s)
            self.step, self.at_s = begun + (at_s - from_s) * speed, at_s
            self._begin_save(int(self.step), at_s, None)
            if self.asleep or self.state != "training":
                return
        self.step, self.at_s = begun + (until - from_s) * speed, until
        if last_step - self.step < 1e-6:
            self.step = float(last_step)
        if self.step >= self.steps:
            self._begin_save(self.steps, until, "finished")
        elif bugs and self.step >= bugs[0]:
            bugs.pop(0)
            self.state, self.error = "failed", f"Traceback ...\n{BUG} {int(self.step)}"
        elif self.stop or until == leave_s:
            self._begin_save(int(self.step), until, "checkpointed_and_stopped")

    # -- saves and voids, which can be paused -------------------------------------------------------------------------
    def _do(self, what: Callable[[Look | None], T], then: Callable[[Callable[[], T]], None], of: str = "") -> None:
        """Do it, perhaps falling asleep at one of its operations on files, and then what follows from it."""
        self._then = then
        if self.around.naps.when is None:
            then(partial(what, None))
            return
        self._nap = Nap(partial(what, lambda operation, _path: self._fall_asleep(f"before {operation}{of}")))
        self._go_on()

    def _go_on(self) -> None:
        """Until it sleeps, again, or has done what it was at."""
        assert self._nap is not None
        assert self._then is not None
        if self._nap.go():
            value, self._nap = self._nap.value, None
            self._then(value)

    def _begin_save(self, step: int, at_s: float, then: TrainerState | None) -> None:
        """Secure `step`, unless it is."""
        save = _Save(step, at_s, then)
        if self.saved_step == step and self.manifest is not None:
            self._enter(save)
        else:
            self._do(partial(self._carry_out, step), partial(self._saved, save))

    def _carry_out(self, step: int, look: Look | None) -> str:
        assert self.spec is not None
        keep = self.spec.trainer["keep"]
        assert isinstance(keep, int)
        name = self.around.folder.save(
            self.spec.job_id,
            self.spec.generation,
            step,
            keep=keep,
            before_commit=self._require_lease,
            look=look,
        )
        if look is not None:
            self._fall_asleep("after save")
        return name

    def _saved(self, save: _Save, value: Callable[[], str]) -> None:
        try:
            name = value()
        except (FencedError, LeaseOver):
            self.state = "fenced"
            return
        except TrainerError as error:  # as the code of a job that raises
            self.state, self.error = "failed", repr(error)
            return
        self.saved_step, self.saved_s, self.manifest = save.step, max(save.at_s, self.at_s), name
        self._enter(save)

    def _enter(self, save: _Save) -> None:
        if save.then is not None:
            self.state, self.step = save.then, float(int(save.step))

    def _require_lease(self) -> None:
        if self._lease_over:
            raise LeaseOver

    def _fall_asleep(self, name: str) -> None:
        nap = Nap.here()
        if nap is not None and self.around.naps.edge(name):
            self.around.naps.asleep(self)
            nap.sleep()

    def _wall_s(self, at_ms: int) -> float:
        """The wall instant of a market instant."""
        clock = self.around.clock
        return clock.monotonic_s() - (clock.now_ms() - at_ms) / 1000 / clock.factor
