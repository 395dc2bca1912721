"""client.nodes: the running machines."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.client.arguments import checked
from orchestrator.client.session import Session
from orchestrator.services.nodes.listing import nodes
from orchestrator.services.nodes.shell import shell_command
from orchestrator.services.nodes.views import NodeList


@checked
class Nodes:
    """A machine is listed until its end is confirmed and its cost is booked."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list(self, job: str | None = None) -> NodeList:
        """The machines of a job (None: all, also machines that the store did not rent): when their bills began, what
        they cost, and their latest reports. Asks the providers; those that do not answer are in `no_answer`."""
        return nodes(self._session.installation, job)

    def shell(self, job: str, command: Sequence[str] = (), *, node: int = 0) -> tuple[str, ...]:
        """The command line that runs `command` (a login shell if empty) on the machine of a job; if it has several
        machines, on number `node`, from 0. Raises UsageError if there is no such machine, or if its provider offers no
        login."""
        return shell_command(self._session.installation, job, command, node=node)
