"""The access that Amazon gives: sessions of STS, signed URLs, and an endpoint for its own library."""

from __future__ import annotations

import urllib.error
import urllib.request
from datetime import timedelta

import pytest

from orchestrator.errors import SiteError
from orchestrator.nodes.access.aws import document
from orchestrator.nodes.access.grants import url
from orchestrator.nodes.access.issuing import Issuer
from orchestrator.nodes.access.scope import scope_of
from orchestrator.nodes.access.signing import Credentials, Place, Presigner, own_credentials
from tests.clouds.guarded_s3 import GuardedS3
from tests.clouds.s3 import KEY_ID
from tests.unit.nodes.access.conftest import Guarded, Machine, now, on
from trainers.objects.base import ObjectStore


@pytest.fixture
def s3(guarded: Guarded) -> GuardedS3:
    assert isinstance(guarded.cloud, GuardedS3)
    return guarded.cloud


@on("s3")
def test_where_sessions_may_only_last_an_hour_they_last_an_hour(guarded: Guarded, s3: GuardedS3) -> None:
    s3.longest_s = 3600
    assert Issuer(now).issue(guarded.scope(), "tw").for_s == 3600


@on("s3")
def test_a_role_is_assumed_if_there_is_one(guarded: Guarded) -> None:
    Issuer(now, role="arn:aws:iam::1:role/machines").issue(guarded.scope(), "tw")
    (asked,) = [request.form for request in guarded.server.requests if request.path == "/"]
    assert (asked["Action"], asked["RoleArn"]) == ("AssumeRole", "arn:aws:iam::1:role/machines")


def test_without_credentials_the_control_plane_says_so() -> None:
    with pytest.raises(SiteError, match="credentials") as caught:
        own_credentials({"AWS_EC2_METADATA_DISABLED": "true"})
    assert "AWS_ACCESS_KEY_ID" in caught.value.hint


def test_letters_that_policies_use_mean_themselves() -> None:
    assert "arn:aws-cn:s3:::bucket/a${*}b${$}d/*" in document(scope_of(("s3://bucket/a*b$d",)), "cn-north-1")


def fetch(url: str, method: str = "GET", body: bytes | None = None, **headers: str) -> bytes:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with urllib.request.urlopen(urllib.request.Request(url, body, named, method=method)) as answer:
        return answer.read()


@pytest.fixture
def signer(guarded: Guarded, s3: GuardedS3) -> Presigner:
    return Presigner(Credentials(KEY_ID, s3.secret), Place(guarded.server.url, "us-east-1"), now(), 3600)


@on("s3")
def test_a_signed_url_does_what_it_was_signed_for_and_nothing_else(
    signer: Presigner, mine: ObjectStore, s3: GuardedS3
) -> None:
    where = signer.url("GET", f"/{s3.bucket}/tw/other")
    assert fetch(where) == b"not theirs"
    for wrong in (where.replace("other", "runtime/digest/runtime.zip"), where.replace("3600", "9999")):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            fetch(wrong)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        fetch(where, "PUT", b"forged")


@on("s3")
def test_a_signed_url_for_a_new_object_cannot_replace_one(signer: Presigner, mine: ObjectStore, s3: GuardedS3) -> None:
    where = url(signer, "PUT", f"/{s3.bucket}/tw/node", if_absent=True)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        fetch(where, "PUT", b"without the condition")
    fetch(where, "PUT", b"first", If_None_Match="*")
    with pytest.raises(urllib.error.HTTPError, match="412"):
        fetch(where, "PUT", b"second", If_None_Match="*")


@on("s3")
def test_a_signed_url_expires(signer: Presigner, mine: ObjectStore, s3: GuardedS3) -> None:
    s3.late = timedelta(hours=2)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        fetch(signer.url("GET", f"/{s3.bucket}/tw/other"))


@on("s3")
def test_amazons_own_library_understands_that_endpoint(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    import botocore.session

    machine.lend()
    machine.access.take(machine.sealed() or b"")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name, value in machine.access.variables().items():
        monkeypatch.setenv(name, value)
    found = botocore.session.Session().get_credentials().get_frozen_credentials()
    assert found.secret_key == machine.access.credentials().values["AWS_SECRET_ACCESS_KEY"]
