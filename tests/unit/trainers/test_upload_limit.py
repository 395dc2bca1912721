"""A limit of bandwidth for checkpoints that are written beside the training, and its end when something waits for
them."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.trainers.simulated_run import JOB, SimulatedRun
from tests.unit.trainers.test_background import Beside, until
from trainers.checkpoint import store
from trainers.checkpoint.background import Background
from trainers.checkpoint.background_process import Settings
from trainers.checkpoint.chunks import chunk_names
from trainers.checkpoint.manifest import ManifestName
from trainers.control import Notice
from trainers.journal import Journal
from trainers.objects.folder import FolderStore
from trainers.objects.pace import Pace, PacedFile
from trainers.process.own_folder import OwnFolder
from trainers.process.run_context import RunContext, Timers, present_context
from trainers.process.unmanaged import watched

SLOW = 1.0  # byte per second: a second chunk would wait for weeks
STATE = {"weights": torch.arange(3 << 20, dtype=torch.float32)}  # 12 MiB: three chunks and one for the rest


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Beside]:
    found = Beside(tmp_path)
    where = (found.root, JOB, 5, str(found.control.path), (1.0, 1.0, 1))
    found.writes = Background(Settings(*where, max_upload_bytes_per_s=SLOW))
    yield found
    found.writes.close()


def one_chunk_is_written(slow: Beside) -> bool:
    return len(chunk_names(slow.root, JOB)) == 1


@given(st.floats(1.0, 1e9), st.lists(st.tuples(st.integers(1, 1 << 22), st.floats(0, 10)), min_size=1))
def test_no_more_is_sent_than_the_limit_allows(limit: float, pieces: list[tuple[int, float]]) -> None:
    pace, now_s, sent = Pace(limit), 100.0, 0
    for size_bytes, busy_s in pieces:
        now_s += pace.wait_s(size_bytes, now_s)
        assert sent <= limit * (now_s - 100.0) * (1 + 1e-9)  # before this piece
        sent, now_s = sent + size_bytes, now_s + busy_s


def test_without_a_limit_nothing_waits() -> None:
    pace = Pace(None)
    assert [pace.wait_s(1 << 30, 0.0) for _ in range(3)] == [0.0] * 3


def test_a_checkpoint_beside_the_training_is_written_no_faster(slow: Beside) -> None:
    assert slow.begun(7, STATE)
    until(lambda: one_chunk_is_written(slow))
    assert slow.writes.ended() == []
    assert slow.committed == []


def test_one_that_is_not_wanted_any_more_is_left_off_at_once(slow: Beside) -> None:
    assert slow.begun(7, STATE)
    until(lambda: one_chunk_is_written(slow))
    (ended,) = slow.writes.leave_off()
    assert (ended.name, ended.error, slow.committed) == (None, None, [])


def test_one_that_something_waits_for_is_written_at_full_speed_and_the_next_one_slowly_again(slow: Beside) -> None:
    assert slow.begun(7, STATE)
    until(lambda: one_chunk_is_written(slow))
    ended = slow.one()
    assert ended.name is not None
    assert slow.committed == [7]
    store.verify(slow.root, JOB, ended.name)
    assert slow.begun(8, {"weights": STATE["weights"] + 1})
    (left_off,) = slow.writes.leave_off()
    assert (left_off.name, slow.committed) == (None, [7])


def test_the_wait_does_not_count_as_the_duration_of_the_save_nor_of_the_next_one(slow: Beside) -> None:
    """That is how long a checkpoint would take that a preemption notice asks for."""
    now_s = 0.0
    slow.writes = Background(slow.writes._settings, most=2, monotonic=lambda: now_s)
    assert slow.begun(7, STATE)
    assert slow.begin(8, STATE)
    until(lambda: one_chunk_is_written(slow))
    now_s = 1000.0
    assert [each.took_s < 1000.0 for each in slow.writes.ended(wait=True)] == [True, True]
    assert slow.committed == [7, 8]


@pytest.mark.parametrize("notice", [None, 2000.0, 1e9])
def test_what_is_under_way_is_written_at_full_speed_once_the_machine_may_be_lost(
    tmp_path: Path, notice: float | None
) -> None:
    """Whether that is only likely, or the next checkpoint would be too late, or in time: so little work is lost."""
    store.write_fence(tmp_path / "checkpoints", JOB, 1, None)
    run = SimulatedRun(tmp_path, steps=40, max_in_flight=1, max_upload_bytes_per_s=SLOW)
    run.model = torch.nn.Linear(1000, 3000)
    under_way, reported_at = list[ManifestName](), 0

    def before(step: int) -> None:
        nonlocal reported_at
        context = present_context()
        assert context is not None
        assert context.session is not None
        background = context.session._saves._background
        assert isinstance(background, Background)
        context.session._cadence.save_s = 5000.0
        if reported_at and step > reported_at:
            until(lambda: store.manifests(run.root, JOB) == under_way)
            run.control.request_stop()
        elif background._room:
            until(lambda: background.ready)
        elif background.under_way and not reported_at:
            reported_at, under_way[:] = step, background.under_way
            run.control.warn() if notice is None else run.control.put_notice(Notice("preemption", run.now + notice))

    assert run.train(before_step=before) == "checkpointed_and_stopped"
    assert reported_at


def test_a_file_is_read_in_pieces_that_are_asked_for_before(tmp_path: Path) -> None:
    path, asked = tmp_path / "file", list[int]()
    path.write_bytes(bytes(range(256)) * 4)
    with PacedFile(path, asked.append) as file:
        pieces = [file.read(500), file.read(500), file.read(500), file.read(500)]
    assert b"".join(pieces) == path.read_bytes()
    assert asked == [500, 500, 500, 500]


@pytest.mark.parametrize("because", ["notice", "warning", "stop"])
def test_the_folder_of_a_program_is_stored_at_full_speed_once_it_may_have_to_end(tmp_path: Path, because: str) -> None:
    run = SimulatedRun(tmp_path)
    root = FolderStore(run.root)
    store.prepare(root, JOB)
    store.write_fence(root, JOB, 1, None)
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "weights.pt").write_bytes(bytes(20 << 20))
    own = OwnFolder(folder, root, JOB, 1, SLOW)
    journal = Journal(run.control, time.monotonic)
    context = RunContext(run.spec, run.control, journal, Timers())
    context.own, context.session = own, object()  # type: ignore[assignment]  # or this process would be ended
    thread = threading.Thread(target=own.store, kwargs={"ended": True})
    with closing(journal), watched(context):
        thread.start()
        until(lambda: own._pace.wait_s(0, time.monotonic()) > 0)
        if because == "notice":
            run.control.put_notice(Notice("preemption", time.monotonic() + 1e6))
        elif because == "warning":
            run.control.warn()
        else:
            run.control.request_stop()
        thread.join(60)
    assert not thread.is_alive()
    assert len(root.child(JOB).keys("own/states")) == 1


def test_the_folder_of_a_program_is_stored_at_full_speed_once_it_has_ended(tmp_path: Path) -> None:
    folder, root = tmp_path / "own", FolderStore(str(tmp_path / "store"))
    store.prepare(root, JOB)
    store.write_fence(root, JOB, 1, None)
    folder.mkdir()
    (folder / "weights.pt").write_bytes(bytes(20 << 20))
    own = OwnFolder(folder, root, JOB, 1, SLOW)
    thread = threading.Thread(target=own.store, kwargs={"ended": True})
    thread.start()
    until(lambda: own._pace.wait_s(0, time.monotonic()) > 0)
    assert thread.is_alive()
    own.hurry()
    thread.join(60)
    assert not thread.is_alive()
    again = OwnFolder(tmp_path / "again", root, JOB, 2)
    again.restore()
    assert (tmp_path / "again" / "weights.pt").stat().st_size == 20 << 20
