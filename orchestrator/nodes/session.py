"""Session: ends every process of a machine.

    python -m orchestrator.nodes.session [FOLDER...]

A machine runs this after its agent has ended for any reason. It deletes these folders.
"""

from __future__ import annotations

import os
import shutil
import sys

from orchestrator.errors import SiteError
from providers import processes
from providers.errors import ProviderError


def end_session(session: int) -> None:
    """Kill every process of a session except this one, in any process group, until none is left.

    Raises SiteError with the processes that do not end.
    """
    try:
        processes.kill_session(session)
    except ProviderError as error:
        raise SiteError(str(error), hint=error.hint) from error


def end_machine() -> None:
    """End every process of this machine except this one; the provider ends the rest."""
    try:
        end_session(os.getsid(0))
    except SiteError as error:
        sys.stderr.write(f"{error}\n")


if __name__ == "__main__":
    end_machine()
    for folder in sys.argv[1:]:
        shutil.rmtree(folder, ignore_errors=True)
