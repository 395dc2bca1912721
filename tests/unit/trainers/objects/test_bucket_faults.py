"""A bucket that throttles, hangs, loses answers, refuses, or does not exist: named errors, and no false conflict."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.clouds.buckets import Bucket
from tests.clouds.s3 import refusal
from tests.clouds.server import Fault, LoopbackServer, Request
from trainers.errors import (
    ObjectStoreError,
    StoreDenied,
    StoreFull,
    StoreNotFound,
    StoreReadOnly,
    StoreThrottled,
    StoreUnavailable,
)
from trainers.objects.base import ObjectStore
from trainers.objects.bucket import BucketStore, open_bucket
from trainers.objects.opening import open_store
from trainers.objects.retry import Patience
from trainers.objects.services import SERVICES

MOST = 100
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GOOGLE_BEARER_TOKEN", "AZURE_STORAGE_ACCOUNT_KEY")
HASTY = Patience(connect_s=0.5, request_s=0.3, tries=2, sleep=lambda _s: None)


@pytest.fixture(params=["s3", "gs", "az"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(bucket_url: str, patience: Patience) -> BucketStore:
    return open_bucket(bucket_url, patience)


def puts(request: Request) -> bool:
    return request.method == "PUT"


def any_request(_request: Request) -> bool:
    return True


def content(store: ObjectStore, key: str) -> bytes | None:
    found = store.get(key, MOST)
    return None if found is None else found.data


def test_a_put_whose_answer_is_lost_is_repeated_and_is_no_conflict(
    store: BucketStore, server: LoopbackServer, pauses: list[float]
) -> None:
    server.faults = [Fault(puts, lost=True)]
    assert store.put_if_absent("fence", b"ours")
    assert [request.method for request in server.requests] == ["PUT", "PUT", "GET"]
    assert pauses == [0.2]
    assert not store.put_if_absent("fence", b"ours")  # nothing was lost: somebody else's, with the same content


def test_a_lost_put_that_another_writer_overtook_is_a_conflict(store: BucketStore, server: LoopbackServer) -> None:
    store.put("fence", b"theirs")
    server.faults = [Fault(puts, answer=refusal(500, "InternalError"))]
    assert not store.put_if_absent("fence", b"ours")
    assert content(store, "fence") == b"theirs"


def test_a_conflict_may_be_larger_than_ours_or_gone_again(store: BucketStore, server: LoopbackServer) -> None:
    store.put("fence", b"a much longer object than ours")
    server.faults = [Fault(puts, answer=refusal(500, "InternalError"))]
    assert not store.put_if_absent("fence", b"ours")
    server.faults = [Fault(puts, answer=refusal(500, "InternalError")), Fault(puts, answer=refusal(412, "Failed"))]
    assert not store.put_if_absent("gone", b"ours")


def test_a_replacement_whose_answer_is_lost_is_no_conflict(store: BucketStore, server: LoopbackServer) -> None:
    store.put("lease", b"one")
    before = store.get("lease", MOST)
    assert before is not None
    server.faults = [Fault(puts, lost=True)]
    version = store.put_if_match("lease", b"two", before.version)
    after = store.get("lease", MOST)
    assert after is not None
    assert (after.data, after.version) == (b"two", version)
    server.faults = [Fault(puts, answer=refusal(500, "InternalError"))]
    assert store.put_if_match("lease", b"three", before.version) is None


def test_two_writers_at_once_are_asked_to_try_again(store: BucketStore, server: LoopbackServer) -> None:
    busy = refusal(409, "ConditionalRequestConflict")
    server.faults = [Fault(puts, answer=busy)]
    assert store.put_if_absent("fence", b"ours")
    before = store.get("fence", MOST)
    assert before is not None
    server.faults = [Fault(puts, answer=busy)]
    assert store.put_if_match("fence", b"new", before.version)


@pytest.mark.parametrize("code", ["SlowDown", "InternalError"])
def test_a_short_fault_is_waited_out(
    store: BucketStore, server: LoopbackServer, pauses: list[float], code: str
) -> None:
    server.faults = [Fault(any_request, times=4, answer=refusal(503, code))]
    store.put("a", b"one")
    assert pauses == [0.2, 0.4, 0.8, 1.6]
    server.faults = [Fault(any_request, cut=True)]
    assert content(store, "a") == b"one"
    server.faults = [Fault(any_request, cut=True)]
    assert [listed.key for listed in store.list()] == ["a"]


REFUSALS: list[tuple[str, int, str, type[ObjectStoreError]]] = [
    ("s3", 503, "SlowDown", StoreThrottled),
    ("s3", 429, "TooManyRequests", StoreThrottled),
    ("s3", 500, "InternalError", StoreUnavailable),
    ("s3", 503, "", StoreUnavailable),
    ("s3", 408, "RequestTimeout", StoreUnavailable),
    ("s3", 403, "AccessDenied", StoreDenied),
    ("s3", 403, "InvalidAccessKeyId", StoreDenied),
    ("s3", 400, "ExpiredToken", StoreDenied),
    ("s3", 401, "Unauthorized", StoreDenied),
    ("s3", 403, "RequestTimeTooSkewed", StoreDenied),
    ("s3", 403, "QuotaExceeded", StoreFull),
    ("s3", 507, "XMinioStorageFull", StoreFull),
    ("s3", 405, "MethodNotAllowed", StoreReadOnly),
    ("s3", 404, "NoSuchBucket", StoreNotFound),
    ("s3", 301, "PermanentRedirect", StoreNotFound),
    ("s3", 400, "AuthorizationHeaderMalformed", StoreNotFound),
    ("s3", 400, "InvalidArgument", ObjectStoreError),
    ("gs", 429, "SlowDown", StoreThrottled),
    ("gs", 503, "ServiceUnavailable", StoreThrottled),
    ("gs", 500, "InternalError", StoreUnavailable),
    ("gs", 401, "AuthenticationRequired", StoreDenied),
    ("gs", 403, "UserProjectAccountProblem", StoreDenied),
    ("gs", 403, "RetentionPolicyNotMet", StoreReadOnly),
    ("gs", 404, "NoSuchBucket", StoreNotFound),
    ("az", 503, "ServerBusy", StoreThrottled),
    ("az", 500, "OperationTimedOut", StoreUnavailable),
    ("az", 403, "AuthorizationPermissionMismatch", StoreDenied),
    ("az", 403, "AuthenticationFailed", StoreDenied),
    ("az", 409, "BlobImmutableDueToPolicy", StoreReadOnly),
    ("az", 404, "ContainerNotFound", StoreNotFound),
    ("az", 409, "ContainerBeingDeleted", StoreNotFound),
]


@pytest.mark.parametrize(("kind", "status", "code", "error"), REFUSALS)
def test_every_refusal_has_its_name_the_store_and_a_remedy(
    kind: str, status: int, code: str, error: type[ObjectStoreError], store: BucketStore, server: LoopbackServer
) -> None:
    store.put("a", b"one")
    server.faults = [Fault(any_request, times=None, answer=refusal(status, code, "<secret> words"))]
    calls = [
        lambda: store.put("a", b""),
        lambda: store.put_if_absent("a", b""),
        lambda: store.put_if_match("a", b"", "version"),
        lambda: store.get("a", MOST),
        lambda: store.get_range("a", 0, 1),
        lambda: store.list(),
        lambda: store.copy("a", "b"),
        lambda: store.delete("a"),
        lambda: store.prepare(),
    ]
    for call in calls:
        with pytest.raises(ObjectStoreError) as raised:
            call()
        assert type(raised.value) is error
        assert store.url in raised.value.message
        assert raised.value.hint
        assert "\n" not in str(raised.value)


def test_a_key_that_is_denied_and_a_bucket_that_is_missing(
    kind: str,
    server: LoopbackServer,
    bucket: Bucket,
    bucket_url: str,
    patience: Patience,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = open_bucket(f"{kind}://there-is-no-such-bucket/x", patience)
    for call in (
        missing.list,
        missing.prepare,
        lambda: missing.get("a", 1),
        lambda: missing.put_if_match("a", b"", "1"),
    ):
        with pytest.raises(StoreNotFound, match="the bucket does not exist") as lacking:
            call()
        assert "there-is-no-such-bucket" in lacking.value.hint
        assert ("tradewind up --cloud gcp" in lacking.value.hint) is (kind == "gs")  # s3 and az have another address
    for name, value in bucket.refused(server).items():
        monkeypatch.setenv(name, value)
    denied = open_bucket(bucket_url, patience)
    for refused in (denied.list, denied.prepare, lambda: denied.get("a", 1), lambda: denied.head("a")):
        with pytest.raises(StoreDenied, match="403"):
            refused()


def test_a_server_that_hangs_is_left_after_a_bounded_time(kind: str, server: LoopbackServer, bucket_url: str) -> None:
    store = open_bucket(bucket_url, HASTY)
    server.faults = [Fault(any_request, times=None, hang=True)]
    with pytest.raises(StoreUnavailable, match="time-out") as error:
        store.put("a", b"one")
    assert SERVICES[kind].endpoints[-1] in error.value.hint
    assert len(server.requests) == HASTY.tries


def test_a_server_that_is_not_there(
    kind: str, server: LoopbackServer, bucket_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SERVICES[kind].endpoints[0], "http://127.0.0.1:9")
    with pytest.raises(StoreUnavailable, match="no answer"):
        open_bucket(bucket_url, HASTY).list()


@pytest.mark.parametrize(
    ("kind", "role", "remedy"),
    [
        ("s3", "AWS_METADATA_ENDPOINT=http://127.0.0.1:9", "AWS_ACCESS_KEY_ID"),
        ("gs", "GCE_METADATA_HOST=127.0.0.1:9", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("az", "AZURE_MSI_ENDPOINT=http://127.0.0.1:9/metadata/identity/oauth2/token", "AZURE_STORAGE_ACCOUNT_KEY"),
    ],
)
def test_without_credentials_the_machines_role_is_asked_and_its_absence_named(
    kind: str,
    role: str,
    remedy: str,
    server: LoopbackServer,
    bucket_url: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for name in CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))  # no az
    name, _, nobody = role.partition("=")
    monkeypatch.setenv(name, nobody)
    with pytest.raises(StoreDenied, match="no credentials") as error:
        open_bucket(bucket_url, HASTY).list()
    assert remedy in error.value.hint


def test_plain_http_to_another_machine_is_allowed_only_explicitly(
    kind: str, server: LoopbackServer, bucket_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SERVICES[kind].endpoints[0], "http://192.0.2.1:9000")
    with pytest.raises(StoreDenied, match="without encryption") as error:
        open_bucket(bucket_url)
    assert SERVICES[kind].allow_http in error.value.hint
    monkeypatch.setenv(SERVICES[kind].allow_http, "true")
    open_bucket(bucket_url)


def test_a_user_who_is_signed_in_to_azure_uses_that_login(
    server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY", raising=False)
    (tmp_path / "az").write_text("#!/bin/sh\necho Please run az login >&2\nexit 1\n")
    (tmp_path / "az").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.defpath}")
    with pytest.raises(ObjectStoreError, match="az login"):
        open_bucket("az://container/x", HASTY).list()


def test_a_container_without_an_account_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(StoreNotFound, match="storage account") as error:
        open_bucket("az://container/x")
    assert "AZURE_STORAGE_ACCOUNT_NAME" in error.value.hint


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(ObjectStoreError, match="needs obstore") as error:
        open_store("s3://bucket/prefix")
    assert error.value.hint == "pip install 'tradewind[storage]'"


@pytest.mark.parametrize(
    "rest", ["", "/x", "B_d/x", "bucket/../x", "bucket/a//b", "u@bucket/x", "bucket?x", "-bucket/x"]
)
@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_an_url_that_is_no_bucket_is_refused(scheme: str, rest: str) -> None:
    with pytest.raises(StoreNotFound, match=f"{scheme}://\\w+/prefix"):
        open_store(f"{scheme}://{rest}")


@pytest.mark.parametrize("name", ["two--dashes", "with.dot", "with_underscore", "a" * 64, "ab"])
def test_a_name_that_no_container_can_have_is_refused(name: str) -> None:
    with pytest.raises(StoreNotFound, match="az://container/prefix"):
        open_store(f"az://{name}/x")


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("gcs://bucket/x", "gs://bucket/x"),
        ("https://storage.googleapis.com/bucket/x", "gs://bucket/x"),
        ("abfss://container@account.dfs.core.windows.net/x/y", "az://container/x/y"),
        ("wasbs://container@account.blob.core.windows.net", "az://container"),
        ("https://account.blob.core.windows.net/container/x", "az://container/x"),
        ("azure://container/x", "az://container/x"),
        ("https://example.org/x", "s3://bucket/prefix or gs://bucket/prefix or az://container/prefix"),
        ("file://elsewhere/x", "file:///FOLDER"),
    ],
)
def test_an_url_of_another_form_is_named_with_ours(url: str, meant: str) -> None:
    with pytest.raises(StoreNotFound, match=url.partition("://")[0]) as error:
        open_store(url)
    assert error.value.hint == f"write it like this: {meant}"


def test_a_machine_without_certificates_is_named(
    bucket_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "empty"))
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    with pytest.raises(ObjectStoreError, match="no CA certificates") as raised:
        open_bucket(bucket_url, HASTY)
    assert "ca-certificates" in raised.value.hint


def test_what_cannot_be_done_without_is_tried_for_a_while(pauses: list[float]) -> None:
    """Refusals that come at once use up tries, but no time."""

    def refused(_again: bool) -> None:
        raise StoreUnavailable("no answer", hint="")

    lasting = Patience(least_s=60.0, sleep=pauses.append, chance=lambda: 1.0, monotonic=lambda: sum(pauses))
    with pytest.raises(StoreUnavailable):
        lasting.repeat(refused)
    assert sum(pauses[:-1]) < 60.0 <= sum(pauses) < 65.0
    assert max(pauses) == 5.0
