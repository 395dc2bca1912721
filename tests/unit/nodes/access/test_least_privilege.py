"""What a machine is lent of a store reaches its own job, for a while, and nothing else.

The store itself is asked, which checks sessions, tokens, boundaries and signatures."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.errors import SiteError
from orchestrator.nodes.access.grants import NoLimitedAccess
from orchestrator.nodes.access.issuing import Issuer
from orchestrator.nodes.access.scope import scope_of
from tests.clouds.guarded_blob import GuardedBlob
from tests.clouds.guarded_s3 import GuardedS3
from tests.clouds.server import Fault
from tests.unit.nodes.access.conftest import AT_ONCE, CONTROL, Guarded, now
from trainers.errors import StoreDenied
from trainers.objects.base import ObjectStore
from trainers.objects.credentials import Lent
from trainers.objects.opening import open_store


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
        "control/another/launch-1/order",
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
    if isinstance(guarded.cloud, GuardedS3):
        assert len(guarded.cloud.refused) == len(attempts)
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


def test_a_job_whose_checkpoints_are_with_another_cloud_than_the_store_is_refused(guarded: Guarded) -> None:
    another = "gs://bucket/checkpoints" if guarded.root.startswith("s3:") else "s3://bucket/checkpoints"
    with pytest.raises(SiteError, match="two clouds") as caught:
        scope_of((f"{guarded.root}/{CONTROL}", another))
    assert "checkpoint.to" in caught.value.hint


def test_a_folder_cannot_be_reached_by_machines_of_other_hosts(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="cannot reach") as caught:
        scope_of((str(tmp_path),))
    assert "store_root" in caught.value.hint
