"""Several processes on a machine: they find one another as under torchrun, and end together. Real processes, gloo."""

import re
import selectors
import sys
from dataclasses import replace

import pytest

from tests.unit.trainers.gang import Gang
from trainers.control import ControlDirectory, Progress, TrainerState
from trainers.errors import TrainerError
from trainers.process.launcher import launch
from trainers.process.ranks import Rank, ranks_of
from trainers.process.verdict import RankEnd, verdict
from trainers.spec import TrainerSpec

SCRIPT = {"entry": None, "script": "for_torchrun.py", "steps": None}


@pytest.fixture
def gang(tmp_path, nursery):
    return Gang(tmp_path, nursery)


def test_a_program_for_torchrun_runs_unchanged_on_two_machines(gang):
    machines = gang.launch(SCRIPT)
    assert [machine.status for machine in machines] == ["finished", "finished"], machines[0].log
    assert [machine.progress.state for machine in machines] == ["finished", "finished"]
    lines = sorted(line for machine in machines for line in machine.log.splitlines())
    assert [line for line in lines if "local rank" in line] == [
        f"[rank {rank}] local rank {rank % 2} is rank {rank}" for rank in range(4)
    ]
    assert len({line.partition("weights")[2] for line in lines if "weights" in line}) == 1
    assert [line for line in lines if "exit" in line] == [
        f"[rank {rank}] the exit handler was called" for rank in range(4)
    ]


def test_one_process_is_started_like_several_if_the_job_file_says_so(gang):
    gang.nodes, gang.processes = 1, 1
    (machine,) = gang.launch({**SCRIPT, "torchrun": True})
    assert machine.progress.state == "finished", machine.log
    assert "[rank 0] local rank 0 is rank 0" in machine.log


def test_a_rank_that_is_killed_ends_the_others_and_is_named_with_its_last_output(gang):
    machines = gang.launch(SCRIPT, kill=1)
    assert [machine.status for machine in machines] == ["failed", "failed"]
    error = machines[0].progress.error
    assert error.startswith("rank 1 of 4 (machine 0) was killed by signal 9"), error
    assert "about to die" in error
    assert not machines[0].progress.peer_lost
    assert machines[1].progress.peer_lost, machines[1].progress.error


def test_a_rank_that_raises_is_reported_not_those_that_lost_it(gang):
    gang.nodes, gang.processes = 1, 3
    (machine,) = gang.launch(SCRIPT, fail=2)
    assert machine.progress.error.startswith("rank 2 of 3 failed\nTraceback"), machine.progress.error
    assert machine.progress.error.endswith("ValueError: the data of this rank is bad\n")
    assert not machine.progress.peer_lost


def test_a_program_for_torchrun_that_is_asked_to_stop_has_stopped_not_failed(gang):
    gang.nodes = 1
    (machine,) = gang.launch(SCRIPT, wait=1)
    assert machine.progress.state == "checkpointed_and_stopped", machine.log


def spec(**changes):
    return TrainerSpec("job-1", "run-1", 1, 1, "checkpoints", "run/control", "outputs", ".", **changes)


def test_ranks_are_numbered_over_machines_and_given_what_torchrun_gives():
    ranks = ranks_of(spec(nodes=3, node_rank=1, processes=2, master_addr="10.0.0.1", master_port=29500))
    assert [each.rank for each in ranks] == [2, 3]
    given = ranks[1].variables()
    expected = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1"}
    assert given.items() >= (expected | {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}).items()
    alone = ranks_of(spec(processes=2))[0].variables()
    assert alone["MASTER_ADDR"] == "127.0.0.1"
    assert re.fullmatch("[1-9][0-9]+", alone["MASTER_PORT"])


@pytest.mark.parametrize("wrong", [{"nodes": 2}, {"processes": 0}, {"nodes": 2, "node_rank": 2}])
def test_an_impossible_run_of_several_machines_is_refused(wrong):
    with pytest.raises(TrainerError):
        ranks_of(spec(**wrong))


def end(local_rank, state, status=1, *, error=None, peer_lost=False, by_us=False):
    progress = None if state is None else Progress(state=state, step=7, error=error, peer_lost=peer_lost)
    return RankEnd(Rank(spec(processes=4), local_rank), status, progress, by_us, "its last words")


@pytest.mark.parametrize(
    ("ends", "state", "error"),
    [
        ([end(0, "finished", 0), end(1, "finished", 0)], "finished", None),
        ([end(1, "training", -11), end(0, "failed", error="reset by peer", peer_lost=True)], "failed", "rank 1 of 4 "),
        ([end(0, "failed", error="reset by peer", peer_lost=True), end(1, None, -9)], "failed", "rank 1 of 4 was kil"),
        ([end(0, "failed", error="mine"), end(1, "training", -15, by_us=True)], "failed", "rank 0 of 4 failed\nmine"),
        ([end(0, "fenced", 3), end(1, "failed", error="reset", peer_lost=True)], "fenced", None),
        ([end(1, "checkpointed_and_stopped", 0), end(0, None, -9, by_us=True)], "checkpointed_and_stopped", None),
        ([end(0, "finished", 0), end(1, "training", 0)], "failed", "rank 1 of 4 exited with status 0 without"),
    ],
)
def test_the_report_names_the_rank_that_ended_for_a_reason_of_its_own(ends, state, error):
    found = verdict(ends, Progress(step=6))
    assert found.state == state
    assert (found.error or "").startswith(error or "")
    assert (found.error is None) == (error is None)


def test_a_program_for_torchrun_that_is_started_alone_gets_an_error_that_says_what_to_write(gang):
    gang.nodes, gang.processes = 1, 1
    (machine,) = gang.launch(SCRIPT)
    assert machine.progress.state == "failed"
    assert machine.progress.error.endswith("so that it starts as under torchrun\n"), machine.progress.error


class ExitsFirst(selectors.DefaultSelector):
    """Tells that a process has ended before what it wrote last, in one answer, as the kernel may."""

    def select(self, timeout=None):
        found = super().select(timeout)
        while not any(key.fd == key.data.handle for key, _ in found):
            found = super().select(timeout)
        return sorted(found, key=lambda each: each[0].fd != each[0].data.handle)


def test_the_end_of_a_process_may_be_noticed_before_the_end_of_its_output(tmp_path, monkeypatch):
    monkeypatch.setattr(selectors, "DefaultSelector", ExitsFirst)
    placed = replace(spec(processes=2), control_dir=str(tmp_path / "run" / "control"))

    def run_rank(rank: Rank) -> TrainerState:
        sys.stdout.write(f"{rank} ran\n")
        ControlDirectory(rank.folder / "control").write_progress(Progress(state="finished", step=1))
        return "finished"

    assert launch(placed, run_rank) == "finished"
    log = (tmp_path / "run" / "log").read_text()
    assert "rank 0 of 2 ran" in log
    assert "rank 1 of 2 ran" in log
    assert ControlDirectory(placed.control_dir).progress().state == "finished"
