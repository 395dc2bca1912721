"""A job's code: packed and uploaded when the job is submitted, for machines that do not have this host's folders.

Machines of this host run the code in its folder. All others run the code as it was at submission, identified by its
hash.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from orchestrator.errors import StoreError, UsageError
from orchestrator.installation import Installation
from orchestrator.model import Job, JobSpec, TrainSpec
from orchestrator.nodes.packing import IGNORE_FILE, LARGE_BYTES, Contents, contents, pack
from orchestrator.nodes.unpacking import code_key
from orchestrator.policy.ranking.eligible import matches
from orchestrator.services.views import CodeView
from providers.traits import traits_of
from trainers.errors import ObjectStoreError
from trainers.objects.base import ObjectStore
from trainers.objects.opening import open_store

SHOWN = 5


def code_of(installation: Installation, spec: JobSpec) -> CodeView | None:
    """The code of a job that would be uploaded; None if all machines that it may use have this host's folders. Raises
    UsageError if the code cannot be packed."""
    if not _travels(installation, spec):
        return None
    found = _contents(installation, spec)
    return CodeView(
        spec.name, str(found.folder), len(found.files), found.size_bytes, found.secret_like, _concern(found)
    )


@contextmanager
def uploaded(installation: Installation, jobs: Sequence[Job], *, accepted: bool) -> Iterator[list[Job]]:
    """The jobs with their code in the store, if machines need it there. If the block fails, the code is removed again.

    Raises UsageError for code that must be accepted and was not, and StoreError.
    """
    done: list[tuple[ObjectStore, str]] = []
    try:
        yield [_upload(installation, job, done, accepted=accepted) for job in jobs]
    except BaseException:
        for store, key in done:
            with suppress(ObjectStoreError):
                store.delete(key)
        raise


def _upload(installation: Installation, job: Job, done: list[tuple[ObjectStore, str]], *, accepted: bool) -> Job:
    if not _travels(installation, job.spec):
        return job
    found = _contents(installation, job.spec)
    if (concern := _concern(found)) is not None and not accepted:
        raise UsageError(concern, hint=remedy(str(found.folder)))
    try:
        store = open_store(installation.job_root(job.id))
        with tempfile.TemporaryFile() as archive:
            digest = pack(found, archive)
            archive.seek(0)
            done.append((store, code_key(digest)))
            store.put_file(code_key(digest), archive)
    except ObjectStoreError as error:
        raise StoreError(f"the code of {job.name} cannot be uploaded: {error.message}", hint=error.hint) from error
    except OSError as error:
        hint = "free some space in the folder for temporary files"
        raise StoreError(f"the code of {job.name} cannot be packed: {error.strerror}", hint=hint) from error
    return replace(job, spec=replace(job.spec, train=replace(job.spec.train, code=digest)))


def _travels(installation: Installation, spec: JobSpec) -> bool:
    """Whether the job may get a machine that does not have this host's folders."""
    clouds = spec.where.clouds or ("*",)
    return any(matches(name, clouds) and not traits_of(name).shares_host for name in installation.providers)


def _contents(installation: Installation, spec: JobSpec) -> Contents:
    """Everything in the code folder except what Tradewind itself has written there. Raises UsageError if this does not
    include the job's program."""
    stored = [str(installation.state_dir), str(installation.config.store_root), spec.checkpoint.to or ""]
    own = [Path(place) for place in stored if place and "://" not in place]
    found = contents(Path(spec.train.workdir), without=own)
    for program in _programs(spec.train):
        if (found.folder / program).is_file() and _inside(found.folder, program) not in found.files:
            raise UsageError(
                f"{program} is the job's program, but is excluded from its code",
                hint=f"add a line !{program} at the end of {found.folder}/{IGNORE_FILE}",
            )
    return found


def _programs(train: TrainSpec) -> list[str]:
    """The possible paths of the job's program in its code folder."""
    if train.script is not None:
        return [train.script]
    module = (train.entry or "").partition(":")[0].replace(".", "/")
    return [f"{module}.py", f"{module}/__init__.py"]


def _inside(folder: Path, path: str) -> str:
    """The path with links resolved, relative to the folder."""
    return os.path.relpath(os.path.realpath(folder / path), os.path.realpath(folder))


def _concern(found: Contents) -> str | None:
    """What the user should know before the code leaves this machine; None: nothing."""
    said = []
    if found.size_bytes > LARGE_BYTES:
        said.append(f"has {found.size_bytes / 1e6:,.0f} MB")
    if found.secret_like:
        more = len(found.secret_like) - SHOWN
        names = ", ".join(found.secret_like[:SHOWN]) + (f" and {more} more" if more > 0 else "")
        said.append(f"may contain secrets: {names}")
    return f"the code in {found.folder} {' and '.join(said)}" if said else None


def remedy(folder: str) -> str:
    """What to do about a concern."""
    return (
        f"list what must not be uploaded in {folder}/{IGNORE_FILE}; --yes (Python: accept_code=True) uploads all of it"
    )
