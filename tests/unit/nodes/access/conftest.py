"""Stores of each cloud that check what a request may do, the environment of their owner, and what a machine is lent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.nodes import sealing
from orchestrator.nodes.access.issuing import Issuer
from orchestrator.nodes.access.lending import Lender
from orchestrator.nodes.access.machine_access import BorrowedAccess
from orchestrator.nodes.access.scope import Scope, scope_of
from tests.clouds import blob, gcs
from tests.clouds.guarded_blob import GuardedBlob
from tests.clouds.guarded_gcs import GuardedGcs
from tests.clouds.guarded_s3 import GuardedS3
from tests.clouds.server import LoopbackServer, serving
from trainers.objects.base import ObjectStore
from trainers.objects.credentials import Lent
from trainers.objects.opening import open_store
from trainers.objects.retry import Patience

TOKEN = "launch-1"
AT_ONCE = Patience(tries=1)
CONTROL = f"control/install/{TOKEN}"


def now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251


def on(*stores: str) -> pytest.MarkDecorator:
    """Only on these stores (s3, gs, az)."""
    return pytest.mark.parametrize("guarded", stores, indirect=True)


@dataclass
class Guarded:
    """A store of one cloud, and its server. `root` is the URL of an installation's place in it; access lasts for
    `lasts_s`."""

    cloud: GuardedS3 | GuardedGcs | GuardedBlob
    server: LoopbackServer
    root: str
    lasts_s: float

    def scope(self) -> Scope:
        writes = (f"{self.root}/{CONTROL}", f"{self.root}/checkpoints/job-1", f"{self.root}/jobs/install/job-1")
        return scope_of(writes, (f"{self.root}/runtime/digest",))

    def refuse_to_issue(self, refuses: bool = True) -> None:
        if isinstance(self.cloud, GuardedS3):
            self.cloud.with_sts = not refuses
        elif isinstance(self.cloud, GuardedGcs):
            self.cloud.issues = not refuses
        else:
            self.cloud.has_folders = not refuses


@pytest.fixture(params=["s3", "gs", "az"])
def guarded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    made = {"s3": GuardedS3, "gs": GuardedGcs, "az": GuardedBlob}
    cloud: GuardedS3 | GuardedGcs | GuardedBlob = made[request.param]()
    with serving(cloud) as server:
        if isinstance(cloud, GuardedS3):
            cloud.lead_to(server, monkeypatch)
            variables, root, lasts_s = {}, f"s3://{cloud.bucket}/tw", 43_200.0
        elif isinstance(cloud, GuardedGcs):
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


class Machine:
    """A machine that is lent access to `scope`, by a clock that the test moves."""

    def __init__(self, guarded: Guarded, scope: Scope | None) -> None:
        self.now_s = 0.0
        self.store = open_store(f"{guarded.root}/control/install", AT_ONCE)
        self.key = sealing.new_key()
        self.lender = Lender(self.store, Issuer(now), lambda _: scope, lambda: self.now_s)
        region = {"AWS_REGION": "us-east-1"} if isinstance(guarded.cloud, GuardedS3) else {}
        self.access = BorrowedAccess(self.key, TOKEN, region, lambda: self.now_s)

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


@pytest.fixture
def machine(guarded: Guarded) -> Machine:
    return Machine(guarded, guarded.scope())
