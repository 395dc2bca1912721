"""Laws of the throughput model: order never matters, evidence narrows, units do not matter, intervals are honest."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.model import Job, JobSpec, TrainSpec
from orchestrator.perf import FITTED, Cell, Observation, PerfBook, Posterior, Row, fit, student_quantile

JOB = Job("job_1", JobSpec("j", TrainSpec("m:f", None, {}, "/w", {}, (), 1, None)), "ada", 0, "running")
KINDS = [("K80", 1), ("P100", 1), ("V100", 1), ("A100-80GB", 1), ("V100", 4)]
GPUS = ("K80", "P100", "V100")
FEW = settings(max_examples=25)

observations = st.lists(
    st.builds(
        Observation,
        st.just("job_1"),
        st.sampled_from(GPUS),
        st.sampled_from([1, 2]),
        st.floats(0.01, 1000),
        st.integers(1, 10_000),
        st.integers(0, 10),
    ),
    max_size=12,
)


@FEW
@given(observations, st.randoms(use_true_random=False))
def test_the_order_of_observations_is_irrelevant_and_every_interval_holds_its_value(seen, order):
    book = PerfBook.as_of(10, seen)
    order.shuffle(seen)
    again = PerfBook.as_of(10, seen)
    for kind in KINDS:
        found = book.estimate_kind(JOB, *kind)
        assert 0 < found.low < found.value < found.high < math.inf
        assert again.estimate_kind(JOB, *kind) == found
    assert repr(book.joint(JOB, KINDS)) == repr(again.joint(JOB, KINDS))


@FEW
@given(st.floats(0.01, 1000), st.integers(1, 10_000), st.sampled_from(GPUS))
def test_more_steps_at_the_same_rate_narrow_every_interval(rate, steps, gpu):
    def widths(times: int) -> list[float]:
        book = PerfBook.as_of(10, [Observation("job_1", gpu, 1, rate, steps * times, 0)])
        found = [book.estimate_kind(JOB, *kind) for kind in KINDS]
        return [each.high / each.low for each in found]

    assert all(more <= less * (1 + 1e-9) for less, more in zip(widths(1), widths(4), strict=True))


@FEW
@given(observations.filter(len), st.floats(0.1, 10))
def test_what_is_measured_scales_with_the_unit_of_a_step(seen, factor):
    scaled = [
        Observation(each.job_id, each.gpu, each.gpu_count, each.steps_per_s * factor, each.steps, each.at_ms)
        for each in seen
    ]
    kind = (seen[0].gpu, seen[0].gpu_count)
    before, after = (PerfBook.as_of(10, each).estimate_kind(JOB, *kind) for each in (seen, scaled))
    assert after.value == pytest.approx(before.value * factor)
    assert after.low == pytest.approx(before.low * factor)


@FEW
@given(st.sampled_from(GPUS), st.floats(8, 20), st.floats(1, 5), st.sampled_from([-1, 1]))
def test_beyond_the_range_of_the_tables_predictions_scale_with_the_unit_of_a_step(gpu, log_rate, more, sign):
    def rates(log: float) -> Posterior:
        return FITTED.posterior(KINDS, [Cell((gpu, 1), sign * log, 1e-3)])

    here, there = rates(log_rate), rates(log_rate + more)
    assert there.mean - sign * more == pytest.approx(here.mean)
    assert there.scale == pytest.approx(here.scale)


@FEW
@given(st.sampled_from(GPUS), st.floats(-4, 4), st.floats(0.01, 3))
def test_a_faster_measurement_predicts_faster_everywhere(gpu, log_rate, more):
    slow, fast = (FITTED.posterior(KINDS, [Cell((gpu, 1), log, 1e-3)]) for log in (log_rate, log_rate + more))
    assert (fast.mean > slow.mean).all()


def _draw(families: int, seed: int) -> list[Row]:
    """Tables of jobs, one per family, as the fitted model says they are."""
    random = np.random.default_rng(seed)
    kinds = [(gpu, 1) for gpu in GPUS]
    posterior = FITTED.posterior(kinds)
    logs = random.multivariate_normal(posterior.mean, posterior.scale, families)
    return [
        Row(f"job {n}", f"family {n}", gpu, 1, math.exp(value))
        for n, row in enumerate(logs)
        for gpu, value in zip(GPUS, row, strict=True)
    ]


def test_intervals_of_jobs_drawn_from_the_model_cover_nine_of_ten():
    table, unseen = _draw(15, 1), _draw(300, 2)
    model = fit(table)
    inside = []
    for at in range(0, len(unseen), len(GPUS)):
        rows = unseen[at : at + len(GPUS)]
        posterior = model.posterior(
            [row.kind for row in rows], [Cell(rows[0].kind, math.log(rows[0].steps_per_s), 1e-4)]
        )
        inside += [
            abs(math.log(row.steps_per_s) - posterior.mean[i]) <= posterior.spread(i) for i, row in enumerate(rows) if i
        ]
    assert 0.85 <= np.mean(inside) <= 0.96


@settings(max_examples=10)
@given(st.integers(0, 1000), st.randoms(use_true_random=False))
def test_a_fit_depends_on_the_rows_and_not_on_their_order(seed, order):
    table = _draw(5, seed)
    first = fit(table)
    order.shuffle(table)
    again = fit(table)
    assert again.spreads == first.spreads
    assert again.mean.tobytes() == first.mean.tobytes()
    assert again.covariance.tobytes() == first.covariance.tobytes()


def test_learning_from_another_table_moves_the_model_towards_it_and_makes_it_surer():
    rows = [
        Row(f"job {n}", f"family {n}", gpu, 1, rate) for n in range(6) for gpu, rate in (("T4", 10.0), ("V100", 11.0))
    ]
    learned = FITTED.learn(rows)
    evidence = [Cell(("V100", 1), math.log(11.0), 1e-4)]
    before, after = (model.posterior([("T4", 1)], evidence) for model in (FITTED, learned))
    assert abs(after.mean[0] - math.log(10)) < abs(before.mean[0] - math.log(10)) / 2
    assert after.spread(0) < before.spread(0)
    assert learned.families == 13


@pytest.mark.parametrize(("dof", "exact"), [(5, 2.015048), (7, 1.894579), (30, 1.697261), (math.inf, 1.644854)])
def test_quantiles_of_student(dof, exact):
    assert student_quantile(0.95, dof) == pytest.approx(exact, rel=1e-3)
    assert student_quantile(0.05, dof) == pytest.approx(-exact, rel=1e-3)


def test_quantiles_that_would_be_wrong_and_empty_tables_are_refused():
    with pytest.raises(ValueError, match="at least 3 degrees"):
        student_quantile(0.95, 2)
    with pytest.raises(ValueError, match="no rows"):
        fit([])
    for rate, count in ((0.0, 1), (-1.0, 1), (math.nan, 1), (math.inf, 1), (1.0, 0)):
        with pytest.raises(ValueError, match="must be positive"):
            Row("job", "family", "V100", count, rate)
    with pytest.raises(KeyError, match="H900"):
        fit([Row("job", "family", "H900", 1, 1.0)])


def test_learning_one_rate_is_conditioning_and_a_certain_one_changes_nothing():
    posterior = Posterior(np.zeros(2), np.array([[1.0, 0.5], [0.5, 1.0]]), 5.0)
    given_one = posterior.condition(0, 2.0)
    assert given_one.mean.tolist() == [2.0, 1.0]
    assert given_one.scale[1, 1] == pytest.approx(0.75 * (5 + 4) / 6)
    assert given_one.spread(0) == 0
    assert given_one.condition(0, 3.0) is given_one
