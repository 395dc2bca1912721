"""Azure's instance metadata service on loopback: what one machine can ask about itself, and its scheduled events."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import format_datetime
from typing import Any

from tests.clouds.machines import Machine, Start
from tests.clouds.server import Request, Response

EVENT_ID = "602d9444-d2cd-49c7-8624-8643e7171297"


@dataclass
class Imds:
    """`vm` is the row that ARM shows. `preempted_at` is what it announces; `approve` is called when the machine has
    approved that. `without_header` counts the requests that were refused, as they might come from a browser."""

    vm: dict[str, Any]
    now: Callable[[], datetime]
    approve: Callable[[], None] = lambda: None
    preempted_at: datetime | None = None
    without_header: int = 0
    approved: list[str] = field(default_factory=list)

    def notify(self, at: datetime) -> None:
        self.preempted_at = at

    def __call__(self, request: Request) -> Response:
        date = format_datetime(self.now().replace(microsecond=0), usegmt=True)
        headers = {name.lower(): value for name, value in request.headers.items()}
        if headers.get("metadata") != "true" or "x-forwarded-for" in headers:
            self.without_header += 1
            return Response(400, b'{"error": "Bad request. Required metadata header not specified"}')
        if "api-version" not in request.query:
            return Response(400, b'{"error": "Bad request. api-version was not specified in the request"}')
        status, said = self._answer(request)
        return Response(status, said.encode(), "application/json; charset=utf-8", {"Date": date})

    def _answer(self, request: Request) -> tuple[int, str]:
        if request.path == "/metadata/scheduledevents":
            return self._approved(json.loads(request.body)) if request.method == "POST" else (200, self._events())
        if request.path == "/metadata/instance/compute/name" and request.query.get("format") == "text":
            return 200, str(self.vm["name"])
        if request.path == "/metadata/instance/compute/tagsList":
            return 200, json.dumps([{"name": name, "value": value} for name, value in self.vm["tags"].items()])
        return 404, '{"error": "Not found"}'

    def _events(self) -> str:
        events: list[Mapping[str, Any]] = []
        if self.preempted_at is not None:
            begun = bool(self.approved) or self.now() >= self.preempted_at
            events.append(
                {
                    "EventId": EVENT_ID,
                    "EventType": "Preempt",
                    "ResourceType": "VirtualMachine",
                    "Resources": [self.vm["name"]],
                    "EventStatus": "Started" if begun else "Scheduled",
                    "NotBefore": "" if begun else format_datetime(self.preempted_at, usegmt=True),
                    "Description": "",
                    "EventSource": "Platform",
                    "DurationInSeconds": -1,
                }
            )
        return json.dumps({"DocumentIncarnation": len(events) + len(self.approved), "Events": events})

    def _approved(self, body: Mapping[str, Any]) -> tuple[int, str]:
        ids = [each["EventId"] for each in body["StartRequests"]]
        if self.preempted_at is None or ids != [EVENT_ID]:
            return 400, '{"error": "Bad request"}'
        if not self.approved:
            self.approved += ids
            self.approve()
        return 200, ""


def machines_of(
    start: Start, now: Callable[[], datetime], approve: Callable[[str], None]
) -> Callable[[dict[str, Any], bytes], Machine]:
    """What `Arm` starts machines with; `approve` gets the name of a machine that has approved its end."""

    def made(vm: dict[str, Any], user_data: bytes) -> Machine:
        return start(vm["properties"]["vmId"], user_data, Imds(vm, now, lambda: approve(vm["name"])))

    return made
