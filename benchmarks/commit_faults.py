"""A fault or a pause at every operation of saving a checkpoint: is an acknowledged checkpoint lost, or a wrong one
restored?

    python -m benchmarks.commit_faults [--quick] [--json]

A run has saved a checkpoint, and saves another one: chunks, the parts of two ranks, ownership, the manifest, retention.
At one of these operations an event happens, in the next history at the next operation:

- refused: the store does not answer, and the operation is not carried out
- lost: it is carried out, but the store's answer is lost
- died, died after: the process ends before or after the operation
- overtaken: the writer pauses; meanwhile another generation takes over the job and saves twice

Then the owner saves once more, and that checkpoint is restored. Operations are those of the file system in a folder
(open, write, sync, link, rename, unlink, list), and requests in the folder and on three object stores (S3, Google Cloud
Storage and Azure Blob Storage on loopback servers, tests/clouds). --quick: the folder only.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks._claims import Claim, show
from trainers.checkpoint import parts, store
from trainers.checkpoint.manifest import Box, ManifestName, TensorEntry
from trainers.checkpoint.packing import Values, store_tensors
from trainers.checkpoint.retention import collect
from trainers.errors import CheckpointError, DamagedCheckpoint, ObjectStoreError, StoreUnavailable
from trainers.objects.base import ObjectStore
from trainers.objects.bucket import open_bucket
from trainers.objects.folder import FolderStore, announced
from trainers.objects.retry import Patience

JOB, RANKS = "job", 2
MEMORY = Path("/dev/shm")
"""A folder on which a sync takes no time: none of these tests cuts the power."""
WAYS = ("refused", "lost", "died", "died after", "overtaken")
REQUESTS = frozenset(
    {"get", "get_range", "head", "keys", "list", "put", "put_if_absent", "put_if_match", "delete", "settle", "sweep"}
)


class Died(BaseException):
    """The process of the writer has ended."""


@dataclass
class Found:
    """The results. `points`: operations at which an event happened, by store."""

    points: dict[str, int] = field(default_factory=dict)
    histories: int = 0
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Point:
    """Causes the event at operation `number` of the operations that pass here."""

    def __init__(self, number: int, way: str, overtake: Callable[[], object]) -> None:
        self._numbers, self._number, self._way, self._overtake = count(1), number, way, overtake
        self.reached = False

    def passes(self, operation: Callable[[], Any]) -> Any:
        """Carry out the operation, or the event instead."""
        if next(self._numbers) != self._number:
            return operation()
        self.reached = True
        if self._way == "overtaken":
            Context().run(self._overtake)
        if self._way in ("lost", "died after", "overtaken"):
            done = operation()
        if self._way in ("died", "died after"):
            raise Died
        if self._way in ("refused", "lost"):
            raise StoreUnavailable("no answer", hint="wait")
        return done

    def before(self, *_: object) -> None:
        """The same for file operations, which can only be prevented or delayed. EIO: a failing disk."""
        if next(self._numbers) == self._number:
            self.reached = True
            if self._way == "overtaken":
                Context().run(self._overtake)
            elif self._way == "died":
                raise Died
            else:
                raise OSError(errno.EIO if self._way == "refused" else errno.ENOSPC, os.strerror(errno.EIO))


class Interrupted:
    """A store with an event at one of its requests."""

    def __init__(self, inner: ObjectStore, point: Point) -> None:
        self._inner, self._point = inner, point

    def child(self, prefix: str) -> Interrupted:
        """See ObjectStore.child."""
        return Interrupted(self._inner.child(prefix), self._point)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in REQUESTS:
            return found
        return lambda *arguments: self._point.passes(lambda: found(*arguments))


def content(generation: int, step: int, rank: int) -> bytes:
    return f"{generation}-{step} of rank {rank}".encode()


def save(root: ObjectStore, generation: int, step: int) -> ManifestName:
    """Save the parts of two ranks one after the other, as their background processes do."""
    name = ManifestName(generation, step, 1)
    sizes = [len(content(generation, step, rank)) for rank in range(RANKS)]
    entries_of = [("frozen", 6), *((f"of {rank}", size) for rank, size in enumerate(sizes))]
    whole = [(number, Box((0,), (size,))) for number, (_, size) in enumerate(entries_of)]
    shapes = [(path, "uint8", (size,)) for path, size in entries_of]
    plan = parts.Shares(shapes, [[0, 1], [0, 2]], [whole[:2], whole[2:]])
    held = []
    for rank, names in ((1, ["of 1"]), (0, ["frozen", "of 0"])):
        tensors = [b"frozen" if each == "frozen" else content(generation, step, rank) for each in names]
        entries: list[TensorEntry] = []
        for each, data in zip(names, tensors, strict=True):  # one chunk each
            entries += store_tensors(root, JOB, generation, [Values(each, "uint8", (len(data),), data)])
        held.append(parts.part_of({}, step, entries))
        if rank == 1:
            store.settle_chunks(root, JOB)
            parts.put_part(root, JOB, name, 1, "x", held[0])
    ticks = count(step=parts.WAIT_S / 2)
    others = parts.await_parts(
        root, JOB, name, RANKS, "x", lambda: None, monotonic=lambda: next(ticks), sleep=lambda _: None
    )
    committed = store.commit(root, parts.assembled(JOB, name, plan, [held[1], *others], {}, {}))
    parts.delete_parts(root, JOB, name)
    collect(root, JOB, generation, 1)
    return committed


def hand_over(root: ObjectStore, generation: int) -> None:
    """The control plane's action when a machine seems lost."""
    store.write_fence(root, JOB, generation, store.newest_counting(root, JOB, generation))


def history(root: ObjectStore, number: int, way: str, files: bool, found: Found) -> bool:
    """Play one history; False if a save has fewer operations."""
    acknowledged: list[ManifestName] = []
    store.prepare(root, JOB)
    store.write_fence(root, JOB, 1, None)
    acknowledged.append(save(root, 1, 5))

    def overtake() -> None:
        hand_over(root, 2)
        acknowledged.extend(save(root, 2, step) for step in (8, 9))

    point = Point(number, way, overtake)
    with suppress(Died, CheckpointError, ObjectStoreError):
        if files:
            with announced(point.before):
                acknowledged.append(save(root, 1, 6))
        else:
            acknowledged.append(save(Interrupted(root, point), 1, 6))
    if not point.reached:
        return False
    found.histories += 1
    judge(root, acknowledged, f"{way} at {number}", found)
    generation = 1 if way in ("refused", "lost") else 3
    if generation == 3:
        hand_over(root, generation)
    try:
        acknowledged.append(save(root, generation, 10))
    except (CheckpointError, ObjectStoreError) as error:
        found.lost.append(f"{way} at {number}: the next save fails: {error}")
    judge(root, acknowledged, f"{way} at {number}, saved again", found)
    return True


def judge(root: ObjectStore, acknowledged: list[ManifestName], what: str, found: Found) -> None:
    """Restore: the newest acknowledged checkpoint of the job's owner, or a later one, with the bytes it saved."""
    owner = store.fence(root, JOB)
    newest = max((name for name in acknowledged if owner and name.generation <= owner.generation), default=None)
    damages: list[DamagedCheckpoint] = []
    name = store.newest_counting(root, JOB, 9, damages.append)
    if name is None or newest is None or ManifestName.parse(name) < newest:
        found.lost.append(f"{what}: {name} instead of {newest}: {damages[:1]}")
        return
    manifest = store.verify(root, JOB, ManifestName.parse(name))
    for entry, rank in zip(manifest.tensors, (None, 0, 1), strict=True):
        data = b"".join(store.read_chunk(root, JOB, piece.chunk, name) for piece in entry.pieces)
        if data != (b"frozen" if rank is None else content(manifest.name.generation, manifest.name.step, rank)):
            found.wrong.append(f"{what}: {entry.name} of {name} is {data!r}")


def every(
    place: str, root_of: Callable[[str], ObjectStore], found: Found, *, files: bool = False, stride: int = 1
) -> None:
    """All histories in one store; with `stride`, each event only at every `stride`-th operation."""
    ways = ("refused", "lost", "died", "overtaken") if files else WAYS
    for offset, way in enumerate(ways):
        for number in count(1 + offset % stride, stride):
            if not history(root_of(f"{place}-{way}-{number}".replace(" ", "-")), number, way, files, found):
                break
            found.points[place] = max(found.points.get(place, 0), number)


@contextmanager
def buckets() -> Iterator[dict[str, Callable[[str], ObjectStore]]]:
    """The three object stores, each with a function that creates separate places."""
    from tests.clouds.buckets import BUCKETS
    from tests.clouds.server import serving

    with ExitStack() as servers:
        found: dict[str, Callable[[str], ObjectStore]] = {}
        for scheme, make in BUCKETS.items():
            bucket = make()
            os.environ.update(bucket.environment(servers.enter_context(serving(bucket.cloud))))
            bucket.ready()
            found[scheme] = partial(_place, bucket.url)
        yield found


def _place(url: str, place: str) -> ObjectStore:
    return open_bucket(f"{url}/{place}", Patience(sleep=lambda _: None))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the folder only")
    parser.add_argument("--json", action="store_true", help="print only the claims, as JSON")
    options = parser.parse_args()
    found = Found()
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        every("files", lambda place: FolderStore(Path(folder) / place), found, files=True)
        every("folder", lambda place: FolderStore(Path(folder) / place), found)
    if not options.quick:
        with buckets() as opened:
            for scheme, root_of in opened.items():
                every(scheme, root_of, found)
    claims = [
        Claim("histories", found.histories, "histories"),
        Claim("acknowledged checkpoints lost", len(found.lost), "checkpoints", 0),
        Claim("wrong restores", len(found.wrong), "restores", 0),
        *(Claim(f"operations of a save, {place}", number, "operations") for place, number in found.points.items()),
    ]
    return show("Faults while saving", claims, as_json=options.json, notes=[*found.lost[:20], *found.wrong[:20]])


if __name__ == "__main__":
    sys.exit(main())
