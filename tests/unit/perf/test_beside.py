"""PerfBook.beside: two jobs on one GPU, measured before predicted before typical, and whether their memory fits."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import combinations

import pytest

from orchestrator.model import Job, JobSpec, TrainSpec
from orchestrator.perf import Observation, PairMisfit, PairObservation, PerfBook, Sharing, Work, program_of

V100 = ("V100", 1)


def job(job_id: str, name: str, **args: object) -> Job:
    return Job(job_id, JobSpec(name, TrainSpec(f"{name}:f", None, args, "/w", {}, (), 100, None)), "me", 0, "running")


VISION, TEXT, SPEECH = job("job_1", "vision"), job("job_2", "text"), job("job_3", "speech")
TWIN, LARGER = job("job_4", "vision"), job("job_5", "vision", batch=64)
JOBS = (VISION, TEXT, SPEECH, TWIN, LARGER)
PROGRAMS = {each.id: program_of(each.spec.train) for each in JOBS}
ALONE = [Observation(each.id, gpu, 1, 10.0, 10_000, 0) for each in JOBS for gpu in ("K80", "P100", "V100")]


def seen(one: Job, two: Job, rate: float, other: float, *, gpu: str = "V100", at: int = 0) -> PairObservation:
    return PairObservation(one.id, two.id, gpu, 1, rate, other, 10_000, 10_000, at)


def book(*pairs: PairObservation, misfits: tuple[PairMisfit, ...] = (), at: int = 5, **more: object) -> PerfBook:
    return PerfBook.as_of(at, ALONE, programs=PROGRAMS, pairs=pairs, misfits=misfits, **more)


def width(found: Sharing) -> float:
    assert 0 < found.first.low <= found.first.value <= found.first.high
    return math.log(found.first.high / found.first.low)


def work(resident_bytes: int) -> Work:
    return Work(1e12, 0, 1e10, 500, 10**8, resident_bytes, 0, 1.0)


def test_a_measured_pair_gives_what_both_did_and_a_twin_shares_it() -> None:
    found = book(seen(VISION, TEXT, 8.0, 5.0)).beside(VISION, TEXT, V100)
    assert (found.first.value, found.second.value) == (8.0, 5.0)
    assert found.first.low < 8.0 < found.first.high < 8.5
    assert "measured together on V100 over 10000 steps" in found.first.provenance
    assert (found.fits_probability, found.fits_source) == (1.0, "tried together")
    of_twin = book(seen(VISION, TEXT, 8.0, 5.0)).beside(TWIN, TEXT, V100)
    assert of_twin == found
    turned = book(seen(VISION, TEXT, 8.0, 5.0)).beside(TEXT, VISION, V100)
    assert (turned.first, turned.second) == (found.second, found.first)


def test_without_any_pair_an_estimate_is_typical_and_says_so() -> None:
    found = book().beside(VISION, TEXT, V100)
    assert 4.0 < found.first.value < 9.0
    assert width(found) > math.log(2)
    assert "typical of 7 model families" in found.first.provenance
    assert found.fits_source.startswith("unknown: neither job")
    assert 0 < found.fits_probability < 1


def test_other_pairs_of_a_job_move_and_narrow_what_is_predicted_of_it() -> None:
    before = book().beside(VISION, TEXT, V100)
    known = book(seen(VISION, SPEECH, 9.5, 3.0), seen(VISION, SPEECH, 9.0, 4.0, gpu="P100"))
    after = known.beside(VISION, TEXT, V100)
    assert after.first.value > before.first.value
    assert width(after) < width(before)
    assert "predicted from 2 co-locations of this job" in after.first.provenance
    assert "2 of the other" in after.second.provenance
    of_family = known.beside(LARGER, TEXT, V100)
    assert before.first.value < of_family.first.value < after.first.value


def test_no_estimate_is_faster_than_the_job_alone() -> None:
    quick = [seen(VISION, other, 10.0, 10.0, gpu=gpu) for other in (SPEECH, LARGER) for gpu in ("K80", "P100", "V100")]
    known = book(*quick)
    found, alone = known.beside(VISION, TEXT, V100).first, known.estimate_kind(VISION, *V100)
    assert found.value <= alone.value
    assert found.high <= alone.high


def test_a_rate_alone_that_is_uncertain_makes_the_rate_beside_uncertain() -> None:
    sure, unsure = (
        PerfBook.as_of(1, [Observation(VISION.id, gpu, 1, 10.0, 10_000, 0)], programs=PROGRAMS)
        for gpu in ("V100", "K80")
    )
    assert width(unsure.beside(VISION, TEXT, V100)) > width(sure.beside(VISION, TEXT, V100))


def test_a_pair_seen_where_the_job_never_ran_alone_says_something_about_its_rate() -> None:
    alone = [each for each in ALONE if each.job_id != VISION.id or each.gpu != "V100"]
    pairs = [seen(VISION, TEXT, 30.0, 5.0)]
    before, after = (
        PerfBook.as_of(5, alone, programs=PROGRAMS, pairs=each).beside(VISION, SPEECH, V100) for each in ((), pairs)
    )
    assert after.first.value > before.first.value
    assert width(after) < width(before)


def test_what_is_later_is_not_known_yet() -> None:
    late, missed = seen(VISION, TEXT, 8.0, 5.0, at=6), PairMisfit(VISION.id, SPEECH.id, "V100", 1, 6)
    asked = ((VISION, TEXT), (VISION, SPEECH))
    now = book(late, misfits=(missed,)).beside_many(asked, V100)
    assert now == book().beside_many(asked, V100)
    assert book(late, misfits=(missed,), at=6).beside_many(asked, V100) != now


def test_many_pairs_at_once_are_as_each_on_its_own() -> None:
    on_k80 = [each for each in ALONE if each.gpu == "K80"]
    pairs = [seen(VISION, SPEECH, 40.0, 30.0, gpu="H100"), seen(TEXT, LARGER, 50.0, 20.0, gpu="H100")]
    known = PerfBook.as_of(5, on_k80, programs=PROGRAMS, pairs=pairs)
    narrow = [Job(f"{each.id}_bf16", replace(each.spec, precision="bf16"), "me", 0, "running") for each in JOBS]
    asked = [*combinations(JOBS, 2), *combinations(narrow, 2)]
    for pair, found in zip(asked, known.beside_many(asked, ("H100", 1)), strict=True):
        alone = known.beside(*pair, ("H100", 1))
        for one, two in ((found.first, alone.first), (found.second, alone.second)):
            assert (one.low, one.value, one.high) == pytest.approx((two.low, two.value, two.high), rel=1e-9)
        assert (found.fits_probability, found.fits_source) == (alone.fits_probability, alone.fits_source)


def test_profiles_say_whether_two_jobs_fit() -> None:
    works = {
        PROGRAMS[VISION.id]: work(5 * 10**9),
        PROGRAMS[TEXT.id]: work(6 * 10**9),
        PROGRAMS[SPEECH.id]: work(14**10),
    }
    known = book(works=works)
    small, large = known.beside(VISION, TEXT, V100), known.beside(VISION, TEXT, ("K80", 1))
    assert small.fits_probability > 0.9
    assert large.fits_probability < 0.3
    assert small.fits_source == "by the profiles of both jobs"
    assert known.beside(VISION, SPEECH, V100).fits_probability < 0.01
    assert known.beside(VISION, LARGER, V100).fits_source.startswith("unknown: one of the jobs")


def test_a_pair_that_did_not_fit_says_so_and_warns_of_others() -> None:
    missed = PairMisfit(VISION.id, TEXT.id, "V100", 1, 0)
    known = book(seen(TEXT, SPEECH, 5.0, 5.0), misfits=(missed,))
    assert known.beside(TWIN, TEXT, V100).fits_probability == 0
    assert known.beside(VISION, TEXT, ("K80", 1)).fits_probability < 0.5
    found = known.beside(VISION, SPEECH, V100)
    assert found.fits_probability < book().beside(VISION, SPEECH, V100).fits_probability
    assert found.fits_source.startswith("predicted from pairs")


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf, 1e-308, 1e308])
def test_a_rate_that_is_not_positive_is_refused(wrong: float) -> None:
    for rates in ((wrong, 1.0), (1.0, wrong)):
        with pytest.raises(ValueError, match="positive"):
            seen(VISION, TEXT, *rates)


def test_a_job_beside_itself_a_machine_without_gpus_and_an_unknown_gpu_are_refused() -> None:
    with pytest.raises(ValueError, match="itself"):
        seen(VISION, VISION, 1.0, 1.0)
    with pytest.raises(ValueError, match="itself"):
        PairMisfit(VISION.id, VISION.id, "V100", 1, 0)
    with pytest.raises(ValueError, match="itself"):
        book().beside(VISION, VISION, V100)
    with pytest.raises(ValueError, match="number of GPUs"):
        PairMisfit(VISION.id, TEXT.id, "V100", 0, 0)
    for kind in ((None, 0), ("V100", 0), ("V100", -1)):
        with pytest.raises(ValueError, match="only GPUs"):
            book().beside(VISION, TEXT, kind)
    with pytest.raises(KeyError, match="H900"):
        book().beside(VISION, TEXT, ("H900", 1))


@pytest.mark.parametrize("gpu", ["H900", None])
def test_pairs_on_hardware_that_nobody_knows_are_ignored(gpu: str) -> None:
    strange = seen(VISION, TEXT, 1.0, 1.0, gpu=gpu)
    known = book(strange, misfits=(PairMisfit(VISION.id, TEXT.id, gpu, 1, 0),))
    assert known.beside(VISION, TEXT, V100) == book().beside(VISION, TEXT, V100)
    assert known.estimate_kind(VISION, *V100).value == 10.0
    alone = [*ALONE, Observation(VISION.id, "H900", 1, 10.0, 10_000, 0)]
    with_strange = PerfBook.as_of(5, alone, programs=PROGRAMS, pairs=[seen(VISION, TEXT, 8.0, 5.0)])
    assert with_strange.beside(VISION, SPEECH, V100) == book(seen(VISION, TEXT, 8.0, 5.0)).beside(VISION, SPEECH, V100)


def test_jobs_without_a_known_program_speak_for_themselves_alone() -> None:
    known = PerfBook.as_of(5, ALONE, pairs=[seen(VISION, TEXT, 8.0, 5.0)])
    assert known.beside(VISION, TEXT, V100).first.value == 8.0
    assert "typical" in known.beside(TWIN, replace(SPEECH, id="job_9"), V100).first.provenance


def test_a_pair_that_did_not_fit_the_last_time_does_not_fit_and_one_that_sometimes_did_may_not() -> None:
    def fits(fitted_ms: list[int], missed_ms: list[int]) -> float:
        pairs = [seen(VISION, TEXT, 5.0, 5.0, at=at) for at in fitted_ms]
        missed = tuple(PairMisfit(TEXT.id, VISION.id, "V100", 1, at) for at in missed_ms)
        return book(*pairs, misfits=missed, at=99).beside(VISION, TEXT, V100).fits_probability

    assert fits([1], [2, 3, 4, 5, 6]) == 0
    assert fits([1, 2, 3], [3]) == 0
    assert fits([2], [1]) == 0.5
    assert fits(list(range(2, 21)), [1]) == pytest.approx(0.95)
    assert fits([1, 2], []) == 1


def test_a_pair_is_not_counted_on_for_more_than_the_job_alone_is_sure_of() -> None:
    alone = [each for each in ALONE if each.job_id in {TEXT.id, SPEECH.id} or each.gpu == "K80"]
    known = PerfBook.as_of(5, alone, programs=PROGRAMS, pairs=[seen(VISION, TEXT, 120.0, 5.0)])
    found, by_itself = known.beside(VISION, SPEECH, V100).first, known.estimate_kind(VISION, *V100)
    assert found.low <= by_itself.low < by_itself.value
    assert found.value <= by_itself.value
    assert found.low < found.value < found.high <= by_itself.high


def test_a_rate_beside_that_is_faster_than_the_one_alone_is_in_doubt() -> None:
    known = book(seen(VISION, TEXT, 1000.0, 5.0))
    found, alone = known.beside(VISION, TEXT, V100), known.estimate_kind(VISION, *V100)
    assert (found.first.low, found.first.value) == (alone.low, 1000.0)
    assert "in doubt" in found.first.provenance
    assert "in doubt" not in found.second.provenance


def test_evidence_in_another_order_gives_the_same_bits() -> None:
    draw = random.Random(1)
    gpus = ("K80", "P100", "V100", "T4", "A100-80GB")
    alone = [Observation(each.id, gpu, 1, draw.uniform(3, 30), 99, 0) for each in JOBS for gpu in gpus]
    every = [(one, two, gpu) for one, two in combinations(JOBS, 2) for gpu in ("H100", "L4")]
    pairs = [seen(one, two, draw.uniform(2, 9), 5.0, gpu=gpu) for one, two, gpu in draw.sample(every, 9)]

    def found() -> list[Sharing]:
        known = PerfBook.as_of(9, alone, programs=PROGRAMS, pairs=pairs)
        return [known.beside(one, two, (gpu, 1)) for one, two, gpu in every]

    before = found()
    for _ in range(5):
        draw.shuffle(alone)
        draw.shuffle(pairs)
        assert found() == before


def test_where_many_pairs_were_measured_every_job_keeps_its_best_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    sure = [seen(VISION, other, 9.0, 9.0) for other in (LARGER, SPEECH)]
    unsure = replace(seen(TEXT, LARGER, 2.0, 2.0), steps=10, other_steps=10)
    before = book(*sure).beside(TEXT, SPEECH, V100).first.value
    monkeypatch.setattr("orchestrator.perf.sharing._MOST_CELLS", 4)
    assert book(*sure, unsure).beside(TEXT, SPEECH, V100).first.value < 0.9 * before
