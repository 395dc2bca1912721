"""The value table of a market with a single pool: a ValueTable with few states, so that it is small and fast.

The values of slack are the same at every step. So a step of the dynamic program is three small matrix products: what
the pool does, what waiting costs in slack, and what a restart does.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from orchestrator.policy.slack.grid import TOO_LATE
from orchestrator.policy.slack.problem import Problem
from orchestrator.policy.slack.spells import Floats, Spells

STEP_H, LEAST_STEPS, MOST_STEPS = 0.25, 64, 1600
"""The length of a step (hours), and the least and most steps. Many spells are shorter than half an hour."""
SLACKS = 56
"""The number of values of slack."""


class AloneTable:
    """The solution of a Problem with one pool, whose on-demand machines are as fast as its spot machines.

    See ValueTable for what the methods mean."""

    def __init__(self, problem: Problem, spells: Spells) -> None:
        self.problem = problem
        wanted = min(max(LEAST_STEPS, round(problem.hours_left / STEP_H)), MOST_STEPS)
        self._steps = max(2, min(wanted, round(problem.hours_left / problem.tick_h)))
        self._step_h = problem.hours_left / self._steps
        most_h = max(problem.slack_h, 2 * problem.restart_h, problem.tick_h) * 1.02
        # Without slack for a restart, only a running machine can continue: the values are discontinuous there.
        above = problem.restart_h + (most_h - problem.restart_h) * np.linspace(0, 1, SLACKS - 2) ** 2
        self._slack_h: Floats = np.array([0.0, problem.restart_h * (1 - 1e-6), *above])
        self._slacks: list[float] = self._slack_h.tolist()
        self._states = spells.phases
        self._restart_h = problem.restart_h
        self._per_h = (SLACKS - 3) ** 2 / (most_h - problem.restart_h)
        self._rows = 2 * spells.phases + spells.there
        # For reading a few numbers at a time, a Python array is faster than a numpy array.
        self._value = array("f", [0.0]) * ((self._steps + 1) * self._rows * SLACKS)
        self._solve(spells, np.frombuffer(self._value, np.float32).reshape(-1, self._rows, SLACKS))

    def knows(self, place: int | None) -> bool:
        """See ValueTable."""
        return place is None or place == self.problem.pools[0]

    # The arguments are those of ValueTable.
    def waiting(
        self,
        at: int | None,  # noqa: ARG002
        hours_left: float,
        slack_h: float,
        states: Sequence[Floats],
    ) -> float:
        """See ValueTable."""
        return self._at(hours_left, slack_h, 0, states[0].tolist())

    def on_demand(
        self,
        hours_left: float,
        slack_h: float,
        states: Sequence[Floats],
        number: int = 0,  # noqa: ARG002
    ) -> float:
        """See ValueTable."""
        return self._at(hours_left, slack_h, self._states, states[0].tolist())

    def spot(
        self,
        number: int,  # noqa: ARG002
        phase: Floats,
        hours_left: float,
        slack_h: float,
        states: Sequence[Floats],  # noqa: ARG002
    ) -> float:
        """See ValueTable."""
        return self._at(hours_left, slack_h, 2 * self._states, phase.tolist())

    def lost(
        self,
        number: int,  # noqa: ARG002
        hours_left: float,
        slack_h: float,
        states: Sequence[Floats],  # noqa: ARG002
    ) -> float:
        """See ValueTable."""
        return self._at(hours_left, slack_h, 0, (1.0,))

    def _at(self, hours_left: float, slack_h: float, first: int, weights: Sequence[float]) -> float:
        """The expectation over the rows from `first`, with these weights, interpolated in time and slack."""
        if hours_left - slack_h <= 1e-9:
            return 0.0
        if slack_h < -1e-9:
            return TOO_LATE
        along = hours_left / self._step_h
        k = int(along) if along < self._steps else self._steps - 1
        later = along - k if along < self._steps else 1.0
        j, more = self._cell(slack_h)
        value, cell = self._value, (k * self._rows + first) * SLACKS + j
        after, usd = cell + self._rows * SLACKS, 0.0
        for weight in weights:
            if weight > 0:
                low = value[cell]
                low += (value[cell + 1] - low) * more
                if later > 1e-9:
                    high = value[after]
                    low += (high + (value[after + 1] - high) * more - low) * later
                usd += weight * low
            cell += SLACKS
            after += SLACKS
        return usd if usd > 0 else 0.0

    def _cell(self, slack_h: float) -> tuple[int, float]:
        """(index of the value of slack below, fraction of the way to the next one)."""
        slacks = self._slacks
        if slack_h < self._restart_h:
            j = int(slack_h >= slacks[1])
        elif slack_h < slacks[-1]:
            j = min(2 + int(((slack_h - self._restart_h) * self._per_h) ** 0.5), SLACKS - 2)
        else:
            return SLACKS - 2, 1.0
        low, high = slacks[j], slacks[j + 1]
        return j, (slack_h - low) / (high - low) if slack_h > low and high > low else 0.0

    def _solve(self, spells: Spells, values: NDArray[np.float32]) -> None:
        """Fill in the values over (step, row, slack).

        The rows are, by phase of the pool (away, then there): nothing runs; a machine runs on demand. Then, by phase of
        the machine: a spot machine runs.

        With more slack than time, less than no work is left. The values there are extrapolated linearly, because the
        work ends between two values of slack.
        """
        its, pool, step_h = self.problem, self.problem.pools[0], self._step_h
        up, bought, spot = spells.away, spells.phases, 2 * spells.phases  # first rows: capacity; on demand; spot
        rows = self._rows
        change, survive = spells.step(pool, step_h), spells.survival(pool, step_h)
        pass_on = np.zeros((rows, rows))
        pass_on[:bought, :bought] = pass_on[bought:spot, bought:spot] = change
        pass_on[spot:, spot:] = survive[:-1, :-1]
        pass_on[spot:, 0] = survive[:-1, -1]
        pass_on = pass_on.astype(np.float32)
        (waited, waited_late), (launched, launched_late) = self._less(step_h), self._less(its.restart_h)
        price = np.full((rows - bought, 1), its.on_demand_usd[0], np.float32)
        price[bought:] = its.spot_usd[0]
        bill = np.repeat(price * np.float32(step_h), SLACKS, axis=1)
        work_h = (np.arange(self._steps + 1)[:, None] * step_h - self._slack_h).astype(np.float32)
        done = np.searchsorted(self._slack_h, np.arange(self._steps + 1) * step_h).tolist()
        least_usd = min(its.spot_usd[0], its.on_demand_usd[0])
        restarted_usd, done_usd = least_usd * (its.restart_h + work_h), price * work_h[:, None]
        values[0, :bought], values[0, bought:] = restarted_usd[0], done_usd[0]
        # All steps reuse the same arrays and views: with so few states, creating them would take most of the time.
        after, idle, begun = (np.empty((count, SLACKS), np.float32) for count in (rows, bought, rows - bought))
        idles, runs, idle_there = after[:bought], after[bought:], idle[up:]
        runs_bought, runs_spot, begun_bought, begun_spot = runs[:bought], runs[bought:], begun[:bought], begun[bought:]
        late, late_begun = idle[:, :waited_late], begun[:, :launched_late]
        for k in range(1, self._steps + 1):
            now = values[k]
            np.dot(pass_on, values[k - 1], out=after)
            runs += bill
            np.dot(idles, waited, out=idle)
            late[...] = TOO_LATE
            np.dot(runs, launched, out=begun)
            late_begun[...] = TOO_LATE  # and so nothing that is left to do from there costs more
            np.minimum(idle, begun_bought, out=idle)
            np.minimum(idle_there, begun_spot, out=idle_there)
            now[:bought] = idle
            np.minimum(runs_bought, idle, out=now[bought:spot])
            np.minimum(runs_spot, idle_there, out=now[spot:])
            if (over := done[k]) < SLACKS:
                now[:bought, over:] = restarted_usd[k, over:]
                now[bought:, over:] = done_usd[k, :, over:]

    def _less(self, hours: float) -> tuple[NDArray[np.float32], int]:
        """(matrix that maps values over slack to the values after losing `hours` of slack, by the slack before; how
        many of the slacks are less than `hours`)."""
        matrix, late = np.zeros((SLACKS, SLACKS), np.float32), 0
        for number, slack_h in enumerate(self._slacks):
            if slack_h - hours < -1e-9:
                late += 1
                continue
            j, more = self._cell(max(slack_h - hours, 0.0))
            matrix[j, number], matrix[j + 1, number] = 1 - more, more
        return matrix, late
