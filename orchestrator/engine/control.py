"""ControlPlane: the loop that makes one control plane out of the engine's parts.

`tick` advances every state machine by at most one step, in a fixed order and without threads, so that a virtual clock
can drive it. One control plane acts on a store; any other stands by and takes over when the first is gone.
Must not know: signals, processes, the command line.
"""

from __future__ import annotations

from orchestrator.engine.accrue import accrue
from orchestrator.engine.collect import collect
from orchestrator.engine.commands import commands
from orchestrator.engine.context import Context
from orchestrator.engine.guard import guard
from orchestrator.engine.migrate import advance
from orchestrator.engine.observe import observe
from orchestrator.engine.place import doomed_jobs, place
from orchestrator.engine.reap import reap
from orchestrator.engine.standby import stand_by
from orchestrator.errors import SiteError

BEAT_EVERY_S = 1.0
FORGET_EVERY_S = 60.0
COLLECT_EVERY_S = 1.0  # wall: the local market moves every few seconds of it,
COLLECT_EVERY_MARKET_S = 30.0  # a real one every few minutes
ACCRUE_EVERY_S = 1.5
ACCRUE_EVERY_MARKET_S = 300.0  # each time is a row per machine, for ever
WAITING_EVERY_S = 0.5
DEADLINE_CHECK_S = 3600.0  # market


class ControlPlane:
    """Acts on one world while it leads. Raises NotLeaderError from `tick` as soon as it no longer does."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._place_next = True
        self._heard = 0

    def tick(self) -> bool:
        """One pass. Returns whether anything changed (if not, the caller may pause a little)."""
        ctx = self._ctx
        if ctx.leadership is not None and ctx.due("beat", BEAT_EVERY_S):
            ctx.world.store.beat(ctx.leadership)
        if ctx.due("collect", self._wall_s(COLLECT_EVERY_S, COLLECT_EVERY_MARKET_S)):
            self._place_next |= collect(ctx.world, ctx.leadership) > 0 or self._collected()
        ctx.look()
        if ctx.due("forget", FORGET_EVERY_S):
            ctx.forget()
            ctx.secrets.forget_ended(ctx.world)
        if ctx.work.idle:
            return reap(ctx)
        changed = False
        if commands(ctx):
            changed = self._place_next = True
            ctx.look()
        seen = observe(ctx)
        self._place_next |= seen.need_place
        if seen.changed:
            changed = True
            ctx.look()
        changed |= guard(ctx) | stand_by(ctx)
        if self._decision_due():
            self._place_next = False
            changed |= place(ctx)
        elif self._someone_waits() and ctx.due("waiting", WAITING_EVERY_S):
            changed |= place(ctx, everyone=False)
        if changed:
            ctx.look()
        for migration in ctx.work.migrations:
            try:
                changed |= advance(ctx, migration)
            except SiteError:
                continue  # the site is being started again (engine.observe tells of it): asked again next time
        if ctx.due("accrue", self._wall_s(ACCRUE_EVERY_S, ACCRUE_EVERY_MARKET_S)):
            accrue(ctx)
        changed |= reap(ctx)
        return changed

    def _wall_s(self, least_wall_s: float, market_s: float) -> float:
        return max(least_wall_s, market_s / self._ctx.world.clock.factor)

    def _collected(self) -> bool:
        """Whether a price changed by what collectors found since: the price duties', or a person's."""
        with self._ctx.world.store.read() as tx:
            self._heard, changed = tx.changes_since(self._heard, self._ctx.world.providers)
        return changed > 0

    def _someone_waits(self) -> bool:
        """A job has no place, or is about to lose it."""
        return any(job.state == "queued" for job in self._ctx.work.jobs.values()) or bool(doomed_jobs(self._ctx))

    def _decision_due(self) -> bool:
        """After a loss, a price event, a command or a first measurement; after a probe; daily, on the market clock."""
        ctx = self._ctx
        every_ms = int(ctx.world.config.policy.decide_every_s * 1000)
        last = ctx.pacing.get("decided-ms")
        if last is None:
            with ctx.world.store.read() as tx:
                duty = tx.duty("decide")
            last = ctx.pacing["decided-ms"] = float(duty if duty is not None else 0)
        if ctx.now_ms - last >= every_ms:
            with ctx.write() as tx:
                tx.set_duty("decide", ctx.now_ms)
            ctx.pacing["decided-ms"] = float(ctx.now_ms)
            return True
        if self._place_next:
            return True
        if ctx.now_ms >= ctx.pacing.get("again-ms", float("inf")):
            del ctx.pacing["again-ms"]
            return True
        # slack is used up by steps that got slower, too: no event tells of that
        promised = any(job.deadline_at_ms is not None for job in ctx.work.jobs.values())
        return promised and ctx.due("deadlines", self._wall_s(1.0, DEADLINE_CHECK_S))
