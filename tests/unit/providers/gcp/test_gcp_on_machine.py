"""A machine on GCP learns of its own end, and for how long it may go on, from its metadata server."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import UTC, datetime

import pytest
from google.cloud import compute_v1

from providers.gcp.metadata import AGAIN_S, NOTICE_S, PreemptionNotices
from providers.gcp.on_machine import ATTRIBUTE, MetadataServer
from providers.machine.lifetime import LIVES, since_boot_s
from providers.machine.user_data import program
from providers.notice import Notice
from providers.notices import notices
from tests.clouds.gce_metadata import MetadataServer as Service
from tests.clouds.server import Fault, Response, serving

NOW = datetime(2031, 1, 1, 12, tzinfo=UTC)
HERE_S = 5000.0


def service() -> Service:
    items = [{"key": LIVES, "value": "3600 from 1"}]
    return Service(compute_v1.Instance(name="tw-1", metadata={"items": items}))


def test_a_notice_is_seen_as_soon_as_it_is_given() -> None:
    announcing = service()
    with serving(announcing) as server:
        found = PreemptionNotices(MetadataServer(server.url), lambda: HERE_S)
        assert found.look(1) == 0
        assert found() is None
        looking = threading.Thread(target=found.look, args=(60,))
        looking.start()
        announcing.notify(NOW)
        looking.join(20)
        assert found() == Notice("preemption", HERE_S + NOTICE_S)
        assert [request.query["wait_for_change"] for request in server.requests] == ["true", "true"]


def test_a_server_without_an_answer_or_a_change_gives_no_notice() -> None:
    with serving(service()) as server:
        found = PreemptionNotices(MetadataServer(server.url), lambda: HERE_S)
        server.faults.append(Fault(lambda _: True, 1, Response(503)))
        assert found.look(1) == AGAIN_S
        assert found.look(1) == 0
        assert found.look(1) == 0
        assert found() is None


@pytest.mark.parametrize("answer", [Response(200, b"TRUE"), Response(200, b"<html>TRUE</html>")])
def test_what_does_not_say_that_it_is_googles_is_not_believed(answer: Response) -> None:
    with serving(lambda _: answer) as server:
        found = PreemptionNotices(MetadataServer(server.url), lambda: HERE_S)
        assert found.look(1) == AGAIN_S
        assert found() is None


def test_the_time_to_live_is_an_attribute() -> None:
    with serving(service()) as server:
        metadata = MetadataServer(server.url)
        assert metadata.get(ATTRIBUTE) == "3600 from 1"
        assert metadata.get("instance/attributes/other") is None


def test_the_time_since_the_boot_is_that_of_the_first_process() -> None:
    assert since_boot_s() >= 0


def test_the_program_of_a_machine_needs_only_its_own_text() -> None:
    text = program("gcp")
    assert "from providers" not in text
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-", "0"], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "its time to live is over" in done.stderr


def test_the_agent_of_a_machine_on_gcp_looks_for_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PreemptionNotices, "started", lambda self: self)
    assert isinstance(notices("gcp"), PreemptionNotices)
