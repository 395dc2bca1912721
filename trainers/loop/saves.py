"""Saves: writes the checkpoints of a session, at once or in the background, and reports them.

A periodic checkpoint is copied and written while training continues (trainers.checkpoint.background), if the spec
allows it and there is memory for the copy. A checkpoint that something waits for (the end of a run, a handover, a
preemption notice) is written at once: checkpoints in progress are abandoned, unless they are of the same step.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Sequence

from trainers.checkpoint.background import Background, Captured, Ended
from trainers.checkpoint.background_process import Settings
from trainers.checkpoint.background_together import BackgroundTogether
from trainers.checkpoint.manifest import ManifestName
from trainers.checkpoint.retention import Keep
from trainers.checkpoint.together import save_together
from trainers.checkpoint.writer import encoded, save
from trainers.errors import (
    DamagedCheckpoint,
    FencedError,
    ObjectStoreError,
    StoreThrottled,
    StoreUnavailable,
    TrainerError,
)
from trainers.loop.cadence import Cadence
from trainers.loop.notice import changed_share
from trainers.loop.peers import Peers
from trainers.objects.base import ObjectStore
from trainers.process.run_context import HURRIED, RunContext, RunEnded

_AWAY = (StoreThrottled, StoreUnavailable)


class Saves:
    """`captured` returns the current state for a checkpoint. Raises RunEnded if the run has lost its job, and the
    errors of trainers.checkpoint."""

    def __init__(self, context: RunContext, peers: Peers, cadence: Cadence, captured: Captured) -> None:
        self._context, self._peers, self._cadence, self._captured = context, peers, cadence, captured
        self.step: int | None = None
        """The step of the newest checkpoint; -1: none yet, None: the loop has not begun."""
        self._warned_s: float | None = None
        self._answers = -1  # how often the store had answered when a save was postponed; -1: no save was
        self._whole_s: float | None = None  # duration of the first save of this run, which writes everything
        self._background: Background | BackgroundTogether | None = None
        self._together: BackgroundTogether | None = None
        spec = context.spec
        self._keep = Keep(spec.keep, spec.keep_hourly, spec.keep_best)
        if spec.max_in_flight > 0:
            patience, alone = (HURRIED.connect_s, HURRIED.request_s, HURRIED.tries), peers.size == 1
            where = (spec.checkpoint_root, spec.job_id, self._keep, spec.control_dir)
            settings = Settings(*where, patience, peers.rank, peers.size, context.max_upload_bytes_per_s)
            most = spec.max_in_flight if alone else 1
            own = Background(settings, most=most, monotonic=context.timers.monotonic)
            self._together = None if alone else BackgroundTogether(own, peers)
            self._background = self._together or own

    def due(self) -> bool:
        """Whether a periodic checkpoint is due and may be possible."""
        if self._background is not None and self._background.full:
            return False
        return self._cadence.due(self._context.timers.monotonic()) and self._reachable()

    def warned(self) -> bool:
        """Whether a checkpoint is due because the machine may soon be lost: none has begun since the first call."""
        if self._warned_s is None:
            self._warned_s = self._context.timers.monotonic()
        return self._cadence.since_s < self._warned_s

    def hurry(self) -> None:
        """Write checkpoints in progress without a bandwidth limit: the machine may soon be lost."""
        if self._background is not None:
            self._background.hurry()

    @property
    def under_way(self) -> bool:
        """Whether a checkpoint is being written in the background."""
        return self._background is not None and bool(self._background.under_way)

    def periodic(self, step: int) -> None:
        """Begin or write the checkpoint of the current `step`. If the store cannot be reached, training continues until
        it can."""
        background, now = self._background, self._context.timers.monotonic
        if background is not None and background.possible:
            if self.step != step and background.ready:
                with self._context.journal.saving():
                    begun = background.begin(self._name(step), self._captured, self._about())
                if begun:
                    self._cadence.began(now())
            if background.possible:
                return  # begun, or there is no memory for it yet
        began_s = now()
        try:
            self.once(step, self._context.hurried)
        except _AWAY as error:
            self._postpone(step, error, began_s)
        else:
            self._answers = -1

    def changes_fit(self, late_s: float) -> bool:
        """Whether a checkpoint may still be in time although the latest one took too long by `late_s`: the latest was
        the first of this run, and only a part of the state has changed since."""
        name, latest_s = self._context.journal.progress.manifest, self._cadence.save_s
        if name is None or latest_s is None or latest_s != self._whole_s:
            return False
        spec = self._context.spec
        try:
            with self._context.journal.saving():
                tensors = encoded(*self._captured())[1]
                found = changed_share(self._context.hurried, spec.job_id, ManifestName.parse(name), tensors)
        except (DamagedCheckpoint, ObjectStoreError):
            return False
        sys.stderr.write(f"the machine is taken away soon: {found:.0%} of the state has changed since {name}\n")
        return found * latest_s <= latest_s - late_s

    def follow_up(self) -> None:
        """Report finished background checkpoints, if they do not involve other ranks."""
        if self._background is not None and self._together is None:
            self._report(self._background.ended())

    def over(self) -> int:
        """What this rank knows about the background checkpoint of all ranks; see BackgroundTogether."""
        return 0 if self._together is None else self._together.over()

    def follow_up_together(self) -> None:
        """Report the result of that checkpoint; all ranks call this when one of them knows it."""
        if self._together is not None:
            self._report(self._together.ended())

    def once(self, step: int, to: ObjectStore | None = None) -> None:
        """Write a checkpoint of the current `step` unless there is one, with long patience, or `to` the given store."""
        if self.step != step:
            if self._background is not None and self._name(step) in self._background.under_way:
                with self._context.journal.saving():
                    self._report(self._background.ended(wait=True), awaited=True)
            if self.step != step:
                self.now(step, to)

    def now(self, step: int, to: ObjectStore | None = None) -> None:
        """Write a checkpoint of the current `step`, even if there is one."""
        context, spec, now = self._context, self._context.spec, self._context.timers.monotonic
        write = save if self._peers.size == 1 else functools.partial(save_together, peers=self._peers)
        try:
            with context.journal.saving():
                if self._background is not None:
                    self._report(self._background.leave_off(), awaited=True)
                began_s = now()
                state = self._captured()
                name = write(
                    context.checkpoints if to is None else to,
                    spec.job_id,
                    self._name(step),
                    items=state.items,
                    position=state.position,
                    frozen=state.frozen,
                    keep=self._keep,
                    about=self._about(),
                    before_commit=self._require_lease,
                )
                ended_s = now()
        except FencedError:
            raise RunEnded("fenced") from None
        self._cadence.saved(began_s, ended_s)
        self._committed(name, ended_s - began_s, ended_s - began_s)

    def close(self) -> None:
        """Stop writing."""
        if self._background is not None:
            self._background.close()

    def _about(self) -> dict[str, float]:
        """The numbers about the current checkpoint for its manifest."""
        loss = self._context.journal.progress.loss
        found = {"saved_at": round(self._context.timers.wall(), 3)}
        return found if loss is None or not math.isfinite(loss) else {**found, "loss": loss}

    def _name(self, step: int) -> ManifestName:
        spec = self._context.spec
        return ManifestName(spec.generation, step, spec.attempt)

    def _report(self, ended: Sequence[Ended], *, awaited: bool = False) -> None:
        """`awaited`: a checkpoint of the current step follows, so failed ones need not be tried again."""
        for each in ended:
            if isinstance(each.error, FencedError):
                raise RunEnded("fenced")
            if each.name is not None:
                self._cadence.saved_beside(each.held_s, each.took_s)
                self._committed(each.name, each.held_s, each.took_s)
                self._answers = -1
            elif isinstance(each.error, _AWAY) and not awaited:
                self._postpone(each.begun.step, each.error, self._cadence.since_s)
            elif each.error is not None and not isinstance(each.error, _AWAY):
                raise each.error

    def _committed(self, name: ManifestName, held_s: float, took_s: float) -> None:
        journal = self._context.journal
        self.step = name.step
        self._whole_s = took_s if self._whole_s is None else self._whole_s
        spent_s = journal.progress.checkpoint_s + held_s
        journal.update(manifest=str(name), manifest_step=name.step, checkpoint_s=spent_s, save_wall_s=took_s)

    def _postpone(self, step: int, error: TrainerError, began_s: float) -> None:
        sys.stderr.write(f"the checkpoint of step {step} is postponed: {error}\n")
        self._cadence.postponed(began_s, self._context.timers.monotonic())
        self._answers = self._context.ownership.answers()

    def _reachable(self) -> bool:
        """Whether the store has answered since a save was postponed, as far as known."""
        ownership = self._context.ownership
        return not ownership.remote or ownership.answers() > self._answers

    def _require_lease(self) -> None:
        until = self._context.control.lease_until()
        if until is not None and self._context.timers.monotonic() >= until:
            raise RunEnded("fenced")
