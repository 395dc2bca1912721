"""Throughput: measured before scaled before prior, each with an honest interval."""

from __future__ import annotations

import pytest

from orchestrator.model import Estimate, Job, JobSpec, TrainSpec
from orchestrator.perf import Observation, PerfBook
from providers.offer import CapacityType, Offer

JOB = Job("job_1", JobSpec("j", TrainSpec("m:f", None, {}, "/w", {}, (), 100, None)), "me", 0, "running")


def estimate(observations: list[Observation], gpu: str | None, count: int = 1, at: int = 1000) -> Estimate:
    offer = Offer("local", "r", "z", "t", gpu, count, 4, 10**10, CapacityType.SPOT)
    return PerfBook.as_of(at, observations).estimate(JOB, offer)


def seen(
    gpu: str | None, rate: float, steps: int = 100, *, count: int = 1, at: int = 0, job: str = "job_1"
) -> Observation:
    return Observation(job, gpu, count, rate, steps, at)


def test_a_measured_kind_gives_total_steps_over_total_time():
    found = estimate([seen("SIM-M", 1.0, 100), seen("SIM-M", 2.0, 100)], "SIM-M")
    assert found.value == pytest.approx(200 / 150)
    assert found.provenance == "measured on SIM-M over 200 steps"


def test_the_interval_narrows_with_steps_and_widens_with_scatter():
    def width(*observations: Observation) -> float:
        found = estimate(list(observations), "SIM-M")
        assert found.low < found.value < found.high
        return found.high / found.value - 1

    assert width(seen("SIM-M", 1.0, 1)) == pytest.approx(0.5)
    assert width(seen("SIM-M", 1.0, 10_000)) == pytest.approx(0.0347)
    assert width(seen("SIM-M", 0.5, 10_000), seen("SIM-M", 1.5, 10_000)) > 0.5


def test_another_kind_is_scaled_by_the_ratio_of_peaks_from_the_nearest_measured_one():
    found = estimate([seen("SIM-S", 1.0), seen("SIM-M", 3.0)], "SIM-L")
    assert found.value == pytest.approx(6.0)
    assert found.provenance == "scaled from SIM-M (measured over 100 steps) by FP32 peak"


def test_real_gpus_scale_with_far_less_certainty_than_simulated_ones():
    real = estimate([seen("K80", 1.0, 10_000)], "V100")
    assert real.value == pytest.approx(15.7 / 4.1)
    # Measured ratios of 26 jobs span 1.60x to 9.60x.
    assert real.low == pytest.approx(1.54, abs=0.01)
    assert real.high > 9.4
    simulated = estimate([seen("SIM-S", 1.0, 10_000)], "SIM-L")
    assert simulated.high / simulated.low < 1.4


def test_several_gpus_count_as_their_sum():
    assert estimate([seen("V100", 1.0)], "V100", 8).value == pytest.approx(8.0)


def test_without_any_observation_a_prior_keeps_the_ratios_and_says_so():
    slow, fast = estimate([], "SIM-S"), estimate([], "SIM-L")
    assert fast.value == pytest.approx(4 * slow.value)
    assert fast.provenance.startswith("prior: not measured yet")
    assert fast.high / fast.low == pytest.approx(100)


def test_other_jobs_and_later_observations_tell_nothing():
    assert estimate([seen("SIM-M", 1.0, job="job_2"), seen("SIM-M", 1.0, at=1001)], "SIM-M") == estimate([], "SIM-M")


def test_all_machines_without_a_gpu_are_one_kind():
    assert estimate([seen(None, 2.0, count=0)], None, 0).provenance == "measured on CPU over 100 steps"
    assert estimate([seen(None, 1.0, count=0)], "SIM-L").value == pytest.approx(10)


@pytest.mark.parametrize(("rate", "steps"), [(0.0, 1), (-1.0, 1), (float("nan"), 1), (float("inf"), 1), (1.0, 0)])
def test_a_rate_or_a_count_that_is_not_positive_is_refused(rate, steps):
    with pytest.raises(ValueError, match="positive"):
        seen("SIM-M", rate, steps)
