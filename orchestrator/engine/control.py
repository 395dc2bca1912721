"""ControlPlane: the loop that drives all parts of the engine.

`tick` advances every state machine by at most one step, in a fixed order and without threads, so that a virtual clock
can drive it. Work for one job is isolated from other jobs (engine.compartment). If a whole part fails, the tick skips
it, so that machines are still ended and costs still booked, and raises its error at the end. One control plane acts on
a store; others stand by and take over when it is gone. A control plane on a copy of the store does not act at all
(engine.machines.claims).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from orchestrator.engine.billing.accrue import accrue
from orchestrator.engine.billing.comparisons import compare
from orchestrator.engine.commands import commands
from orchestrator.engine.compartment import Compartment, concerns_all, contained, strike
from orchestrator.engine.context import Context
from orchestrator.engine.inputs.reserves import poll_every_wall_s
from orchestrator.engine.jobs.group_turns import share_quotas
from orchestrator.engine.jobs.predecessors import fail_paused
from orchestrator.engine.jobs.quarantine import confine
from orchestrator.engine.jobs.risk import tell_risks
from orchestrator.engine.jobs.stopping import stop_as_asked
from orchestrator.engine.jobs.time_sharing import share_time
from orchestrator.engine.machines import claims
from orchestrator.engine.machines.collect import poll_prices
from orchestrator.engine.machines.forget import FORGET_EVERY_S, forget_machines
from orchestrator.engine.machines.freed import ask_what_is_left
from orchestrator.engine.machines.observe import observe
from orchestrator.engine.machines.reap import reap
from orchestrator.engine.migration.place import jobs_in_need, place
from orchestrator.engine.migration.standby import stand_by
from orchestrator.engine.migration.steps import advance
from orchestrator.engine.migration.turns import Turns
from orchestrator.errors import SiteError
from orchestrator.model import Migration

BEAT_EVERY_S = 1.0
ACCRUE_EVERY_S = 1.5
ACCRUE_EVERY_MARKET_S = 300.0  # each renewal adds a row per machine, which is kept
WAITING_EVERY_S = 0.5
WAITING_PER_S = 10  # of all waiting jobs; a hundred took 40 % of a core when each was checked every 2 s
COMPARE_EVERY_S = 5.0  # for corrections by others; a change that closes a job's books is followed by a comparison
DEADLINE_CHECK_S = 3600.0  # market


class ControlPlane:
    """Acts on one installation while it leads. `tick` raises NotLeaderError as soon as it no longer does."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._place_next = self._compare_next = True
        self._turns = Turns()
        self._heard = 0
        self._broken: list[Exception] = []

    def tick(self) -> bool:
        """One pass over all work. Returns whether anything changed or remains to be decided (if not, the caller may
        pause briefly)."""
        ctx = self._ctx
        ctx.calls.next_tick(ctx.installation.clock.monotonic_s())
        if ctx.leadership is not None and ctx.due("beat", BEAT_EVERY_S):
            ctx.installation.store.beat(ctx.leadership)
        if not claims.may_act(ctx):
            return False
        self._part("collecting", self._collect)
        self._look()
        if ctx.due("forget", FORGET_EVERY_S):
            ctx.forget()
            ctx.secrets.forget(ctx.installation)
        self._part("forgetting", lambda: forget_machines(ctx))
        changed = self._part("reaping", lambda: reap(ctx)) if ctx.work.idle else self._work()
        changed |= self._part("paused followers", lambda: fail_paused(ctx))
        if changed or self._compare_next or ctx.due("comparing", COMPARE_EVERY_S):
            self._compare_next = self._part("comparing", lambda: compare(ctx))
            changed |= self._compare_next
        if self._broken:
            broken, self._broken = self._broken, []
            raise broken[0]
        return changed

    def _work(self) -> bool:
        ctx = self._ctx
        changed = False
        if self._part("commands", lambda: commands(ctx)):
            changed = self._place_next = True
            self._look()
        if self._part("observation", self._observe):
            changed = True
            self._look()
        self._part("risks", lambda: tell_risks(ctx))
        before_moves = self._part("time sharing", lambda: share_time(ctx))
        before_moves |= self._part("group turns", lambda: share_quotas(ctx))
        before_moves |= self._part("stopping", lambda: stop_as_asked(ctx))
        before_moves |= self._part("standby", lambda: stand_by(ctx))
        before_moves |= self._part("placement", self._place)
        if before_moves:
            changed = True
            self._look()
        for migration in ctx.work.migrations:
            changed |= self._advance(migration)
        changed |= self._part("quarantine", lambda: confine(ctx))
        self._part("accrual", self._accrue)
        if self._part("reaping", lambda: reap(ctx)):
            changed = True
            ctx.pacing.pop("waiting", None)  # a machine may be free
        return changed or self._turns.waiting

    def _part(self, name: str, part: Callable[[], bool]) -> bool:
        """Run one part of the tick; returns whether it changed anything. If it fails, the tick continues without it."""
        try:
            return part()
        except Exception as error:
            if concerns_all(error):
                raise
            self._broken.append(error)
            strike(self._ctx, f"all of {name}", error, None)
            return False

    def _look(self) -> None:
        """Read the work to do; quarantine jobs with rows that cannot be read."""
        ctx = self._ctx
        ctx.look()
        for job_id, error in ctx.work.unreadable.items():
            if job_id not in ctx.work.quarantined:
                strike(ctx, Compartment.LOOK, error, job_id)

    def _collect(self) -> bool:
        ctx, every_s = self._ctx, poll_every_wall_s(self._ctx.installation.clock.factor)
        changed = 0
        for provider in ctx.installation.providers.values():
            step = partial(poll_prices, ctx, provider, every_s)
            changed += contained(ctx, Compartment.COLLECT, step, None, about=provider.name) or 0
            left = partial(ask_what_is_left, ctx, provider)
            changed += contained(ctx, Compartment.COLLECT, left, False, about=provider.name)
        self._place_next |= changed > 0 or (ctx.due("collected", every_s) and self._collected())
        return changed > 0

    def _observe(self) -> bool:
        seen = observe(self._ctx)
        self._place_next |= seen.need_place
        return seen.changed

    def _place(self) -> bool:
        ctx = self._ctx
        if self._decision_due():
            self._place_next = False
            self._turns.ask(ctx.work.jobs)
        else:
            self._look_again()
        return self._turns.waiting and place(ctx, self._turns)

    def _look_again(self) -> None:
        """Request a decision about jobs that need a machine, even without an event: a machine may be free now. Requests
        it for all jobs that are about to lose their machine, and for some of the waiting jobs in turn."""
        ctx, now_s = self._ctx, self._ctx.installation.clock.monotonic_s()
        passed_s = now_s - ctx.pacing.get("waiting", now_s - WAITING_EVERY_S)
        if passed_s < WAITING_EVERY_S or not (in_need := jobs_in_need(ctx)):
            return
        ctx.pacing["waiting"] = now_s
        queued = {job_id for job_id in in_need if ctx.work.jobs[job_id].state == "queued"}
        self._turns.ask(in_need - queued)
        self._turns.ask_again(queued, math.ceil(passed_s * WAITING_PER_S))

    def _advance(self, migration: Migration) -> bool:
        ctx = self._ctx
        try:
            return contained(ctx, Compartment.ADVANCE, lambda: advance(ctx, migration), False, job_id=migration.job_id)
        except SiteError:
            return False  # the site is restarting (engine.machines.observe reports that): the next tick tries again

    def _accrue(self) -> bool:
        ctx = self._ctx
        accrue(ctx, self._wall_s(ACCRUE_EVERY_S, ACCRUE_EVERY_MARKET_S))
        return False

    def _wall_s(self, least_wall_s: float, market_s: float) -> float:
        return max(least_wall_s, market_s / self._ctx.installation.clock.factor)

    def _collected(self) -> bool:
        """Whether price collectors, periodic or started by a user, have changed a price since the last call."""
        with self._ctx.installation.store.read() as tx:
            self._heard, changed = tx.changes_since(self._heard, self._ctx.installation.providers)
        return changed > 0

    def _decision_due(self) -> bool:
        """Whether to decide now: after a loss, a price change, a command, a first measurement, a probe or a back-off;
        and daily."""
        ctx = self._ctx
        every_ms = int(ctx.installation.config.policy.decide_every_s * 1000)
        last = ctx.pacing.get("decided-ms")
        if last is None:
            with ctx.installation.store.read() as tx:
                decided_ms = tx.task_done_ms("decide")
            last = ctx.pacing["decided-ms"] = float(decided_ms or 0)
        if not last <= ctx.now_ms < last + every_ms:  # or the clock was set back
            with ctx.write() as tx:
                tx.set_task_done("decide", ctx.now_ms)
            ctx.pacing["decided-ms"] = float(ctx.now_ms)
            return True
        if self._place_next:
            return True
        if ctx.now_ms >= ctx.pacing.get("again-ms", float("inf")):
            del ctx.pacing["again-ms"]
            return True
        # slower steps also use up a deadline's slack, and no event reports that
        has_deadline = any(job.deadline_at_ms is not None for job in ctx.work.jobs.values())
        return has_deadline and ctx.due("deadlines", self._wall_s(1.0, DEADLINE_CHECK_S))
