"""A control plane that is killed in the middle of a migration: `killed_control_plane.py STEP [fence]`.

Like kill -9 right after the step STEP of a planned move was written down, or, with `fence`, right after its fence was
made and before that was written down.
"""

import os
import signal
import sys

from orchestrator import daemon
from orchestrator.engine import control
from orchestrator.engine.context import Context
from orchestrator.engine.jobs.checkpoints import FileCatalog
from orchestrator.engine.migration.steps import advance
from orchestrator.model import Migration

STEP, FENCED = sys.argv[1], sys.argv[2:] == ["fence"]


def advance_and_die(ctx: Context, migration: Migration) -> bool:
    """One step further; dead if that was the one."""
    changed = advance(ctx, migration)
    with ctx.installation.store.read() as tx:
        if migration.reason == "manual" and not FENCED and tx.migration(migration.id).step.value == STEP:
            os.kill(os.getpid(), signal.SIGKILL)
    return changed


class DoomedCatalog(FileCatalog):
    """Dies when it has made a fence."""

    def fence(self, *arguments: object) -> bool:
        super().fence(*arguments)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGKILL)
        return True


control.advance = advance_and_die  # type: ignore[attr-defined]
if FENCED:
    daemon.FileCatalog = DoomedCatalog  # type: ignore[attr-defined]
sys.exit(daemon.main())
