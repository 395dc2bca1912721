"""A job of Lightning's Trainer, with one line of ours, is killed and resumed bit for bit. The real library."""

import dataclasses

import pytest

from tests.unit.trainers.conftest import Job, opened_nursery
from tests.unit.trainers.test_exact_resume import assert_equal_bits


@pytest.fixture(scope="module")
def loaded():
    yield from opened_nursery("lightning.pytorch")


@pytest.fixture
def lit(tmp_path, loaded):
    return Job(tmp_path, loaded, entry="lit:main", steps=24)


@pytest.mark.parametrize(("accumulate", "kills"), [(1, [4, 6, 14]), (3, [2, 9])])
def test_a_killed_trainer_goes_on_where_it_was(lit, tmp_path_factory, accumulate, kills):
    whole = dataclasses.replace(lit, folder=tmp_path_factory.mktemp("whole"))
    uninterrupted = whole.run(accumulate=accumulate)
    assert uninterrupted.status == "finished", uninterrupted.log
    assert len(set(uninterrupted.losses.values())) == 24
    outcomes = [lit.run(accumulate=accumulate, kill_after_step=kill) for kill in kills]
    assert {outcome.status for outcome in outcomes} == {"killed 9"}, outcomes[0].log
    outcomes.append(lit.run(accumulate=accumulate, workers=2))
    assert outcomes[-1].progress.start_step > 0
    assert_equal_bits(outcomes, uninterrupted)
