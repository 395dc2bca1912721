"""Values over slack: at each step of time, at which amounts of slack they are known, and what they are with less."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from orchestrator.policy.slack.problem import Problem
from orchestrator.policy.slack.spells import Floats

TOO_LATE = 1e7
"""The cost of missing the deadline, in hours of the on-demand machine: prices are given in that unit."""
Table = NDArray[np.float32]


class Grid:
    """The values of slack at each step that can be reached from the present, finest where slack is scarce.

    Work can only become less, and little more by a restart; so at each time, slack is at least what is left after it,
    and at most the present slack, or all of the time.
    """

    def __init__(self, problem: Problem, steps: int, size: int) -> None:
        self.size = size
        self._left_h: Floats = np.arange(steps + 1, dtype=np.float64) * (problem.hours_left / steps)
        room_h = 2 * problem.restart_h + 1e-6
        work_h = problem.hours_left - problem.slack_h
        high = np.minimum(self._left_h, max(problem.slack_h, room_h) * 1.02)
        low = np.clip(np.minimum(self._left_h - work_h - room_h, high * 0.98), 0, None)
        self._low, self._wide = low, np.maximum(high - low, 1e-9)
        self._bend = 2 - low / np.maximum(high, 1e-9)
        self._share: Floats = (np.arange(size) / (size - 1)) ** self._bend[:, None]
        self._slack_h = self._low[:, None] + self._wide[:, None] * self._share
        self._rows = list(zip(self._low.tolist(), self._wide.tolist(), self._bend.tolist(), strict=True))
        self.work_h = (self._left_h[:, None] - self._slack_h).astype(np.float32)
        self.ends_done = (high >= self._left_h).tolist()
        """By step, whether the last value of slack is that of no work left."""

    def cell(self, step: int, slack_h: float) -> tuple[int, float]:
        """(number of the value of slack below, share of the next one)."""
        low, wide, bend = self._rows[step]
        last = self.size - 1
        along = min(max((slack_h - low) / wide, 0.0), 1.0)
        j = min(int(along ** (1 / bend) * last), last - 1)
        below, above = (j / last) ** bend, ((j + 1) / last) ** bend
        return j, min(max((along - below) / (above - below), 0.0), 1.0)

    def after_step(self, hours: Sequence[float]) -> Less:
        """With so many hours less slack, a step later: the values there of the values here."""
        level = (self._low[1:] == self._low[:-1]) & (self._wide[1:] == self._wide[:-1])
        return self._less(np.array(hours), slice(0, -1), level, self._left_h[:-1] - 1e-6)

    def at_once(self, hours: Sequence[float]) -> Less:
        """The same without a step."""
        every = np.ones(len(self._left_h) - 1, np.bool_)
        return self._less(np.array(hours), slice(1, None), every, np.full(len(every), np.inf))

    def _less(self, hours: Floats, steps: slice, level: NDArray[np.bool_], done_h: Floats) -> Less:
        """`steps` of the values there, `level`: whether they lie at the same values of slack as those here, and
        `done_h`: the slack from which on no work is left there."""
        amounts, number = np.unique(hours, return_inverse=True)  # machines that are equally fast differ in nothing
        low, wide, bend = (each[steps, None, None] for each in (self._low, self._wide, self._bend))
        slack_h = self._slack_h[1:, None] - amounts[:, None]
        along = np.clip((slack_h - low) / wide, 0, 1)
        last = self.size - 1
        j = np.minimum((along ** (1 / bend) * last).astype(np.intp), last - 1)
        share, step = self._share[steps], np.arange(len(slack_h))[:, None, None]
        more = np.clip((along - share[step, j]) / (share[step, j + 1] - share[step, j]), 0, 1)
        same = level[:, None, None] & (amounts == 0.0)[:, None]
        j, share_above = np.where(same, np.arange(self.size), j), np.where(same, 0.0, more).astype(np.float32)
        late, done = slack_h < -1e-9, slack_h >= done_h[:, None, None]
        return Less(j[:, number], share_above[:, number], late[:, number], done[:, number])


class Less:
    """Values over (rows, amounts, slack) at one step -> values by the slack from which they are reached, if that is
    less by each of the amounts."""

    def __init__(self, j: NDArray[np.intp], more: Table, late: NDArray[np.bool_], done: NDArray[np.bool_]) -> None:
        """All are over (steps, amounts, slack)."""
        amounts, size = j.shape[1:]
        first = size * np.arange(amounts)[:, None]
        self._below, self._above = first + j, first + np.minimum(j + 1, size - 1)
        self._more, self._late, self._done = more, late, done
        self._any_late: list[bool] = np.asarray(late.any(axis=(1, 2))).tolist()
        self._any_done: list[bool] = np.asarray(done.any(axis=(1, 2))).tolist()
        moves = late | done | (more > 0) | (j != np.arange(size))
        self._still: list[bool] = np.asarray(~moves.any(axis=(1, 2))).tolist()

    def __call__(self, step: int, values: Table) -> Table:
        """`values` are over (rows, amounts, slack)."""
        row = step - 1
        if self._still[row]:
            return values
        flat = values.reshape(len(values), -1)
        moved: Table = flat.take(self._below[row], axis=1)
        above: Table = flat.take(self._above[row], axis=1)
        above -= moved
        above *= self._more[row]
        moved += above
        if self._any_late[row]:
            np.copyto(moved, TOO_LATE, where=self._late[row])
        if self._any_done[row]:
            np.copyto(moved, 0, where=self._done[row])
        return moved


def bills(work_h: Table, step_usd: Table, step_work_h: Table) -> Table:
    """What each step costs, over (steps, machines, slack): less than `step_usd` if its work is less than
    `step_work_h`."""
    bills: Table = step_usd[:, None] * np.clip(work_h[:, None] / step_work_h[:, None], 0, 1)
    return bills
