"""A bucket that throttles, hangs, loses answers, refuses, or does not exist: named errors, and no false conflict."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.clouds.s3 import REFUSED_KEY_ID, environment, refusal
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

MOST = 100
HASTY = Patience(connect_s=0.5, request_s=0.3, tries=2, sleep=lambda _s: None)


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


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (503, "SlowDown", StoreThrottled),
        (429, "TooManyRequests", StoreThrottled),
        (500, "InternalError", StoreUnavailable),
        (503, "", StoreUnavailable),
        (408, "RequestTimeout", StoreUnavailable),
        (403, "AccessDenied", StoreDenied),
        (403, "InvalidAccessKeyId", StoreDenied),
        (400, "ExpiredToken", StoreDenied),
        (401, "Unauthorized", StoreDenied),
        (403, "RequestTimeTooSkewed", StoreDenied),
        (403, "QuotaExceeded", StoreFull),
        (507, "XMinioStorageFull", StoreFull),
        (405, "MethodNotAllowed", StoreReadOnly),
        (404, "NoSuchBucket", StoreNotFound),
        (301, "PermanentRedirect", StoreNotFound),
        (400, "AuthorizationHeaderMalformed", StoreNotFound),
        (400, "InvalidArgument", ObjectStoreError),
    ],
)
def test_every_refusal_has_its_name_the_store_and_a_remedy(
    store: BucketStore, server: LoopbackServer, status: int, code: str, kind: type[ObjectStoreError]
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
        with pytest.raises(ObjectStoreError) as error:
            call()
        assert type(error.value) is kind
        assert store.url in error.value.message
        assert error.value.hint
        assert "\n" not in str(error.value)


def test_a_key_that_is_denied_and_a_bucket_that_is_missing(
    server: LoopbackServer, bucket_url: str, patience: Patience, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = open_bucket("s3://there-is-no-such-bucket/x", patience)
    for call in (
        missing.list,
        missing.prepare,
        lambda: missing.get("a", 1),
        lambda: missing.put_if_match("a", b"", "1"),
    ):
        with pytest.raises(StoreNotFound, match="the bucket does not exist"):
            call()
    for name, value in environment(server, REFUSED_KEY_ID).items():
        monkeypatch.setenv(name, value)
    denied = open_bucket(bucket_url, patience)
    for refused in (denied.list, denied.prepare, lambda: denied.get("a", 1), lambda: denied.head("a")):
        with pytest.raises(StoreDenied, match="403"):
            refused()


def test_a_server_that_hangs_is_left_after_a_bounded_time(server: LoopbackServer, bucket_url: str) -> None:
    store = open_bucket(bucket_url, HASTY)
    server.faults = [Fault(any_request, times=None, hang=True)]
    with pytest.raises(StoreUnavailable, match="time-out") as error:
        store.put("a", b"one")
    assert "AWS_ENDPOINT_URL" in error.value.hint
    assert len(server.requests) == HASTY.tries


def test_a_server_that_is_not_there(server: LoopbackServer, bucket_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StoreUnavailable, match="no answer"):
        open_bucket(bucket_url, HASTY).list()


def test_without_credentials_the_machines_role_is_asked_and_its_absence_named(
    server: LoopbackServer, bucket_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(StoreDenied, match="no credentials") as error:
        open_bucket(bucket_url, HASTY).list()
    assert "AWS_ACCESS_KEY_ID" in error.value.hint


def test_plain_http_to_another_machine_is_allowed_only_explicitly(
    server: LoopbackServer, bucket_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://192.0.2.1:9000")
    with pytest.raises(StoreDenied, match="without encryption"):
        open_bucket(bucket_url)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    open_bucket(bucket_url)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(ObjectStoreError, match="needs obstore") as error:
        open_store("s3://bucket/prefix")
    assert error.value.hint == "pip install 'tradewind[storage]'"


@pytest.mark.parametrize(
    "url",
    ["s3://", "s3:///x", "s3://B_d/x", "s3://bucket/../x", "s3://bucket/a//b", "s3://u@bucket/x", "s3://bucket?x"],
)
def test_an_url_that_is_no_bucket_is_refused(url: str) -> None:
    with pytest.raises(StoreNotFound, match="s3://bucket/prefix"):
        open_store(url)


@pytest.mark.parametrize("url", ["gs://bucket/x", "az://container/x", "https://example.org/x", "file://elsewhere/x"])
def test_places_that_this_version_cannot_use_are_named(url: str) -> None:
    with pytest.raises(StoreNotFound, match=url.partition("://")[0]) as error:
        open_store(url)
    assert error.value.hint


def test_a_machine_without_certificates_is_named(
    bucket_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "empty"))
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    with pytest.raises(ObjectStoreError, match="no certificates") as raised:
        open_bucket(bucket_url, HASTY)
    assert "ca-certificates" in raised.value.hint
