"""The planner: records observations, solves the value table again when they change, and ranks the possible actions.

It knows only what its caller observed: prices, the probed pools, and the running machine. All times are hours since the
first tick; a tick is how often the caller can act.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from orchestrator.policy.slack.alone import AloneTable
from orchestrator.policy.slack.grid import TOO_LATE
from orchestrator.policy.slack.probes import Probes
from orchestrator.policy.slack.problem import Problem
from orchestrator.policy.slack.situation import Situation, Terms, require_numbers
from orchestrator.policy.slack.spells import Floats, Spells
from orchestrator.policy.slack.value import ValueTable

Action = Literal["wait", "stay", "spot", "on_demand"]

POOLS = 6
"""The most spot pools that one table considers. They are the cheapest ones, where time without capacity counts as run
on demand."""
AWAY_H, THERE_H = (1.0, 4.0), (0.5, 2.0)
"""The ages (hours) at which the phases of a single pool begin: of its absences and of its machines.

With several pools, only the running machine has the phases of THERE_H, and each pool has a single phase; otherwise
their tables would be too large.
"""
CHANGED, CHANGED_ALONE = 1.3, 2.0
"""The factor by which a rate must have changed to solve the table again: with several pools, and with a single one. The
latter has more rates, so it is more likely that one of them has changed. PRICE_CHANGED is the factor for a price."""
PRICE_CHANGED = 1.05
CHECK_H = 2.0
"""How often changes of rates and prices are checked, in hours."""
JUMPED, JUMP_H = 1.3, 0.5
"""A price that has changed by the factor JUMPED is already noticed after JUMP_H hours."""
TIE = 0.01
"""An action must be better than a less disruptive one (TROUBLE) by this share of a tick's on-demand price."""
MARGIN_TICKS = 1
"""Ticks that are held in reserve, because simulators and clouds may need one to start a machine."""

AnyTable: TypeAlias = ValueTable | AloneTable

TROUBLE: Mapping[Action, int] = {"stay": 0, "spot": 1, "on_demand": 1, "wait": 2}


class Option(NamedTuple):
    """A possible action.

    `usd` is the expected cost (US$) to finish if this is done now, with the best decisions after that. If that would
    miss the deadline, it is TOO_LATE hours of on-demand.
    """

    action: Action
    pool: int | None
    usd: float


class Act(NamedTuple):
    """The action to take now, and its pool."""

    action: Action
    pool: int | None


class Planner:
    """Decides for one job. Its deadline is met whenever renting on demand from now on could still meet it."""

    def __init__(
        self,
        terms: Terms,
        spells: Spells | None = None,
        solve: Callable[[Problem, Spells], AnyTable] | None = None,
    ) -> None:
        """`spells` is the prior knowledge (default: none). `solve` makes the table of a problem."""
        count = len(terms.on_demand_usd)
        self.terms = terms
        # Tables count money in hours of the machine that would be rented, so that TOO_LATE is more than any job costs.
        bought = [pool for pool in range(count) if pool not in terms.only_spot]
        self.fastest = max(terms.speed[pool] for pool in bought)
        self._fastest_pools = [pool for pool in bought if terms.speed[pool] == self.fastest]
        self._bought_pools = bought
        self._paces_differ = len({*terms.speed}) > 1
        self.unit_usd = min(terms.on_demand_usd[pool] for pool in self._fastest_pools) or 1.0
        alone = count == 1
        self.spells = spells or (
            Spells(1, terms.tick_h, AWAY_H, THERE_H) if alone else Spells(count, terms.tick_h, machine_h=THERE_H)
        )
        self._changed = CHANGED_ALONE if alone else CHANGED
        self._solve = solve or (AloneTable if alone else ValueTable)
        self.solved = 0
        self._table: AnyTable | None = None
        self._checked_h = 0.0
        self._rates: list[tuple[Floats, ...]] = []
        self._probes = Probes(terms, self.spells, self.fastest)

    def to_probe(self, now: Situation) -> list[int]:
        """The pools to probe now (see Probes); none if only renting on demand could still meet the deadline."""
        due = self._probes.due(now)
        return [] if due and self._late(now) else due

    def probed(self, pool: int, there: bool, now: Situation) -> None:
        """Records a probe. It is billed if there was capacity."""
        self.spells.saw(pool, there, now.now_h)
        if there:
            self._probes.billed(pool)

    def best(self, now: Situation) -> Act:
        """The first of `options`.

        In a single pool, two cases need no table. If a spot machine works and costs no more than on-demand, the job
        stays: renting or waiting is still possible a tick later, with more of the work done. If the job runs on demand
        and the pool is empty, it also stays: leaving a rented machine only to wait would gain nothing.
        """
        if self.spells.pools == 1 and now.running is not None:
            if not now.running[1] and self.spells.seen(0, now.now_h) is False:
                return Act("stay", 0)
            works = now.running[1] and now.overhead_left_h <= 1e-9
            if works and now.spot_usd[0] <= self.terms.on_demand_usd[0]:
                progress_h = self.terms.tick_h * self.terms.speed[0]
                if now.work_h > progress_h and self.safe_after(now, progress_h):
                    return Act("stay", 0)
        first = self.options(now)[0]
        return Act(first.action, first.pool)

    def options(self, now: Situation) -> list[Option]:
        """The possible actions, best first. Launches in pools that were just seen to have no capacity are left out.
        Raises ValueError for a price or a time that is not possible."""
        require_numbers("spot price", now.spot_usd)
        require_numbers("remaining work or overhead", (now.work_h, now.overhead_left_h))
        if len(now.spot_usd) != self.spells.pools:
            raise ValueError(f"there are {self.spells.pools} pools, but {len(now.spot_usd)} spot prices")
        table = self._solved(now)
        look = _Ahead(self, table, now)
        bought = dict.fromkeys([*self._bought_from(now.at, now.work_h), *table.problem.on_demand_pools])
        found = [look.wait(), *(look.buy(pool) for pool in bought)]
        if now.running is not None:
            found.append(look.stay(*now.running))
        instead = min(found, key=lambda option: option.usd)
        for pool in table.problem.pools:
            if now.running != (pool, True) and self.spells.seen(pool, now.now_h) is not False:
                found.append(look.take(pool, instead))
        least = min(option.usd for option in found)
        self._probes.expected_usd = least
        if least < TOO_LATE * self.unit_usd:
            tie_usd = TIE * self.terms.tick_h * self.unit_usd
            return sorted(found, key=lambda option: option.usd + tie_usd * TROUBLE[option.action])
        return self._in_danger(now, found)

    def _in_danger(self, now: Situation, found: list[Option]) -> list[Option]:
        """The order if the deadline may be missed: a machine that already trains at full speed is kept; otherwise the
        fastest is rented."""
        first: Action = "on_demand"
        if now.running is not None:
            pool, spot = now.running
            if self.terms.speed[pool] == self.fastest and (not spot or now.overhead_left_h <= 1e-9):
                first = "stay"
        return sorted(found, key=lambda option: option.action != first)

    def _late(self, now: Situation) -> bool:
        """Whether only renting on demand could still meet the deadline."""
        return not self.safe_after(now, 0.0)

    def safe_after(self, now: Situation, progress_h: float, later_h: float = 0.0) -> bool:
        """Whether renting on demand in the next tick, or `later_h` after it, still meets the deadline, if `progress_h`
        hours of work are done by then."""
        left_h = (now.work_h - progress_h) / self.fastest + self.terms.restart_h + later_h
        return math.ceil(left_h / self.terms.tick_h + 1e-9) + MARGIN_TICKS <= now.ticks_left - 1

    def _solved(self, now: Situation) -> AnyTable:
        if self._table is None or not self._table.knows(now.at) or self._outdated(now, self._table.problem):
            self.spells.refresh()
            self._table = self._solve(self._problem(now), self.spells)
            self._rates = [self.spells.rates(pool) for pool in range(self.spells.pools)]
            self._checked_h = now.now_h
            self.solved += 1
        return self._table

    def _outdated(self, now: Situation, problem: Problem) -> bool:
        """Whether rates, prices, the work or the running machine have changed too much since the table was solved."""
        if now.work_h / self.fastest > problem.hours_left - problem.slack_h + 1e-6:
            return True
        if now.running is not None and now.running[1] and now.running[0] not in problem.pools:
            return True
        if self._paces_differ:
            paces = {self.terms.speed[pool] / self.fastest for pool in self._bought_from(now.at, now.work_h)}
            if not paces <= {*problem.on_demand_speed}:
                return True
        if problem.at is None and now.at is not None and len(problem.on_demand_pools) > 1:
            return True  # from now on, on-demand machines are rented near the checkpoint
        if len(problem.pools) < self.spells.pools and self._is_worth_a_look(now, problem):
            return True
        since_h = now.now_h - self._checked_h
        if since_h < JUMP_H - 1e-9:
            return False
        due = since_h >= CHECK_H - 1e-9
        prices = zip((now.spot_usd[pool] / self.unit_usd for pool in problem.pools), problem.spot_usd, strict=True)
        factor = PRICE_CHANGED if due else JUMPED
        if any(max(new, old) > factor * max(min(new, old), 1e-9) for new, old in prices):
            return True
        if due:
            self._checked_h = now.now_h
        return due and self.spells.changed_by(self._rates) > self._changed

    def _is_worth_a_look(self, now: Situation, problem: Problem) -> bool:
        """Whether none of the pools that the table considers has capacity now, and another one, which was never looked
        at, costs less than on-demand."""
        if any(self.spells.seen(pool, now.now_h) is not False for pool in problem.pools):
            return False
        terms, bought_usd = self.terms, min(problem.on_demand_usd) * self.unit_usd
        return any(
            self.spells.last_look_h(pool) is None and now.spot_usd[pool] / terms.speed[pool] * self.fastest < bought_usd
            for pool in range(self.spells.pools)
            if pool not in problem.pools and pool not in terms.only_on_demand
        )

    def _bought_from(self, at: int | None, work_h: float) -> tuple[int, ...]:
        """The pools in which to rent on-demand machines if the checkpoint is in `at` (None: no checkpoint yet): the one
        with the fastest machine, and the one where finishing costs least, if they differ.

        Egress counts, so a machine at the same price in another place is not the cheapest.
        """
        terms = self.terms
        if len(terms.speed) == 1:
            return (0,)

        def bought_usd(pool: int) -> tuple[float, bool]:
            egress = 0.0 if at is None else float(terms.egress_usd[at][pool])
            hours = terms.restart_h + max(work_h / terms.speed[pool], terms.tick_h)
            return terms.on_demand_usd[pool] * hours + egress, pool != at

        fastest = min(self._fastest_pools, key=bought_usd)
        cheapest = min(self._bought_pools, key=lambda pool: (bought_usd(pool)[0], pool != fastest))
        return (fastest,) if cheapest == fastest else (fastest, cheapest)

    def _problem(self, now: Situation) -> Problem:
        terms, speed, unit_usd = self.terms, self.terms.speed, self.unit_usd
        work_h = now.work_h / self.fastest
        hours_left = now.ticks_left * terms.tick_h
        from_here = self._bought_from(now.at, now.work_h)
        bought_usd = min(terms.on_demand_usd[pool] / speed[pool] for pool in from_here)

        def hour_usd(pool: int) -> float:
            there = float(self.spells.state(pool, now.now_h)[self.spells.away :].sum())
            return now.spot_usd[pool] / speed[pool] * there + bought_usd * (1 - there)

        here = {now.running[0]} if now.running is not None and now.running[1] else set()
        sold = (pool for pool in range(len(speed)) if pool not in here and pool not in terms.only_on_demand)
        others = sorted(sold, key=hour_usd)
        pools = tuple(sorted([*here, *others[: POOLS - len(here)]]))
        # Until there is a checkpoint, the job may start near any pool, and rent its on-demand machines there.
        near = [self._bought_from(pool, now.work_h)[0] for pool in pools] if now.at is None else []
        runs = [now.running[0]] if now.running is not None and not now.running[1] else []
        bought = tuple(dict.fromkeys([*from_here, *near, *runs]))
        return Problem(
            hours_left=hours_left,
            slack_h=hours_left - work_h,
            tick_h=terms.tick_h,
            restart_h=terms.restart_h,
            pools=pools,
            spot_usd=tuple(now.spot_usd[pool] / unit_usd for pool in pools),
            speed=tuple(speed[pool] / self.fastest for pool in pools),
            on_demand_pools=bought,
            on_demand_usd=tuple(terms.on_demand_usd[pool] / unit_usd for pool in bought),
            on_demand_speed=tuple(speed[pool] / self.fastest for pool in bought),
            egress_usd=terms.egress_usd / unit_usd,
            at=now.at,
        )


class _Ahead:
    """A look-ahead of one tick: what an action costs in this tick, and the value of the situation to which it leads."""

    def __init__(self, planner: Planner, table: AnyTable, now: Situation) -> None:
        self._planner, self._table, self._now = planner, table, now
        self._terms, self._spells = planner.terms, planner.spells
        self._left_h = (now.ticks_left - 1) * self._terms.tick_h
        self._fastest = planner.fastest
        self._unit_usd = planner.unit_usd
        self._too_late_usd = TOO_LATE * self._unit_usd
        self._work_h = now.work_h / self._fastest
        # With several pools, keeping slack back when there is hardly any costs more than it saves.
        self._kept_back_h = MARGIN_TICKS * self._terms.tick_h if self._spells.pools == 1 else 0.0
        self._states = [self._spells.useful(pool, now.now_h) for pool in table.problem.pools]
        if now.running is not None and now.running[1]:
            self._give_up(now.running[0])

    def _give_up(self, pool: int) -> None:
        """If machines have phases of age, a pool whose machine the job leaves counts as empty, because a new machine
        there would not be older."""
        if self._spells.ages > self._spells.there:
            self._states[self._table.problem.pools.index(pool)] = self._spells.step(pool, self._terms.tick_h)[0]

    def wait(self) -> Option:
        """The option that nothing runs in this tick."""
        if not self._planner.safe_after(self._now, 0.0):
            return Option("wait", None, self._too_late_usd)
        hours = self._usable(self._left_h - self._work_h)
        usd = self._table.waiting(self._now.at, *hours, self._states)
        return Option("wait", None, usd * self._unit_usd)

    def buy(self, pool: int) -> Option:
        """The option to start an on-demand machine; if one runs there already, to keep it."""
        if self._now.running == (pool, False):
            return self.stay(pool, spot=False)
        restart_h, tick_h = self._terms.restart_h, self._terms.tick_h
        usd = self._bought(pool, restart_h, max(self._terms.kept_h, tick_h))
        if usd >= self._too_late_usd:
            usd = self._bought(pool, restart_h, tick_h)
        return Option("on_demand", pool, usd + self._egress(pool))

    def stay(self, pool: int, spot: bool) -> Option:
        """The option to keep the running machine."""
        overhead_h = self._now.overhead_left_h
        usd = self._on_spot(pool, overhead_h) if spot else self._bought(pool, overhead_h, self._terms.tick_h)
        return Option("stay", pool, usd)

    def take(self, pool: int, instead: Option) -> Option:
        """The option to start a spot machine, given that the launch succeeds.

        A successful launch is good news about the pool, whatever is done next. If the launch would replace a running
        spot machine, it is compared with the best other option (`instead`) as if the news were known in both cases.
        """
        usd = self._on_spot(pool, self._terms.restart_h) + self._egress(pool)
        given_up = self._now.running is not None and self._now.running[1]
        unknown = given_up and self._spells.seen(pool, self._now.now_h) is None
        if unknown and usd < instead.usd:
            number, known = self._table.problem.pools.index(pool), self._states
            there = self._spells.step(pool, self._terms.tick_h)[-1]
            self._states = [*known[:number], there, *known[number + 1 :]]
            usd += instead.usd - self._again(instead).usd
            self._states = known
        return Option("spot", pool, usd)

    def _again(self, option: Option) -> Option:
        """The same option, valued with the present knowledge of the pools."""
        if option.pool is None:
            return self.wait()
        if option.action == "on_demand":
            return self.buy(option.pool)
        return self.stay(option.pool, self._now.running == (option.pool, True))

    def _egress(self, pool: int) -> float:
        return 0.0 if self._now.at is None else float(self._terms.egress_usd[self._now.at][pool])

    def _usable(self, slack_h: float, later_h: float = 0.0) -> tuple[float, float]:
        """(hours left `later_h` after this tick, slack then), both without the ticks that are kept back."""
        back_h = min(max(slack_h, 0.0), self._kept_back_h)
        return self._left_h - later_h - back_h, slack_h - back_h

    def _progress_h(self, pool: int, overhead_h: float, hours: float) -> float:
        """Hours of work, as of the fastest machine, that are done there within `hours`."""
        return max(0.0, hours - overhead_h) * self._terms.speed[pool] / self._fastest

    def _used_h(self, pool: int, overhead_h: float, hours: float) -> float:
        """How much of `hours` passes until the work is done."""
        return min(hours, overhead_h + self._now.work_h / self._terms.speed[pool])

    def _bought(self, pool: int, overhead_h: float, hours: float) -> float:
        """The cost (US$) to finish if an on-demand machine runs for `hours`, which are at least a tick."""
        progress_h, later_h = self._progress_h(pool, overhead_h, hours), hours - self._terms.tick_h
        work_h, left_h = self._work_h - progress_h, self._left_h - later_h
        overhead_after_h = max(0.0, overhead_h - hours)
        pace = self._terms.speed[pool] / self._fastest
        # A slower machine must either finish in time itself, or leave enough time to change to the fastest.
        finishes = overhead_after_h + work_h / pace <= left_h + 1e-9
        if pace < 1 and not finishes and not self._planner.safe_after(self._now, progress_h * self._fastest, later_h):
            return self._too_late_usd
        after_h = self._usable(left_h - work_h - overhead_after_h * pace, later_h)
        cost = self._terms.on_demand_usd[pool] * self._used_h(pool, overhead_h, hours)
        problem, states = self._table.problem, self._later(later_h)
        if pool in problem.on_demand_pools:
            after = self._table.on_demand(*after_h, states, problem.on_demand_pools.index(pool))
        elif pace in problem.on_demand_speed:
            after = self._table.on_demand(*after_h, states, problem.on_demand_speed.index(pace))
        else:  # a machine that would not be rented now: the job leaves it after that
            after = self._table.waiting(pool, *after_h, states)
        return min(cost + after * self._unit_usd, self._too_late_usd)

    def _later(self, hours: float) -> list[Floats]:
        """The probabilities of each pool's state `hours` later."""
        if hours <= 0:
            return self._states
        pools = self._table.problem.pools
        return [state @ self._spells.step(pool, hours) for state, pool in zip(self._states, pools, strict=True)]

    def _on_spot(self, pool: int, overhead_h: float) -> float:
        tick_h = self._terms.tick_h
        progress_h = self._progress_h(pool, overhead_h, tick_h)
        work_h = self._work_h - progress_h
        if work_h > 1e-9 and not self._planner.safe_after(self._now, progress_h * self._fastest):
            return self._too_late_usd
        row = self._spells.survival(pool, tick_h)[self._spells.phase_there(pool, self._now.now_h)]
        lost = float(row[-1])
        overhead_after_h = max(0.0, overhead_h - tick_h)
        number = self._table.problem.pools.index(pool)
        slack_h = self._left_h - work_h
        kept_h = slack_h - overhead_after_h * self._terms.speed[pool] / self._fastest
        kept = self._table.spot(number, row[:-1] / (1 - lost), *self._usable(kept_h), self._states)
        broken = self._table.lost(number, *self._usable(slack_h), self._states)
        cost = self._now.spot_usd[pool] * self._used_h(pool, overhead_h, tick_h)
        return min(cost + ((1 - lost) * kept + lost * broken) * self._unit_usd, self._too_late_usd)
