"""Values over slack: at which amounts of slack the values of each time step are known, and how to shift them to less
slack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from orchestrator.policy.slack.problem import Problem
from orchestrator.policy.slack.spells import Floats

TOO_LATE = 1e7
"""The cost of missing the deadline, in hours of the on-demand machine, which is the unit of all prices here."""
Table = NDArray[np.float32]


class Grid:
    """The values of slack at each step that can be reached from the present. They are closest together where slack is
    scarce.

    Work only becomes less, except for a little more after a restart. So at each time, slack is at least what is left
    beyond that work, and at most the present slack, or all of the time.
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
        """(index of the value of slack below, fraction of the way to the next one)."""
        low, wide, bend = self._rows[step]
        last = self.size - 1
        along = min(max((slack_h - low) / wide, 0.0), 1.0)
        j = min(int(along ** (1 / bend) * last), last - 1)
        below, above = (j / last) ** bend, ((j + 1) / last) ** bend
        return j, min(max((along - below) / (above - below), 0.0), 1.0)

    def after_step(self, *hours: Floats) -> list[Less]:
        """For each list of amounts: a Less that gives the values at each step from those one step later in time, with
        less slack by each of the amounts (hours)."""
        level = (self._low[1:] == self._low[:-1]) & (self._wide[1:] == self._wide[:-1])
        return self._less(hours, slice(0, -1), level, self._left_h[:-1] - 1e-6)

    def at_once(self, *hours: Floats) -> list[Less]:
        """As `after_step`, but with the values at the same step."""
        every = np.ones(len(self._left_h) - 1, np.bool_)
        return self._less(hours, slice(1, None), every, np.full(len(every), np.inf))

    def _less(self, hours: Sequence[Floats], steps: slice, level: NDArray[np.bool_], done_h: Floats) -> list[Less]:
        """The Less objects of `after_step` and `at_once`.

        Their values come from the `steps` of the grid. `level`: whether these have the same values of slack as the
        steps that they are for. `done_h`: the slack from which on no work is left there.
        """
        # Equal amounts, as of machines that are equally fast, are computed once.
        lists = [each[:1] if (each == each[0]).all() else each for each in hours]
        amounts = np.concatenate(lists)
        low, wide, bend = (each[steps, None, None] for each in (self._low, self._wide, self._bend))
        slack_h = self._slack_h[1:, None] - amounts[:, None]
        late, done = slack_h < -1e-9, slack_h >= done_h[:, None, None]
        along = np.clip((slack_h - low) / wide, 0, 1)
        last, here = self.size - 1, np.arange(self.size)
        # In single precision, a value on the border of two cells may fall into either: the cells agree there.
        j = np.minimum((along.astype(np.float32) ** (1 / bend).astype(np.float32) * last).astype(np.intp), last - 1)
        same = level[:, None] & (amounts == 0.0)
        j[same] = np.minimum(here, last - 1)
        share, at = self._share[steps].reshape(-1), self.size * np.arange(len(j))[:, None, None] + j
        below = share.take(at)
        more = np.clip((along - below) / (share.take(at + 1) - below), 0, 1)
        more[same] = here == last
        known = ~(late | done)
        moves = ~known | (j + more != here)
        more = more.astype(np.float32)
        shift = np.zeros((*j.shape, self.size), np.float32)
        first = self.size**2 * np.arange(j.size // self.size).reshape(*j.shape[:2], 1)
        flat, cell = shift.reshape(-1), first + self.size * j + here
        flat[cell], flat[cell + self.size] = (1 - more) * known, more * known
        ends = np.cumsum([len(each) for each in lists]).tolist()
        parts = [slice(end - len(each), end) for each, end in zip(lists, ends, strict=True)]
        return [Less(shift[:, part], late[:, part], moves[:, part]) for part in parts]


class Less:
    """Shifts the values of one step, over (amounts, rows, slack), to the values by the slack from which they are
    reached, if reaching them takes each of the amounts. If all amounts are equal, only one of them is kept."""

    def __init__(self, shift: Table, late: NDArray[np.bool_], moves: NDArray[np.bool_]) -> None:
        """`shift`, over (steps, amounts, slack there, slack here), are the weights of the values there; none where no
        work is left.

        Over (steps, amounts, slack here): `late` says whether slack would be negative, and `moves` whether the value
        differs from the value there.
        """
        self._shift, self._alike = shift, shift.shape[1] == 1
        self._still: list[bool] = np.asarray(~moves.any(axis=(1, 2))).tolist()
        self._too_late = late[:, :, None] * np.float32(TOO_LATE)

    def __call__(self, step: int, values: Table) -> Table:
        """`values` are over (amounts, rows, slack)."""
        row = step - 1
        if self._still[row]:
            return values
        shift = self._shift[row]
        if self._alike:
            moved: Table = (values.reshape(-1, values.shape[-1]) @ shift[0]).reshape(values.shape)
        else:
            moved = values @ shift
        moved += self._too_late[row]
        return moved


def bills(work_h: Table, step_usd: Table, step_work_h: Table) -> Table:
    """The bill of each step, over (steps, machines, slack). It is `step_usd`, or in proportion less where less work is
    left than a step does (`step_work_h`)."""
    bills: Table = step_usd[:, None] * np.clip(work_h[:, None] / step_work_h[:, None], 0, 1)
    return bills
