"""client.checkpoints: lists, verifies, prunes and exports the checkpoints of jobs."""

from __future__ import annotations

from pathlib import Path

from orchestrator.client.arguments import checked
from orchestrator.client.paths import path_of
from orchestrator.client.session import Session
from orchestrator.services.checkpoints import export, listing
from orchestrator.services.checkpoints.views import CheckpointExported, CheckpointList, CheckpointsPruned


@checked
class Checkpoints:
    """Jobs write and prune checkpoints by themselves; use these methods for manual work."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list(self, job: str) -> CheckpointList:
        """The checkpoints of a job, and whether all their data exist. Reads no data."""
        return listing.checkpoints(self._session.installation, job)

    def verify(self, job: str) -> CheckpointList:
        """Like `list`, after reading every byte and comparing it with its hash."""
        return listing.checkpoints(self._session.installation, job, verify=True)

    def prune(self, job: str, *, keep: int, hourly: int = 0, best: int = 0, dry_run: bool = False) -> CheckpointsPruned:
        """Delete the checkpoints of a job that is not running, except the `keep` latest ones, the latest one of each of
        the last `hourly` hours, and the `best` ones with the lowest loss. Raises UsageError while the job runs."""
        installation = self._session.installation
        return listing.prune(installation, job, keep=keep, hourly=hourly, best=best, dry_run=dry_run)

    def export(
        self, job: str, path: str | Path, *, checkpoint: str | None = None, replace: bool = False
    ) -> CheckpointExported:
        """Write the newest valid checkpoint, or the one of that name, to a file. A .safetensors file gets the model,
        any other file everything that was attached, for torch.load. Raises UsageError if the file exists, unless
        `replace`; MissingExtraError."""
        return export.export(self._session.installation, job, path_of(path), name=checkpoint, replace=replace)
