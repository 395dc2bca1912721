"""Still: the machine of a loopback cloud in tests that need no real one."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass
class Still:
    """A machine that runs nothing. `off`: it has shut itself down. `said`: what the cloud did to it."""

    user_data: bytes = b""
    off: bool = False
    said: list[str] = field(default_factory=list)

    def notify(self, at: datetime) -> None:
        self.said.append("notified")

    def shut_down(self) -> None:
        self.said.append("asked to shut down")

    def end(self) -> None:
        self.said.append("ended")
