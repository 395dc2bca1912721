"""client.networks: what clouds need before machines can be rented there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.client.arguments import checked
from orchestrator.client.session import Session
from orchestrator.services.control_plane import networks
from orchestrator.services.views import NetworkList


def _silent(_text: str) -> None:
    return None


@checked
class Networks:
    """Networks, and the bucket of `store_root` if it is one of these clouds. `clouds` are names of enabled providers;
    `progress` is called with a line about each thing that is done."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list(self, clouds: Sequence[str]) -> NetworkList:
        """What is there, by cloud and region. Raises UsageError, ProviderFailure."""
        return networks.networks(self._session.installation, clouds)

    def set_up(self, clouds: Sequence[str], *, progress: Callable[[str], None] = _silent) -> NetworkList:
        """Make what is missing; may be repeated at any time. Raises UsageError for a cloud that is not enabled,
        ProviderFailure."""
        return networks.set_up(self._session.installation, clouds, progress)

    def tear_down(self, clouds: Sequence[str], *, progress: Callable[[str], None] = _silent) -> NetworkList:
        """Remove everything, but no bucket that holds something or that Tradewind did not make; may be repeated at any
        time. Waits for machines that are ending. Raises UsageError while machines of this installation are up there,
        ProviderFailure."""
        return networks.tear_down(self._session.installation, clouds, progress)
