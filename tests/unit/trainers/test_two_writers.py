"""A run that lost its job and does not know it yet (a zombie) writes and deletes beside the one that has it now.

The zombie is generation 1, the owner generation 2. Wherever either of them pauses: the owner never fails, and every
checkpoint that was reported as committed can be read, byte for byte.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import Context
from pathlib import Path

import pytest

from orchestrator.engine.jobs.checkpoints import FileCatalog
from trainers.checkpoint import store
from trainers.checkpoint.manifest import Manifest, ManifestName, Piece, TensorEntry
from trainers.checkpoint.retention import collect
from trainers.errors import DamagedCheckpoint, FencedError
from trainers.objects.folder import announced

JOB = "job-1"
FROZEN, ONCE_MORE = b"the same in all checkpoints", b"in the first one, and in those after the handover"


def save(root: Path, generation: int, step: int, *more: bytes, keep: int = 1) -> str:
    """As trainers.checkpoint.writer does it, with one chunk for each tensor."""
    tensors = []
    for data in (FROZEN, f"{generation}-{step}".encode(), *more):
        piece = Piece(store.write_chunk(root, JOB, data, generation), 0, len(data))
        tensors.append(TensorEntry(f"t{len(tensors)}", "uint8", (len(data),), (piece,)))
    name = ManifestName(generation, step, 1)
    committed = store.commit(root, Manifest(JOB, name, 1, None, {}, tuple(tensors), {}))
    collect(root, JOB, generation, keep)
    return str(committed)


def hand_over(root: Path) -> str | None:
    """What the control plane does when the machine of generation 1 seems lost."""
    newest = FileCatalog().newest(root, JOB, 2)
    assert newest.damaged == ()
    start = None if newest.found is None else newest.found.name
    FileCatalog().fence(root, JOB, 2, start)
    return start


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The zombie's next save will delete its first checkpoint, and with it a chunk that the owner needs again."""
    store.prepare(tmp_path, JOB)
    store.write_fence(tmp_path, JOB, 1, None)
    save(tmp_path, 1, 5, ONCE_MORE)
    return tmp_path


def at_operation(number: int, act: Callable[[], object]) -> Callable[..., None]:
    """Act once, before the given file operation, as another process does: it sees no announcements of its own."""
    operations: Iterator[int] = itertools.count(1)

    def before(*_: object) -> None:
        if next(operations) == number:
            Context().run(act)

    return before


def each_pause(tmp_path: Path, prepare: Callable[[Path], object]) -> Iterator[tuple[Path, int]]:
    """A folder of its own for each place at which a writer may pause."""
    for number in itertools.count(1):
        root = tmp_path / str(number)
        store.prepare(root, JOB)
        store.write_fence(root, JOB, 1, None)
        save(root, 1, 5, ONCE_MORE)
        prepare(root)
        yield root, number


def test_a_zombie_that_wakes_anywhere_in_a_save_takes_nothing_from_the_owner(tmp_path: Path) -> None:
    """It fell asleep while it had the job. Then the job moved, and the owner has saved twice."""
    for root, number in each_pause(tmp_path, lambda root: None):
        acknowledged: list[str] = []

        def owner(root: Path = root, acknowledged: list[str] = acknowledged) -> None:
            hand_over(root)
            acknowledged.extend(save(root, 2, step, ONCE_MORE) for step in (8, 9))

        with announced(at_operation(number, owner)), suppress(FencedError):
            save(root, 1, 6)
        if not acknowledged:
            break
        assert acknowledged == ["2-8-1", "2-9-1"]
        store.verify(root, JOB, ManifestName(2, 9, 1))
        assert store.newest_counting(root, JOB, 3, on_damage=pytest.fail) == "2-9-1"
        save(root, 2, 10)
        assert [str(name) for name in store.manifests(root, JOB)][-1] == "2-10-1"
    assert number > 25


def test_a_zombie_that_wakes_anywhere_in_a_save_leaves_what_its_successor_starts_from(tmp_path: Path) -> None:
    for root, number in each_pause(tmp_path, lambda root: None):
        start: list[str | None] = []

        def control_plane(root: Path = root, start: list[str | None] = start) -> None:
            start.append(hand_over(root))

        with announced(at_operation(number, control_plane)), suppress(FencedError):
            save(root, 1, 6)
        if not start:
            break
        assert start[0] is not None
        store.verify(root, JOB, ManifestName.parse(start[0]))
        assert store.newest_counting(root, JOB, 2, on_damage=pytest.fail) in (start[0], "1-6-1")
    assert number > 25


def test_an_owner_that_pauses_anywhere_finds_all_it_needs_after_the_zombie_had_its_turn(tmp_path: Path) -> None:
    for root, number in each_pause(tmp_path, hand_over):
        turns: list[bool] = []

        def zombie(root: Path = root, turns: list[bool] = turns) -> None:
            turns.append(True)
            store.write_chunk(root, JOB, b"half a save", 1)
            with suppress(FencedError):
                save(root, 1, 7)
            with suppress(FencedError):
                collect(root, JOB, 1, 1)

        with announced(at_operation(number, zombie)):
            name = save(root, 2, 8, ONCE_MORE)
        assert name == "2-8-1"
        assert store.newest_counting(root, JOB, 3, on_damage=pytest.fail) == name
        if not turns:
            break
    assert number > 25


def test_files_that_vanish_anywhere_do_not_disturb_a_save(tmp_path: Path) -> None:
    """All temporary files, at once, also the one that is about to be linked."""
    for root, number in each_pause(tmp_path, hand_over):
        swept: list[bool] = []

        def sweep(root: Path = root, swept: list[bool] = swept) -> None:
            swept.append(True)
            for path in (root / JOB).rglob(".*"):
                path.unlink()

        with announced(at_operation(number, sweep)):
            assert save(root, 2, 8, ONCE_MORE) == "2-8-1"
        assert store.newest_counting(root, JOB, 3, on_damage=pytest.fail) == "2-8-1"
        assert not list((root / JOB).rglob(".*"))
        if not swept:
            break
    assert number > 25


def test_a_writer_that_dies_anywhere_leaves_nothing_that_its_successor_does_not_clear_away(tmp_path: Path) -> None:
    class Died(BaseException):
        pass

    def die() -> None:
        raise Died

    died = True
    for root, number in each_pause(tmp_path, lambda root: None):
        try:
            with announced(at_operation(number, die)):
                save(root, 1, 6)
            died = False
        except Died:
            pass
        start = hand_over(root)
        assert start in ("1-5-1", "1-6-1")
        save(root, 2, 8)
        store.verify(root, JOB, ManifestName.parse(start))
        assert [str(name) for name in store.manifests(root, JOB)] == [start, "2-8-1"]
        needed = {
            chunk for name in store.manifests(root, JOB) for chunk in store.read_manifest(root, JOB, name).chunks()
        }
        assert {path.name for path in (root / JOB / "chunks").iterdir()} == needed
        assert not list((root / JOB).rglob(".*"))
        if not died:
            break
    assert number > 25


def test_a_checkpoint_is_not_reported_as_damaged_to_a_reader_when_its_owner_deletes_it(root: Path) -> None:
    """The folder was listed; then the owner saved, and deleted what was listed."""
    store.write_fence(root, JOB, 2, "1-5-1")
    for number in itertools.count(1):
        latest = save(root, 2, 2 * number)
        saved: list[str] = []

        def owner(number: int = number, saved: list[str] = saved) -> None:
            saved.append(save(root, 2, 2 * number + 1))

        with announced(at_operation(number, owner)):
            found = FileCatalog().newest(root, JOB, 3)
        assert found.damaged == ()
        assert found.found is not None
        assert found.found.name in (latest, *saved)
        if not saved:
            break
    assert number > 5


def test_what_is_really_damaged_is_reported_once_even_if_the_owner_goes_on(root: Path) -> None:
    store.write_fence(root, JOB, 2, "1-5-1")
    save(root, 2, 6, keep=9)
    path = root / JOB / "manifests" / f"{save(root, 2, 7, keep=9)}.json"
    path.write_bytes(path.read_bytes()[:-1])
    damages: list[DamagedCheckpoint] = []
    assert store.newest_counting(root, JOB, 3, on_damage=damages.append) == "2-6-1"
    assert len(damages) == 1


_WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, {folder!r})
from test_two_writers import save
from trainers.errors import FencedError
root, generation, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for step in range(10, 10 + rounds):
    try:
        print(save(root, generation, step, b"x" * 5000), flush=True)
    except FencedError:
        print("fenced", flush=True)
"""


def test_two_processes_at_full_speed_on_one_folder(root: Path) -> None:
    """The zombie never learns: it writes chunks, tries to commit, and tries again."""
    hand_over(root)
    code = _WRITER.format(folder=str(Path(__file__).parent))
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(root), generation, rounds],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for generation, rounds in (("2", "60"), ("1", "100000"))
    ]
    owner, zombie = writers
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("\n")
            writer.stdin.flush()
        said, complaint = owner.communicate()
    finally:
        zombie.kill()
        tried, complaint_of_zombie = zombie.communicate()
    assert (owner.returncode, complaint, complaint_of_zombie) == (0, "", "")
    assert said.split() == [f"2-{step}-1" for step in range(10, 70)]
    assert tried.split().count("fenced") > 10
    store.verify(root, JOB, ManifestName(2, 69, 1))
    assert store.newest_counting(root, JOB, 3, on_damage=pytest.fail) == "2-69-1"
    save(root, 2, 70)
    assert not list((root / JOB).rglob(".*"))
