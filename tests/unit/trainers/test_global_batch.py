"""A job that moves to another number of processes, and to smaller batches, trains the same. Real processes, gloo."""

import pytest

from tests.unit.trainers.gang import Gang

LEG = 13
WAYS = [(2, 6, 0), (1, 5, 2), (4, 2, 0), (3, 4, 0), (1, 12, 0)]
"""Processes, the largest batch of each, and workers of its loader. 50 samples in steps of 12: the last has 2."""
TOLERANCE = 1e-5
"""Of the loss: sums are made in another order."""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, nursery):
    gang = Gang(tmp_path_factory.mktemp("whole"), nursery, "rescaled:main", LEG * len(WAYS), nodes=1, processes=1)
    (machine,) = gang.launch(batch_size=12)
    assert machine.status == "finished", machine.log
    return losses(machine), read(gang, 1)


def losses(machine):
    return {step: float.fromhex(value) for step, value in machine.losses[0].items()}


def read(gang, ranks):
    """The samples of each step."""
    found: dict[int, list[int]] = {}
    for rank in range(ranks):
        path = gang.folder / "outputs" / f"read-{rank}"
        for line in path.read_text().splitlines() if path.exists() else ():
            step, *samples = map(int, line.split())
            found.setdefault(step, []).extend(samples)
    return {step: sorted(samples) for step, samples in found.items()}


def test_another_number_of_processes_trains_the_same_steps(tmp_path, nursery, uninterrupted):
    gang, trained = Gang(tmp_path, nursery, "rescaled:main", LEG, nodes=1), {}
    for number, (processes, batch_size, workers) in enumerate(WAYS):
        gang.processes, gang.steps = processes, LEG * (number + 1)
        (machine,) = gang.launch(batch_size=batch_size, workers=workers)
        assert machine.status == "finished", machine.log
        assert machine.progress.start_step == LEG * number
        trained |= losses(machine)
    expected, samples = uninterrupted
    assert read(gang, 4) == samples, "each sample once in each epoch, in the same steps"
    epochs = [sorted(each for step in range(at, at + 5) for each in samples[step]) for at in range(0, 65, 5)]
    assert epochs == [[*range(50)]] * 13
    assert trained.keys() == expected.keys()
    assert max(abs(trained[step] - loss) for step, loss in expected.items()) < TOLERANCE
    assert len(set(expected.values())) == LEG * len(WAYS)


def test_a_step_that_ends_too_early_is_refused(tmp_path, nursery):
    gang = Gang(tmp_path, nursery, "rescaled:hasty", 5, nodes=1, processes=1)
    (machine,) = gang.launch()
    assert machine.status == "failed"
    assert "called before all batches of the step were used" in machine.progress.error
