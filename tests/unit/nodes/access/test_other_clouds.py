"""What a machine is lent of a store of Google or Azure reaches its own job, for a while, and nothing else: the store
itself is asked, which checks tokens, boundaries and signatures."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.errors import SiteError
from orchestrator.nodes import sealing
from orchestrator.nodes.access.grants import NoLimitedAccess, Signer, url
from orchestrator.nodes.access.issuing import Issuer
from orchestrator.nodes.access.lending import Lender
from orchestrator.nodes.access.machine_access import MOST_S, BorrowedAccess
from orchestrator.nodes.access.scope import Scope, scope_of
from orchestrator.nodes.boot.contact import Contact, Urls
from orchestrator.nodes.messages import NodeFacts
from tests.clouds import blob, gcs
from tests.clouds.azure import loopback_tls
from tests.clouds.guarded_blob import GuardedBlob
from tests.clouds.guarded_gcs import GuardedGcs
from tests.clouds.server import Fault, LoopbackServer, Response, serving
from trainers.errors import StoreDenied, StoreUnavailable
from trainers.objects.base import ObjectStore
from trainers.objects.credentials import BEARER, Lent
from trainers.objects.opening import open_store
from trainers.objects.retry import Patience

TOKEN = "launch-1"
AT_ONCE = Patience(tries=1)
CONTROL = f"control/install/{TOKEN}"


def now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251


@dataclass
class Guarded:
    """A store of one cloud, and its server. `root` is the URL of an installation's place in it."""

    cloud: GuardedGcs | GuardedBlob
    server: LoopbackServer
    root: str
    lasts_s: float

    def scope(self) -> Scope:
        writes = (f"{self.root}/{CONTROL}", f"{self.root}/checkpoints/job-1", f"{self.root}/jobs/install/job-1")
        return scope_of(writes, (f"{self.root}/runtime/digest",))

    def refuse_to_issue(self) -> None:
        if isinstance(self.cloud, GuardedGcs):
            self.cloud.issues = False
        else:
            self.cloud.has_folders = False


@pytest.fixture(params=["gs", "az"])
def guarded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    cloud = GuardedGcs() if request.param == "gs" else GuardedBlob()
    with serving(cloud) as server:
        if isinstance(cloud, GuardedGcs):
            variables, root, lasts_s = gcs.environment(server), f"gs://{cloud.bucket}/tw", 3600.0
        else:
            variables, root, lasts_s = blob.environment(server, cloud.key), f"az://{cloud.container}/tw", 43_200.0
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield Guarded(cloud, server, root, lasts_s)


@pytest.fixture
def mine(guarded: Guarded) -> ObjectStore:
    """The whole place, as its owner sees it."""
    store = open_store(guarded.root, AT_ONCE)
    for key in ("control/install/launch-2/order", "checkpoints/job-2/fences/1", "runtime/digest/runtime.zip", "other"):
        store.put(key, b"not theirs")
    return store


@pytest.fixture
def lent(guarded: Guarded, mine: ObjectStore) -> ObjectStore:
    """The same with what one machine is lent."""
    found = Issuer(now).issue(guarded.scope(), "tw")
    assert found.for_s == guarded.lasts_s
    return open_store(guarded.root, AT_ONCE, lambda: Lent(found.values, now() + timedelta(minutes=1)))


@pytest.mark.parametrize("place", [CONTROL, "checkpoints/job-1", "jobs/install/job-1"])
def test_a_machine_reads_writes_lists_and_deletes_what_is_its_jobs(lent: ObjectStore, place: str) -> None:
    own = lent.child(place)
    own.prepare("a")
    assert own.get("a/b", 9) is None
    assert own.put_if_absent("a/b", b"1")
    assert not own.put_if_absent("a/b", b"2")
    found = own.get("a/b", 9)
    assert found is not None
    assert own.put_if_match("a/b", b"2", found.version) is not None
    assert own.copy("a/b", "a/c")
    own.put("d", b"3")
    assert sorted(own.keys()) == ["a/b", "a/c", "d"]
    assert sorted(own.keys("a")) == ["a/b", "a/c"]
    own.delete("a/b", "a/c", "there-is-none")
    own.delete("d")
    assert own.keys() == []


def test_a_machine_reads_its_runtime_and_cannot_change_it(lent: ObjectStore) -> None:
    assert lent.get("runtime/digest/runtime.zip", 99) is not None
    with pytest.raises(StoreDenied):
        lent.put("runtime/digest/runtime.zip", b"forged")
    with pytest.raises(StoreDenied):
        lent.delete("runtime/digest/runtime.zip")
    with pytest.raises(StoreDenied):
        lent.get("runtime/another/runtime.zip", 99)


@pytest.mark.parametrize(
    "key",
    [
        "checkpoints/job-2/fences/1",
        "checkpoints/job-1-2/fences/1",
        "control/install/launch-2/order",
        "control/install/runs/run-1",
        "jobs/install/job-2/workdir/x",
        "other",
    ],
)
def test_nothing_of_another_job_machine_or_installation_can_be_read_written_copied_or_deleted(
    lent: ObjectStore, mine: ObjectStore, guarded: Guarded, key: str
) -> None:
    own = f"{CONTROL}/x"
    lent.put(own, b"x")
    mine.put(key, b"not theirs")
    attempts: list[Callable[[], object]] = [
        lambda: lent.get(key, 99),
        lambda: lent.head(key),
        lambda: lent.put(key, b"forged"),
        lambda: lent.put_if_absent(key, b"forged"),
        lambda: lent.copy(own, key),
        lambda: lent.copy(key, own),
        lambda: lent.delete(key),
        lambda: lent.delete(own, key),
    ]
    for attempt in attempts:
        with pytest.raises(StoreDenied):
            attempt()
    found = mine.get(key, 99)
    assert found is not None
    assert found.data == b"not theirs"


@pytest.mark.parametrize("prefix", ["", "checkpoints", "control", "control/install", "checkpoints/job-2", "runtime"])
def test_nothing_else_can_be_listed(lent: ObjectStore, prefix: str) -> None:
    with pytest.raises(StoreDenied):
        lent.keys(prefix)


def test_credentials_of_one_folder_are_of_no_use_for_another(guarded: Guarded, mine: ObjectStore) -> None:
    """A machine that changes what it was lent: the store checks, not the machine."""
    issued = Issuer(now).issue(guarded.scope(), "tw").values
    (some, *_) = issued.values()
    forged = {name: some for name in issued} | {guarded.root: some}
    store = open_store(guarded.root, AT_ONCE, lambda: Lent(forged, now() + timedelta(minutes=1)))
    with pytest.raises(StoreDenied):
        store.get("checkpoints/job-2/fences/1", 99)
    with pytest.raises(StoreDenied):
        store.put("other", b"forged")
    with pytest.raises(StoreDenied):
        store.delete("other")


def test_it_ends(lent: ObjectStore, guarded: Guarded) -> None:
    lent.put(f"{CONTROL}/report", b"")
    guarded.cloud.late = timedelta(seconds=guarded.lasts_s + 1)
    with pytest.raises(StoreDenied):
        lent.put(f"{CONTROL}/report", b"")


def test_a_store_that_cannot_limit_access_is_refused_and_the_remedy_named(guarded: Guarded, mine: ObjectStore) -> None:
    guarded.refuse_to_issue()
    with pytest.raises(NoLimitedAccess) as caught:
        Issuer(now).issue(guarded.scope(), "tw")
    assert "machines.share_credentials" in caught.value.hint
    assert ("tradewind up --cloud azure" in caught.value.hint) is isinstance(guarded.cloud, GuardedBlob)
    shared = Issuer(now, share=True).issue(guarded.scope(), "tw").values
    store = open_store(guarded.root, AT_ONCE, lambda: Lent(shared, now() + timedelta(minutes=1)))
    assert store.get("other", 99) is not None


def test_a_service_that_does_not_answer_is_asked_again(guarded: Guarded) -> None:
    guarded.server.faults.append(Fault(lambda _: True, lost=True))
    with pytest.raises(SiteError) as caught:
        Issuer(now).issue(guarded.scope(), "tw")
    assert not isinstance(caught.value, NoLimitedAccess)
    assert Issuer(now).issue(guarded.scope(), "tw").for_s


def html(status: int) -> Response:
    return Response(status, b"<html>", "text/html")


def answer(**reported: object) -> Response:
    return Response(200, json.dumps(reported).encode())


@pytest.mark.parametrize(
    "given",
    [
        *(html(status) for status in (200, 408, 429, 500, 503)),
        *(Response(200, body) for body in (b"", b"[]", b"{}", b"\xff")),
        answer(access_token=None, expires_in=3600),
        *(answer(access_token="t", expires_in=reported) for reported in (-5, "soon", float("nan"))),
    ],
)
def test_an_answer_that_is_none_is_no_refusal(guarded: Guarded, given: Response) -> None:
    """Nor an error that would end the thread which renews the access of every machine."""
    if isinstance(guarded.cloud, GuardedBlob) and given.status == 200:
        given = replace(given, headers={"x-ms-is-hns-enabled": "perhaps"})
    guarded.server.faults.append(Fault(lambda _: True, answer=given))
    with pytest.raises(SiteError) as caught:
        Issuer(now).issue(guarded.scope(), "tw")
    assert not isinstance(caught.value, NoLimitedAccess)
    assert "tries again" in caught.value.hint
    assert Issuer(now).issue(guarded.scope(), "tw").for_s


def test_a_refusal_is_reported_once(guarded: Guarded) -> None:
    guarded.server.faults.append(Fault(lambda _: True, answer=Response(403, b'{"error": "access_denied"}')))
    with pytest.raises(NoLimitedAccess) as caught:
        Issuer(now).issue(guarded.scope(), "tw")
    assert str(caught.value).count("access_denied") <= 1


def test_a_machine_is_given_a_time_that_it_believes(guarded: Guarded) -> None:
    if isinstance(guarded.cloud, GuardedGcs):
        guarded.server.faults.append(Fault(lambda _: True, answer=answer(access_token="t", expires_in=1e99)))
        assert Issuer(now).issue(guarded.scope(), "tw").for_s <= MOST_S


@pytest.mark.parametrize("key", ["not base64!", "abc"])
def test_a_key_of_azure_that_is_none_is_named_and_not_shown(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    if isinstance(guarded.cloud, GuardedBlob):
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", key)
        with pytest.raises(SiteError, match="AZURE_STORAGE_ACCOUNT_KEY") as caught:
            Issuer(now).signer(guarded.scope(), 3600)
        assert key not in str(caught.value)


def test_azure_gets_no_login_over_plain_http(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    if isinstance(guarded.cloud, GuardedBlob):
        monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
        with pytest.raises(SiteError, match="HTTPS"):
            Issuer(now).issue(guarded.scope(), "tw")
        assert not guarded.server.requests


@pytest.mark.parametrize("body", [b"<html", b"", b"<html></html>", b"<UserDelegationKey></UserDelegationKey>"])
def test_a_key_of_a_login_that_is_none_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    from azure.core.credentials import AccessTokenInfo
    from azure.identity import DefaultAzureCredential

    context, authority = loopback_tls(tmp_path)
    cloud = GuardedBlob()
    with serving(cloud, context) as server:
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", server.url)
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", blob.ACCOUNT)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", authority)
        token = AccessTokenInfo(cloud.token, 4_000_000_000)
        monkeypatch.setattr(DefaultAzureCredential, "get_token_info", lambda *_, **__: token)
        server.faults.append(Fault(lambda _: True, answer=Response(200, body, "application/xml")))
        with pytest.raises(SiteError) as caught:
            Issuer(now).issue(scope_of((f"az://{cloud.container}/tw",)), "tw")
        assert not isinstance(caught.value, NoLimitedAccess)


@pytest.mark.parametrize("said", [b"garbage\r\n\r\n", b""])
def test_a_delete_that_gets_no_answer_is_named(
    lent: ObjectStore, guarded: Guarded, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def once() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(said)

        threading.Thread(target=once, daemon=True).start()
        for name in ("AZURE_STORAGE_ENDPOINT", "GOOGLE_BASE_URL"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{listening.getsockname()[1]}")
        values = {f"{guarded.root}/x": "sig=a", BEARER: "a"}
        store = open_store(f"{guarded.root}/x", AT_ONCE, lambda: Lent(values, now() + timedelta(minutes=1)))
        with pytest.raises(StoreUnavailable):
            store.delete("a")


def test_a_job_whose_checkpoints_are_with_another_cloud_than_the_store_is_refused(guarded: Guarded) -> None:
    with pytest.raises(SiteError, match="two clouds") as caught:
        scope_of((f"{guarded.root}/{CONTROL}", "s3://bucket/checkpoints"))
    assert "checkpoint.to" in caught.value.hint


# The first contact


def send(signer: Signer, method: str, path: str, body: bytes | None = None) -> bytes:
    once = body is not None
    headers = {**signer.headers, **(signer.once if once else {})}
    where = url(signer, method, path, if_absent=once)
    with urllib.request.urlopen(urllib.request.Request(where, body, headers, method=method)) as answer:
        return bytes(answer.read())


def test_the_requests_of_a_first_contact_create_and_read_and_nothing_else(guarded: Guarded, mine: ObjectStore) -> None:
    signer = Issuer(now).signer(Scope((f"{guarded.root}/{CONTROL}",), (f"{guarded.root}/runtime/digest",)), 3600)
    bucket = guarded.root.split("/")[2]
    assert send(signer, "GET", f"/{bucket}/tw/runtime/digest/runtime.zip") == b"not theirs"
    send(signer, "PUT", f"/{bucket}/tw/{CONTROL}/node", b"first")
    assert send(signer, "GET", f"/{bucket}/tw/{CONTROL}/node") == b"first"
    with pytest.raises(urllib.error.HTTPError, match=r"403|412"):
        send(signer, "PUT", f"/{bucket}/tw/{CONTROL}/node", b"second")
    where = url(signer, "PUT", f"/{bucket}/tw/{CONTROL}/node", if_absent=True)
    headers = {**signer.headers, "x-ms-blob-type": "BlockBlob"}
    for method in ("PUT", "DELETE"):  # without the condition
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(urllib.request.Request(where, b"forged", headers, method=method))
    assert send(signer, "GET", f"/{bucket}/tw/{CONTROL}/node") == b"first"
    read = url(signer, "GET", f"/{bucket}/tw/{CONTROL}/node").replace(CONTROL, "control/install/launch-2")
    read = read.replace("/node", "/order")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(urllib.request.Request(read, headers=dict(signer.headers)))
    guarded.cloud.late = timedelta(hours=1, seconds=1)
    with pytest.raises(urllib.error.HTTPError, match=r"401|403"):
        send(signer, "GET", f"/{bucket}/tw/{CONTROL}/node")


def test_what_is_not_sealed_holds_no_credentials_of_the_control_plane_even_if_they_are_shared(guarded: Guarded) -> None:
    signer = Issuer(now, share=True).signer(guarded.scope(), 3600)
    shown = f"{signer.headers} {signer.once} {signer.query} {signer.suffix('GET', '/bucket/tw/x')}"
    assert not any(secret in shown for secret in guarded.cloud.secrets())
    guarded.refuse_to_issue()
    if isinstance(guarded.cloud, GuardedGcs):
        with pytest.raises(NoLimitedAccess) as caught:
            Issuer(now, share=True).signer(guarded.scope(), 3600)
        assert "share_credentials" not in caught.value.hint  # it is set, and does not help


def test_a_store_that_waited_too_long_for_a_request_is_asked_again(contact: Contact, guarded: Guarded) -> None:
    guarded.server.faults.append(Fault(lambda _: True, answer=Response(408)))
    with pytest.raises(StoreUnavailable):
        contact.access()


@pytest.fixture
def contact(guarded: Guarded) -> Contact:
    signer = Issuer(now).signer(Scope((f"{guarded.root}/{CONTROL}",)), 3600)
    at = f"/{guarded.root.split('/')[2]}/tw/{CONTROL}"
    objects = {
        "node": (f"{at}/node", signer.suffix("PUT", f"{at}/node", if_absent=True)),
        "registered": (f"{at}/node", signer.suffix("GET", f"{at}/node")),
        "access": (f"{at}/access", signer.suffix("GET", f"{at}/access")),
    }
    return Contact(Urls(signer.endpoint, signer.query, objects, signer.headers, signer.once))


def test_a_machine_registers_once(contact: Contact, guarded: Guarded) -> None:
    facts = NodeFacts("boot-1", "key", "proof")
    assert contact.facts() is None
    guarded.server.faults.append(Fault(lambda request: request.method == "PUT", lost=True))
    with pytest.raises(StoreUnavailable):
        contact.put_facts(facts)
    assert contact.put_facts(facts)
    assert not contact.put_facts(NodeFacts("boot-2", "key", "proof"))
    assert contact.facts() == facts
    assert contact.access() is None


def test_a_machine_that_comes_too_late_gets_an_error(contact: Contact, guarded: Guarded) -> None:
    guarded.cloud.late = timedelta(hours=1, seconds=1)
    with pytest.raises(StoreDenied) as caught:
        contact.access()
    assert "another machine" in caught.value.hint


# A login instead of a key


@pytest.mark.parametrize("delegates", [True, False])
def test_azure_signs_for_who_is_logged_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delegates: bool) -> None:
    from azure.core.credentials import AccessTokenInfo
    from azure.identity import DefaultAzureCredential

    context, authority = loopback_tls(tmp_path)
    cloud = GuardedBlob()
    cloud.delegates = delegates
    with serving(cloud, context) as server:
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", server.url)
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", blob.ACCOUNT)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", authority)
        token = AccessTokenInfo(cloud.token, 4_000_000_000)
        monkeypatch.setattr(DefaultAzureCredential, "get_token_info", lambda *_, **__: token)
        root = f"az://{cloud.container}/tw"
        if not delegates:
            with pytest.raises(NoLimitedAccess) as caught:
                Issuer(now).issue(scope_of((f"{root}/{CONTROL}",)), "tw")
            assert "Storage Blob Data Contributor" in caught.value.hint
            return
        issued = Issuer(now).issue(scope_of((f"{root}/{CONTROL}",)), "tw")
        (signature,) = issued.values.values()
        assert "skoid=" in signature
        assert "spr=https&" in f"{signature}&"
        where = f"{server.url}/{cloud.container}/tw/{CONTROL}"
        trusting = ssl.create_default_context(cafile=authority)
        headers = {"x-ms-blob-type": "BlockBlob"}
        request = urllib.request.Request(f"{where}/x?{signature}", b"1", headers, method="PUT")
        urllib.request.urlopen(request, context=trusting).close()
        other = f"{where.replace('launch-1', 'launch-2')}/x?{signature}"
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(urllib.request.Request(other, b"1", headers, method="PUT"), context=trusting)


def test_azure_has_no_role_to_take_on(guarded: Guarded) -> None:
    if isinstance(guarded.cloud, GuardedBlob):
        with pytest.raises(SiteError, match="no role"):
            Issuer(now, role="somebody").issue(guarded.scope(), "tw")


# Lending


@dataclass
class Machine:
    """A machine that is lent access, by a clock that the test moves."""

    guarded: Guarded
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.store = open_store(f"{self.guarded.root}/control/install", AT_ONCE)
        self.key = sealing.new_key()
        self.lender = Lender(self.store, Issuer(now), lambda _: self.guarded.scope(), lambda: self.now_s)
        self.access = BorrowedAccess(self.key, TOKEN, {}, lambda: self.now_s)

    def sealed(self) -> bytes:
        found = self.store.get(f"{TOKEN}/access", 1 << 16)
        assert found is not None
        return found.data

    def lend(self) -> None:
        self.lender._closed = True  # no thread: the test is one
        self.lender.lend(TOKEN, sealing.public_half(self.key))
        for token, borrower in self.lender._due():
            self.lender.serve(token, borrower)


def test_access_is_sealed_to_the_machine_and_renewed_when_half_of_it_is_over(guarded: Guarded) -> None:
    machine = Machine(guarded)
    machine.lend()
    first = machine.sealed()
    assert not any(secret.encode() in first for secret in guarded.cloud.secrets())
    assert machine.access.take(first)
    before = machine.access.credentials().values
    machine.now_s = guarded.lasts_s / 2 - 60
    machine.lend()
    assert machine.sealed() == first
    machine.now_s = guarded.lasts_s / 2 + 1
    machine.lend()
    machine.access.refresh(machine.sealed)
    assert machine.sealed() != first
    if BEARER in before:
        assert machine.access.credentials().values != before


def test_the_jobs_program_gets_the_newest_from_an_endpoint_of_its_machine(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(guarded)
    machine.lend()
    machine.access.take(machine.sealed())
    variables = machine.access.variables()
    secrets = [*machine.access.credentials().values.values(), *guarded.cloud.secrets()]
    assert not any(secret in value for value in variables.values() for secret in secrets)
    for name in (BEARER, "AZURE_STORAGE_ACCOUNT_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    store = open_store(f"{guarded.root}/checkpoints/job-1", AT_ONCE)
    store.put("a", b"1")
    assert store.keys() == ["a"]
    with pytest.raises(StoreDenied):
        open_store(f"{guarded.root}/checkpoints/job-2", AT_ONCE).put("a", b"1")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(variables["TRADEWIND_ACCESS_URI"])
