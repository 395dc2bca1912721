"""Coordinate descent over the logarithms of a dataclass's fields: sufficient for a smooth function of a few fields.
Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Steps:
    """The `first` and the `least` change of a logarithm; after the least, the descent ends. A change must lower the
    loss by at least `gain`."""

    first: float
    least: float
    gain: float


def descend(loss: Callable[[T], float], start: T, names: Sequence[str], steps: Steps) -> T:
    """The dataclass with the least `loss` found from `start` by changing the positive fields in `names`. A step that
    helps in neither direction is halved."""
    best, least = start, loss(start)
    sizes = dict.fromkeys(names, steps.first)
    while max(sizes.values()) > steps.least:
        for name in names:
            for factor in (math.exp(sizes[name]), math.exp(-sizes[name])):
                trial = replace(best, **{name: getattr(best, name) * factor})  # type: ignore[type-var]
                value = loss(trial)
                if value < least - steps.gain:
                    best, least = trial, value
                    break
            else:
                sizes[name] /= 2
    return best
