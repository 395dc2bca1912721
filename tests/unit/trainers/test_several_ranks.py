"""A run of several ranks is resumed bit for bit, on two machines with two processes each. Real processes, gloo."""

import dataclasses

import pytest

from tests.unit.trainers.gang import Gang, Machine
from trainers.checkpoint import store
from trainers.checkpoint.fences import fence_of
from trainers.checkpoint.manifest import ManifestName

STEPS, SAMPLES = 24, 90  # four epochs


@dataclasses.dataclass
class Trained:
    """What all ranks of a job have done, in all of its runs. `read`: by step and rank, the samples."""

    losses: dict[int, dict[int, str]]
    read: dict[int, dict[int, list[int]]]
    sums: dict[int, str]
    hashes: list[str | None]


def trained(gang: Gang, *runs: list[Machine]) -> Trained:
    losses: dict[int, dict[int, str]] = {}
    for machine in (each for run in runs for each in run):
        for rank, found in machine.losses.items():
            losses.setdefault(rank, {}).update(found)
    read: dict[int, dict[int, list[int]]] = {}
    sums = {}
    for rank in range(gang.nodes * gang.processes):
        last = -1
        for line in (gang.folder / "outputs" / f"read-{rank}").read_text().splitlines():
            step, value = line.split()
            if step == "run":
                last = -1
            elif step == "sum":
                sums[rank] = value
            if not step.isdigit():
                continue
            if int(step) != last:  # this step was begun, or begun again
                read.setdefault(int(step), {})[rank] = []
                last = int(step)
            read[int(step)][rank].append(int(value))
    return Trained(losses, read, sums, [machine.progress.weights_hash for machine in runs[-1]])


def make_gang(folder, nursery) -> Gang:
    return Gang(folder, nursery, entry="parallel:main", steps=STEPS)


@pytest.fixture
def gang(tmp_path, nursery):
    return make_gang(tmp_path, nursery)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, nursery):
    gang = make_gang(tmp_path_factory.mktemp("gang"), nursery)
    machines = gang.launch()
    assert [machine.status for machine in machines] == ["finished", "finished"], machines[0].log
    return trained(gang, machines)


def states(machines):
    return [machine.progress.state for machine in machines]


def test_each_sample_is_read_once_per_epoch_by_one_rank_and_ranks_differ(uninterrupted):
    steps_per_epoch = STEPS // 4
    for epoch in range(4):
        steps = range(epoch * steps_per_epoch, (epoch + 1) * steps_per_epoch)
        read = sorted(sample for step in steps for rank in range(4) for sample in uninterrupted.read[step][rank])
        assert read == list(range(SAMPLES))
    assert len({loss for losses in uninterrupted.losses.values() for loss in losses.values()}) == 4 * STEPS
    assert len(set(uninterrupted.sums.values())) == 4
    assert len(set(uninterrupted.hashes)) == 2, "the buffers of the ranks differ"


def test_a_run_that_loses_a_rank_is_resumed_exactly_on_other_machines(gang, uninterrupted):
    lost = gang.launch(kill=[2, 13])
    assert states(lost) == ["failed", "failed"]
    assert lost[1].progress.error.startswith("rank 2 of 4 (machine 1) was killed by signal 9")
    assert [machine.progress.peer_lost for machine in lost] == [True, False]
    resumed = gang.launch()
    assert all(0 < machine.progress.start_step < 13 for machine in resumed)
    assert trained(gang, lost, resumed) == uninterrupted


def test_orders_to_one_machine_reach_all_ranks_at_the_same_step(gang, uninterrupted):
    runs = [gang.launch(put=[2, 7, "stop"])]
    assert states(runs[0]) == ["checkpointed_and_stopped"] * 2
    runs.append(gang.launch(put=[0, 11, "notice"]))  # both after the first half of an accumulation
    assert states(runs[1]) == ["checkpointed_and_stopped"] * 2
    runs.append(gang.launch(put=[2, 15, "lease"]))
    assert states(runs[2]) == ["fenced"] * 2, [machine.progress.error for machine in runs[2]]
    for run, last in zip(runs, (7, 11, 15), strict=True):
        assert {max(losses) for machine in run for losses in machine.losses.values()} == {last}
    assert [run[0].progress.manifest for run in runs[:2]] == ["1-7-1", "2-11-1"]
    runs.append(gang.launch())
    assert trained(gang, *runs) == uninterrupted


def test_ranks_wait_together_for_a_successor_and_go_on_together(gang, uninterrupted):
    machines = gang.launch(put=[2, 5, "quiesce"])
    assert states(machines) == ["finished"] * 2, machines[0].log
    fence = fence_of(gang.root, gang.job_id, 2)
    assert fence is not None
    assert fence.void
    assert ManifestName(1, 5, 1) in store.manifests(gang.root, gang.job_id)
    assert trained(gang, machines) == uninterrupted


def test_a_rank_that_dies_anywhere_in_a_save_leaves_no_half_checkpoint(gang, uninterrupted):
    deaths = [
        [1, "store_tensors", 2],  # before its part is written
        [3, "settle_chunks", 2],  # after that, before rank 0 knows
        [0, "commit", 1],  # all parts are durable
        [0, "collect", 1],  # the checkpoint is committed, but only rank 0 knows
    ]
    runs, steps = [], [0]
    for rank, function, call in deaths:
        runs.append(gang.launch(die_in=[rank, function, call]))
        assert f"rank {rank} of 4 (machine {rank // 2}) was killed" in runs[-1][rank // 2].progress.error
        newest = store.newest_counting(gang.root, gang.job_id, gang.generation, on_damage=pytest.fail)
        steps.append(0 if newest is None else ManifestName.parse(newest).step)
    assert steps[1] > 0
    assert steps[1] < steps[2] == steps[3] < steps[4]
    runs.append(gang.launch())
    assert trained(gang, *runs) == uninterrupted


def test_another_number_of_processes_cannot_continue_gradients_that_differ_by_rank(gang):
    gang.launch(put=[0, 3, "stop"])
    gang.nodes = 1
    (machine,) = gang.launch()
    assert "was saved by 4 processes, this run has 2" in machine.progress.error
    assert "gradients that their optimizers had not used yet" in machine.progress.error


@pytest.mark.parametrize(
    ("entry", "error"),
    [("unconnected", "init_process_group"), ("uneven", "every rank must call run.step() equally often")],
)
def test_ranks_that_do_not_train_together_are_refused(gang, entry, error):
    gang.nodes, gang.entry = 1, f"parallel:{entry}"
    (machine,) = gang.launch()
    assert machine.progress.state == "failed"
    assert error in machine.progress.error


def test_a_rank_that_waits_for_another_ends_when_the_lease_has_expired(gang):
    gang.nodes, gang.entry = 1, "parallel:stuck"
    (machine,) = gang.launch()
    assert machine.progress.state == "fenced", machine.log
    assert machine.progress.step == 5 + 1
