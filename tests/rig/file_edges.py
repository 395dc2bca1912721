"""File edges: what the checkpoint store does to the files of a job, operation by operation, as an onlooker sees it.

Whoever looks on may raise there; then the process counts as dead, and nothing that it would still do to a file takes
place, as after kill -9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainers.checkpoint.files import Operation, announced

PARTS = {"chunks": "chunk", "manifests": "manifest", "fence": "fence"}

Look = Callable[[str, Path], None]
"""Is told what is about to be done ("link fence") and to which file; may raise."""


@contextmanager
def watching(look: Look) -> Iterator[None]:
    """Within the block, `look` is told of each operation of this call on a file of a job."""
    died: list[BaseException] = []

    def before(operation: Operation, path: Path) -> None:
        if died:
            raise died[0]  # it cleans nothing up
        folder = path.name if operation in ("list", "sync") else path.parent.name
        if folder not in PARTS:
            return
        what = ("tidy" if path.name.startswith(".") else "remove") if operation == "delete" else operation
        try:
            look(f"{what} {PARTS[folder]}", path)
        except BaseException as error:
            died.append(error)
            raise

    with announced(before):
        yield


@contextmanager
def unwatched() -> Iterator[None]:
    """Within the block, nobody looks on."""
    with announced(lambda _operation, _path: None):
        yield
