"""client.networks: the networks and buckets that clouds need before machines can be rented there."""

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
    """The bucket is that of `store_root`, if it belongs to one of these clouds. `clouds` are names of enabled
    providers; `progress` is called with a line about each action."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list(self, clouds: Sequence[str]) -> NetworkList:
        """What exists, by cloud and region. Raises UsageError, ProviderFailure."""
        return networks.networks(self._session.installation, clouds)

    def set_up(self, clouds: Sequence[str], *, progress: Callable[[str], None] = _silent) -> NetworkList:
        """Create what is missing; may be repeated at any time. Raises UsageError for a cloud that is not enabled,
        ProviderFailure."""
        return networks.set_up(self._session.installation, clouds, progress)

    def tear_down(self, clouds: Sequence[str], *, progress: Callable[[str], None] = _silent) -> NetworkList:
        """Delete everything, except a bucket that is not empty or that Tradewind did not create; may be repeated at any
        time. Waits for machines that are ending. Raises UsageError while machines of this installation run there,
        ProviderFailure."""
        return networks.tear_down(self._session.installation, clouds, progress)
