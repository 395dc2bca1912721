"""A machine on AWS learns of its own end from its metadata service."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from providers.aws.metadata import LOOK_S, SpotNotices
from providers.aws.on_machine import Imds
from providers.notice import Notice
from providers.notices import notices
from tests.clouds.imds import Imds as Service
from tests.clouds.server import Fault, Request, Response, serving

NOW = datetime(2031, 1, 1, 12, tzinfo=UTC)  # the machine's own clock says something else
HERE_S = 5000.0


def announced(request: Request) -> bool:
    return request.path.endswith("instance-action")


def test_the_deadline_is_counted_from_the_services_own_time() -> None:
    service = Service({"InstanceId": "i-1", "Tags": [], "MetadataOptions": {}}, lambda: NOW)
    with serving(service) as server:
        found = SpotNotices(Imds(server.url), lambda: HERE_S)
        found.look()
        assert found() is None
        service.interrupted_at = NOW + timedelta(seconds=120)
        found.look()
        assert found() == Notice("preemption", HERE_S + 120)
        assert service.with_token
        *before, last = service.with_token
        assert last.endswith("instance-action")
        assert {path.rpartition("/")[2] for path in before} == {"instance-action", "rebalance"}


def test_a_recommendation_to_rebalance_is_a_warning_until_there_is_a_notice() -> None:
    service = Service({"InstanceId": "i-1", "Tags": [], "MetadataOptions": {}}, lambda: NOW, at_risk=NOW)
    with serving(service) as server:
        found = SpotNotices(Imds(server.url), lambda: HERE_S)
        found.look()
        assert found() == Notice("rebalance", None)
        asked = len(service.with_token)
        service.interrupted_at = NOW + timedelta(seconds=120)
        found.look()
        assert found() == Notice("preemption", HERE_S + 120)
        assert len(service.with_token) == asked + 1


def test_a_recommendation_that_cannot_be_asked_for_hides_no_notice() -> None:
    service = Service({"InstanceId": "i-1", "Tags": [], "MetadataOptions": {}}, lambda: NOW)
    with serving(service) as server:
        server.faults.append(Fault(lambda request: request.path.endswith("rebalance"), None, Response(500)))
        found = SpotNotices(Imds(server.url), lambda: HERE_S)
        found.look()
        assert found() is None
        service.interrupted_at = NOW + timedelta(seconds=120)
        found.look()
        assert found() == Notice("preemption", HERE_S + 120)


@pytest.mark.parametrize("said", [b"", b"{", b'{"action": "terminate"}', b'{"time": 5}', b"[]", b'{"time": "soon"}'])
def test_what_is_no_notice_is_none(said: bytes) -> None:
    service = Service({"InstanceId": "i-1", "Tags": [], "MetadataOptions": {}}, lambda: NOW)
    with serving(service) as server:
        date = {"Date": "Wed, 01 Jan 2031 12:00:00 GMT"}
        server.faults.append(Fault(announced, None, Response(200, said, "text/plain", date)))
        found = SpotNotices(Imds(server.url), lambda: HERE_S)
        found.look()
        assert found() is None


def test_a_service_that_does_not_answer_is_asked_again() -> None:
    service = Service({"InstanceId": "i-1", "Tags": [], "MetadataOptions": {}}, lambda: NOW, NOW + timedelta(seconds=9))
    with serving(service) as server:
        server.faults.append(Fault(announced, 1, Response(500)))
        found = SpotNotices(Imds(server.url), lambda: HERE_S)
        found.look()
        assert found() is None
        found.look()
        assert found() == Notice("preemption", HERE_S + 9)


def test_a_notice_that_was_seen_stays() -> None:
    service = Service({"InstanceId": "i-1", "Tags": [], "MetadataOptions": {}}, lambda: NOW, NOW + timedelta(seconds=9))
    with serving(service) as server:
        found = SpotNotices(Imds(server.url), lambda: HERE_S)
        found.look()
        service.interrupted_at = None
        found.look()
        assert found() == Notice("preemption", HERE_S + 9)


def test_the_agent_of_a_machine_on_aws_looks_for_them_every_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SpotNotices, "started", lambda self: self)
    assert isinstance(notices("aws"), SpotNotices)
    assert LOOK_S <= 1.0
