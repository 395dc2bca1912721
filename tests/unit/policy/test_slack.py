"""The value of slack: what is learned of spells, and what the value table promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.arena.ticks import play
from orchestrator.policy import online
from orchestrator.policy.slack import value
from orchestrator.policy.slack.ageing import AgedRates
from orchestrator.policy.slack.alone import AloneTable
from orchestrator.policy.slack.grid import TOO_LATE
from orchestrator.policy.slack.known import KnownSpells, PoolRates
from orchestrator.policy.slack.planner import Planner
from orchestrator.policy.slack.situation import Situation, Terms
from orchestrator.policy.slack.spells import Spells
from orchestrator.policy.slack.value import ValueTable
from tests.unit.arena.small_markets import task, trace
from tests.unit.policy.pools import GATE, TICK_H, chain, problem, watched


@pytest.mark.parametrize(("every", "within"), [(1, 0.15), (4, 0.15), (8, 0.2)])
@pytest.mark.parametrize(("up_h", "down_h"), [(6.0, 2.0), (2.0, 6.0)])
def test_mean_spells_are_found_even_if_looks_are_far_apart(up_h, down_h, every, within):
    spells = watched(chain(up_h, down_h, 16_000), every)
    appears, lost = spells.ends(0)
    assert 1 / lost[0] == pytest.approx(up_h, rel=within)
    assert 1 / appears[0] == pytest.approx(down_h, rel=within)


@GATE
@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=2, max_size=30))
def test_all_time_between_looks_is_spent_there_or_away(looks):
    spells, now_h = Spells(1, TICK_H), 0.0
    spells.saw(0, True, now_h)
    for gap, there in looks:
        now_h += gap * TICK_H
        spells.saw(0, there, now_h)
    assert spells._there_spent.sum() + spells._away_spent.sum() == pytest.approx(now_h)
    assert np.isclose(spells.state(0, now_h + 3.0).sum(), 1.0)


def test_a_pool_that_was_never_seen_behaves_like_the_others():
    spells = watched(chain(1.0, 0.5, 4_000), pools=2)
    assert 1 / spells.ends(1)[1][0] == pytest.approx(1.0, rel=0.2)


def test_a_pool_seen_long_ago_tends_to_its_long_run_share():
    spells = watched(chain(3.0, 1.0, 8_000))
    last_h = spells.last_look_h(0)
    spells.saw(0, False, last_h + TICK_H)
    soon, late = (float(spells.state(0, last_h + TICK_H + hours)[-1]) for hours in (TICK_H, 50.0))
    assert soon < 0.3
    assert late == pytest.approx(0.75, abs=0.05)


def test_a_machine_that_survived_its_first_hours_is_expected_to_last_longer():
    survival = aged().survival(0, 1.0)
    assert survival[0, -1] > survival[1, -1] > survival[2, -1]
    assert np.allclose(survival.sum(axis=1), 1.0)


def aged():
    """Spells of one pool with phases by age, of which nothing is known."""
    return Spells(1, TICK_H, away_h=(1.0, 4.0), there_h=(0.5, 2.0))


def test_a_few_short_spells_make_all_spells_shorter():
    """Capacity that comes and goes every quarter of an hour: nothing was seen of older phases."""
    spells = aged()
    away, lost = spells.ends(0)
    for tick in range(12):
        spells.saw(0, tick % 2 == 0, tick * TICK_H)
    assert (spells.ends(0)[0] > 1.1 * away).all()
    assert (spells.ends(0)[1] > 1.1 * lost).all()


@pytest.mark.parametrize("hours", [0.5, 3.0, 20.0])
def test_rates_that_were_seen_for_long_are_what_was_seen(hours):
    """5,000 spells of one length: they end in the phase of that age."""
    rates, phases = AgedRates(np.array([2.0, 0.7, 0.2]), np.array([3.0, 1.0, 0.3])), np.array([0.0, 1.0, 4.0])
    ends, spent = np.zeros(3), 5_000 * np.clip(hours - phases, 0.0, [1.0, 3.0, np.inf])
    ends[np.searchsorted(phases, hours) - 1] = 5_000
    seen, nothing = spent > 0, (np.zeros(3), np.zeros(3))
    away, _ = rates.given((ends, spent), nothing)
    assert away[seen] == pytest.approx(ends[seen] / spent[seen], rel=0.02, abs=0.01)


def test_nothing_seen_leaves_the_prior():
    prior = np.array([2.0, 0.7, 0.2])
    nothing = (np.zeros(3), np.zeros(3))
    for found in AgedRates(prior, prior).given(nothing, nothing):
        assert found == pytest.approx(prior)


def test_the_age_of_capacity_is_known_while_it_is_watched():
    spells = aged()
    spells.saw(0, False, 0.0)
    for tick, (there, phase) in enumerate([(True, 3), (True, 3), (True, 4), (False, 0), (True, 3)], 1):
        spells.saw(0, there, tick * TICK_H)
        assert spells.state(0, tick * TICK_H)[phase] == pytest.approx(1.0)


@pytest.mark.parametrize(("running", "looks"), [((0, False), [0]), ((0, True), []), (None, [])])
def test_a_single_pool_is_looked_at_only_while_the_job_runs_on_demand(running, looks):
    planner = Planner(Terms(0.2, TICK_H, (3.0,), np.zeros((1, 1)), (1.0,), 1 / 60))
    assert planner.to_probe(Situation(10.0, 80, 10.0, running, 0.0, 0, (1.0,))) == looks


def test_a_tick_that_is_kept_back_is_not_counted_as_slack():
    """On demand, with that tick and no more: nothing but buying the rest is possible."""
    planner = Planner(Terms(0.2, TICK_H, (3.0,), np.zeros((1, 1)), (1.0,), 0.0))
    for tick in range(40):
        planner.spells.saw(0, True, tick * TICK_H)
    best = planner.options(Situation(10.0, 41, 10.0, (0, False), 0.0, 0, (1.0,)))[0]
    assert best.action == "stay"
    assert best.usd == pytest.approx(30.0, rel=1e-3)


def test_capacity_that_never_goes_away_costs_its_price():
    table = ValueTable(problem(), watched(np.ones(40_000, bool)))
    assert table.waiting(None, 20.0, 10.0, [np.array([0.0, 1.0])]) == pytest.approx(10.2, rel=0.02)


@pytest.mark.parametrize(("up_h", "down_h"), [(4.0, 4.0), (6.0, 2.0), (1.0, 6.0)])
@pytest.mark.parametrize("slack_h", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("unseen_h", [1.0, 4.0])
def test_a_machine_is_not_left_for_one_like_it_because_a_launch_would_be_good_news(up_h, down_h, slack_h, unseen_h):
    """The other pool has the same price and the same history; only whether it has capacity now is not known."""
    planner = Planner(Terms(0.2, TICK_H, (5.0, 5.0), np.zeros((2, 2)), (1.0, 1.0), 0.0))
    for tick, there in enumerate(chain(up_h, down_h, 400)):
        planner.spells.saw(0, bool(there), tick * TICK_H)
        if tick < 400 - unseen_h / TICK_H:
            planner.spells.saw(1, bool(there), tick * TICK_H)
    planner.spells.saw(0, True, 100.0)
    now = Situation(100.0, round((20 + slack_h) / TICK_H), 20.0, (0, True), 0.0, 0, (1.0, 1.0))
    assert planner.options(now)[0].action == "stay"


@pytest.mark.parametrize("speed", [0.5, 0.1])
def test_a_restart_takes_as_long_on_a_slow_machine_as_on_a_fast_one(speed):
    """10 h of work on the fastest machine, in a pool that never goes away: 10 / speed hours there, and one restart."""
    slow = problem(hours_left=300.0, slack_h=290.0, speed=(speed,), spot_usd=(speed / 3,), restart_h=2.0)
    table = ValueTable(slow, watched(np.ones(8_000, bool)))
    expected = (10.0 / speed + 2.0) * speed / 3
    assert table.waiting(None, 300.0, 290.0, [np.array([0.0, 1.0])]) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("hours_left", [11.0, 20.0, 60.0, 400.0])
def test_work_costs_the_same_however_long_there_is_for_it(hours_left):
    """10 h of work where capacity never goes away: the cells are where the work is, not spread over all time."""
    there = watched(np.ones(8_000, bool), pools=2)
    for tick in range(8_000):
        there.saw(1, True, tick * TICK_H)
    there.refresh()
    several = problem(
        hours_left=hours_left,
        slack_h=hours_left - 10.0,
        pools=(0, 1),
        spot_usd=(1.0, 1.0),
        speed=(1.0, 1.0),
        egress_usd=np.zeros((3, 3)),
    )
    found = ValueTable(several, there).waiting(None, hours_left, hours_left - 10.0, [np.array([0.0, 1.0])] * 2)
    assert found == pytest.approx(10.2, rel=0.03)


@GATE
@given(st.floats(2.0, 20.0), st.floats(2.0, 20.0), st.floats(0.2, 0.9), st.sampled_from([0.05, 0.2, 1.0]))
def test_the_small_table_of_one_pool_says_what_the_general_one_says(up_h, down_h, price, restart_h):
    spells = watched(chain(up_h, down_h, 400))
    usual = problem(spot_usd=(price,), on_demand_usd=(1.0,), restart_h=restart_h)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(value, "SLACKS_ALONE", 128)  # with fewer, the general table is too coarse
        general = ValueTable(usual, spells)
    small, states = AloneTable(usual, spells), [np.array([0.5, 0.5])]
    for hours_left, slack_h in ((20.0, 10.0), (15.0, 10.0), (14.5, 4.5)):
        expected = general.waiting(0, hours_left, slack_h, states)
        assert small.waiting(0, hours_left, slack_h, states) == pytest.approx(expected, rel=0.03)
        expected = general.on_demand(hours_left, slack_h, states)
        assert small.on_demand(hours_left, slack_h, states) == pytest.approx(expected, rel=0.03)
        expected = general.spot(0, np.ones(1), hours_left, slack_h, states)
        assert small.spot(0, np.ones(1), hours_left, slack_h, states) == pytest.approx(expected, rel=0.03)


@GATE
@given(
    st.floats(0.2, 20.0), st.floats(0.2, 20.0), st.floats(0.1, 0.95), st.integers(12, 60), st.sampled_from([0.0, 0.2])
)
def test_what_needs_no_table_is_what_the_table_says(up_h, down_h, price, ticks_left, overhead_h):
    """A spot machine runs in the only pool."""
    planner = Planner(Terms(0.3, TICK_H, (1.0,), np.zeros((1, 1)), (1.0,), 0.0))
    for tick, there in enumerate([*chain(up_h, down_h, 100), True]):
        planner.spells.saw(0, bool(there), tick * TICK_H)
    for work_h in (0.5, 0.5 * ticks_left * TICK_H, ticks_left * TICK_H - 1.2):
        now = Situation(100 * TICK_H, ticks_left, work_h, (0, True), overhead_h, 0, (price,))
        assert planner.best(now) == (planner.options(now)[0].action, planner.options(now)[0].pool)


def test_a_machine_bought_in_the_only_pool_is_kept_while_the_pool_is_empty():
    planner = Planner(Terms(0.2, TICK_H, (1.0,), np.zeros((1, 1)), (1.0,), 0.0))
    planner.spells.saw(0, False, 5.0)
    assert planner.best(Situation(5.0, 40, 2.0, (0, False), 0.0, 0, (0.3,))) == ("stay", 0)
    assert planner.solved == 0


def test_pools_with_the_same_egress_prices_are_one_place_of_the_checkpoint():
    egress = np.array([[0.0, 0.0, 0.5], [0.0, 0.0, 0.5], [0.5, 0.5, 0.0]])
    several = problem(pools=(0, 1, 2), spot_usd=(1.0,) * 3, speed=(1.0,) * 3, egress_usd=egress, slack_h=6.0)
    spells, states = Spells(3, TICK_H), [np.full(2, 1 / 2)] * 3
    table = ValueTable(several, spells)
    same, other = (table.waiting(pool, 20.0, 6.0, states) for pool in (0, 2))
    assert table.waiting(1, 20.0, 6.0, states) == same
    assert table.waiting(None, 20.0, 6.0, states) < min(same, other)
    assert table.knows(1)
    assert not table.knows(3)


def test_without_capacity_all_work_is_bought():
    table = ValueTable(problem(), watched(np.zeros(40_000, bool)))
    assert table.waiting(None, 20.0, 10.0, [np.array([1.0, 0.0])]) == pytest.approx(3 * 10.2, rel=0.02)


def test_without_slack_the_price_is_that_of_on_demand_and_less_is_too_late():
    table, state = ValueTable(problem(slack_h=0.0), watched(chain(3.0, 3.0, 4_000))), [np.array([0.5, 0.5])]
    assert table.on_demand(20.0, 0.0, state) == pytest.approx(60.0, rel=0.02)
    assert table.waiting(None, 20.0, 0.1, state) >= 0.99 * TOO_LATE
    assert table.waiting(None, 20.0, -0.1, state) == TOO_LATE


@GATE
@given(st.floats(0.5, 20.0), st.floats(0.5, 20.0), st.floats(0.3, 2.5), st.floats(0.0, 0.5))
def test_more_slack_never_costs_more(up_h, down_h, price, restart_h):
    table = ValueTable(problem(spot_usd=(price,), restart_h=restart_h), watched(chain(up_h, down_h, 400)))
    values = [
        table.waiting(None, 5.0 + slack_h, slack_h, [np.array([0.5, 0.5])]) for slack_h in np.linspace(0.6, 5, 30)
    ]
    assert (np.diff(values) <= 0.02).all()
    assert max(values) <= 3.0 * (5.0 + restart_h + TICK_H) + 0.1


def test_following_the_planner_costs_what_its_table_promises():
    """In markets that are as the table assumes, and known to it."""
    ticks, paid, promised = 80, [], []
    for seed in range(60):
        policy, up = online.make(), chain(4.0, 2.0, 4_000 + ticks, seed)
        job, window = task(40, ticks, 0.8, tick_ms=900_000), trace([up[-ticks:]], tick_ms=900_000).window(0, ticks)
        kept = Planner.options

        def first(self, now, up=up, kept=kept):
            if now.now_h == 0.0 and self.solved == 0:
                for tick, there in enumerate(up[:-ticks]):
                    self.spells.saw(0, bool(there), (tick - 4_000) * TICK_H)
            options = kept(self, now)
            if now.now_h == 0.0 and self.spells.seen(0, 0.0) is None:
                waits = self._table.waiting(None, 20.0, 10.0, [np.eye(4)[0]]) * self.unit_usd
                promised.append(options[0].usd if up[-ticks] else waits)
            return options

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Planner, "options", first)
            paid.append(play(policy, job, window).usd)
    assert np.mean(paid) == pytest.approx(np.mean(promised), rel=0.08)


@pytest.mark.parametrize("hours", [0.0, 0.25, 3.0, 100.0])
@pytest.mark.parametrize("method", ["step", "survival"])
def test_known_rates_give_the_probabilities_that_learned_ones_would(method, hours):
    known = KnownSpells([PoolRates(0.5, 0.1), PoolRates(2.0, 1e-6)], 0.25)
    for pool in range(2):
        exact, general = getattr(known, method)(pool, hours), getattr(Spells, method)(known, pool, hours)
        assert exact == pytest.approx(general, abs=2e-3)
        assert exact.sum(axis=1) == pytest.approx([1.0, 1.0])
