"""Time sharing: which jobs have the user's own machines until the next round. Pure.

Money can rent more machines, but not more owned ones. If more jobs want owned machines than there are, the jobs take
turns (groups.time_slices), with a checkpoint in between. Jobs that run on rented machines take no part. A turn is never
so short that more than about a tenth of it would go into saving, starting a machine and restoring.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.market import Market, rooms_without, units_taken
from orchestrator.perf import PerfBook
from orchestrator.policy.demand import Demand, MoveLimits
from orchestrator.policy.groups.problem import Floats
from orchestrator.policy.groups.rounds import Bools, Room
from orchestrator.policy.groups.time_slices import Contender, Fairness, fair_shares, in_whole_machines, turns
from orchestrator.policy.projects import weighted
from orchestrator.policy.ranking.eligible import NONE, Filter, Filters, RejectionReason

TAKEN = (
    NONE,
    *map(np.int8, (RejectionReason.MACHINES_IN_USE, RejectionReason.QUOTA_IN_USE, RejectionReason.NO_CAPACITY)),
)
"""The rejection reasons of an offer that a job could use if other jobs did not: none, or only that machines are
taken."""
GAPS = 9.0
"""A job trains at least this many times as long as its change of machines takes before its turn is over."""


@dataclass(frozen=True, slots=True)
class History:
    """The machine time that a job has had so far, in seconds of market time.

    `age_s` is for how long it has wanted a machine, and `waited_s` is the time since it last trained. Within the last
    rounds (groups.time_slices.WINDOW), `there_s` is for how long it took part, and `had_s` for how long it trained on
    each offer. `on` is the offer of the machine that it has or is getting, `turn_s` for how long it has trained there,
    and `start_s` how long it took to begin there, from the request for the machine.
    """

    age_s: float
    waited_s: float
    there_s: float
    had_s: Mapping[str, float]
    on: str | None = None
    turn_s: float = 0.0
    start_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Given:
    """The turns until the next round.

    - `has_turn`: the jobs that run or may start.
    - `not_now`: by job, the offers that it must leave to others.
    - `give_way`: the jobs that run on an offer which they must leave to others.
    - `share`: by job, the planned share of the time of a machine, as far as whole machines allow.
    - `machines`: the most jobs, or machines, that have turns at a time.
    """

    has_turn: tuple[str, ...]
    not_now: Mapping[str, frozenset[str]]
    give_way: tuple[str, ...]
    share: Mapping[str, float]
    machines: int


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of time sharing.

    `held` are the machines that these jobs have, and those that are being released, as pairs of (offer id, how many).
    `most_machines` and `most_usd_per_h` are the room that the installation's limits leave in addition to all other
    machines. A turn may end once it has lasted `least_s`.
    """

    fairness: Fairness
    round_s: float
    most_machines: int
    most_usd_per_h: float
    held: Sequence[tuple[str, int]]
    least_s: float


def take_turns(
    demands: Sequence[Demand], history: Mapping[str, History], market: Market, perf: PerfBook, rules: Rules
) -> Given | None:
    """The turns of the jobs that have an owned machine, or that have none and could use one.

    None if there is a machine for each of them and no job has to move for that.
    """
    ways = _ways(market)
    if not ways:
        return None
    room = _room(market, ways, rules)
    way_of = {market.ids[row]: number for number, rows in enumerate(ways) for row in rows}
    filters = Filters(market, MoveLimits())
    contenders = []
    for demand in sorted(demands, key=lambda each: each.job.id):
        past = history[demand.job.id]
        if past.on is not None and past.on not in way_of:
            continue  # it runs on a rented machine
        filtering = filters.of(demand.nodes)
        found = _contender(demand, past, filtering, ways, way_of, room, perf, rules)
        if found is not None:
            contenders.append(found)
    if not contenders:
        return None
    contenders = weighted(contenders, demands)
    shares = fair_shares(contenders, room, rules.fairness)
    way = turns(contenders, shares, room, rules.round_s)
    instead = _instead(room)
    may = {each.job_id: instead[way[each.job_id]] for each in contenders if each.job_id in way}
    not_now = {
        each.job_id: frozenset(offer_id for offer_id, at in way_of.items() if at not in may.get(each.job_id, ()))
        for each in contenders
    }
    holding = [each for each in contenders if each.holds is not None]
    give_way = tuple(each.job_id for each in holding if each.holds not in may.get(each.job_id, ()))
    if len(way) == len(contenders) and not give_way:
        return None
    parts = in_whole_machines(shares, np.array([float(each.takes) for each in contenders]), room)
    share = dict(zip((each.job_id for each in contenders), parts.tolist(), strict=True))
    return Given(tuple(sorted(way)), not_now, give_way, share, int(_machines(room)))


def _ways(market: Market) -> list[list[int]]:
    """The rows of owned machines, grouped: the rows of a group (a way) are under the same limits and of the same
    kind."""
    found: dict[object, list[int]] = defaultdict(list)
    for row in np.flatnonzero(market.owned).tolist():
        names = tuple(sorted(repr(each.name) for each in market.rooms[row]))
        found[names, int(market.listing.kind[row])].append(row)
    return list(found.values())


def _room(market: Market, ways: Sequence[Sequence[int]], rules: Rules) -> Room:
    """How many machines these jobs can have on each way. Machines that other jobs use, or that refuse to start now, do
    not count."""
    held = [(row, count) for offer, count in rules.held if (row := market.row(offer)) is not None]
    rooms = rooms_without(market.rooms, {name: -units for name, units in units_taken(market.rooms, held).items()})
    limits = {each.name: min(each.units, each.quota.limit) for rows in ways for each in rooms[rows[0]]}
    covers = [[any(each.name == name for each in rooms[rows[0]]) for rows in ways] for name in limits]
    prices = [float(market.price[rows].max(initial=0)) / 1e9 for rows in ways]
    shut = [number for number, rows in enumerate(ways) if market.backed_off[rows].all()]
    each = np.array([*covers, [True] * len(ways), prices, *np.eye(len(ways))[shut]], dtype=float)
    left = [sum(count for row, count in held if row in ways[number]) for number in shut]
    most = [*limits.values(), rules.most_machines, max(rules.most_usd_per_h, 0.0), *left]
    limiting = (each > 0).any(axis=1)
    return Room(each[limiting], np.array(most, dtype=float)[limiting])


def _instead(room: Room) -> list[frozenset[int]]:
    """For each way, the ways that a job may use in its turn there: those that count in no other limit."""
    covers = room.each > 0
    ways = range(covers.shape[1])
    return [frozenset(other for other in ways if (covers[:, other] <= covers[:, way]).all()) for way in ways]


def _machines(room: Room) -> float:
    """The most machines that all ways have together."""
    of_all = (room.each > 0).all(axis=1)
    return float(np.floor(room.most[of_all] / room.each[of_all].min(axis=1)).min(initial=room.machines.sum()))


def _contender(
    demand: Demand,
    past: History,
    filtering: Filter,
    ways: Sequence[Sequence[int]],
    way_of: Mapping[str, int],
    room: Room,
    perf: PerfBook,
    rules: Rules,
) -> Contender | None:
    """The contender of a job; None if no owned machine can run it."""
    market, spec = filtering.market, demand.job.spec
    reasons = filtering(
        spec,
        None,
        shortfalls=perf.shortfalls(demand.job, market.listing.kinds),
        home=demand.home(past.on),
        excluded=[offer_id for offer_id, _ in demand.excluded],
        target=None,
        setup_s=demand.setup_s,
        rent=demand.rent,
    ).rejection_reasons
    holds = None if past.on is None else way_of[past.on]
    able = np.array([any(reasons[row] in TAKEN for row in rows) for rows in ways])
    if holds is not None:
        able[holds] = True
    able &= room.machines >= demand.nodes
    if not able.any():
        return None
    kinds = [market.listing.kinds[int(market.listing.kind[rows[0]])] for rows in ways]
    rate = np.array([each.value for each in perf.estimate_kinds(demand.job, kinds)])
    keeps = past.turn_s < max(rules.least_s, least_turn_s(demand, past))
    return contender(demand, past, np.where(able, rate, 0.0), way_of, keeps=keeps)


def contender(
    demand: Demand, past: History, rate: Floats, way_of: Mapping[str, int], *, keeps: bool, urgent: Bools | None = None
) -> Contender:
    """The contender of a job with this history.

    `rate` (ways,) is in steps/s. `way_of` is the way of each offer, by id. The job can only keep its turn if it has one
    on one of these ways.
    """
    had_s = np.zeros(len(rate))
    for offer_id, seconds in past.had_s.items():
        if offer_id in way_of:
            had_s[way_of[offer_id]] += seconds
    holds = None if past.on is None else way_of.get(past.on)
    return Contender(
        job_id=demand.job.id,
        rate=rate,
        takes=demand.nodes,
        steps=float(max((demand.total_steps or 0) - demand.done_steps, 1)),
        done=float(demand.done_steps),
        age_s=past.age_s,
        waited_s=past.waited_s,
        had_s=had_s,
        there_s=past.there_s,
        holds=holds,
        keeps=keeps and holds is not None,
        weight=demand.job.weight,
        urgent=urgent,
    )


def least_turn_s(demand: Demand, past: History) -> float:
    """How long the turn of a job must last (market seconds) to be worth a change of machines."""
    return GAPS * (demand.gap_s + past.start_s)
