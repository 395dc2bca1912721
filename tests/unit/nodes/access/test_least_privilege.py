"""What a machine is lent reaches its own job, for a while, and nothing else: the store itself is asked."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.errors import SiteError
from orchestrator.nodes import sealing
from orchestrator.nodes.access.aws import document
from orchestrator.nodes.access.grants import NoLimitedAccess, url
from orchestrator.nodes.access.issuing import Issuer
from orchestrator.nodes.access.lending import Lender
from orchestrator.nodes.access.machine_access import BorrowedAccess
from orchestrator.nodes.access.scope import Scope, scope_of
from orchestrator.nodes.access.signing import Credentials, Place, Presigner, own_credentials
from tests.clouds.guarded_s3 import GuardedS3
from tests.clouds.s3 import KEY_ID
from tests.clouds.server import Fault, LoopbackServer
from tests.unit.nodes.conftest import until
from trainers.errors import StoreDenied
from trainers.objects.base import ObjectStore
from trainers.objects.credentials import Lent
from trainers.objects.opening import open_store
from trainers.objects.retry import Patience

TOKEN = "launch-1"
AT_ONCE = Patience(tries=1)


def now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251


def scope(root: str) -> Scope:
    writes = (f"{root}/control/install/{TOKEN}", f"{root}/checkpoints/job-1", f"{root}/jobs/install/job-1")
    return scope_of(writes, (f"{root}/runtime/digest",))


@pytest.fixture
def mine(root: str) -> ObjectStore:
    """The whole place, as its owner sees it."""
    store = open_store(root, AT_ONCE)
    for key in ("control/install/launch-2/order", "checkpoints/job-2/fences/1", "runtime/digest/runtime.zip", "other"):
        store.put(key, b"not theirs")
    return store


@pytest.fixture
def lent(root: str, mine: ObjectStore) -> ObjectStore:
    """The same with what one machine is lent."""
    found = Issuer(now).issue(scope(root), "tw")
    return open_store(root, AT_ONCE, lambda: Lent(found.values, now() + timedelta(minutes=1)))


@pytest.mark.parametrize("place", [f"control/install/{TOKEN}", "checkpoints/job-1", "jobs/install/job-1"])
def test_a_machine_reads_writes_lists_and_deletes_what_is_its_jobs(lent: ObjectStore, place: str) -> None:
    own = lent.child(place)
    own.prepare("a")
    assert own.put_if_absent("a/b", b"1")
    found = own.get("a/b", 9)
    assert found is not None
    assert own.put_if_match("a/b", b"2", found.version) is not None
    assert own.copy("a/b", "a/c")
    assert sorted(own.keys("a")) == ["a/b", "a/c"]
    own.delete("a/b", "a/c")
    assert own.keys() == []


def test_a_machine_reads_its_runtime_and_cannot_change_it(lent: ObjectStore, s3: GuardedS3) -> None:
    assert lent.get("runtime/digest/runtime.zip", 99) is not None
    with pytest.raises(StoreDenied):
        lent.put("runtime/digest/runtime.zip", b"forged")
    with pytest.raises(StoreDenied):
        lent.get("runtime/another/runtime.zip", 99)


OTHERS = (
    "checkpoints/job-2/fences/1",
    "checkpoints/job-1-2/fences/1",
    "control/install/launch-2/order",
    "control/install/runs/run-1",
    "control/another/launch-1/order",
    "jobs/install/job-2/workdir/x",
    "other",
)


@pytest.mark.parametrize("key", OTHERS)
def test_nothing_of_another_job_machine_or_installation_can_be_read_written_copied_or_deleted(
    lent: ObjectStore, mine: ObjectStore, s3: GuardedS3, key: str
) -> None:
    own = f"control/install/{TOKEN}/x"
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
    assert len(s3.refused) == len(attempts)
    found = mine.get(key, 99)
    assert found is not None
    assert found.data == b"not theirs"


@pytest.mark.parametrize("prefix", ["", "checkpoints", "control", "control/install", "checkpoints/job-2", "runtime"])
def test_nothing_else_can_be_listed(lent: ObjectStore, prefix: str) -> None:
    with pytest.raises(StoreDenied):
        lent.keys(prefix)


def test_it_ends(lent: ObjectStore, s3: GuardedS3) -> None:
    lent.put(f"control/install/{TOKEN}/report", b"")
    s3.late = timedelta(hours=12)
    with pytest.raises(StoreDenied, match="ExpiredToken"):
        lent.put(f"control/install/{TOKEN}/report", b"")


def test_where_sessions_may_only_last_an_hour_they_last_an_hour(root: str, s3: GuardedS3) -> None:
    s3.longest_s = 3600
    assert Issuer(now).issue(scope(root), "tw").for_s == 3600


def test_a_role_is_assumed_if_there_is_one(root: str, server: LoopbackServer) -> None:
    Issuer(now, role="arn:aws:iam::1:role/machines").issue(scope(root), "tw")
    (asked,) = [request.form for request in server.requests if request.path == "/"]
    assert (asked["Action"], asked["RoleArn"]) == ("AssumeRole", "arn:aws:iam::1:role/machines")


def test_a_store_without_limited_credentials_is_refused_and_the_setting_named(root: str, s3: GuardedS3) -> None:
    s3.with_sts = False
    with pytest.raises(NoLimitedAccess, match="no credentials limited to a job") as caught:
        Issuer(now).issue(scope(root), "tw")
    assert "machines.share_credentials" in caught.value.hint
    shared = Issuer(now, share=True).issue(scope(root), "tw")
    assert shared.values == Credentials(KEY_ID, s3.secret).variables()


def test_a_service_that_does_not_answer_is_asked_again(root: str, server: LoopbackServer) -> None:
    server.faults.append(Fault(lambda request: request.path == "/", lost=True))
    with pytest.raises(SiteError) as caught:
        Issuer(now).issue(scope(root), "tw")
    assert not isinstance(caught.value, NoLimitedAccess)
    assert Issuer(now).issue(scope(root), "tw").for_s


def test_without_credentials_the_control_plane_says_so() -> None:
    with pytest.raises(SiteError, match="credentials") as caught:
        own_credentials({"AWS_EC2_METADATA_DISABLED": "true"})
    assert "AWS_ACCESS_KEY_ID" in caught.value.hint


def test_a_folder_cannot_be_reached_by_machines_of_other_hosts(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="cannot reach") as caught:
        scope_of((str(tmp_path),))
    assert "store_root" in caught.value.hint


def test_letters_that_policies_use_mean_themselves() -> None:
    assert "arn:aws-cn:s3:::bucket/a${*}b${$}d/*" in document(scope_of(("s3://bucket/a*b$d",)), "cn-north-1")


# Signed URLs


def fetch(url: str, method: str = "GET", body: bytes | None = None, **headers: str) -> bytes:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with urllib.request.urlopen(urllib.request.Request(url, body, named, method=method)) as answer:
        return answer.read()


@pytest.fixture
def signer(root: str, server: LoopbackServer, s3: GuardedS3) -> Presigner:
    return Presigner(Credentials(KEY_ID, s3.secret), Place(server.url, "us-east-1"), now(), 3600)


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


def test_a_signed_url_for_a_new_object_cannot_replace_one(signer: Presigner, mine: ObjectStore, s3: GuardedS3) -> None:
    where = url(signer, "PUT", f"/{s3.bucket}/tw/node", if_absent=True)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        fetch(where, "PUT", b"without the condition")
    fetch(where, "PUT", b"first", If_None_Match="*")
    with pytest.raises(urllib.error.HTTPError, match="412"):
        fetch(where, "PUT", b"second", If_None_Match="*")


def test_a_signed_url_expires(signer: Presigner, mine: ObjectStore, s3: GuardedS3) -> None:
    s3.late = timedelta(hours=2)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        fetch(signer.url("GET", f"/{s3.bucket}/tw/other"))


# Lending


class Machine:
    """A machine that is lent access, by a clock that the test moves."""

    def __init__(self, root: str, *, scope: Scope | None) -> None:
        self.now_s = 0.0
        self.store = open_store(f"{root}/control/install", AT_ONCE)
        self.key = sealing.new_key()
        self.lender = Lender(self.store, Issuer(now), lambda _: scope, lambda: self.now_s)
        self.access = BorrowedAccess(self.key, TOKEN, {"AWS_REGION": "us-east-1"}, lambda: self.now_s)

    def sealed(self) -> bytes | None:
        found = self.store.get(f"{TOKEN}/access", 1 << 16)
        return None if found is None else found.data

    def serve(self) -> None:
        """What the lender's thread does."""
        for token, borrower in self.lender._due():
            self.lender.serve(token, borrower)

    def lend(self) -> None:
        self.lender._closed = True  # no thread: the test is one
        self.lender.lend(TOKEN, sealing.public_half(self.key))
        self.serve()


def test_access_is_sealed_to_the_machine_and_renewed_when_half_of_it_is_over(root: str, s3: GuardedS3) -> None:
    lent = Machine(root, scope=scope(root))
    lent.lend()
    first = lent.sealed()
    assert first is not None
    assert not any(secret.encode() in first for secret in s3.secrets())
    assert lent.access.take(first)
    assert lent.access.credentials().values["AWS_ACCESS_KEY_ID"] in s3.sessions

    lent.now_s = 21_599
    lent.lend()
    assert lent.sealed() == first
    lent.now_s = 21_601
    lent.lend()
    second = lent.sealed()
    assert second != first
    before = lent.access.credentials().values["AWS_ACCESS_KEY_ID"]
    lent.access.refresh(lent.sealed)
    assert lent.access.credentials().values["AWS_ACCESS_KEY_ID"] != before


def test_a_machine_looks_for_newer_access_some_times_in_its_life_only(root: str) -> None:
    lent, looked = Machine(root, scope=scope(root)), []
    lent.lend()
    lent.access.take(lent.sealed() or b"")

    def look() -> bytes | None:
        looked.append(lent.now_s)
        return lent.sealed()

    for hour in range(0, 12):
        for minute in range(0, 60, 10):
            lent.now_s = hour * 3600.0 + minute * 60
            lent.access.refresh(look)
    assert len(looked) == 11


def test_access_of_another_machine_is_not_taken(root: str) -> None:
    lent = Machine(root, scope=scope(root))
    lent.lend()
    with pytest.raises(SiteError):
        BorrowedAccess(sealing.new_key(), TOKEN, {}).take(lent.sealed() or b"")
    with pytest.raises(SiteError):
        BorrowedAccess(lent.key, "launch-2", {}).take(lent.sealed() or b"")


def test_a_refusal_is_reported_and_a_failure_tried_again(root: str, s3: GuardedS3, server: LoopbackServer) -> None:
    lent = Machine(root, scope=scope(root))
    server.faults.append(Fault(lambda request: request.path == "/", lost=True))
    lent.lend()
    assert lent.lender.refused(TOKEN) is None
    s3.with_sts = False
    lent.now_s = 1.1
    lent.lend()
    assert "machines.share_credentials" in (lent.lender.refused(TOKEN) or "")
    s3.with_sts, lent.now_s = True, 60.0
    lent.lend()
    assert lent.lender.refused(TOKEN) is None
    assert lent.sealed() is not None


def test_a_machine_of_this_host_is_lent_nothing(root: str) -> None:
    lent = Machine(root, scope=None)
    lent.lend()
    assert lent.sealed() is None
    assert not lent.lender._due()


def test_the_lenders_thread_does_the_same(root: str) -> None:
    lent = Machine(root, scope=scope(root))
    lent.lender.lend(TOKEN, sealing.public_half(lent.key))
    until("access is written", lambda: lent.sealed() is not None)
    lent.lender.close()


def test_the_jobs_program_gets_the_newest_from_an_endpoint_of_its_machine(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lent = Machine(root, scope=scope(root))
    lent.lend()
    lent.access.take(lent.sealed() or b"")
    variables = lent.access.variables()
    secret = lent.access.credentials().values["AWS_SECRET_ACCESS_KEY"]
    assert not any(secret in value for value in variables.values())
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    store = open_store(f"{root}/checkpoints/job-1", AT_ONCE)
    store.put("a", b"1")
    with pytest.raises(StoreDenied):
        open_store(f"{root}/checkpoints/job-2", AT_ONCE).put("a", b"1")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        fetch(variables["AWS_CONTAINER_CREDENTIALS_FULL_URI"])


def test_amazons_own_library_understands_that_endpoint(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import botocore.session

    lent = Machine(root, scope=scope(root))
    lent.lend()
    lent.access.take(lent.sealed() or b"")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name, value in lent.access.variables().items():
        monkeypatch.setenv(name, value)
    found = botocore.session.Session().get_credentials().get_frozen_credentials()
    assert found.secret_key == lent.access.credentials().values["AWS_SECRET_ACCESS_KEY"]


def test_a_machine_that_needs_no_access_does_not_keep_others_from_theirs(tmp_path: Path) -> None:
    asked = list[str]()

    def scope_of(token: str) -> Scope | None:
        asked.append(token)
        return None

    lender = Lender(open_store(str(tmp_path), AT_ONCE), Issuer(now), scope_of)
    for token in ("first", "second"):
        lender.lend(token, sealing.public_half(sealing.new_key()))
        until(f"{token} was served", lambda token=token: token in asked)  # type: ignore[misc]
        until("its thread waits or is gone", lambda: lender._thread is None or not lender._wake.is_set())
    lender.close()
