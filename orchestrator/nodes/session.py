"""Session: ends every process of a machine."""

from __future__ import annotations

from orchestrator.errors import SiteError
from providers.errors import ProviderError
from providers.local import process


def end_session(session: int) -> None:
    """Kill every process of a session except this one, in any process group, until none is left.

    Raises SiteError with those that do not die.
    """
    try:
        process.kill_session(session)
    except ProviderError as error:
        raise SiteError(str(error), hint=error.hint) from error
