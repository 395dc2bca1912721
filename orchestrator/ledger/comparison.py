"""Comparison: what a job paid next to what its work would have cost in another way, called a baseline. Pure.

paid + saved = baseline, to the nano-dollar; `saved` may be negative. The cost of a baseline is a function of its
inputs, which are stored with it, so that anybody can recompute it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal, Protocol, get_args

from orchestrator.ledger.stays import Part, Stay
from providers.billing.charges import RateCard, charges
from providers.money import cost_nano_usd
from providers.offer import provider_of

Baseline = Literal["same_machine", "at_submission", "in_hindsight"]
BASELINES: tuple[Baseline, ...] = get_args(Baseline)

Prices = tuple[tuple[int, int], ...]
"""(effective_at_ms, nano-USD per hour), ascending."""


@dataclass(frozen=True, slots=True)
class Rate:
    """The job's speed on a kind of machine in steps per market second, with its 5th and 95th percentile."""

    machine: str
    steps_per_s: float
    low: float
    high: float
    provenance: str


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything that determines the cost of a baseline.

    `stays` are those of the job, with each part on the baseline's machine; `prices` are by offer, as known when the
    comparison was made; `cards` say, by provider, what is billed besides machine time; `carried_nano_usd` is charged on
    any machine; `rates` are the speeds from which the paces were computed; `nodes` is the number of machines that do
    the work together.
    """

    stays: tuple[Stay, ...]
    prices: Mapping[str, Prices]
    cards: Mapping[str, RateCard]
    carried_nano_usd: int
    rates: tuple[Rate, ...] = ()
    nodes: int = 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """One job against one baseline. Version 1 is made when the books close; later versions have a `reason`.

    `baseline_nano_usd` is None if the job cannot be compared; `left_out` says why.
    """

    job_id: str
    version: int
    baseline: Baseline
    at_ms: int
    reason: str
    paid_nano_usd: int
    entries: int  # the number of ledger entries that make up the paid amount
    baseline_nano_usd: int | None
    left_out: str
    inputs: Inputs | None

    @property
    def saved_nano_usd(self) -> int | None:
        """nano-USD saved; negative if the job cost more than the baseline, None if it is not compared."""
        return None if self.baseline_nano_usd is None else self.baseline_nano_usd - self.paid_nano_usd

    @property
    def offer_ids(self) -> tuple[str, ...]:
        """The offers of the baseline, in the order in which the work is done on them."""
        of = () if self.inputs is None else (part.offer_id for stay in self.inputs.stays for part in stay.parts)
        return tuple(dict.fromkeys(of))


def elsewhere(stays: Iterable[Stay], where: Callable[[Part], tuple[str, float]]) -> tuple[Stay, ...]:
    """The same work on other machines: `where` returns each part's offer and pace there."""

    def moved(part: Part) -> Part:
        offer_id, pace = where(part)
        return replace(part, offer_id=offer_id, pace=pace)

    return tuple(replace(stay, parts=tuple(map(moved, stay.parts))) for stay in stays)


def baseline_nano_usd(inputs: Inputs) -> int:
    """The cost of a baseline in nano-USD. After the last known price change, that price continues.

    Raises ValueError if a needed price is not known.
    """
    return inputs.carried_nano_usd + inputs.nodes * sum(_stay_nano_usd(stay, inputs) for stay in inputs.stays)


def _stay_nano_usd(stay: Stay, inputs: Inputs) -> int:
    """nano-USD for the machines of one stay, each billed from the end of the one before."""
    total, at = 0, stay.from_ms
    for offer_id, parts in groupby(stay.parts, key=lambda part: part.offer_id):
        begin = at
        at += sum(part.kept_ms + round(part.worked_ms * part.pace) for part in parts)
        changes = inputs.prices.get(offer_id, ())
        if not changes or changes[0][0] > begin:
            raise ValueError(f"no price of {offer_id} is known at {begin}")
        total += cost_nano_usd(changes, begin, at)
        card = inputs.cards.get(provider_of(offer_id))
        if card is not None and stay.ended:
            total += sum(charges(card, changes, begin, at, at, ended=True).values())
    return total


@dataclass(frozen=True, slots=True)
class BaselineTotal:
    """The sums over the `jobs` compared with a baseline: paid + saved = baseline."""

    baseline: Baseline
    jobs: int
    paid_nano_usd: int
    saved_nano_usd: int
    baseline_nano_usd: int


class Figures(Protocol):
    """The fields of a comparison that sums need."""

    @property
    def baseline(self) -> Baseline:
        """What the job is compared with."""
        ...

    @property
    def paid_nano_usd(self) -> int:
        """What the job paid."""
        ...

    @property
    def baseline_nano_usd(self) -> int | None:
        """What the baseline would have cost; None if the job is not compared."""
        ...


def baseline_totals(comparisons: Sequence[Figures]) -> tuple[BaselineTotal, ...]:
    """One total per baseline. Jobs that are not compared are in none of its sums."""
    totals = []
    for baseline in BASELINES:
        of = [each for each in comparisons if each.baseline == baseline]
        costs = [(each.paid_nano_usd, each.baseline_nano_usd) for each in of if each.baseline_nano_usd is not None]
        paid, cost = sum(paid for paid, _ in costs), sum(cost for _, cost in costs)
        totals.append(BaselineTotal(baseline, len(costs), paid, cost - paid, cost))
    return tuple(totals)
