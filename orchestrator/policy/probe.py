"""Probe rule: should a long job run a few minutes on another GPU kind first, to measure it? Pure.

The value of measuring is what a better choice saves, averaged over the possible results; it must exceed the cost of the
probe. A probe may be followed by another one, so each is valued with the best continuation:

    now         = least over kinds of E[finish there]
    probe k     = cost of the probe + E over its outcome x of min(commit given x, probe a second kind given x)

(Howard 1966, "Information value theory"; looking two probes ahead is exact for three kinds, one of them measured.)
Outcomes are the midpoints of equally likely slices of the posterior, so that equal inputs give bit-identical results
and the unknown shape of the tails does not decide. Only money counts; other objectives are passed as another price.

Inputs: `posterior` is `PerfBook.joint(job, kinds)`, with one entry per option in the same order; `steps` remain. Each
option is the best offer of its kind, with its costs in nano-USD: `nano_usd_per_hour` while training, `move_nano_usd`
once to get there (start-up, egress; 0 where the job is), `probe_nano_usd` for the whole probe (its minutes, start-up,
and moving there and back). A `measured` option is never probed. Work done during a probe counts for nothing, although
the engine keeps it. After a probe the caller asks again with the new measurement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from orchestrator.perf import Floats, InstanceKind, Posterior, kind_name, student_quantile

PROBE_MINUTES = 8.0
MOST_PROBES = 3  # for a program too slow to be measured sooner, a probe may last this many times as long
LONGEST_PROBE_S = PROBE_MINUTES * 60 * MOST_PROBES
_SLICES = 24
_LOOKED_AT = 6  # only this many kinds are examined two probes ahead: those whose probe alone is worth most


@dataclass(frozen=True, slots=True)
class Option:
    """A kind of hardware on which the job may run or be probed; see the module. nano-USD are floats because they are
    estimates."""

    kind: InstanceKind
    nano_usd_per_hour: float
    move_nano_usd: float = 0.0
    probe_nano_usd: float = 0.0
    measured: bool = False


@dataclass(frozen=True, slots=True)
class Advice:
    """The decision: probe the option with index `probe` for `minutes`, or (None) commit to `commit` now, for `reason`.

    `saving_nano_usd` is the expected saving, net of the probe's cost `cost_nano_usd`; `finish_nano_usd` is the expected
    cost of finishing on `commit` without a probe.
    """

    probe: int | None
    commit: int
    minutes: float
    saving_nano_usd: float
    cost_nano_usd: float
    finish_nano_usd: float
    reason: str


def advise(
    posterior: Posterior,
    options: Sequence[Option],
    *,
    steps: float,
    minutes: float = PROBE_MINUTES,
    budget_left_nano_usd: float | None = None,
    left_s: float = math.inf,
    allowed: bool = True,
) -> Advice:
    """The probe to run now, or none and why.

    Kinds on which the steps would take longer than `left_s` (seconds) are left out; for a kind that is not measured,
    the 95th percentile of that time counts. Raises ValueError if options and posterior do not match, or if steps is
    negative or not finite.
    """
    if len(posterior) != len(options) or not options:
        raise ValueError(f"{len(options)} options for a posterior over {len(posterior)} kinds")
    if not (steps >= 0 and math.isfinite(steps)):
        raise ValueError(f"steps must be a finite number of at least 0, not {steps}")
    price = np.array([option.nano_usd_per_hour for option in options]) * (steps / 3600)
    moves = np.array([option.move_nano_usd for option in options])
    probes = np.array([option.probe_nano_usd for option in options])
    expected = moves + price * np.exp(-posterior.mean) * _mean_factor(posterior)
    commit = int(expected.argmin())
    finish = float(expected[commit])
    unknown = [i for i, option in enumerate(options) if not option.measured and posterior.scale[i, i] > 0]

    def none(reason: str) -> Advice:
        return Advice(None, commit, 0.0, 0.0, 0.0, finish, reason)

    if not allowed:
        return none("the job file has probe: false")
    if not unknown:
        return none("all kinds that could be better are measured")
    affordable = [i for i in unknown if budget_left_nano_usd is None or probes[i] + finish <= budget_left_nano_usd]
    if not affordable:
        return none("the budget does not cover a probe")
    promising, rates = affordable, _Rates(steps / max(left_s, 1e-9), commit)
    if len(affordable) > _LOOKED_AT:
        alone = {i: _with_probe(posterior, price, moves, probes, rates, i, ()) for i in affordable}
        promising = sorted(affordable, key=lambda i: (alone[i], i))[:_LOOKED_AT]
    values = {i: _with_probe(posterior, price, moves, probes, rates, i, promising) for i in promising}
    best = min(values, key=lambda i: (values[i], i))
    saving = finish - values[best]
    name = kind_name(options[best].kind)
    if saving <= 0:
        return none(f"the best probe ({name}) costs more than it is expected to save")
    reason = f"{minutes:g} min on {name} should save more than it costs"
    return Advice(best, commit, minutes, saving, float(probes[best]), finish, reason)


@dataclass(frozen=True, slots=True)
class _Rates:
    """`least` is the lowest rate (steps per second) that is in time. The option `commit` counts as in time whatever its
    rate."""

    least: float
    commit: int


def _with_probe(
    posterior: Posterior,
    price: Floats,
    moves: Floats,
    probes: Floats,
    rates: _Rates,
    first: int,
    seconds: Sequence[int],
) -> float:
    """Expected cost (nano-USD) of the whole job if kind `first` is probed now, and perhaps one more after it."""
    mean, root, nodes = _after(posterior, first)
    # Expected cost of finishing on each kind once `first` is known and paid for, one row per outcome.
    expected = moves + price * np.exp(-mean) * np.exp(root[..., None] * nodes).mean(axis=-1)
    certain = np.exp(mean - root * student_quantile(0.95, posterior.dof + 1))
    certain[:, rates.commit] = math.inf
    expected[certain < rates.least] = math.inf
    rate = np.exp(mean[:, first])
    expected[:, first] = np.where(rate >= rates.least, price[first] / rate, math.inf)
    best = expected.min(axis=1)
    for second in seconds:
        if second == first:
            continue
        others = np.delete(expected, second, axis=1).min(axis=1)
        rate = np.exp(mean[:, second, None] - root[:, second, None] * nodes)
        shown = np.where(rate >= rates.least, price[second] / rate, math.inf)
        best = np.minimum(best, probes[second] + np.minimum(others[:, None], shown).mean(axis=1))
    return float(probes[first] + best.mean())


def _after(posterior: Posterior, index: int) -> tuple[Floats, Floats, Floats]:
    """`Posterior.condition` for every outcome of one kind at once: (means and roots of scales, both by outcome and
    kind; the nodes of the new distribution)."""
    nodes = _nodes(posterior.dof)
    variance = float(posterior.scale[index, index])
    slope = posterior.scale[:, index] / variance
    means = posterior.mean + np.outer(nodes * math.sqrt(variance), slope)
    rest = np.maximum(np.diagonal(posterior.scale) - slope * posterior.scale[index], 0.0)
    widen = (posterior.dof + nodes**2) / (posterior.dof + 1)
    return means, np.sqrt(widen[:, None] * rest), _nodes(posterior.dof + 1)


def _mean_factor(posterior: Posterior) -> Floats:
    """The mean of 1 / rate, as a multiple of 1 / (median rate), for each kind."""
    root = np.sqrt(np.maximum(np.diagonal(posterior.scale), 0.0))
    factor: Floats = np.exp(root[:, None] * _nodes(posterior.dof)).mean(axis=1)
    return factor


@cache
def _nodes(dof: float) -> Floats:
    nodes = np.array([student_quantile((i + 0.5) / _SLICES, dof) for i in range(_SLICES)])
    nodes.setflags(write=False)
    return nodes
