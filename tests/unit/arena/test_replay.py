"""The replay of recorded prices: exact bills, hidden capacity, no look ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from orchestrator.arena.replay.bound import instant_cheapest
from orchestrator.arena.replay.capacity import HOUR_MS, Pool, synthetic
from orchestrator.arena.replay.jobs import ReplayJob
from orchestrator.arena.replay.knowledge import Knowledge
from orchestrator.arena.replay.live import NO_MOVES, Live
from orchestrator.arena.replay.promise import kept
from orchestrator.arena.replay.record import Record
from orchestrator.arena.replay.simple import RULES, Simple
from orchestrator.arena.replay.simulator import Order, Policy, Simulator
from orchestrator.arena.replay.state import State
from orchestrator.market import TYPICAL, AvailabilityPoint
from orchestrator.model import GpuRequest, Job, JobSpec, Resources, TrainSpec
from providers.billing.charges import rate_card, storage_nano_usd
from providers.offer import CapacityType, Offer

NANO = 10**9
Hourly = Mapping[Offer, Sequence[tuple[float, float]]]
STARTUP_S = 360.0
SAVE_S = 35.0  # every 1000 s, because saves may take 3.5 % of the time
T0 = 1_600_000_000_000 // HOUR_MS * HOUR_MS
NEAR, FAR = "us-east-1", "eu-west-1"


def offer(region: str, capacity: CapacityType = CapacityType.SPOT, zone: str = "a") -> Offer:
    return Offer("aws", region, region + zone, "p3.2xlarge", "V100", 1, 8, 60 * NANO, capacity)


SPOT, OTHER, ON_DEMAND = offer(NEAR), offer(FAR), offer(NEAR, CapacityType.ON_DEMAND)


def record(prices: Hourly) -> Record:
    """Prices in hours after T0 and US$ per hour."""
    changes = {each: [(T0 + round(h * HOUR_MS), round(usd * NANO)) for h, usd in of] for each, of in prices.items()}
    return Record.of("small", changes, T0, T0 + 1000 * HOUR_MS)


def a_job(
    hours: float,
    *,
    size: int = 0,
    deadline_h: float | None = None,
    number: int = 0,
    start_h: float = 0,
    budget_nano_usd: int | None = None,
) -> ReplayJob:
    steps, start_ms = round(hours * 3600), T0 + round(start_h * HOUR_MS)
    spec = JobSpec(
        name=f"job-{number}",
        train=TrainSpec(f"replay:job_{number}", None, {}, "/", {}, (), steps, None),
        resources=Resources(gpus=(GpuRequest("V100", 1),)),
        deadline_at_ms=None if deadline_h is None else start_ms + round(deadline_h * HOUR_MS),
        budget_nano_usd=budget_nano_usd,
    )
    job = Job(f"job_{number}", spec, "test", start_ms, "queued")
    return ReplayJob(job, start_ms, steps, {("V100", 1): 1.0}, size, SAVE_S, hours * 3600)


def pools(record: Record, down: Hourly) -> tuple[Pool, ...]:
    """Down times in hours after T0."""
    found = []
    for offer_id in record.listing.ids:
        spells = next((of for each, of in down.items() if each.id == offer_id), ())
        found.append(Pool.of((T0 + round(a * HOUR_MS), T0 + round(b * HOUR_MS)) for a, b in spells))
    return tuple(found)


def played(record: Record, down: Hourly, policy: str, *jobs: ReplayJob) -> tuple[Simulator, Sequence[State]]:
    knowledge = Knowledge(record, TYPICAL, STARTUP_S)
    live = {"live": Live(knowledge), "still": Live(knowledge, limits=NO_MOVES), "new": Live(knowledge, known=False)}
    made: Policy = live[policy] if policy in live else Simple(knowledge, RULES[policy])
    simulator = Simulator(knowledge, pools(record, down), made, jobs, T0 + 5000 * HOUR_MS)
    return simulator, simulator.play()


def what(simulator: Simulator) -> list[str]:
    """The observations, as words."""
    return [f"{(point.at_ms - T0) / HOUR_MS:g} h {point.kind} {point.offer_id}" for point in simulator.points]


def test_a_constant_price_is_billed_to_the_nano_dollar() -> None:
    market = record({ON_DEMAND: [(-1, 3.06)]})
    job = a_job(9.9, size=7 * NANO)
    _, (state,) = played(market, {}, "static on-demand", job)
    ends_ms = T0 + (360 + 35_640 + 35 * 35) * 1000  # it starts, trains, and saves 35 times
    assert state.finished_ms == ends_ms
    machine = round(3.06 * NANO) * (ends_ms - T0) // HOUR_MS
    stored = storage_nano_usd(rate_card("aws"), [(T0, 21 * NANO)], T0, ends_ms)
    assert state.spent(ends_ms) == machine + stored


def test_a_price_change_is_billed_from_when_it_takes_effect() -> None:
    market = record({ON_DEMAND: [(-1, 3.0), (2, 1.0)]})
    _, (state,) = played(market, {}, "static on-demand", a_job(10))
    assert state.finished_ms is not None
    later_ms = state.finished_ms - T0 - 2 * HOUR_MS
    assert state.bill.total == 6 * NANO + NANO * later_ms // HOUR_MS


def test_a_refused_launch_costs_nothing_and_another_offer_is_tried_at_once() -> None:
    market = record({SPOT: [(-1, 1.0)], OTHER: [(-1, 1.01)], ON_DEMAND: [(-1, 3.0)]})
    for policy in ("greedy at losses", "live"):
        simulator, (state,) = played(market, {SPOT: [(-1, 50)]}, policy, a_job(5))
        assert what(simulator)[:2] == [f"0 h refused {SPOT.id}", f"0 h launched {OTHER.id}"], policy
        assert state.finished_ms is not None
        assert state.bill.total == round(1.01 * NANO) * (state.finished_ms - T0) // HOUR_MS


def test_static_spot_waits_for_its_pool_and_repeats_what_was_not_saved() -> None:
    market = record({SPOT: [(-1, 1.0)], OTHER: [(-1, 1.5)], ON_DEMAND: [(-1, 3.0)]})
    simulator, (state,) = played(market, {SPOT: [(2, 3.1)]}, "static spot", a_job(10.5 / 3.6))
    assert what(simulator) == [
        f"0 h launched {SPOT.id}",
        f"2 h lost {SPOT.id}",
        *(f"{at:g} h refused {SPOT.id}" for at in (2, 2.25, 2.5, 2.75, 3)),
        f"3.25 h launched {SPOT.id}",
        what(simulator)[-1],
    ]
    # In 6840 s it saved 6 times; it starts again, fetches its checkpoint, and has 4.5 intervals left.
    again_ms = round(3.25 * HOUR_MS)
    assert state.finished_ms == T0 + again_ms + (360 + 35 + 4500 + 4 * 35) * 1000
    assert state.losses == 1
    assert state.bill.total == 2 * NANO + NANO * (state.finished_ms - T0 - again_ms) // HOUR_MS


def test_a_lost_job_that_goes_elsewhere_pays_for_its_checkpoints_transfer() -> None:
    market = record({SPOT: [(-1, 1.0)], OTHER: [(-1, 1.5)], ON_DEMAND: [(-1, 3.0)]})
    simulator, (state,) = played(market, {SPOT: [(2, 50)]}, "greedy at losses", a_job(3, size=10 * NANO))
    assert f"2 h launched {OTHER.id}" in what(simulator)
    assert state.bill.settled["egress"] == 10 * TYPICAL.rate(("aws", NEAR), ("aws", FAR))


def test_a_voluntary_move_bills_both_machines_while_the_target_starts() -> None:
    market = record({SPOT: [(-1, 1.0), (10, 4.0)], OTHER: [(-1, 1.5)], ON_DEMAND: [(-1, 9.0)]})
    simulator, (state,) = played(market, {}, "daily by price", a_job(40, size=10 * NANO))
    assert f"24 h launched {OTHER.id}" in what(simulator)
    (move,) = simulator.moves["job_0"]
    assert move.before.machine is not None
    cut_ms = T0 + 24 * HOUR_MS + 360_000
    fetched_ms = cut_ms + 2 * 35_000 + round(10 * NANO / 125e6 * 1000)  # a save, a restore, 1 Gbit/s
    assert state.finished_ms is not None
    expected = (10 * NANO * HOUR_MS + 4 * NANO * (fetched_ms - T0 - 10 * HOUR_MS)) // HOUR_MS + round(1.5 * NANO) * (
        state.finished_ms - T0 - 24 * HOUR_MS
    ) // HOUR_MS
    assert state.bill.settled["machines"] == expected


def test_what_a_move_saved_is_the_difference_to_staying_in_the_same_capacity() -> None:
    market = record({SPOT: [(-1, 1.0), (10, 6.0)], OTHER: [(-1, 1.5)], ON_DEMAND: [(-1, 9.0)]})
    simulator, (moved, _) = played(market, {}, "live", a_job(39.9, size=NANO), a_job(20, number=1, start_h=5))
    _, (stayed, _) = played(market, {}, "still", a_job(39.9, size=NANO), a_job(20, number=1, start_h=5))
    assert stayed.finished_ms == T0 + (360 + 143_640 + 143 * 35) * 1000
    machine = 10 * NANO + 6 * NANO * (stayed.finished_ms - T0 - 10 * HOUR_MS) // HOUR_MS
    assert stayed.bill.settled["machines"] == machine
    (first, *_) = kept(simulator)
    assert first.job_id == "job_0"
    assert sum(each.came for each in kept(simulator) if each.job_id == "job_0") == stayed.bill.total - moved.bill.total
    assert first.came > 0
    assert first.promised == simulator.moves["job_0"][0].promise > 0


def test_the_savings_of_several_moves_add_up_to_that_of_never_moving() -> None:
    prices: Hourly = {
        SPOT: [(-1, 1.0), (10, 6.0), (60, 0.4)],
        OTHER: [(-1, 1.5), (60, 3.0)],
        ON_DEMAND: [(-1, 9.0)],
    }
    simulator, (moved,) = played(record(prices), {}, "live", a_job(200, size=NANO))
    _, (stayed,) = played(record(prices), {}, "still", a_job(200, size=NANO))
    came = [each.came for each in kept(simulator)]
    assert len(came) == len(simulator.moves["job_0"]) == 2
    assert sum(came) == stayed.bill.total - moved.bill.total


@pytest.mark.parametrize("policy", [*RULES, "live"])
def test_a_budget_is_never_passed(policy: str) -> None:
    market = record({SPOT: [(-1, 1.0), (3, 1.7)], OTHER: [(-1, 1.3)], ON_DEMAND: [(-1, 3.0)]})
    down: Hourly = {SPOT: [(2, 2.5), (7, 8)], OTHER: [(4, 6)]}
    budget = round(9.7 * NANO)
    _, (state,) = played(market, down, policy, a_job(30, size=3 * NANO, budget_nano_usd=budget))
    assert state.finished_ms is None
    assert state.paused_ms is not None
    assert state.bill.total <= budget
    if policy == "static on-demand":  # used to the last millisecond
        assert budget - state.bill.total < 3 * NANO // HOUR_MS + 2


def test_a_speed_is_unknown_until_a_job_has_run_there_for_a_while() -> None:
    market = record({SPOT: [(-1, 1.0)], ON_DEMAND: [(-1, 3.0)]})
    _, (state,) = played(market, {}, "new", a_job(5))
    # It was placed without an expectation; the first one is from when it had trained for 20 minutes.
    assert [each.at_ms for each in state.expected] == [T0 + 26 * 60_000]


@pytest.mark.parametrize("policy", [*RULES, "live"])
def test_no_policy_sees_the_future(policy: str) -> None:
    prices: Hourly = {SPOT: [(-1, 1.0), (7, 1.6)], OTHER: [(-1, 1.3), (5, 1.2)], ON_DEMAND: [(-1, 3.0)]}
    down: Hourly = {SPOT: [(3, 4), (9, 12)], OTHER: [(1, 2), (6, 6.5)]}
    jobs = (a_job(30, number=0), a_job(40, number=1, start_h=2, deadline_h=60))
    change_h = 20.0
    seen = what(played(record(prices), down, policy, *jobs)[0])
    other_prices = {each: [*of, (change_h, 0.5 if each == OTHER else 8.0)] for each, of in prices.items()}
    other_down = {SPOT: [*down[SPOT], (change_h, 50)], OTHER: [*down[OTHER], (change_h + 1, 30)]}
    changed = what(played(record(other_prices), other_down, policy, *jobs)[0])
    before = [each for each in seen if float(each.split()[0]) < change_h]
    assert before == [each for each in changed if float(each.split()[0]) < change_h]
    assert policy == "static on-demand" or seen != changed


@pytest.mark.parametrize("policy", [*RULES, "live"])
def test_a_deadline_is_kept_when_spot_capacity_vanishes(policy: str) -> None:
    market = record({SPOT: [(-1, 1.0)], OTHER: [(-1, 1.3)], ON_DEMAND: [(-1, 3.0)]})
    gone = {SPOT: [(5, 500)], OTHER: [(5.5, 500)]}
    _, (state,) = played(market, gone, policy, a_job(20, size=50 * NANO, deadline_h=30))
    assert state.finished_ms is not None
    assert state.finished_ms <= T0 + 30 * HOUR_MS


def test_the_bound_is_at_every_instant_where_a_step_is_cheapest() -> None:
    market = record({SPOT: [(-1, 1.0)], OTHER: [(-1, 2.0), (1, 0.5)], ON_DEMAND: [(-1, 3.0)]})
    cost, took_ms = instant_cheapest(market, pools(market, {OTHER: [(2, 3)]}), a_job(4))
    assert (cost, took_ms) == (3 * NANO, 4 * HOUR_MS)  # 1.0, then 0.5, 1.0 and 0.5 an hour


def test_a_pools_capacity_depends_on_the_seed_and_its_name_alone() -> None:
    small, large = record({SPOT: [(-1, 1.0)]}), record({SPOT: [(-1, 2.0)], OTHER: [(-1, 1.0)]})
    until_ms = T0 + 500 * HOUR_MS

    def pool(of: Record, seed: int) -> Pool:
        row = of.listing.row(SPOT.id)
        assert row is not None
        return synthetic(of, seed, until_ms)[row]

    assert pool(small, 1) == pool(large, 1) != pool(large, 2)


def test_a_record_with_repeated_prices_has_only_their_changes() -> None:
    market = record({SPOT: [(0, 1.0), (1, 1.0), (2, 2.0), (2, 3.0)]})
    assert market.changes == (((T0, NANO), (T0 + 2 * HOUR_MS, 3 * NANO)),)
    assert replace(market).price(0, T0 - 1) is None


class Whimsical:
    """Moves after an hour, and changes its mind when the machine is ready."""

    def __init__(self, rows: tuple[int, int]) -> None:
        self._rows = rows

    def decide(self, at_ms: int, due: Sequence[State], _points: Sequence[AvailabilityPoint]) -> Sequence[Order]:
        return [self._order(at_ms, state) for state in due]

    def _order(self, at_ms: int, state: State) -> Order:
        here, there = self._rows
        if state.machine is None:
            return Order("launch", here, at_ms + HOUR_MS)
        return Order("stay") if state.target is not None or state.moved_ms else Order("launch", there)


def test_an_aborted_move_costs_the_target_until_then_and_is_counted() -> None:
    market = record({SPOT: [(-1, 1.0)], OTHER: [(-1, 1.5)], ON_DEMAND: [(-1, 3.0)]})
    here, there = market.listing.row(SPOT.id), market.listing.row(OTHER.id)
    assert here is not None
    assert there is not None
    knowledge = Knowledge(market, TYPICAL, STARTUP_S)
    simulator = Simulator(knowledge, pools(market, {}), Whimsical((here, there)), [a_job(5)], T0 + 100 * HOUR_MS)
    (state,) = simulator.play()
    assert state.finished_ms is not None
    assert (state.aborted, len(state.moved_ms)) == (1, 1)
    tried = round(1.5 * NANO) * 360_000 // HOUR_MS
    assert state.bill.total == NANO * (state.finished_ms - T0) // HOUR_MS + tried
