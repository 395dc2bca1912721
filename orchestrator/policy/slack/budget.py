"""The planner for a budget: ranks possible actions by the expected hours to finish, and never spends more than is left.

The bill of a tick is known in advance, and no action is taken whose bill exceeds the money left. Waiting costs nothing,
so the budget is always kept. The value of money (money.py) ensures that the rest of the work can be paid as well. If it
cannot at present prices, the job runs where its money would pay for the rest, and otherwise waits for prices to fall.

With a deadline, the job finishes at the least cost, as long as that is expected to be no more than the money left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.policy.slack.money import MoneyTable
from orchestrator.policy.slack.planner import THERE_H, TIE, TROUBLE, Action, Planner
from orchestrator.policy.slack.situation import Situation, Terms, require_numbers
from orchestrator.policy.slack.spells import Floats, Spells

NEVER_OVER = 1e-6
"""The share of the budget that is held in reserve, because bills are added up in floating point."""
CHANGED = 1.5
"""A table is solved again at the latest when a rate has changed by this factor."""


@dataclass(frozen=True, slots=True)
class Move:
    """A possible action, with its bill in this tick (US$).

    `value` is the expected hours to finish with the best decisions after that; the table's `ruin_h` if the rest could
    not be paid. If moves are ranked by the deadline, it is US$ instead.
    """

    action: Action
    pool: int | None
    bill_usd: float
    value: float


class BudgetPlanner(Planner):
    """Decides for one job with a budget; with `by_deadline`, also with a deadline."""

    def __init__(self, terms: Terms, budget_usd: float, *, by_deadline: bool = False) -> None:
        # Machines have phases of age, pools have none. The table of a deadline in a single pool knows no such case.
        pools = len(terms.on_demand_usd)
        super().__init__(terms, Spells(pools, terms.tick_h, machine_h=() if by_deadline and pools == 1 else THERE_H))
        self._changed = min(self._changed, CHANGED)
        self.left_usd = budget_usd * (1 - NEVER_OVER)
        self._values: MoneyTable | None = None
        self._by_deadline = Planner(terms, self.spells) if by_deadline else None

    def to_probe(self, now: Situation) -> list[int]:
        """See Planner. Empty for a single pool, where probes would serve only to learn ages, and if the probes could
        cost more than the money left."""
        pools = super().to_probe(now) if self.spells.pools > 1 else []
        usd = sum(now.spot_usd[pool] for pool in pools) * self.terms.probe_h
        return pools if usd <= self.left_usd else []

    def probed(self, pool: int, there: bool, now: Situation) -> None:
        """See Planner."""
        super().probed(pool, there, now)
        self.left_usd -= self.terms.probe_h * now.spot_usd[pool] * there

    def carried_out(self, move: Move) -> None:
        """Records that a move was made, with its bill."""
        self.left_usd -= move.bill_usd

    def moves(self, now: Situation) -> list[Move]:
        """The possible actions with the money left, best first."""
        require_numbers("spot price", now.spot_usd)
        require_numbers("remaining work or overhead", (now.work_h, now.overhead_left_h))
        if self._by_deadline is not None:
            options = self._by_deadline.options(now)
            self._probes.expected_usd = min(option.usd for option in options)
            if options[0].usd <= self.left_usd:
                cheapest = [
                    Move(each.action, each.pool, self._bill(each.action, each.pool, now), each.usd) for each in options
                ]
                return [move for move in cheapest if move.bill_usd <= self.left_usd]
        values = self._valued(now)
        found = self._possible(now, values)
        if min(move.value for move in found) >= values.ruin_h * (1 - 1e-6):
            return sorted(found, key=lambda move: self._dearth(now, move))
        tie_h = TIE * self.terms.tick_h
        return sorted(found, key=lambda move: move.value + tie_h * TROUBLE[move.action])

    def _late(self, _now: Situation) -> bool:
        return False

    def _dearth(self, now: Situation, move: Move) -> tuple[float, int]:
        """The sort key of moves if no price is low enough to pay for the rest with certainty: the cheapest work first,
        if the money left would pay for all of it."""
        if move.pool is None:
            return math.inf, 0
        price = self._price(move.action, move.pool, now)
        per_hour = price / self.terms.speed[move.pool]
        rest_usd = per_hour * now.work_h + move.bill_usd - price * self.terms.tick_h
        return per_hour if rest_usd <= self.left_usd else math.inf, 1 + TROUBLE[move.action]

    def _price(self, action: Action, pool: int, now: Situation) -> float:
        """US$ per hour."""
        spot = action == "spot" or (action == "stay" and now.running == (pool, True))
        return now.spot_usd[pool] if spot else self.terms.on_demand_usd[pool]

    def _bill(self, action: Action, pool: int | None, now: Situation) -> float:
        """US$ that are billed for this tick, with egress."""
        if pool is None:
            return 0.0
        moved = action != "stay" and now.at is not None
        egress = float(self.terms.egress_usd[now.at][pool]) if moved else 0.0
        return self._price(action, pool, now) * self.terms.tick_h + egress

    def _valued(self, now: Situation) -> MoneyTable:
        if self._values is None or not self._values.knows(now.at) or self._outdated(now, self._values.problem):
            self.spells.refresh()
            self._values = MoneyTable(self._problem(now), self.spells)
            self._rates = [self.spells.rates(pool) for pool in range(self.spells.pools)]
            self._checked_h = now.now_h
            self.solved += 1
        return self._values

    def _possible(self, now: Situation, values: MoneyTable) -> list[Move]:
        states = [self.spells.useful(pool, now.now_h) for pool in values.problem.pools]
        if now.running is not None and now.running[1] and self.spells.ages > 1:
            # A new machine in the same pool would not be older.
            states[values.problem.pools.index(now.running[0])] = self.spells.step(now.running[0], self.terms.tick_h)[0]
        tick_h, money = self.terms.tick_h, self.left_usd / self.unit_usd
        found = [Move("wait", None, 0.0, tick_h + values.waiting(now.at, now.work_h / self.fastest, money, states))]
        launches: list[tuple[Action, int]] = [
            ("on_demand", pool) for pool in self._bought_from(now.at, now.work_h) if now.running != (pool, False)
        ]
        for pool in values.problem.pools:
            if now.running != (pool, True) and self.spells.seen(pool, now.now_h) is not False:
                launches.append(("spot", pool))
        if now.running is not None:
            launches.append(("stay", now.running[0]))
        for action, pool in launches:
            bill_usd = self._bill(action, pool, now)
            if bill_usd <= self.left_usd:
                found.append(Move(action, pool, bill_usd, self._hours(action, pool, bill_usd, now, values, states)))
        return found

    def _hours(
        self, action: Action, pool: int, bill_usd: float, now: Situation, values: MoneyTable, states: Sequence[Floats]
    ) -> float:
        """The expected hours to finish if a machine runs there in this tick."""
        terms, problem = self.terms, values.problem
        overhead_h = now.overhead_left_h if action == "stay" else terms.restart_h
        used_h = min(terms.tick_h, overhead_h + now.work_h / terms.speed[pool])
        work_h = max(now.work_h - max(0.0, terms.tick_h - overhead_h) * terms.speed[pool], 0.0) / self.fastest
        overhead_h = max(0.0, overhead_h - terms.tick_h)
        money = (self.left_usd - bill_usd) / self.unit_usd
        kept = money - self._price(action, pool, now) * overhead_h / self.unit_usd
        if action == "spot" or (action == "stay" and now.running == (pool, True)):
            number = problem.pools.index(pool)
            row = self.spells.survival(pool, terms.tick_h)[self.spells.phase_there(pool, now.now_h)]
            lost = float(row[-1])
            ahead_h = (1 - lost) * (overhead_h + values.spot(number, row[:-1] / (1 - lost), work_h, kept, states))
            ahead_h += lost * values.lost(number, work_h, money, states)
        elif pool in problem.on_demand_pools:
            ahead_h = values.on_demand(work_h, money, states, problem.on_demand_pools.index(pool), overhead_h)
        else:  # a machine that would not be rented now: the job leaves it after this tick
            ahead_h = values.waiting(pool, work_h, money, states)
        return used_h + ahead_h
