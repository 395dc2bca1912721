"""File edges: reports each operation of the checkpoint store on a job's files to an observer.

The observer may raise; then the process counts as dead, and none of its further file operations take place, as after
kill -9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainers.objects.folder import Operation, announced

PARTS = {"chunks": "chunk", "manifests": "manifest", "fence": "fence"}

Look = Callable[[str, Path], None]
"""Called before each operation ("link fence") with its file; may raise."""


@contextmanager
def watching(look: Look) -> Iterator[None]:
    """Within the block, calls `look` before each operation of this thread on a job's file."""
    died: list[BaseException] = []

    def before(operation: Operation, path: Path) -> None:
        if died:
            raise died[0]  # a dead process cleans nothing up
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
    """Within the block, no observer is called."""
    with announced(lambda _operation, _path: None):
        yield
