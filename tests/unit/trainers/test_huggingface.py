"""A job of Hugging Face's Trainer, with one line of ours, is killed and resumed bit for bit. The real libraries."""

import dataclasses

import pytest

from tests.unit.trainers.conftest import Job, opened_nursery
from tests.unit.trainers.test_exact_resume import assert_equal_bits


@pytest.fixture(scope="module")
def loaded():
    yield from opened_nursery("transformers.trainer")


@pytest.fixture
def job(tmp_path, loaded):
    return Job(tmp_path, loaded, steps=24)


def resumed(job, folder, entry, kills, last=None, **args):
    job = dataclasses.replace(job, entry=entry)
    whole = dataclasses.replace(job, folder=folder)
    uninterrupted = whole.run(**args)
    assert uninterrupted.status == "finished", uninterrupted.log
    assert len(set(uninterrupted.losses.values())) == 24
    outcomes = [job.run(**args, kill_after_step=kill) for kill in kills]
    assert {outcome.status for outcome in outcomes} == {"killed 9"}, outcomes[0].log
    outcomes.append(job.run(**args, **(last or {})))
    assert outcomes[-1].status == "finished", outcomes[-1].log
    assert outcomes[-1].progress.start_step > 0
    assert_equal_bits(outcomes, uninterrupted)


@pytest.mark.parametrize(("accumulate", "kills"), [(1, [4, 6, 15]), (4, [3, 8])])
def test_a_killed_trainer_goes_on_where_it_was(job, tmp_path_factory, accumulate, kills):
    folder = tmp_path_factory.mktemp("whole")
    resumed(job, folder, "hugging:main", kills, {"workers": 2}, accumulate=accumulate)


def test_a_loop_with_accelerate_needs_only_attach(job, tmp_path_factory):
    resumed(job, tmp_path_factory.mktemp("whole"), "hugging:accelerated", [9])
