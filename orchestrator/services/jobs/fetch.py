"""Fetches a job's outputs to a folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from orchestrator.errors import NotFoundError, PartialFailure
from orchestrator.installation import Installation
from orchestrator.services.views import Fetched, FetchedFile


def fetch(installation: Installation, ref: str, to: Path | None = None) -> Fetched:
    """Copy the outputs that the job file names (all outputs, if it names none) to `to` (default: ./<job name>).

    Links that point outside the output folder are skipped. Raises NotFoundError, and PartialFailure if a file cannot be
    written.
    """
    with installation.store.read() as tx:
        job = tx.find_job(ref)
    source = installation.output_dir(job.id)
    names = [output.path.rstrip("/") for output in job.spec.outputs] or ["."]
    if next(_files(source, source), None) is None:
        raise NotFoundError(f"{job.name} has written no outputs", hint="a job writes them into $TRADEWIND_OUTPUT_DIR")
    folder = to if to is not None else Path(job.name)
    files: dict[str, FetchedFile] = {}
    missing = []
    for name in names:
        found = False
        for path in _files(source, source / name):
            found = True
            relative = path.relative_to(source)
            _copy(path, folder / relative)
            files[str(relative)] = FetchedFile(str(relative), path.stat().st_size)
        if not found:
            missing.append(name)
    return Fetched(job.id, str(folder), tuple(files[key] for key in sorted(files)), tuple(missing))


def _files(root: Path, path: Path) -> Iterator[Path]:
    """The regular files at or below `path` that are inside `root`."""
    inside = root.resolve()
    candidates = [path] if path.is_file() else sorted(path.rglob("*"))
    for candidate in candidates:
        if candidate.is_file() and candidate.resolve().is_relative_to(inside):
            yield candidate


def _copy(source: Path, target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    except OSError as error:
        raise PartialFailure(
            f"{target} cannot be written: {error.strerror}", hint="choose another folder with --to"
        ) from error
