"""The machines of loopback clouds: hosts of a laboratory with a metadata service each, which run their user data.

They run it as root. A cloud starts one with `runner`, and ends it; `shutdown` in a machine ends it too.
"""

from __future__ import annotations

import gzip
import signal
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Protocol

from tests.clouds.server import Cloud, LoopbackServer, Request, Response
from tests.machines.lab import Host, Kind, Laboratory
from tests.machines.namespaces import network_of

ADDRESS, PORT = "169.254.169.254", 80
"""Where the metadata service of every cloud is."""
_GZIP = b"\x1f\x8b"
_SHUTDOWN = "#!/bin/bash\nkill -TERM 1\n"


class Machine(Protocol):
    """What runs as an instance."""

    @property
    def off(self) -> bool:
        """Whether it has shut down by itself."""
        ...

    def notify(self, at: datetime) -> None:
        """Let its metadata service announce its end."""
        ...

    def shut_down(self) -> None:
        """Ask its processes to end."""
        ...

    def end(self) -> None:
        """Pull the plug."""
        ...


class Metadata(Protocol):
    """The metadata service of one machine."""

    def __call__(self, request: Request) -> Response: ...

    def notify(self, at: datetime) -> None:
        """Announce the machine's end."""
        ...


Start = Callable[[str, bytes, Metadata], Machine]
"""Starts a machine of this name, with this user data and metadata service."""


class Rented:
    """A host of the laboratory that is rented out."""

    def __init__(self, lab: Laboratory, host: Host, metadata: Metadata, prepare: Callable[[Host], None]) -> None:
        self._lab, self.host, self.metadata = lab, host, metadata
        host.enter("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")
        with network_of(host.pid):
            self.server = LoopbackServer(metadata, address=ADDRESS, port=PORT)
        self.server.start()
        prepare(host)
        host.order("boot")

    @property
    def off(self) -> bool:
        return self.host.ended

    def notify(self, at: datetime) -> None:
        self.metadata.notify(at)

    def shut_down(self) -> None:
        self.host.signal_all(signal.SIGTERM)

    def end(self) -> None:
        self._lab.give_back(self.host)
        self.server.stop()

    def console(self) -> str:
        """What its user data printed."""
        if self.host.ended:
            return (self.host.folder / "errors").read_text(errors="replace")
        return self.host.run("cat /var/console.log", user="root", check=False).stdout


def host_of(machine: Machine) -> Host:
    """The host of a machine that a `runner` started."""
    assert isinstance(machine, Rented)
    return machine.host


def runner(
    lab: Laboratory,
    programs: Mapping[str, str] | None = None,
    prepare: Callable[[Host], None] = lambda _: None,
) -> Start:
    """Starts machines in a laboratory. `programs` are in front of all others on their PATH; `prepare` is called before
    a machine boots."""
    kind = Kind(programs={"shutdown": _SHUTDOWN, **(programs or {})})

    def start(name: str, user_data: bytes, metadata: Metadata) -> Machine:
        return Rented(lab, lab.rent(name, kind, user_data), metadata, prepare)

    return start


def unpacked(user_data: bytes) -> bytes:
    """User data as cloud-init runs it: it may be compressed."""
    return gzip.decompress(user_data) if user_data.startswith(_GZIP) else user_data


def beside(storage: Cloud, others: Cloud, is_others: Callable[[Request], bool]) -> Cloud:
    """A laboratory's bucket and another cloud at one address."""
    return lambda request: others(request) if is_others(request) else storage(request)
