"""Steps that are longer than spells: what happens within one step to a job that stays with one pool.

During such a step, a machine may be lost and its capacity be back before the step ends, or capacity that the job waits
for may return. A job that keeps to a pool runs whenever there is capacity, and waits otherwise. If the pool's rates are
constant, the averages of this follow from them, given whether there is capacity when the step begins and when it ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.policy.slack.grid import TOO_LATE, Grid, Table, bills
from orchestrator.policy.slack.problem import Problem


@dataclass(frozen=True, slots=True)
class Within:
    """A pool during a step at whose beginning or end it has capacity.

    `stays`: the probability of capacity at the end, given capacity at the beginning. With capacity at both ends, the
    pool has it for `kept_h` hours on average, and gets it back `kept_returns` times. With capacity at only one end, it
    has it for `changed_h` hours on average, and gets it back `changed_returns` times, not counting the return with
    which the first of these hours begins.
    """

    stays: float
    kept_h: float
    kept_returns: float
    changed_h: float
    changed_returns: float


def within(returns: float, losses: float, hours: float) -> Within:
    """The averages over a step of this length, for a pool where capacity returns and is lost at these rates (per hour):
    a continuous-time Markov chain with two states."""
    total = returns + losses
    there, away = returns / total, losses / total
    forgot = -math.expm1(-total * hours)
    remembered, mean_h = 1.0 - forgot, forgot / total
    stays = there + away * remembered
    # Integrals over the step of the probability of (capacity, and the state at the end), and of two changes.
    turning_h = there * hours + (away - there) * mean_h - away * hours * remembered
    twice_h = hours - 2 * mean_h + hours * remembered
    return Within(
        stays,
        (there * there * hours + 2 * there * away * mean_h + away * away * hours * remembered) / stays,
        losses * there * turning_h / stays,
        turning_h / forgot,
        losses * there * twice_h / forgot,
    )


class LongSteps:
    """The values of keeping to a pool for a step. Tables are as in ValueTable; `steps` has one Within for each pool."""

    def __init__(self, problem: Problem, grid: Grid, step_h: float, steps: Sequence[Within]) -> None:
        def done_h(ran_h: float, restarts: float) -> float:
            """Hours of work by a machine that runs for this long, less its restarts."""
            return max(ran_h - restarts * problem.restart_h, 0.0)

        kept_h = np.array([done_h(each.kept_h, each.kept_returns) for each in steps]) * problem.speed
        changed_h = np.array([done_h(each.changed_h, each.changed_returns) for each in steps]) * problem.speed
        usd = np.array(problem.spot_usd)
        stays = np.array([each.stays for each in steps])
        ran_h = stays * [each.kept_h for each in steps] + (1 - stays) * [each.changed_h for each in steps]
        self._stays = stays.astype(np.float32)[:, None, None]
        self._kept, self._changed = grid.after_step(step_h - kept_h, step_h - changed_h)
        self._bill = _bills(grid, usd * ran_h, stays * kept_h + (1 - stays) * changed_h)
        self._back_bill = _bills(grid, usd * [each.changed_h for each in steps], changed_h)

    def stay(self, step: int, running: Table, lost: Table) -> Table:
        """The value of running now, over (pools, states, slack).

        It is computed from the values after the step: `running` if the machine runs then, `lost` if its capacity is
        gone.
        """
        found: Table = self._stays * self._kept(step, running)
        found += (1 - self._stays) * self._changed(step, lost)
        found += self._bill[step][:, None]
        return found

    def back(self, step: int, after: Table) -> Table:
        """The value of waiting for a pool whose capacity is back at the end of the step, over (pools, states, slack).

        `after` are the values then of a job whose checkpoint is there; they include the restart.
        """
        found: Table = self._changed(step, after) + self._back_bill[step][:, None]
        return np.minimum(found, TOO_LATE, out=found)


def _bills(grid: Grid, step_usd: np.ndarray, step_work_h: np.ndarray) -> Table:
    return bills(grid.work_h, step_usd.astype(np.float32), np.maximum(step_work_h, 1e-6).astype(np.float32))
