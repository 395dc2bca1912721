"""Fetches a job's outputs to a folder: from the output folder of this host, and from the store for other machines."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from orchestrator.config.paths import why_not_created
from orchestrator.engine.inputs.snapshot import left_out
from orchestrator.errors import NotFoundError, PartialFailure, StoreError, UsageError, echoed
from orchestrator.installation import Installation
from orchestrator.model import Job
from orchestrator.nodes.outputs import Stored, copy_out, files_below, in_one_folder, set_aside, stored_outputs
from orchestrator.services.jobs.current import job_view, why_nothing_ran
from orchestrator.services.jobs.run_files import check_not_pruned, job_store, readable
from orchestrator.services.views import Fetched, FetchedFile
from providers.traits import shares_host
from trainers.errors import UnreadableObject
from trainers.objects.base import ObjectStore

_OF_A_NAME = {
    errno.EISDIR,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.ENAMETOOLONG,
    errno.EINVAL,
    errno.EILSEQ,
    errno.ENOTEMPTY,
}
MARKER = ".tradewind-job"
"""File in a folder named after a job, with the id of the job whose outputs it holds, as several jobs may have the same
name."""
OTHER_FOLDER = "choose another folder with --to"
TRIES = 3  # attempts for a file that its job is changing
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class _Output:
    """A file; `copy` writes it to a path and calls a function with the bytes of each piece."""

    size_bytes: int
    copy: Callable[[Path, Callable[[int], None]], None]


class _OneFailed(Exception):
    """A file that cannot be fetched, and the remedy."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.hint = hint


def fetch(
    installation: Installation,
    ref: str,
    to: Path | None = None,
    paths: Sequence[str] = (),
    progress: Progress = lambda _path, _done, _total: None,
) -> Fetched:
    """Copy outputs to `to` (default: ./<job name>): `paths`, or the outputs named in the job file, or all if it names
    none.

    Each file appears only when it is complete. Links that lead out of the output folder are skipped; nothing is written
    outside `to`. `progress` is called with the file, the bytes copied and the total. Raises NotFoundError; UsageError
    for paths that lead out, if `to` cannot be a folder, and if ./<job name> holds the outputs of another job;
    StoreError; and PartialFailure if files cannot be written: the other files are still copied, unless the folder
    itself cannot be written.
    """
    with installation.store.read() as tx:
        job = tx.find_job(ref)
        runs = tx.runs(job_id=job.id, unreadable=left_out)
    outputs, aside = _local(installation.output_dir(job.id)), dict[str, _Output]()
    if any(not shares_host(run.offer_id) for run in runs):
        stored = _stored(installation, job.id, stored_outputs)
        outputs = _merged(outputs, stored, last_was_here=shares_host(runs[-1].offer_id))
        if any(run.nodes > 1 for run in runs):
            kept_aside = _stored(installation, job.id, set_aside)
            aside = {path: each for path, each in kept_aside.items() if path not in outputs}
    if not outputs:
        check_not_pruned(installation, job, "outputs")
        _check_has_run(installation, job)
        raise NotFoundError(f"{job.name} has written no outputs", hint="a job writes them into $TRADEWIND_OUTPUT_DIR")
    names = [_inside(path) for path in paths] or [os.path.normpath(each.path) for each in job.spec.outputs] or ["."]
    chosen = {path: each for path, each in sorted(outputs.items()) if any(_is_below(path, name) for name in names)}
    chosen |= {
        path: each for path, each in aside.items() if any(name != "." and _is_below(path, name) for name in names)
    }
    folder = Path(job.name) if to is None else to
    if chosen:
        _prepare(folder, job, overwrite=to is not None)
    total, done = sum(each.size_bytes for each in chosen.values()), 0
    files, failures = list[FetchedFile](), list[_OneFailed]()
    for path, output in chosen.items():
        progress(path, done, total)
        before = done

        def moved(size_bytes: int, path: str = path) -> None:
            nonlocal done
            done += size_bytes
            progress(path, done, total)

        try:
            files.append(FetchedFile(path, _copy(output, folder, path, moved)))
        except _OneFailed as error:
            failures.append(error)
        done = before + output.size_bytes
    if failures:
        others = "" if len(chosen) == 1 else f" ({len(failures)} of {len(chosen)} files were not fetched)"
        raise PartialFailure(f"{failures[0]}{others}", hint=failures[0].hint)
    missing = tuple(name for name in names if not any(_is_below(path, name) for path in (*outputs, *aside)))
    left = tuple(path for path in sorted(aside) if path not in chosen and path.partition("/")[2] in chosen)
    return Fetched(job.id, str(folder), tuple(files), missing, left)


def _check_has_run(installation: Installation, job: Job) -> None:
    """Raises NotFoundError with the reason if the job has not run."""
    with installation.store.read() as tx:
        view, name = job_view(installation, tx, job), tx.typed_name(job.id, job.name)
    if (why := why_nothing_ran(view)) is not None:
        ended = view.finished_at_ms is not None
        hint = f"see what happened: tradewind events {name}" if ended else f"see why it waits: tradewind explain {name}"
        raise NotFoundError(why, hint=hint)


def _prepare(folder: Path, job: Job, *, overwrite: bool) -> None:
    """Create the folder; a folder named after the job is marked with the job's id. Raises UsageError,
    PartialFailure."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        wrong = (
            "is a file, not a folder"
            if os.path.isfile(folder)
            else f"cannot be created: {why_not_created(folder, error)}"
        )
        raise UsageError(f"{folder} {wrong}", hint=OTHER_FOLDER) from error
    if folder != Path(job.name):
        return
    marker = folder / MARKER
    try:
        owner = marker.read_text(encoding="utf-8", errors="replace").strip() if marker.exists() else ""
        if owner not in ("", job.id) and not overwrite:
            raise UsageError(
                f"{folder} holds the outputs of another job with this name, {owner:.60}",
                hint=f"{OTHER_FOLDER}, such as --to {job.id}; to overwrite those files: --to {folder}",
            )
        if owner != job.id:
            marker.write_text(f"{job.id}\n", encoding="utf-8")
    except OSError as error:
        raise PartialFailure(f"{marker} cannot be written: {error.strerror or error}", hint=OTHER_FOLDER) from error


def _inside(path: str) -> str:
    """Raises UsageError."""
    normal = os.path.normpath(path)
    if os.path.isabs(path) or normal.split("/")[0] == ".." or "\0" in path:
        hint = "give a relative path, such as runs/"
        raise UsageError(f"{echoed(path)} is not a path below the job's output folder", hint=hint)
    return normal


def _is_below(path: str, name: str) -> bool:
    return name in (".", path) or path.startswith(f"{name}/")


def _merged(
    local: Mapping[str, _Output], stored: Mapping[str, _Output], *, last_was_here: bool
) -> Mapping[str, _Output]:
    """The outputs of a job that ran on this host and elsewhere: the latest file of each path."""
    older, newer = (stored, local) if last_was_here else (local, stored)
    found = {**older, **newer}
    kept = in_one_folder({path: int(path in newer) for path in found})
    return {path: found[path] for path in kept}


def _local(folder: Path) -> Mapping[str, _Output]:
    found = {}
    for path in files_below(folder):
        source = folder / path
        with suppress(FileNotFoundError):
            found[path] = _Output(source.stat().st_size, partial(_copy_file, source))
    return found


def _stored(
    installation: Installation, job_id: str, look: Callable[[ObjectStore], Mapping[str, Stored]]
) -> dict[str, _Output]:
    with readable():
        store = job_store(installation, job_id)
        return {path: _Output(each.size_bytes, partial(copy_out, store, each)) for path, each in look(store).items()}


def _copy_file(source: Path, target: Path, moved: Callable[[int], None]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial_file = target.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        shutil.copyfile(source, partial_file)
        moved(partial_file.stat().st_size)
        os.replace(partial_file, target)
    finally:
        partial_file.unlink(missing_ok=True)


def _copy(output: _Output, folder: Path, path: str, moved: Callable[[int], None]) -> int:
    """Copies a file and returns its size. Raises _OneFailed if other files may still be copied; else PartialFailure,
    StoreError."""
    target = folder / path
    if not target.parent.resolve().is_relative_to(folder.resolve()):
        raise _OneFailed(f"{target} leads out of {folder}", f"remove that link, or {OTHER_FOLDER}")
    try:
        for tries_left in reversed(range(TRIES)):
            try:
                with readable():
                    output.copy(target, moved)
                break
            except StoreError as error:
                if not isinstance(error.__cause__, UnreadableObject):
                    raise
                if not tries_left:
                    raise _OneFailed(str(error), error.hint) from error
        return target.stat().st_size
    except OSError as error:
        what, hint = f"{target} cannot be written: {error.strerror or error}", OTHER_FOLDER
        if error.errno in _OF_A_NAME:
            raise _OneFailed(what, hint) from error
        raise PartialFailure(what, hint=hint) from error
