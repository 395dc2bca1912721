"""Comparison: what a job paid, beside what its work would have cost in another way, which is called a baseline. Pure.

paid + saved = baseline, to the nano-dollar; `saved` may be negative. The cost of a baseline is a function of its inputs
alone, which are kept with it, so that anybody can work it out again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal, Protocol, get_args

from orchestrator.ledger.stays import Part, Stay
from providers.charges import RateCard, charges
from providers.money import cost_nano_usd
from providers.offer import provider_of

Baseline = Literal["same_machine", "at_submission", "in_hindsight"]
BASELINES: tuple[Baseline, ...] = get_args(Baseline)

Prices = tuple[tuple[int, int], ...]
"""(effective_at_ms, nano-USD per hour), ascending."""


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast the job is on a kind of machine, in steps per market second, with its 5th and 95th percentile."""

    machine: str
    steps_per_s: float
    low: float
    high: float
    provenance: str


@dataclass(frozen=True, slots=True)
class Inputs:
    """All that the cost of a baseline follows from.

    `stays` are those of the job, each part on the machine of the baseline; `prices` are by offer, as they were known
    when the comparison was made; `cards` say, by provider, what a machine is billed besides its time;
    `carried_nano_usd` is charged on any machine; `rates` say where paces come from.
    """

    stays: tuple[Stay, ...]
    prices: Mapping[str, Prices]
    cards: Mapping[str, RateCard]
    carried_nano_usd: int
    rates: tuple[Rate, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """One job against one baseline. Version 1 is of the books as they closed; a later one says its `reason`.

    `baseline_nano_usd` is None where the job is left out, and `left_out` says why.
    """

    job_id: str
    version: int
    baseline: Baseline
    at_ms: int
    reason: str
    paid_nano_usd: int
    entries: int  # so many ledger entries are the sum of paid
    baseline_nano_usd: int | None
    left_out: str
    inputs: Inputs | None

    @property
    def saved_nano_usd(self) -> int | None:
        """Negative where the job cost more than the baseline."""
        return None if self.baseline_nano_usd is None else self.baseline_nano_usd - self.paid_nano_usd

    @property
    def offer_ids(self) -> tuple[str, ...]:
        """The machines of the baseline, in the order in which the work is done on them."""
        of = () if self.inputs is None else (part.offer_id for stay in self.inputs.stays for part in stay.parts)
        return tuple(dict.fromkeys(of))


def elsewhere(stays: Iterable[Stay], where: Callable[[Part], tuple[str, float]]) -> tuple[Stay, ...]:
    """The same work on other machines: `where` gives the offer of a part, and the pace there."""

    def moved(part: Part) -> Part:
        offer_id, pace = where(part)
        return replace(part, offer_id=offer_id, pace=pace)

    return tuple(replace(stay, parts=tuple(map(moved, stay.parts))) for stay in stays)


def baseline_nano_usd(inputs: Inputs) -> int:
    """The cost of a baseline. Past the last price that is known, that price goes on.

    Raises ValueError when no price is known where one is needed.
    """
    return inputs.carried_nano_usd + sum(_stay_nano_usd(stay, inputs) for stay in inputs.stays)


def _stay_nano_usd(stay: Stay, inputs: Inputs) -> int:
    """One machine after the other, each billed from the end of the one before."""
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
    """The sum over the jobs that were compared with a baseline: paid + saved = baseline. `jobs` is how many."""

    baseline: Baseline
    jobs: int
    paid_nano_usd: int
    saved_nano_usd: int
    baseline_nano_usd: int


class Figures(Protocol):
    """What a sum needs to know of a comparison."""

    @property
    def baseline(self) -> Baseline: ...

    @property
    def paid_nano_usd(self) -> int: ...

    @property
    def baseline_nano_usd(self) -> int | None: ...


def baseline_totals(comparisons: Sequence[Figures]) -> tuple[BaselineTotal, ...]:
    """One per baseline. What is left out is in none of its sums."""
    totals = []
    for baseline in BASELINES:
        of = [each for each in comparisons if each.baseline == baseline]
        costs = [(each.paid_nano_usd, each.baseline_nano_usd) for each in of if each.baseline_nano_usd is not None]
        paid, cost = sum(paid for paid, _ in costs), sum(cost for _, cost in costs)
        totals.append(BaselineTotal(baseline, len(costs), paid, cost - paid, cost))
    return tuple(totals)
