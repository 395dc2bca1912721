"""Availability: one observation of an offer's capacity, and what a history of them says about refusals and hazard.

Clouds do not publish spot capacity: it is learned only by launching and losing machines (SkyNomad, arXiv 2601.06520).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from providers.money import MS_PER_HOUR

AvailabilityKind = Literal[
    "launched",  # a launch was granted
    "refused",  # a launch failed for lack of capacity
    "notice",  # the provider announced a preemption
    "lost",  # a machine was preempted or disappeared
    "released",  # we ended the machine ourselves: only the observation ended
]

BACKOFF_MS, MAX_BACKOFF_MS = 15 * 60_000, 4 * MS_PER_HOUR
BACKOFF_SHARE = 4
"""Another try is worthwhile after a quarter of the time that capacity has been away, because the longer it has been
away, the longer it is expected to stay away. (A try costs nothing.)"""
UNSEEN_MS = 2 * MAX_BACKOFF_MS
"""If two signs are further apart than this, the time between them counts as not observed."""

PRIOR_LOSSES = 1.0  # the weight of a prior: one loss in its mean time; it fades as real hours are observed
PRIOR_HOURS = 8.0  # one loss in 8 h: one good zone over 45.6 days of AWS V100 in 2023 (11.6 losses in 96 h)


@dataclass(frozen=True, slots=True, order=True)
class HazardPrior:
    """One loss per `hours` of a spot machine, before any observation; `source` is who published it (empty: assumed)."""

    hours: float
    source: str = ""

    def __str__(self) -> str:
        return f"{self.hours:.0f} h" + (f" ({self.source})" if self.source else "")


ASSUMED = HazardPrior(PRIOR_HOURS)


@dataclass(frozen=True, slots=True)
class AvailabilityPoint:
    """`kind` happened to a machine of `offer_id` at `at_ms` (market time), which is also when it became known."""

    offer_id: str
    at_ms: int
    kind: AvailabilityKind


@dataclass(frozen=True, slots=True)
class CapacityHistory:
    """The summary of one offer's observations.

    `backed_off_at_ms` is the last sign of missing capacity (-1: none since the last launch), `backed_off_until_ms` when
    another try is worthwhile, `backed_off_by_loss` whether that sign was a lost machine rather than a refused launch.
    `alive` is the number of running machines. `returns` counts outages whose end was seen, and `away_ms` is the time
    that capacity is known or expected to have been away; the present outage began at `away_since_ms` (-1: none).
    """

    backed_off_at_ms: int = -1
    backed_off_until_ms: int = -1
    backed_off_by_loss: bool = False
    losses: int = 0
    exposure_ms: int = 0
    alive: int = 0
    returns: int = 0
    away_ms: int = 0
    away_since_ms: int = -1


def summarise(points: Sequence[AvailabilityPoint], at_ms: int, *, spot: bool) -> CapacityHistory:
    """Summarise the observations of one offer, given in any order and none later than `at_ms`.

    A sign of missing capacity is a refused launch or the loss of a spot machine. The loss of an on-demand machine is a
    fault and no such sign. A notice and the loss that follows it count once.

    Each sign starts a back-off: a quarter of the time since the first sign of the outage, but at least 15 minutes and
    at most 4 hours, however many machines the outage takes. A granted launch ends the back-off. So does releasing an
    on-demand machine ourselves, because there is room for another one now.

    An outage lasts from its first sign to a granted launch. It is assumed to have ended half way between its last sign
    and that launch. If two signs, or the last sign and the launch, are further apart than UNSEEN_MS, the time between
    them was not observed and is left out.
    """
    losses = alive = announced = exposure_ms = returns = away_ms = 0
    backed_off_at_ms, backed_off_by_loss, until, since, away_since_ms = -1, False, -1, at_ms, -1
    for point in sorted(points, key=lambda p: (p.at_ms, p.kind)):
        exposure_ms += alive * (point.at_ms - since)
        since = point.at_ms
        new_loss = point.kind == "notice" or (point.kind == "lost" and announced == 0)
        losses += new_loss
        if point.kind == "launched":
            alive += 1
            if backed_off_at_ms >= 0 and point.at_ms - backed_off_at_ms <= UNSEEN_MS:
                returns += 1
                away_ms += (point.at_ms - backed_off_at_ms) // 2
            backed_off_at_ms, until, away_since_ms = -1, -1, -1
        elif point.kind == "notice":
            announced += 1
        elif point.kind in ("lost", "released"):
            alive = max(alive - 1, 0)
            announced = max(announced - 1, 0)
            if point.kind == "released" and not spot:
                until = min(until, point.at_ms)
        if point.kind == "refused" or (spot and new_loss):
            if backed_off_at_ms >= 0 and point.at_ms - backed_off_at_ms <= UNSEEN_MS:
                away_ms += point.at_ms - backed_off_at_ms
            else:
                away_since_ms = point.at_ms
            backed_off_at_ms, backed_off_by_loss = point.at_ms, new_loss
            away_so_far_ms = point.at_ms - away_since_ms
            until = point.at_ms + min(max(away_so_far_ms // BACKOFF_SHARE, BACKOFF_MS), MAX_BACKOFF_MS)
    exposure_ms += alive * (at_ms - since)
    return CapacityHistory(
        backed_off_at_ms, until, backed_off_by_loss, losses, exposure_ms, alive, returns, away_ms, away_since_ms
    )


def hazard_per_hour(capacity_history: CapacityHistory, *, spot: bool, prior: HazardPrior = ASSUMED) -> float:
    """The expected losses per hour of one machine: the Gamma posterior mean for spot, 0 for on-demand."""
    if not spot:
        return 0.0
    return (PRIOR_LOSSES + capacity_history.losses) / (
        prior.hours * PRIOR_LOSSES + capacity_history.exposure_ms / MS_PER_HOUR
    )
