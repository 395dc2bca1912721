"""Jobs on several machines at once, with real processes: one Ray cluster, one process group, one bill."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from orchestrator.model import Run
from orchestrator.nodes.channel import control_store, machines_of
from tests.e2e.living import Tradewind, losses, until

pytestmark = pytest.mark.ray

NODES, PROCESSES, SAMPLES, STEPS = 2, 2, 64, 64
GANG = {"nodes": NODES, "processes": PROCESSES, "gpu": ["SIM-L"]}


@dataclass
class Trained:
    """What the ranks of a job did: by rank and step, the loss, and the samples that were read for that step last."""

    losses: dict[int, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    read: dict[int, dict[int, list[int]]] = field(default_factory=lambda: defaultdict(dict))


def folder(tradewind: Tradewind, run: Run, rank: int) -> Path:
    machine, local = divmod(rank, PROCESSES)
    of_run = tradewind.installation.run_dir(run.id)
    of_machine = of_run if machine == 0 else of_run / "machines" / str(machine)
    return of_machine if local == 0 else of_machine / "ranks" / str(rank)


def trained(tradewind: Tradewind, job: str) -> Trained:
    found = Trained()
    for rank in range(NODES * PROCESSES):
        for run in tradewind.runs(job):
            for step, loss in losses(folder(tradewind, run, rank)):
                assert found.losses[rank].setdefault(step, loss) == loss, f"rank {rank}: step {step} was repeated"
        last = -1
        for line in (tradewind.installation.output_dir(job) / f"read-{rank}").read_text().splitlines():
            if line == "began":  # perhaps with the step in which the last run was killed
                last = -1
                continue
            step, sample = map(int, line.split())
            if step != last:
                found.read[rank][step] = []
            last = step
            found.read[rank][step].append(sample)
    return found


def submit(tradewind: Tradewind, name: str) -> str:
    arguments = {"hurry": str(tradewind.hurry_file(name))}
    train = {"entry": "together:main", "steps": STEPS, "args": arguments}
    return tradewind.submit(name, train=train, resources=GANG)


def check_books(tradewind: Tradewind, job: str) -> None:
    rented = tradewind.rented(job)
    assert {each for run in tradewind.runs(job) for each in run.instance_ids} == rented
    with tradewind.installation.store.read() as tx:
        booked = tx.total_nano_usd(job)
    assert booked == sum(tradewind.cloud.bill_nano_usd(each) for each in rented)


def test_a_gang_that_loses_a_machine_resumes_on_two_others_as_if_nothing_had_happened(tradewind: Tradewind) -> None:
    tradewind.hurry_file("whole").touch()
    whole, lost = submit(tradewind, "whole"), submit(tradewind, "lost")
    first = tradewind.training(lost, steps=10)
    view = {node.rank: node for node in tradewind.client.nodes.list(lost).nodes}
    assert {rank: node.instance_id in first.instance_ids for rank, node in view.items()} == {0: True, 1: True}
    tradewind.cloud.crash(view[1].instance_id)
    second = tradewind.training(lost, after=first, steps=1)
    assert not set(first.instance_ids) & set(second.instance_ids)
    tradewind.finish(lost)
    tradewind.ended(whole, "finished")
    uninterrupted, resumed = trained(tradewind, whole), trained(tradewind, lost)
    assert uninterrupted.losses == resumed.losses
    assert all(len(found) == STEPS for found in resumed.losses.values())
    assert uninterrupted.read == resumed.read
    per_epoch = SAMPLES // (4 * NODES * PROCESSES)
    for epoch in range(STEPS // per_epoch):
        steps = range(epoch * per_epoch, (epoch + 1) * per_epoch)
        read = sorted(sample for step in steps for rank in resumed.read for sample in resumed.read[rank][step])
        assert read == list(range(SAMPLES)), "each sample is read once per epoch, by one rank"
    assert tradewind.weights_hash(whole) == tradewind.weights_hash(lost) is not None
    assert [run.end for run in tradewind.runs(lost)] == ["lost", "finished"]
    for job in (whole, lost):
        check_books(tradewind, job)
    store = control_store(tradewind.installation.control_root)
    until(
        "its control objects are deleted", lambda: not any(machines_of(store, run.id) for run in tradewind.runs(lost))
    )
    for run in tradewind.runs(lost):
        for instance_id in run.instance_ids:
            assert not tradewind.processes(replace(run, instance_id=instance_id))


def test_a_program_for_torchrun_runs_unchanged_on_two_machines_with_two_processes_each(tradewind: Tradewind) -> None:
    job = tradewind.submit("torchrun", train={"script": "for_torchrun.py"}, resources=GANG)
    tradewind.ended(job, "finished")
    (run,) = tradewind.runs(job)
    texts = [(folder(tradewind, run, rank) / "log").read_text() for rank in (0, PROCESSES)]
    ranks = [line.split("is rank ")[1] for text in texts for line in text.splitlines() if "is rank " in line]
    assert sorted(ranks) == ["0", "1", "2", "3"]
    weights = {line.split("weights ")[1] for text in texts for line in text.splitlines() if "weights " in line}
    assert len(weights) == 1, "all ranks averaged their weights"
    check_books(tradewind, job)
