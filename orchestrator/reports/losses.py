"""A job's loss curve, from the metrics that its runs wrote."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

from trainers.checked_json import count

KEPT_POINTS = 400


def losses(metrics: Iterable[bytes]) -> tuple[tuple[int, float], ...]:
    """(step, loss) by ascending step, at most KEPT_POINTS, from the metrics of runs, earlier runs first. For a repeated
    step, the loss of the last run counts."""
    by_step: dict[int, float] = {}
    for lines in metrics:
        for line in lines.decode(errors="replace").splitlines():
            point = _point(line)
            if point is not None:
                by_step[point[0]] = point[1]
    points = sorted(by_step.items())
    every = max(1, math.ceil(len(points) / KEPT_POINTS))
    thinned = points[::every]
    if points and thinned[-1] != points[-1]:
        thinned.append(points[-1])
    return tuple(thinned)


def _point(line: str) -> tuple[int, float] | None:
    """The point in a line; None for a line that is incomplete because the process was killed, or whose numbers are no
    step and loss."""
    try:
        metric = json.loads(line)
        step, loss = count(metric["step"]), float(metric["loss"])
    except (ArithmeticError, KeyError, RecursionError, TypeError, ValueError):
        return None
    return (step, loss) if math.isfinite(loss) else None
