"""Reads what runs write: files of this host, or pieces in the store that their machines upload."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from orchestrator.errors import NotFoundError, StoreError
from orchestrator.installation import Installation
from orchestrator.model import Job, Run
from orchestrator.nodes.log_pieces import PieceReader, log_prefix, metrics_prefix
from providers.traits import shares_host
from trainers.errors import ObjectStoreError
from trainers.objects.base import ObjectStore
from trainers.objects.opening import open_store

CHUNK_BYTES = 1 << 20
MOST_METRICS_BYTES = 256 << 20
"""Metrics that are read of one run: several million steps."""
LOG, METRICS = "log", "metrics.jsonl"
PRUNED = "store.pruned"
"""The kind of event for a job whose objects are deleted (services.store.pruning); its data has the bytes of each
kind."""
_PREFIXES = {LOG: log_prefix, METRICS: metrics_prefix}


class Appended(Protocol):
    """A file that a run appends to."""

    def news(self) -> Iterator[bytes]:
        """What was added since the last call. Raises ObjectStoreError."""
        ...


def appended(installation: Installation, run: Run, name: str, rank: int = 0) -> Appended:
    """The LOG or METRICS of a run's machine. Raises StoreError."""
    if shares_host(run.offer_id):
        folder = installation.run_dir(run.id)
        return _File((folder if rank == 0 else folder / "machines" / str(rank)) / name)
    return PieceReader(job_store(installation, run.job_id), _PREFIXES[name](run.id, rank))


def metrics_of(installation: Installation, run: Run) -> bytes:
    """The metrics of a run, as JSON lines, at most MOST_METRICS_BYTES; empty if they cannot be read. Those of an ended
    run on another machine are fetched once and kept on this host."""
    kept = installation.run_dir(run.id) / METRICS
    if run.end is not None and not shares_host(run.offer_id) and not kept.exists():
        with suppress(OSError, ObjectStoreError, StoreError):
            found = _first_bytes(appended(installation, run, METRICS))
            kept.parent.mkdir(parents=True, exist_ok=True)
            partial = kept.with_name(f".{METRICS}.{secrets.token_hex(4)}")
            partial.write_bytes(found)
            partial.replace(kept)
    with suppress(OSError, ObjectStoreError, StoreError):
        source = _File(kept) if kept.exists() else appended(installation, run, METRICS)
        return _first_bytes(source)
    return b""


def _first_bytes(source: Appended) -> bytes:
    """Raises ObjectStoreError, OSError."""
    found = bytearray()
    for piece in source.news():
        found += piece[: MOST_METRICS_BYTES - len(found)]
        if len(found) == MOST_METRICS_BYTES:
            break
    return bytes(found)


def job_store(installation: Installation, job_id: str) -> ObjectStore:
    """The place of a job's files in the store. Raises StoreError."""
    with readable():
        return open_store(installation.job_root(job_id))


def check_not_pruned(installation: Installation, job: Job, what: str) -> None:
    """Raises NotFoundError if the "logs" or "outputs" of a job were deleted from the store."""
    with installation.store.read() as tx:
        pruned = [event for event in tx.events(job.id, kinds=[PRUNED]) if event.data.get(f"{what}_bytes")]
        name = tx.typed_name(job.id, job.name)
    if pruned:
        hint = f"see when, and by whom: tradewind events {name}"
        raise NotFoundError(f"the {what} of {job.name} were deleted by `tradewind store prune`", hint=hint)


@contextmanager
def readable() -> Iterator[None]:
    """Turn an error of the object store into a StoreError."""
    try:
        yield
    except ObjectStoreError as error:
        raise StoreError(error.message, hint=error.hint) from error


class _File:
    """A file, read from where the last read stopped."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0

    def news(self) -> Iterator[bytes]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                while chunk := file.read(CHUNK_BYTES):
                    self._offset += len(chunk)
                    yield chunk
        except FileNotFoundError:
            return  # the run has not started
