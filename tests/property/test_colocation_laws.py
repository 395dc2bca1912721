"""Laws of rates beside another job: no order matters, evidence narrows, intervals hold what was measured."""

from __future__ import annotations

import math
import tracemalloc
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.model import Job, JobSpec, TrainSpec
from orchestrator.perf import FITTED_COLOCATION, Observation, PairCell, Pairing, PairMisfit, PairObservation, PerfBook
from orchestrator.perf.colocation import untaught
from orchestrator.perf.colocation_fit import calibrated_colocation, fit_colocation
from orchestrator.perf.pairings import Effects

FEW = settings(max_examples=20)
NAMES, GPUS = ("a", "b", "c", "d"), ("K80", "V100", "A100-80GB")


def job(name: str) -> Job:
    return Job(name, JobSpec(name, TrainSpec(f"{name}:f", None, {}, "/w", {}, (), 1, None)), "ada", 0, "running")


JOBS = {name: job(name) for name in NAMES}
ALONE = [Observation(name, gpu, 1, 10.0, 10_000, 0) for name in NAMES for gpu in GPUS]
pairs_of_jobs = st.permutations(NAMES).map(lambda names: names[:2])
rates = st.floats(0.5, 10)
pair_observations = st.lists(
    st.builds(
        lambda names, gpu, one, two, steps, at: PairObservation(names[0], names[1], gpu, 1, one, two, steps, steps, at),
        pairs_of_jobs,
        st.sampled_from(GPUS),
        rates,
        rates,
        st.integers(1, 10_000),
        st.integers(0, 10),
    ),
    max_size=8,
)
misfits = st.lists(
    st.builds(
        lambda names, gpu, at: PairMisfit(names[0], names[1], gpu, 1, at),
        pairs_of_jobs,
        st.sampled_from(GPUS),
        st.integers(0, 10),
    ),
    max_size=3,
)


def turned(seen: PairObservation) -> PairObservation:
    return PairObservation(
        seen.other_id,
        seen.job_id,
        seen.gpu,
        seen.gpu_count,
        seen.other_steps_per_s,
        seen.steps_per_s,
        seen.other_steps,
        seen.steps,
        seen.at_ms,
    )


@FEW
@given(pair_observations, misfits, st.randoms(use_true_random=False), st.sampled_from(GPUS))
def test_no_order_matters_and_every_interval_is_in_order(seen, missed, order, gpu):
    asked = [(JOBS["a"], JOBS["b"]), (JOBS["b"], JOBS["a"]), (JOBS["c"], JOBS["d"])]
    found = PerfBook.as_of(10, ALONE, pairs=seen, misfits=missed).beside_many(asked, (gpu, 1))
    seen = [turned(each) for each in seen]
    order.shuffle(seen)
    order.shuffle(missed)
    again = PerfBook.as_of(10, ALONE, pairs=seen, misfits=missed).beside_many(asked, (gpu, 1))
    for one, two in zip(found, again, strict=True):
        assert 0 <= one.fits_probability <= 1
        assert one.fits_probability == pytest.approx(two.fits_probability, abs=1e-6)
        for before, after in ((one.first, two.first), (one.second, two.second)):
            assert 0 < before.low <= before.value <= before.high < math.inf
            assert before.provenance == after.provenance
            assert (before.value, before.low, before.high) == pytest.approx((after.value, after.low, after.high))
    assert found[0].first.value == pytest.approx(found[1].second.value)


@FEW
@given(rates, rates, st.integers(1, 1000), st.integers(2, 20))
def test_more_steps_never_widen_a_measured_pair_and_its_interval_holds_its_rate(one, two, steps, times):
    def interval(count: int) -> tuple[float, float]:
        seen = PairObservation("a", "b", "V100", 1, one, two, count, count, 0)
        found = PerfBook.as_of(1, ALONE, pairs=[seen]).beside(JOBS["a"], JOBS["b"], ("V100", 1)).first
        assert found.low <= one <= found.high
        return found.low, found.high

    (low, high), (later_low, later_high) = interval(steps), interval(steps * times)
    assert later_high / later_low <= high / low * (1 + 1e-9)


@FEW
@given(pair_observations, misfits, rates)
def test_other_pairs_change_nothing_about_a_measured_one(others, missed, rate):
    mine = PairObservation("a", "b", "V100", 1, rate, 5.0, 1000, 1000, 0)
    others = [each for each in others if (each.gpu, {each.job_id, each.other_id}) != ("V100", {"a", "b"})]
    few, many = (
        PerfBook.as_of(10, ALONE, pairs=[mine, *more], misfits=missed).beside(JOBS["a"], JOBS["b"], ("V100", 1))
        for more in ([], others)
    )
    assert few == many


@FEW
@given(pair_observations, misfits, st.integers(0, 10))
def test_an_estimate_never_uses_the_future(seen, missed, now):
    past = PerfBook.as_of(
        now,
        ALONE,
        pairs=[each for each in seen if each.at_ms <= now],
        misfits=[each for each in missed if each.at_ms <= now],
    )
    asked = [(JOBS["a"], JOBS["b"]), (JOBS["a"], JOBS["c"])]
    assert PerfBook.as_of(now, ALONE, pairs=seen, misfits=missed).beside_many(asked, ("V100", 1)) == past.beside_many(
        asked, ("V100", 1)
    )


def cells(seed: int, families: int = 4, effects: Effects | None = None) -> list[PairCell]:
    """Rates of pairs of jobs, two of each family, drawn from a model."""
    names = [(f"{family}{number}", family) for family in "abcdefgh"[:families] for number in (1, 2)]
    where = [
        Pairing(*one, *two, (gpu, 1), math.log(10), math.log(10))
        for one, two, gpu in product(names, names, ("K80", "P100"))
    ]
    drawn = untaught(effects or Effects()).posterior(where)
    random = np.random.default_rng(seed)
    logs = random.multivariate_normal(drawn.mean, drawn.scale)
    return [PairCell(of, float(log)) for of, log in zip(where, logs, strict=True)]


def test_intervals_of_pairs_drawn_from_the_model_cover_nine_of_ten():
    inside = []
    for seed in range(6):
        drawn = cells(seed)
        known = [cell for number, cell in enumerate(drawn) if number % 3 == 0]
        rest = [cell for number, cell in enumerate(drawn) if number % 3]
        posterior = untaught(Effects()).posterior([cell.of for cell in rest], known)
        inside += [abs(cell.log_rate - posterior.mean[i]) <= posterior.spread(i) for i, cell in enumerate(rest)]
    assert 0.85 <= np.mean(inside) <= 0.96


def test_a_fit_depends_on_the_cells_and_not_on_their_order_and_finds_who_differs():
    drawn = cells(1, families=3, effects=Effects(sensitivity=0.6, demand=0.02))
    first = fit_colocation(drawn)
    again = fit_colocation(drawn[::-1])
    assert again.effects == first.effects
    assert again.mean.tobytes() == first.mean.tobytes()
    assert first.effects.sensitivity > 2 * first.effects.demand
    assert first.families == 3
    calibrated = calibrated_colocation(first, drawn)
    assert calibrated.calibration > 0
    scale = calibrated.posterior([drawn[0].of]).scale / first.posterior([drawn[0].of]).scale
    assert scale.item() == pytest.approx(calibrated.calibration**2)


def test_a_gpu_on_which_jobs_differ_more_has_wider_intervals():
    usual = math.log(10 * 0.65)
    wild = [
        PairCell(cell.of, usual + (cell.log_rate - usual) * (4 if cell.of.kind[0] == "P100" else 1))
        for cell in cells(2)
    ]
    missing = [Pairing("new", "new", "a1", "a", (gpu, 1), math.log(10), math.log(10)) for gpu in ("K80", "P100")]
    posterior = untaught(Effects()).posterior(missing, wild)
    assert posterior.spread(1) > 1.5 * posterior.spread(0)


def test_the_fitted_model_knows_that_long_steps_are_slowed_down_less():
    slow, fast = (Pairing("j", "f", "o", "g", ("K80", 1), math.log(rate), math.log(10)) for rate in (1.0, 50.0))
    posterior = FITTED_COLOCATION.posterior([slow, fast])
    assert posterior.mean[0] - slow.log_alone > posterior.mean[1] - fast.log_alone


def test_bad_pairings_and_tables_are_refused():
    for wrong in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match="positive and finite"):
            Pairing("a", "a", "b", "b", ("V100", 1), wrong, 0.0)
        with pytest.raises(ValueError, match="positive and finite"):
            PairCell(Pairing("a", "a", "b", "b", ("V100", 1), 0.0, 0.0), wrong)
    with pytest.raises(ValueError, match="only GPUs"):
        Pairing("a", "a", "b", "b", ("V100", 0), 0.0, 0.0)
    with pytest.raises(KeyError, match="H900"):
        Pairing("a", "a", "b", "b", ("H900", 1), 0.0, 0.0)
    with pytest.raises(ValueError, match="no cells"):
        fit_colocation([])
    with pytest.raises(ValueError, match="two families"):
        calibrated_colocation(FITTED_COLOCATION, cells(0, families=1))


def test_pairs_predicted_one_by_one_are_as_those_predicted_together(monkeypatch):
    drawn = cells(3)
    wanted, conditioned = [cell.of for cell in drawn[::2]], untaught(Effects()).given(drawn[1::2])
    together = conditioned.posterior(wanted)
    monkeypatch.setattr("orchestrator.perf.colocation._BLOCK", 7)
    apart = conditioned.marginals(wanted)
    assert apart.mean == pytest.approx(together.mean)
    assert apart.spread == pytest.approx([together.spread(index) for index in range(len(wanted))])
    assert not len(conditioned.marginals([]).mean)


def test_the_memory_to_predict_many_pairs_does_not_grow_with_the_square_of_their_number():
    drawn = cells(4)
    wanted = [cell.of for cell in drawn] * 40
    tracemalloc.start()
    untaught(Effects()).given(drawn).marginals(wanted)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < len(wanted) ** 2  # one matrix of all pairs has eight times as many
