"""The access that Google and Azure give: tokens with a boundary, signatures, and the requests of a first contact."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.errors import SiteError
from orchestrator.nodes.access.grants import NoLimitedAccess, Signer, url
from orchestrator.nodes.access.issuing import Issuer
from orchestrator.nodes.access.machine_access import MOST_S
from orchestrator.nodes.access.scope import Scope, scope_of
from orchestrator.nodes.boot.contact import Contact, Urls
from orchestrator.nodes.messages import NodeFacts
from tests.clouds import blob
from tests.clouds.azure import loopback_tls
from tests.clouds.guarded_blob import GuardedBlob
from tests.clouds.guarded_gcs import GuardedGcs
from tests.clouds.server import Fault, LoopbackServer, Response, serving
from tests.unit.nodes.access.conftest import AT_ONCE, CONTROL, Guarded, now, on
from trainers.errors import StoreDenied, StoreUnavailable
from trainers.objects.base import ObjectStore
from trainers.objects.credentials import BEARER, Lent
from trainers.objects.opening import open_store


@contextmanager
def logged_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[GuardedBlob, LoopbackServer, str]]:
    """Blob storage over HTTPS for a user who is logged in and has no key, its server, and the file of its authority."""
    from azure.core.credentials import AccessTokenInfo
    from azure.identity import DefaultAzureCredential

    context, authority = loopback_tls(folder)
    cloud = GuardedBlob()
    with serving(cloud, context) as server:
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", server.url)
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", blob.ACCOUNT)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", authority)
        token = AccessTokenInfo(cloud.token, 4_000_000_000)
        monkeypatch.setattr(DefaultAzureCredential, "get_token_info", lambda *_, **__: token)
        yield cloud, server, authority


def html(status: int) -> Response:
    return Response(status, b"<html>", "text/html")


def answer(**reported: object) -> Response:
    return Response(200, json.dumps(reported).encode())


@on("gs", "az")
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


@on("gs", "az")
def test_a_refusal_is_reported_once(guarded: Guarded) -> None:
    guarded.server.faults.append(Fault(lambda _: True, answer=Response(403, b'{"error": "access_denied"}')))
    with pytest.raises(NoLimitedAccess) as caught:
        Issuer(now).issue(guarded.scope(), "tw")
    assert str(caught.value).count("access_denied") <= 1


@on("gs")
def test_a_machine_is_given_a_time_that_it_believes(guarded: Guarded) -> None:
    guarded.server.faults.append(Fault(lambda _: True, answer=answer(access_token="t", expires_in=1e99)))
    assert Issuer(now).issue(guarded.scope(), "tw").for_s <= MOST_S


@on("az")
@pytest.mark.parametrize("key", ["not base64!", "abc"])
def test_a_key_of_azure_that_is_none_is_named_and_not_shown(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", key)
    with pytest.raises(SiteError, match="AZURE_STORAGE_ACCOUNT_KEY") as caught:
        Issuer(now).signer(guarded.scope(), 3600)
    assert key not in str(caught.value)


@on("az")
def test_azure_gets_no_login_over_plain_http(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    with pytest.raises(SiteError, match="HTTPS"):
        Issuer(now).issue(guarded.scope(), "tw")
    assert not guarded.server.requests


@pytest.mark.parametrize("body", [b"<html", b"", b"<html></html>", b"<UserDelegationKey></UserDelegationKey>"])
def test_a_key_of_a_login_that_is_none_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    with logged_in(tmp_path, monkeypatch) as (cloud, server, _):
        server.faults.append(Fault(lambda _: True, answer=Response(200, body, "application/xml")))
        with pytest.raises(SiteError) as caught:
            Issuer(now).issue(scope_of((f"az://{cloud.container}/tw",)), "tw")
        assert not isinstance(caught.value, NoLimitedAccess)


@on("gs", "az")
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


def send(signer: Signer, method: str, path: str, body: bytes | None = None) -> bytes:
    once = body is not None
    headers = {**signer.headers, **(signer.once if once else {})}
    where = url(signer, method, path, if_absent=once)
    with urllib.request.urlopen(urllib.request.Request(where, body, headers, method=method)) as answer:
        return bytes(answer.read())


@on("gs", "az")
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


@on("gs", "az")
def test_what_is_not_sealed_holds_no_credentials_of_the_control_plane_even_if_they_are_shared(guarded: Guarded) -> None:
    signer = Issuer(now, share=True).signer(guarded.scope(), 3600)
    shown = f"{signer.headers} {signer.once} {signer.query} {signer.suffix('GET', '/bucket/tw/x')}"
    assert not any(secret in shown for secret in guarded.cloud.secrets())
    guarded.refuse_to_issue()
    if isinstance(guarded.cloud, GuardedGcs):
        with pytest.raises(NoLimitedAccess) as caught:
            Issuer(now, share=True).signer(guarded.scope(), 3600)
        assert "share_credentials" not in caught.value.hint  # it is set, and does not help


@on("gs", "az")
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


@on("gs", "az")
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


@on("gs", "az")
def test_a_machine_that_comes_too_late_gets_an_error(contact: Contact, guarded: Guarded) -> None:
    guarded.cloud.late = timedelta(hours=1, seconds=1)
    with pytest.raises(StoreDenied) as caught:
        contact.access()
    assert "another machine" in caught.value.hint


@pytest.mark.parametrize("delegates", [True, False])
def test_azure_signs_for_who_is_logged_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delegates: bool) -> None:
    with logged_in(tmp_path, monkeypatch) as (cloud, server, authority):
        cloud.delegates = delegates
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


@on("az")
def test_azure_has_no_role_to_take_on(guarded: Guarded) -> None:
    with pytest.raises(SiteError, match="no role"):
        Issuer(now, role="somebody").issue(guarded.scope(), "tw")
