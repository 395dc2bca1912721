"""A machine on Azure learns of its own end from its metadata service, and approves it when its work has ended."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from providers.azure.metadata import LOOK_S, ScheduledEvents
from providers.azure.on_machine import Imds, approve_all
from providers.machine.user_data import program
from providers.notice import Notice
from providers.notices import notices
from tests.clouds.scheduled_events import EVENT_ID
from tests.clouds.scheduled_events import Imds as Service
from tests.clouds.server import Fault, Request, Response, serving

NOW = datetime(2031, 1, 1, 12, tzinfo=UTC)  # the machine's own clock says something else
HERE_S = 5000.0
DATE = {"Date": "Wed, 01 Jan 2031 12:00:00 GMT"}


def service(at: datetime | None = None) -> Service:
    return Service({"name": "tw-1", "tags": {"tradewind-lives": "60 from 1"}}, lambda: NOW, preempted_at=at)


def of_events(request: Request) -> bool:
    return request.path.endswith("scheduledevents")


def test_the_deadline_is_counted_from_the_services_own_time() -> None:
    cloud = service()
    with serving(cloud) as server:
        found = ScheduledEvents(Imds(server.url), lambda: HERE_S)
        found.look()
        assert found() is None
        cloud.notify(NOW + timedelta(seconds=30))
        found.look()
        assert found() == Notice("preemption", HERE_S + 30)
        assert not cloud.without_header
        assert not cloud.approved  # the machine needs the whole notice


def test_an_event_that_has_begun_leaves_no_time() -> None:
    with serving(service(NOW)) as server:
        found = ScheduledEvents(Imds(server.url), lambda: HERE_S)
        found.look()
        assert found() == Notice("preemption", HERE_S)


def event(**fields: object) -> dict[str, object]:
    at = "Wed, 01 Jan 2031 12:00:30 GMT"
    return {"EventId": "1", "EventType": "Preempt", "Resources": ["tw-1"], "NotBefore": at, **fields}


@pytest.mark.parametrize(
    "said",
    [
        *(b"", b"{", b"[]", b"7", b'{"Events": 7}', b'{"Events": [7]}', b'{"Events": []}'),
        json.dumps({"Events": [event(EventType="Freeze")]}).encode(),
        json.dumps({"Events": [event(Resources=["tw-2"])]}).encode(),
        json.dumps({"Events": [event(NotBefore="soon")]}).encode(),
        json.dumps({"Events": [event(NotBefore=5)]}).encode(),
    ],
)
def test_what_is_no_notice_for_this_machine_is_none(said: bytes) -> None:
    with serving(service()) as server:
        server.faults.append(Fault(of_events, None, Response(200, said, headers=DATE)))
        found = ScheduledEvents(Imds(server.url), lambda: HERE_S)
        found.look()
        assert found() is None


def test_a_service_that_does_not_answer_is_asked_again_and_a_notice_stays() -> None:
    cloud = service(NOW + timedelta(seconds=9))
    with serving(cloud) as server:
        server.faults.append(Fault(of_events, 1, Response(500)))
        found = ScheduledEvents(Imds(server.url), lambda: HERE_S)
        found.look()
        assert found() is None
        found.look()
        cloud.preempted_at = None
        found.look()
        assert found() == Notice("preemption", HERE_S + 9)


def test_the_agent_of_a_machine_on_azure_looks_for_them_every_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScheduledEvents, "started", lambda self: self)
    assert isinstance(notices("azure"), ScheduledEvents)
    assert LOOK_S <= 1.0


def test_when_its_work_has_ended_a_machine_approves_its_announced_end_once() -> None:
    ended: list[str] = []
    cloud = service(NOW + timedelta(seconds=30))
    cloud.approve = lambda: ended.append("taken")
    with serving(cloud) as server:
        approve_all(Imds(server.url))
        approve_all(Imds(server.url))
        assert cloud.approved == [EVENT_ID]
        assert ended == ["taken"]


def test_without_an_announcement_or_a_service_nothing_is_approved(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(service()) as server:
        approve_all(Imds(server.url))
        assert not [each for each in server.requests if each.method == "POST"]
        server.faults.append(Fault(of_events, None, Response(500)))
        approve_all(Imds(server.url))
    assert "was not approved" in capsys.readouterr().err


def test_the_tags_say_how_long_it_lives() -> None:
    with serving(service()) as server:
        assert Imds(server.url).tags() == {"tradewind-lives": "60 from 1"}
        for said in (b"7", b"[7]", b"{"):
            server.faults = [Fault(lambda request: "tagsList" in request.path, None, Response(200, said, headers=DATE))]
            with pytest.raises(ValueError, match=r"."):
                Imds(server.url).tags()


def test_the_program_of_a_machine_needs_nothing_but_the_standard_library() -> None:
    checked = "import sys; sys.argv.append('0.0'); exec(sys.stdin.read())"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", checked], input=program("azure"), text=True, capture_output=True, check=True
    )
    assert "its time to live is over" in done.stderr
