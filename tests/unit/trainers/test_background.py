"""Checkpoints written beside the training: the copy is the state of its step, and whatever happens to the process that
writes it, nothing wrong is committed. The process is real, and so are its death, its pauses and its store."""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest
import torch

from tests.unit.trainers.conftest import HERE
from tests.unit.trainers.simulated_run import SimulatedRun
from trainers.checkpoint import store
from trainers.checkpoint.background import ENDED, Background, Ended, Snapshot
from trainers.checkpoint.background_process import Settings, available_bytes
from trainers.checkpoint.manifest import ManifestName
from trainers.checkpoint.reader import load
from trainers.checkpoint.writer import save
from trainers.control import ControlDirectory
from trainers.errors import FencedError, StateError, StoreDenied, StoreUnavailable
from trainers.process.run_context import present_context

JOB, PATIENCE_S = "job-1", 60


class Beside:
    """A background writer of a job in a folder."""

    def __init__(self, folder: Path, most: int = 1) -> None:
        self.root, self.control = str(folder / "checkpoints"), ControlDirectory(folder / "control")
        store.prepare(self.root, JOB)
        store.write_fence(self.root, JOB, 1, None)
        self.writes = Background(Settings(self.root, JOB, 5, str(self.control.path), (1.0, 1.0, 1)), most=most)

    def begin(self, step: int, state: object, generation: int = 1) -> bool:
        return self.writes.begin(
            ManifestName(generation, step, 1), lambda: Snapshot({"extra": state}, {"steps_done": step})
        )

    def begun(self, step: int, state: object) -> bool:
        """Begin it as soon as there is memory; False if there will be none."""
        return until(lambda: self.begin(step, state) or not self.writes.possible) and self.writes.possible

    def one(self) -> Ended:
        (ended,) = self.writes.ended(wait=True)
        return ended

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self.writes._process is not None
        return self.writes._process

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        until(lambda: Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    @property
    def committed(self) -> list[int]:
        return [name.step for name in store.manifests(self.root, JOB)]


def until(done: Callable[[], bool]) -> bool:
    """Wait for another process."""
    give_up_s = time.monotonic() + PATIENCE_S
    while not (found := done()):
        assert time.monotonic() < give_up_s
        time.sleep(0.002)
    return found


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Beside]:
    found = Beside(tmp_path)
    yield found
    process = found.writes._process
    found.writes.close()
    assert process is None or process.returncode is not None


def every_kind() -> dict[str, object]:
    generator = torch.Generator().manual_seed(3)
    many = torch.rand(300, 7000, generator=generator)  # more than one chunk
    return {
        "many": many,
        "the same": many,
        "transposed": torch.rand(5, 3, generator=generator).t(),
        "part": many[3:5, ::7],
        "half": torch.rand(9, generator=generator).to(torch.bfloat16),
        "flags": torch.rand(11, generator=generator) > 0.5,
        "complex": torch.rand(3, dtype=torch.complex64, generator=generator).conj(),
        "negative": torch.rand(3, dtype=torch.complex64, generator=generator).conj().imag,
        "empty": torch.empty(0, 4),
        "one": torch.tensor(7, dtype=torch.int64),
        "repeated": torch.ones(1).expand(1000),
        "array": numpy.arange(5, dtype=">i4"),
        "words": ["naïve", b"\0\xff", math.nan, -0.0, {"a": (1, 2)}],
    }


def test_what_is_written_beside_the_training_is_what_would_have_been_written_at_once(beside, tmp_path):
    state = every_kind()
    assert beside.begun(3, state)
    ended = beside.one()
    assert (str(ended.name), ended.error) == ("1-3-1", None)
    at_once = str(tmp_path / "at once")
    store.prepare(at_once, JOB)
    store.write_fence(at_once, JOB, 1, None)
    name = save(at_once, JOB, ended.begun, items={"extra": state}, position={"steps_done": 3}, keep=5)
    assert store.verify(beside.root, JOB, name) == store.verify(at_once, JOB, name)


def test_the_copy_is_the_state_at_the_moment_when_it_was_begun(beside):
    state = torch.zeros(3_000_000)
    for step in range(1, 6):
        state.fill_(step)
        assert beside.begun(step, state)
        state.fill_(-1)  # the next step changes it at once
        assert beside.one().name is not None
        held = load(beside.root, JOB, ManifestName(1, step, 1), 0).items["extra"]
        assert held.unique().tolist() == [step]


def test_memory_is_used_again_and_replaced_when_the_state_has_grown(beside):
    assert beside.begun(1, torch.zeros(10))
    assert beside.one().name is not None
    assert beside.begin(2, torch.ones(10)), "there is memory"
    assert not beside.begin(3, torch.ones(10)), "it is in use"
    assert beside.one().name is not None
    assert not beside.begin(4, torch.ones(1_000_000)), "it is too small"
    assert beside.begun(4, torch.ones(1_000_000))
    assert beside.one().name is not None
    assert load(beside.root, JOB, ManifestName(1, 4, 1), 0).items["extra"].sum() == 1_000_000
    assert beside.committed == [1, 2, 4]


def test_several_may_be_under_way_and_are_committed_in_order(tmp_path):
    beside, number = Beside(tmp_path, most=3), torch.zeros(500_000)
    began: set[int] = set()
    for step in range(1, 13):
        number.fill_(step)
        while not beside.begin(step, number):
            assert [each.error for each in beside.writes.ended(wait=beside.writes.full)] in ([None], [None] * 3, [])
            time.sleep(0.001)
        began.add(len(beside.writes.under_way))
    beside.writes.ended(wait=True)
    assert beside.committed == [8, 9, 10, 11, 12]
    assert max(began) == 3, "memory for three was made"
    assert load(beside.root, JOB, ManifestName(1, 11, 1), 0).items["extra"].unique().tolist() == [11]
    beside.writes.close()


def test_a_process_that_is_killed_commits_nothing_and_training_waits_from_then_on(beside, capsys):
    assert beside.begun(1, torch.zeros(10))
    assert beside.one().name is not None
    process = beside.process
    beside.pause()
    assert beside.begin(2, torch.zeros(4_000_000)) is False, "memory was asked for"
    process.kill()
    assert until(lambda: not beside.begin(2, torch.zeros(4_000_000)) and not beside.writes.possible)
    assert ENDED in capsys.readouterr().err
    assert beside.committed == [1]


def test_a_process_that_is_killed_while_it_writes_is_an_error_of_that_checkpoint(beside):
    assert beside.begun(1, torch.zeros(10))
    assert beside.one().name is not None
    beside.pause()
    assert beside.begin(2, torch.ones(10))
    assert beside.writes.ended() == []
    beside.process.kill()
    assert isinstance(beside.one().error, StoreUnavailable)
    assert beside.committed == [1]
    assert not beside.writes.possible


def test_what_is_left_off_is_not_committed_unless_it_was_already(beside):
    assert beside.begun(1, torch.rand(4_000_000))
    beside.one()
    for step in range(2, 12):
        assert beside.begun(step, torch.rand(4_000_000))
        time.sleep(0.004 * (step - 2))
        (ended,) = beside.writes.leave_off()
        assert ended.error is None
        assert (ended.name is not None) == (step in beside.committed)
        assert beside.writes.under_way == []
    assert beside.begun(20, torch.rand(10)), "it goes on afterwards"
    assert beside.one().name is not None


def test_nothing_is_committed_after_the_lease(beside):
    beside.control.put_lease(time.monotonic() - 1)
    assert beside.begun(1, torch.zeros(3))
    assert isinstance(beside.one().error, FencedError)
    beside.control.put_lease(time.monotonic() + 1000)
    assert beside.begun(2, torch.zeros(3))
    assert beside.one().error is None
    assert beside.committed == [2]


def test_nothing_is_committed_for_a_job_that_another_generation_has(beside):
    assert beside.begun(1, torch.zeros(3))
    beside.one()
    beside.pause()
    assert beside.begin(2, torch.ones(3))
    store.write_fence(beside.root, JOB, 2, "1-1-1")
    beside.resume()
    assert isinstance(beside.one().error, FencedError)
    assert beside.committed == [1]


def test_what_the_store_refuses_is_the_error_of_the_checkpoint_with_its_remedy(beside):
    (Path(beside.root) / JOB / "chunks").rmdir()
    (Path(beside.root) / JOB / "chunks").symlink_to("/proc/1/fdinfo")
    assert beside.begun(1, torch.zeros(3))
    error = beside.one().error
    assert isinstance(error, StoreDenied), error
    assert error.hint
    assert beside.committed == []


def test_a_state_that_cannot_be_saved_is_refused_before_it_is_copied(beside):
    with pytest.raises(StateError, match="extra"):
        beside.begin(1, object())


def test_a_copy_for_which_there_is_no_memory_is_not_made(beside, capsys):
    assert not beside.begun(1, torch.zeros(1).expand(10**12))
    assert "a copy of the state takes" in capsys.readouterr().err
    assert beside.committed == []


def test_secrets_of_the_job_are_not_in_what_the_process_was_started_with(beside, monkeypatch):
    monkeypatch.setenv("TOKEN", "hunter2" * 20_000)
    assert beside.begun(1, torch.zeros(3))
    assert beside.one().error is None
    started_with = Path(f"/proc/{beside.process.pid}")
    assert b"hunter2" not in (started_with / "environ").read_bytes() + (started_with / "cmdline").read_bytes()


def test_the_memory_that_is_left_is_known_here():
    left = available_bytes()
    assert left is not None
    assert 0 < left <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


PARENT = """
import sys, time, torch
from tests.unit.trainers.test_background import Beside
from pathlib import Path
beside = Beside(Path(sys.argv[1]))
beside.begun(1, torch.zeros(10)); beside.one()
beside.pause()
beside.begin(2, torch.ones(10))
print(beside.process.pid, flush=True)
time.sleep(600)
"""


def test_it_ends_with_the_process_that_started_it(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[2])}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
    )
    with parent:
        assert parent.stdout is not None
        child = Path("/proc") / parent.stdout.readline().strip()
        assert "background_process" in (child / "cmdline").read_text()
        parent.send_signal(signal.SIGKILL)
    assert until(lambda: not child.exists() or (child / "cmdline").read_text() == "")
    assert [name.step for name in store.manifests(str(tmp_path / "checkpoints"), JOB)] == [1]


def test_a_job_that_is_killed_while_checkpoints_are_written_beside_it_resumes_to_the_same_bits(job):
    job.entry, job.steps = "beside:main", 60
    last = job.require_exact_resumes("everything", [17, 30, 45], max_overhead=1.0, max_in_flight=2)
    assert last.progress.start_step > 0


def test_a_run_whose_writing_process_is_killed_goes_on_and_waits_for_its_checkpoints(tmp_path):
    store.write_fence(tmp_path / "checkpoints", JOB, 1, None)
    run = SimulatedRun(tmp_path, steps=30, max_in_flight=1)
    pids: set[int] = set()

    def kill(step: int) -> None:
        context = present_context()
        assert context is not None
        assert context.session is not None
        background = context.session._saves._background
        assert background is not None
        if background._process is not None:
            pids.add(background._process.pid)
            background._process.kill()
            background._process.wait()

    assert run.train(before_step=kill) == "finished"
    assert len(pids) == 1, "it is not started again"
    steps = [name.step for name in store.manifests(run.root, JOB)]
    assert steps[-1] == 30
    assert len(steps) > 3


def test_a_stop_gives_up_the_checkpoint_under_way_and_saves_the_present_step(tmp_path):
    store.write_fence(tmp_path / "checkpoints", JOB, 1, None)
    run = SimulatedRun(tmp_path, steps=30, max_in_flight=1)
    run.model = torch.nn.Linear(1000, 3000)

    def stop(step: int) -> None:
        context = present_context()
        assert context is not None
        assert context.session is not None
        background = context.session._saves._background
        assert background is not None
        if context.session._saves.under_way:
            run.control.request_stop()
        elif background._room:
            until(lambda: background.ready)  # the process has started and made memory

    assert run.train(before_step=stop) == "checkpointed_and_stopped"
    reported = run.progress()
    assert reported.step < 30
    assert (reported.manifest_step, reported.manifest) == (reported.step, f"1-{reported.step}-0")
    assert store.manifests(run.root, JOB)[-1].step == reported.step
