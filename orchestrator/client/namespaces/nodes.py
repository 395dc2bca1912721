"""client.nodes: the machines that are up."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.client.arguments import checked
from orchestrator.client.session import Session
from orchestrator.services.nodes.listing import nodes
from orchestrator.services.nodes.shell import shell_command
from orchestrator.services.nodes.views import NodeList


@checked
class Nodes:
    """A machine counts until its end is confirmed and its cost is booked."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list(self, job: str | None = None) -> NodeList:
        """The machines of a job (None: all, also those that the store did not rent): since when they are billed, what
        they cost, and what each reported last. Asks the providers; one that does not answer is in `no_answer`."""
        return nodes(self._session.installation, job)

    def shell(self, job: str, command: Sequence[str] = (), *, node: int = 0) -> tuple[str, ...]:
        """The command line that runs `command` (a login shell if empty) on the machine that a job trains on; of several
        machines, on that with the number `node`, from 0. Raises UsageError if there is none, or if the machine's
        provider offers no login."""
        return shell_command(self._session.installation, job, command, node=node)
