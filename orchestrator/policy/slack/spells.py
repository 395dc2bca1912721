"""Spells: how long the spot capacity of each pool stays available or away, learned from observations.

Each pool is a continuous-time Markov chain. While capacity is away, the pool passes through phases of age, because a
pool that has been empty for long tends to stay empty. While capacity is there, it also passes through phases of age,
because capacity that has been there for long tends to stay. With several pools, there is one phase of each kind.

With several phases, their rates are learned together (ageing.py). With one phase of each kind, its rate has a gamma
posterior. It is shrunk towards the rate of all pools together, and that towards the prior below, so pools with few
observations are treated like the others. Looks may be far apart. What happened between two looks is counted by its
expectation given both (the E step of Hobolth and Jensen 2005, "Statistical inference in evolutionary models of DNA
sequences via the EM algorithm").
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from orchestrator.policy.slack.ageing import AgedRates

Floats = NDArray[np.float64]

SPELL_H = 8.0
"""Prior mean length of a spell, with one phase of each kind."""
AGE_RATE, AGE_SHIFT_H = 2.0, 0.5
"""Prior rate at which a spell of age a ends, with several phases: AGE_RATE / (AGE_SHIFT_H + a) per hour."""
ALL_POOLS = 1.0
"""With one phase of each kind: how much the prior counts against the observations of all pools, in ended spells."""
ONE_POOL = 1.5
"""Likewise, how much all pools count against the observations of one pool."""
_LAST_PHASE = 4.0  # the prior rate of the last phase is the mean until this many times its beginning, plus 8 h
_HIDDEN_H = 1.0  # with several phases, a time without looks counts as this long
_MOST_CACHED = 2000
_MOST_ROUNDS, _CLOSE_ENOUGH = 50, 1e-4  # of the iteration that gives the rates by age the mean rate of their pool
_CLOSE = 1.5  # looks at most this many ticks apart are consecutive: nothing happened in between


class Spells:
    """The knowledge about the spells of each pool. Times are hours since the first tick; rates are per hour.

    `away_h` and `there_h` are the ages at which the second and later phases begin. The state of a pool is one of
    `phases`: first the phases of its absence by age, then those of its presence. The machine that runs in a pool has
    the phases of presence. If presence has only one phase, `machine_h` are the ages at which a machine's phases begin.
    """

    def __init__(
        self,
        pools: int,
        tick_h: float,
        away_h: Sequence[float] = (),
        there_h: Sequence[float] = (),
        machine_h: Sequence[float] = (),
    ) -> None:
        self.pools, self.tick_h = pools, tick_h
        self.away = len(away_h) + 1
        self.there = len(there_h) + 1
        self.phases = self.away + self.there
        self.ages_h = (0.0, *(there_h or machine_h))
        self.ages = len(self.ages_h)
        self._away_prior, self._away_step = _phases((0.0, *away_h))
        self._there_prior, _ = _phases((0.0, *there_h))
        prior, self._age_step = _phases(self.ages_h)
        self._usual: Floats = prior / (_shares(prior, self._age_step) @ prior)
        self._old_h = 2.0 * self.ages_h[-1] if self.ages > 1 else 1.0
        self._away_ends, self._away_spent = np.zeros((pools, self.away)), np.zeros((pools, self.away))
        self._there_ends, self._there_spent = np.zeros((pools, self.there)), np.zeros((pools, self.there))
        self._watched_ends, self._watched_spent = np.zeros((pools, self.ages)), np.zeros((pools, self.ages))
        self._certain: Floats = np.eye(self.phases)
        self._just_gone: Floats = np.asarray(self._certain[0])
        self._without: Floats = self._certain[: self.away].sum(axis=0)  # 1 for the phases of absence
        self._state: list[Floats | None] = [None] * pools
        self._seen_h = [0.0] * pools
        self._was_there: list[bool | None] = [None] * pools
        self._began_h = [0.0] * pools
        self._cache: dict[tuple[str, int, float], Floats] = {}
        self._lasting: dict[int, list[float]] = {}
        self._known_ends: dict[int, tuple[Floats, Floats]] = {}
        self._known_losses: dict[int, Floats] = {}
        self._aged = [AgedRates(self._away_prior, self._there_prior) for _ in range(pools)] if self.phases > 2 else []

    def seen(self, pool: int, now_h: float) -> bool | None:
        """Whether the pool had capacity when it was looked at just now; None if it was not."""
        if self._state[pool] is None or self._seen_h[pool] < now_h - 1e-9:
            return None
        return self._was_there[pool]

    def last_look_h(self, pool: int) -> float | None:
        """When the pool was last looked at (hours since the first tick); None if never."""
        return None if self._state[pool] is None else self._seen_h[pool]

    def ends(self, pool: int) -> tuple[Floats, Floats]:
        """(rates at which an absence ends, rates at which a machine is lost), by phase of the pool."""
        known = self._known_ends.get(pool)
        if known is not None:
            return known
        if self._aged:
            away = self._away_ends[pool], self._away_spent[pool]
            there = self._there_ends[pool], self._there_spent[pool]
            known = self._aged[pool].given(away, there)
            self._known_ends[pool] = known
            return known
        away_rates = _shrunk(self._away_ends, self._away_spent, self._away_prior)
        there_rates = _shrunk(self._there_ends, self._there_spent, self._there_prior)
        self._known_ends = dict(enumerate(zip(away_rates, there_rates, strict=True)))
        return self._known_ends[pool]

    def losses(self, pool: int) -> Floats:
        """Rates at which a machine in the pool is lost, by the phase of the machine's age."""
        lost = self.ends(pool)[1]
        if self.ages == self.there:
            return lost
        if pool not in self._known_losses:
            self._known_losses[pool] = self._by_age(pool, float(lost[0]))
        return self._known_losses[pool]

    def _by_age(self, pool: int, lost: float) -> Floats:
        """As `losses`, if presence has a single phase. Its rate `lost` is the mean over the time that there is
        capacity.

        How the rate depends on the age is first learned from all pools together, from the times when they were watched
        from tick to tick, and then from the pool itself.
        """
        usual = np.array([float(self.ends(each)[1][0]) for each in range(self.pools)])
        ends, spent = self._watched_ends, self._watched_spent
        shape = (ALL_POOLS + ends.sum(axis=0)) / (ALL_POOLS / self._usual + usual @ spent)
        rates = lost * shape
        for _ in range(_MOST_ROUNDS):
            too_often = float(_shares(rates, self._age_step) @ rates) / lost
            rates = rates / too_often
            if abs(too_often - 1) < _CLOSE_ENOUGH:
                break
        return np.asarray((ONE_POOL + ends[pool]) / (ONE_POOL / rates + spent[pool]))

    def rates(self, pool: int) -> tuple[Floats, ...]:
        """All rates that are learned of a pool."""
        ends = self.ends(pool)
        return ends if self.ages == self.there else (*ends, self.losses(pool))

    def step(self, pool: int, hours: float) -> Floats:
        """Transition probabilities of the pool's state over `hours`: from the state now (row) to the state then
        (column)."""
        return self._cached("state", pool, hours)

    def constant(self, pool: int) -> tuple[float, float] | None:  # noqa: ARG002
        """(rate at which an absence ends, rate at which a machine is lost), if both are constant. None here, because
        they are learned by age."""
        return None

    def survival(self, pool: int, hours: float) -> Floats:
        """Transition probabilities of a machine's phase over `hours`: from its phase now (row) to its phase then
        (column). The last row and column stand for a lost machine."""
        return self._cached("machine", pool, hours)

    def state(self, pool: int, now_h: float) -> Floats:
        """Probabilities of the pool's state now. If it was never looked at, these are the long-run shares."""
        known = self._state[pool]
        if known is None:
            return np.asarray(np.linalg.matrix_power(self.step(pool, 4.0), 64)[0])
        gap_h = now_h - self._seen_h[pool]
        if gap_h <= 1e-9:
            return known
        ticks = max(round(gap_h / self.tick_h), 1)
        return np.asarray(known @ self.step(pool, ticks * self.tick_h))

    def soon(self, pool: int, now_h: float) -> Floats:
        """Probabilities of the pool's state one tick from now."""
        known, gap_h = self._state[pool], now_h - self._seen_h[pool]
        if known is None:
            return np.asarray(self.state(pool, now_h) @ self.step(pool, self.tick_h))
        ticks = 1 if gap_h <= 1e-9 else max(round(gap_h / self.tick_h), 1) + 1
        return np.asarray(known @ self.step(pool, ticks * self.tick_h))

    def phase_there(self, pool: int, now_h: float) -> int:
        """The phase of the machine that runs in the pool, or of one that would be started now."""
        if self._was_there[pool]:
            return self._phase(now_h - self._began_h[pool])
        known_h = self._seen_h[pool] if self._was_there[pool] is not None else -math.inf
        return self._phase(min((now_h - known_h) / 2, self._old_h))

    def mature(self, pool: int) -> Floats:
        """Probabilities of the phase of a machine that is started at a random moment at which there is capacity."""
        return _shares(self.losses(pool), self._age_step)

    def useful(self, pool: int, now_h: float) -> Floats:
        """As `soon`, but capacity that is expected to end sooner than usual counts less.

        This applies if presence has a single phase and the pool was last seen with capacity: its probability is
        multiplied by the share of the usual remaining life that a machine of its age has.
        """
        soon = self.soon(pool, now_h)
        if self.ages == self.there or not self._was_there[pool]:
            return soon
        if pool not in self._lasting:
            self._lasting[pool] = self._lasts(pool)
        there = float(soon[-1]) * self._lasting[pool][self.phase_there(pool, now_h)]
        return np.array([1 - there, there])

    def saw(self, pool: int, there: bool, now_h: float) -> None:
        """Records a look: whether the pool had capacity. Two looks at the same time count once."""
        known, was_there, gap_h = self._state[pool], self._was_there[pool], now_h - self._seen_h[pool]
        if known is not None and gap_h <= 1e-9:
            known = None
        close = gap_h <= _CLOSE * self.tick_h
        # Not needed if capacity is there now, and was there at the last look or that look is recent.
        before = self._certain[-1] if there and (was_there or close) else self.state(pool, now_h)
        if known is not None and was_there is not None:
            if self.away == 1 and self.there == 1:
                if was_there and close:
                    phase = self._phase(now_h - gap_h - self._began_h[pool])
                    self._watched_spent[pool, phase] += gap_h
                    self._watched_ends[pool, phase] += not there
                self._count_hidden(pool, was_there, there, gap_h)
            else:
                self._count_aged(pool, known if close else before, there, now_h, gap_h if close else _HIDDEN_H)
            self._known_ends.clear()
            self._known_losses.clear()
        if there and not was_there:
            self._began_h[pool] = now_h - (self._old_h if was_there is None else min(gap_h / 2, self._old_h))
        if there:
            phase = self._phase(now_h - self._began_h[pool]) if self.there > 1 else 0
            self._state[pool] = self._certain[self.away + phase]
        else:
            self._state[pool] = self._after(before, was_there, close and known is not None)
        self._seen_h[pool], self._was_there[pool] = now_h, there

    def changed_by(self, since: Sequence[tuple[Floats, ...]]) -> float:
        """The largest factor by which any rate differs from `since`, which are the `rates` of each pool at an earlier
        time."""
        largest = 1.0
        for pool, old in enumerate(since):
            for then, now in zip(old, self.rates(pool), strict=True):
                largest = max(largest, float((now / then).max()), float((then / now).max()))
        return largest

    def refresh(self) -> None:
        """Clears cached results, so that `step`, `survival` and `useful` use what was learned since the last call."""
        self._cache.clear()
        self._lasting.clear()

    def _after(self, before: Floats, was_there: bool | None, close: bool) -> Floats:
        """The state of a pool that was just seen without capacity."""
        if was_there and close:
            return self._just_gone
        after: Floats = before * self._without
        total = float(after.sum())
        return np.asarray(after / total) if total > 1e-12 else self._just_gone

    def _count_hidden(self, pool: int, was_there: bool, there: bool, gap_h: float) -> None:
        """Adds the expected ends and hours between two looks, for a chain with two states."""
        appears, lost = (float(rates[0]) for rates in self.ends(pool))
        total = appears + lost
        long_run = (lost / total, appears / total)  # away, there
        decay = math.exp(-total * gap_h)
        decayed_h = (1 - decay) / total

        def both(x: bool, i: bool, j: bool, y: bool) -> float:
            a, b = long_run[i], (x == i) - long_run[i]
            c, d = long_run[y], (j == y) - long_run[y]
            return a * c * gap_h + (a * d + b * c) * decayed_h + b * d * gap_h * decay

        likely = max(long_run[there] + ((was_there == there) - long_run[there]) * decay, 1e-12)
        self._there_spent[pool] += both(was_there, True, True, there) / likely
        self._away_spent[pool] += both(was_there, False, False, there) / likely
        self._there_ends[pool] += lost * both(was_there, True, False, there) / likely
        self._away_ends[pool] += appears * both(was_there, False, True, there) / likely

    def _count_aged(self, pool: int, before: Floats, there: bool, now_h: float, gap_h: float) -> None:
        """Adds the hours of the gap between two looks, and an end if there was one, for chains with several phases: a
        single spell went on or ended in the gap."""
        if self._was_there[pool]:
            phase = self._phase(now_h - gap_h - self._began_h[pool])
            self._there_spent[pool, phase] += gap_h
            self._there_ends[pool, phase] += not there
            return
        shares = before[: self.away]
        shares = shares / max(float(shares.sum()), 1e-12)
        self._away_spent[pool] += shares * (gap_h / 2 if there else gap_h)
        if there:
            self._away_ends[pool] += shares

    def _phase(self, age_h: float) -> int:
        return max(bisect(self.ages_h, age_h + 1e-9) - 1, 0)

    def _cached(self, what: str, pool: int, hours: float) -> Floats:
        key = (what, pool, round(hours, 6))
        found = self._cache.get(key)
        if found is None:
            if len(self._cache) >= _MOST_CACHED:
                self._cache.clear()
            rates = self._state_rates(pool) if what == "state" else self._machine_rates(pool)
            found = self._cache[key] = _exponential(rates * hours)
        return found

    def _state_rates(self, pool: int) -> Floats:
        appears, lost = self.ends(pool)
        rates = np.zeros((self.phases, self.phases))
        for phase in range(self.away):
            rates[phase, self.away] += appears[phase]
            if phase + 1 < self.away:
                rates[phase, phase + 1] += self._away_step[phase]
        for phase, at in enumerate(range(self.away, self.phases)):
            rates[at, 0] = lost[phase]
            if phase + 1 < self.there:
                rates[at, at + 1] = self._age_step[phase]
        return _balanced(rates)

    def _machine_rates(self, pool: int) -> Floats:
        lost = self.losses(pool)
        rates = np.zeros((self.ages + 1, self.ages + 1))
        for phase in range(self.ages):
            rates[phase, self.ages] = lost[phase]
            if phase + 1 < self.ages:
                rates[phase, phase + 1] = self._age_step[phase]
        return _balanced(rates)

    def _lasts(self, pool: int) -> list[float]:
        """For each phase of a machine: its expected remaining life as a share of the usual one, at most 1."""
        lost, life_h = self.losses(pool), np.zeros(self.ages)
        for phase in reversed(range(self.ages)):
            older_h = life_h[phase + 1] if phase + 1 < self.ages else 0.0
            life_h[phase] = (1 + self._age_step[phase] * older_h) / (lost[phase] + self._age_step[phase])
        shares: list[float] = np.minimum(life_h / (self.mature(pool) @ life_h), 1.0).tolist()
        return shares


def _shrunk(ends: Floats, spent: Floats, prior: Floats) -> Floats:
    """The rates of all pools (rows), by phase: the rates of each pool are shrunk towards the rates of all pools, and
    these towards the prior."""
    everywhere = (ALL_POOLS + ends.sum(axis=0)) / (ALL_POOLS / prior + spent.sum(axis=0))
    return np.asarray((ONE_POOL + ends) / (ONE_POOL / everywhere + spent))


def _shares(lost: Floats, step: Floats) -> Floats:
    """The share of each phase in the time that there is capacity. `lost` and `step` are the rates, by phase, at which
    capacity is lost and at which it goes on to the next phase."""
    shares, reached = np.zeros(len(lost)), 1.0
    for phase in range(len(lost)):
        shares[phase] = reached / (lost[phase] + step[phase])
        reached *= step[phase] / (lost[phase] + step[phase])
    return np.asarray(shares / shares.sum())


def _phases(begin_h: Sequence[float]) -> tuple[Floats, Floats]:
    """(prior rate at which a spell ends, rate of going on to the next phase), by phase. `begin_h` are the ages at which
    phases begin."""
    ends_h = (*begin_h[1:], math.inf)
    step = np.array([0.0 if math.isinf(end) else 1 / (end - begin) for begin, end in zip(begin_h, ends_h, strict=True)])
    if len(begin_h) == 1:
        return np.array([1 / SPELL_H]), step
    prior = []
    for begin, end in zip(begin_h, ends_h, strict=True):
        until = _LAST_PHASE * begin + 8.0 if math.isinf(end) else end
        prior.append(AGE_RATE * math.log((AGE_SHIFT_H + until) / (AGE_SHIFT_H + begin)) / (until - begin))
    return np.array(prior), step


def _balanced(rates: Floats) -> Floats:
    return np.asarray(rates - np.diag(rates.sum(axis=1)))


def _exponential(matrix: Floats) -> Floats:
    """The matrix exponential, by repeated squaring."""
    squarings = max(4, math.ceil(math.log2(max(1e-9, float(np.abs(matrix).max())) + 1))) + 6
    result = np.eye(len(matrix)) + matrix / 2.0**squarings
    for _ in range(squarings):
        result = result @ result
    return np.asarray(result)
