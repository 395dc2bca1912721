"""The first contact of an agent that has no credentials, and what it is given through pipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.client import BadStatusLine
from pathlib import Path

import pytest

from orchestrator.nodes.access.signing import Credentials, Place, Presigner
from orchestrator.nodes.boot import program
from orchestrator.nodes.boot.contact import Contact, Urls
from orchestrator.nodes.messages import NodeFacts
from tests.clouds.guarded_s3 import GuardedS3
from tests.clouds.s3 import KEY_ID
from tests.clouds.server import Fault, LoopbackServer, Response, serving
from trainers.errors import StoreDenied, StoreUnavailable
from trainers.objects.opening import open_store

FACTS = NodeFacts("boot-1", "key", "proof")


@pytest.fixture
def s3() -> GuardedS3:
    return GuardedS3()


@pytest.fixture
def server(s3: GuardedS3, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackServer]:
    with serving(s3) as started:
        s3.lead_to(started, monkeypatch)
        yield started


@pytest.fixture
def contact(s3: GuardedS3, server: LoopbackServer) -> Contact:
    place, now = Place(server.url, "us-east-1"), datetime.now(UTC)  # noqa: TID251
    signer = Presigner(Credentials(KEY_ID, s3.secret), place, now, 3600)
    node, access = (f"/{s3.bucket}/m/{name}" for name in ("node", "access"))
    objects = {
        "node": (node, signer.suffix("PUT", node, if_absent=True)),
        "registered": (node, signer.suffix("GET", node)),
        "access": (access, signer.suffix("GET", access)),
    }
    return Contact(Urls(place.endpoint, signer.query, objects, signer.headers, signer.once))


def test_a_machine_registers_once(contact: Contact) -> None:
    assert contact.put_facts(FACTS)
    assert not contact.put_facts(NodeFacts("boot-2", "key", "proof"))


def test_a_lost_answer_is_no_other_start(contact: Contact, server: LoopbackServer) -> None:
    server.faults.append(Fault(lambda request: request.method == "PUT", lost=True))
    with pytest.raises(StoreUnavailable):
        contact.put_facts(FACTS)
    assert contact.put_facts(FACTS)


def test_an_answer_that_is_none_is_no_end(contact: Contact, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a portal in between that speaks no HTTP."""

    def garbage(*_: object, **__: object) -> None:
        raise BadStatusLine("SSH-2.0-OpenSSH_9.6")

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", garbage)
    with pytest.raises(StoreUnavailable, match=r"SSH-2\.0"):
        contact.access()


def test_the_text_of_a_refusal_that_stalls_is_no_end(
    contact: Contact, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stalled(*_: object) -> bytes:
        raise TimeoutError("timed out")

    server.faults.append(Fault(lambda _: True, answer=Response(403)))
    monkeypatch.setattr(urllib.error.HTTPError, "read", stalled, raising=False)
    with pytest.raises(StoreUnavailable, match="timed out"):
        contact.access()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_no_answer_leads_a_request_with_a_token_to_another_host(status: int) -> None:
    with serving(lambda _: Response(200, b"a trap")) as other:
        away = Response(status, headers={"Location": f"{other.url}/elsewhere"})
        with serving(lambda _: away) as first:
            urls = Urls(first.url, "", {"access": ("/b/access", "")}, {"Authorization": "Bearer secret"}, {})
            with pytest.raises(StoreDenied):
                Contact(urls).access()
            boots = f"import urllib.request as u; u.install_opener(u.build_opener(Stay)); u.urlopen({first.url!r})"
            text = Path(program.__file__).read_text() + "\n" + boots
            done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
            assert f"HTTP Error {status}" in done.stderr
        assert other.requests == []


def test_access_is_awaited(contact: Contact, s3: GuardedS3) -> None:
    assert contact.access() is None
    open_store(f"s3://{s3.bucket}/m").put("access", b"sealed")
    assert contact.access() == b"sealed"


def test_after_its_hour_a_machine_is_refused(contact: Contact, s3: GuardedS3) -> None:
    s3.late = timedelta(hours=2)
    with pytest.raises(StoreDenied, match="expired"):
        contact.access()
    with pytest.raises(StoreDenied, match="first contact"):
        contact.put_facts(FACTS)


_TAKES = """
import json, os, sys
from orchestrator.nodes.handover import Handover
found = Handover.taken()
started = open("/proc/self/environ").read()
left = [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]
print(json.dumps([found.boot_token, dict(found.variables), left, "hush" in started]))
if len(sys.argv) == 1:
    sys.stdout.flush()
    found.pass_on(["-c", sys.stdin.read(), "again"])
"""


def test_what_is_passed_through_pipes_is_in_nobodys_environment_even_after_another_start() -> None:
    boot, access = os.pipe(), os.pipe()
    os.write(boot[1], json.dumps({"boot_token": "hush-1"}).encode())
    os.write(access[1], b"AWS_SECRET_ACCESS_KEY=hush-2\0AWS_REGION=here\0")
    os.close(boot[1])
    os.close(access[1])
    stores = ("AWS_", "AZURE_", "GOOGLE_")
    own = {name: value for name, value in os.environ.items() if not name.startswith(stores)}
    given = {"AZURE_STORAGE_ACCOUNT_NAME": "ours", "GOOGLE_BASE_URL": "there"}
    environment = {**own, **given, "TRADEWIND_BOOT_FD": str(boot[0]), "TRADEWIND_ACCESS_FD": str(access[0])}
    done = subprocess.run(
        [sys.executable, "-c", _TAKES],
        input=_TAKES,
        env=environment,
        pass_fds=[boot[0], access[0]],
        capture_output=True,
        text=True,
        check=True,
    )
    os.close(boot[0])
    os.close(access[0])
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert (
        first
        == second
        == [
            "hush-1",
            {**given, "AWS_SECRET_ACCESS_KEY": "hush-2", "AWS_REGION": "here"},
            [],
            False,
        ]
    )


_PASSES = """
import sys
from orchestrator.nodes.handover import Handover
found = Handover.taken()
if len(sys.argv) == 1:
    Handover("hush", None, {"LONG": "x" * 1_000_000}).pass_on(["-c", sys.stdin.read(), "again"])
print(len(found.variables["LONG"]))
"""


def test_however_much_is_passed_on_nobody_waits_for_a_pipe_that_is_full() -> None:
    """A user with many pipes, as Ray makes them, gets such that hold 4 KiB (pipe(7))."""
    done = subprocess.run(
        [sys.executable, "-c", _PASSES], input=_PASSES, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "1000000\n"
