"""Histories: the joint plan of a group, made again and again until its jobs are done, in virtual time."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from orchestrator.market import Listing, Market, rooms
from orchestrator.model import GROUP_POLICIES, GroupPolicy
from orchestrator.policy import Demand, MoveLimits, Running
from orchestrator.policy.group_turns import NO_PARTS, GroupRules, GroupTurns, Later, group_turns
from orchestrator.policy.time_sharing import History
from providers.base import Covered, Quota
from tests.unit.policy.conftest import DecisionCase

TICK_S, START_S, ROUND_S, HOUR_S = 900.0, 300.0, 86_400.0, 3600.0
RATES = {"SIM-M": 1.0, "SIM-L": 2.0}
SLACK = 1.4
"""Deadlines leave so much more time than jobs take that run one after the other."""


@dataclass
class Work:
    """A job of the group, and what has happened to it (seconds since the beginning)."""

    hours: float
    due_h: float | None = None
    after: tuple[str, ...] = ()
    arrives_s: float = 0.0
    left: float = field(init=False)
    on: str | None = None
    since_s: float = 0.0
    ended_s: float | None = None
    trained: list[tuple[str, float, float]] = field(default_factory=list)
    gave_way: int = 0

    def __post_init__(self) -> None:
        self.left = self.hours * HOUR_S


class Group:
    """Jobs on machines of two kinds under quotas. A job with a turn starts where it is fastest of what is left."""

    def __init__(self, policy: GroupPolicy, work: dict[str, Work], limits: tuple[int, int]) -> None:
        self.case = DecisionCase(startup_s=START_S)
        kinds = (("slow", 1.0, "SIM-M"), ("fast", 2.5, "SIM-L"))
        self.gpu = {self.case.offer(name, dollars, gpu=gpu): gpu for name, dollars, gpu in kinds}
        self.quotas, self.limit = tuple(zip(kinds, limits, strict=True)), dict(zip(self.gpu, limits, strict=True))
        self.listing, self.work, self.policy = Listing.of(self.case.offers), work, policy
        self.now_s, self.parts = 0.0, NO_PARTS
        self.jobs = {
            name: self.case.job(
                name,
                rates=RATES,
                **({} if of.due_h is None else {"deadline_at_ms": self.case.now + round(of.due_h * 3_600_000)}),
            )
            for name, of in work.items()
        }

    def run(self) -> None:
        """Until all jobs with deadlines have ended."""
        while any(of.due_h is not None and of.ended_s is None for of in self.work.values()):
            assert self.now_s < 200 * HOUR_S, "a job never ends"
            self.step()

    def step(self) -> None:
        there = {name: of for name, of in self.work.items() if of.ended_s is None and of.arrives_s <= self.now_s}
        waits = {name for name, of in there.items() if any(self.work[first].ended_s is None for first in of.after)}
        able = [name for name in there if name not in waits]
        found = self.turns(able, sorted(waits))
        again = self.turns(able[::-1], sorted(waits, reverse=True))
        assert again.given == found.given, "the order of the jobs makes a difference"
        self.parts, given = found.parts, found.given
        for name in () if given is None else given.give_way:
            self.stop(there[name])
            there[name].gave_way += 1
        used = Counter(of.on for of in there.values() if of.on is not None)
        for name in sorted(able, key=lambda each: (given is not None and each not in given.has_turn, each)):
            shut = frozenset[str]() if given is None else given.not_now.get(name, frozenset())
            free = [offer for offer in self.gpu if offer not in shut and used[offer] < self.limit[offer]]
            if there[name].on is None and free:
                best = max(free, key=lambda offer: RATES[self.gpu[offer]])
                there[name].on, there[name].since_s = best, self.now_s
                used[best] += 1
        self.now_s += TICK_S
        for of in there.values():
            if of.on is None:
                continue
            rate = RATES[self.gpu[of.on]]
            of.left -= rate * max(min(TICK_S, self.now_s - of.since_s - START_S), 0.0)
            if of.left <= 0:
                of.ended_s = self.now_s + of.left / rate
                self.stop(of)

    def stop(self, of: Work) -> None:
        assert of.on is not None
        if self.now_s > of.since_s + START_S:
            of.trained.append((of.on, of.since_s + START_S, self.now_s))
        of.on = None

    def turns(self, able: Sequence[str], waits: Sequence[str]) -> GroupTurns:
        of_policy, at_ms = self.policy, self.case.now + round(1000 * self.now_s)
        used = Counter(of.on for of in self.work.values() if of.on is not None)
        quotas = [
            replace(Quota("", "eu-1", most, used[offer], Covered("machines", instance_types=(kind[0],))), name=kind[0])
            for offer, (kind, most) in zip(self.gpu, self.quotas, strict=True)
        ]
        prices = [replace(each, effective_at_ms=at_ms, observed_at_ms=at_ms) for each in self.case.prices]
        limits = rooms(self.listing, {"local": quotas})
        startup = {"local": START_S}
        market = Market.as_of(at_ms, offers=self.listing, prices=prices, startup_s=startup, rooms=limits)
        running = {
            name: Running(on, self.case.now + round(1000 * self.work[name].since_s))
            for name in able
            if (on := self.work[name].on) is not None
        }
        least_s = math.inf if self.now_s % ROUND_S or not self.now_s else ROUND_S / 2
        rules = GroupRules(of_policy, ROUND_S, least_s, TICK_S, MoveLimits(), 20.0)
        later = Later([self.demand(name) for name in waits], {name: self.work[name].after for name in waits})
        return group_turns(
            [self.demand(name) for name in able],
            {name: self.history(self.work[name]) for name in able},
            market,
            self.case.perf(),
            running,
            [(each.offer_id, 1) for each in running.values()],
            rules,
            self.parts,
            later,
        )

    def demand(self, name: str) -> Demand:
        of = self.work[name]
        return Demand(self.jobs[name], round(of.hours * HOUR_S), round(of.hours * HOUR_S - of.left))

    def history(self, of: Work) -> History:
        from_s = max([of.arrives_s, *(self.work[first].ended_s or 0.0 for first in of.after)])
        begun_s = of.since_s + START_S
        trains = of.on is not None and self.now_s > begun_s
        had = Counter[str]()
        for offer, since_s, to_s in of.trained:
            had[offer] += round(to_s - since_s)
        if of.on is not None and trains:
            had[of.on] += round(self.now_s - begun_s)
        last_s = self.now_s if trains else max([from_s, *(to_s for *_, to_s in of.trained)])
        age_s, turn_s = self.now_s - from_s, self.now_s - begun_s if trains else 0.0
        return History(age_s, self.now_s - last_s, age_s, had, of.on, turn_s, START_S if trains else 0.0)


def history_of(policy: GroupPolicy, seed: int) -> Group:
    """Jobs with deadlines that are easily met one after the other arrive while others have the machines."""
    random_ = random.Random(seed)
    limits = random_.choice([(1, 0), (2, 0), (1, 1)])
    free_s = [(0.0, rate) for rate, most in zip(RATES.values(), limits, strict=True) for _ in range(most)]
    arrives_s = random_.choice([0.0, 2 * HOUR_S])
    work = {"long": Work(60.0), "longer": Work(90.0)}
    ended_s: dict[str, float] = {}
    for number in range(random_.randint(2, 4)):
        hours = random_.choice([1.0, 3.0, 6.0])
        after = tuple(list(ended_s)[-1:]) if random_.random() < 0.25 else ()
        (began_s, rate), *others = sorted(free_s)
        began_s = max([began_s, *(ended_s[each] for each in after)])
        ends_s = began_s + hours * HOUR_S / rate + START_S + TICK_S
        free_s = [(ends_s, rate), *others]
        work[f"due-{number}"] = Work(hours, (arrives_s + SLACK * ends_s) / HOUR_S + 1.0, after, arrives_s)
        ended_s[f"due-{number}"] = ends_s
    return Group(policy, work, limits)


HISTORIES: list[tuple[GroupPolicy, int]] = [(policy, seed) for seed in (2, 5, 6) for policy in GROUP_POLICIES]


@pytest.mark.parametrize(("policy", "seed"), [*HISTORIES, ("first-in-first-out", 27)])
def test_deadlines_that_can_be_met_are_met_and_no_job_gives_way_again_and_again(policy: GroupPolicy, seed: int) -> None:
    group = history_of(policy, seed)
    group.run()
    late = {
        name: of.ended_s / HOUR_S - of.due_h
        for name, of in group.work.items()
        if of.due_h is not None and of.ended_s is not None and of.ended_s > of.due_h * HOUR_S
    }
    assert late == {}
    due = sum(of.due_h is not None for of in group.work.values())
    most = due + math.ceil(group.now_s / ROUND_S)  # for each of them, and at the end of each round
    gave_way = {name: of.gave_way for name, of in group.work.items()}
    assert max(gave_way.values()) <= most, gave_way
