"""GCP's metadata server on loopback: what one machine can ask about itself. A request may hang until it changes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.clouds.machines import Machine, Start
from tests.clouds.server import Request, Response

_ATTRIBUTES = "instance/attributes/"
_LONGEST_S = 300


@dataclass
class MetadataServer:
    """`instance` is the row (google.cloud.compute_v1.Instance) of the machine. `asked` are the paths that were
    answered; requests without the header are refused."""

    instance: Any
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._preempted = False
        self._changed = threading.Condition()

    def notify(self, _: datetime) -> None:
        """Announce that the machine is going to be preempted."""
        with self._changed:
            self._preempted = True
            self._changed.notify_all()

    def __call__(self, request: Request) -> Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        if headers.get("metadata-flavor") != "Google" or "x-forwarded-for" in headers:
            return Response(403, b"Missing Metadata-Flavor:Google header.", "text/html")
        path = request.path.removeprefix("/computeMetadata/v1/")
        self.asked.append(path)
        if request.query.get("wait_for_change") == "true":
            seconds, etag = float(request.query.get("timeout_sec", _LONGEST_S)), request.query.get("last_etag", "")
            with self._changed:
                self._changed.wait_for(lambda: etag != _etag(self._value(path)), seconds)
        value = self._value(path)
        if value is None:
            return Response(404, b"", "text/html")
        headers = {"Metadata-Flavor": "Google", "ETag": _etag(value)}
        return Response(200, value.encode(), "application/text", headers)

    def _value(self, path: str) -> str | None:
        if path == "instance/preempted":
            return "TRUE" if self._preempted else "FALSE"
        if path.startswith(_ATTRIBUTES):
            items = {item.key: item.value for item in self.instance.metadata.items}
            return items.get(path.removeprefix(_ATTRIBUTES))
        return {
            "instance/id": str(self.instance.id),
            "instance/name": self.instance.name,
            "instance/zone": f"projects/1/zones/{self.instance.zone.rpartition('/')[2]}",
            "instance/machine-type": f"projects/1/machineTypes/{self.instance.machine_type.rpartition('/')[2]}",
        }.get(path)


def _etag(value: str | None) -> str:
    return f"{hash(value) & 0xFFFFFFFF:08x}"


def machines_of(start: Start) -> Callable[[Any], Machine]:
    """What `Compute` starts machines with: Google's agent runs the script of their metadata."""

    def started(row: Any) -> Machine:
        items = {item.key: item.value for item in row.metadata.items}
        return start(f"vm-{row.id}", items["startup-script"].encode(), MetadataServer(row))

    return started
