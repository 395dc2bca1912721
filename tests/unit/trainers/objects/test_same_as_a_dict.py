"""Any sequence of operations has the results that a dict would give, in a folder and in a bucket."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.clouds.buckets import Bucket
from tests.clouds.server import LoopbackServer
from trainers.objects.base import ObjectStore
from trainers.objects.bucket import open_bucket
from trainers.objects.folder import FolderStore

ALL = ["a", "b/c", "b/d", "bc/e", "b/f/g h%"]
KEYS = st.sampled_from(ALL)
DATA = st.binary(max_size=6)
PREFIXES = st.sampled_from(["", "b", "bc", "b/f", "none"])
MOST = 100


class Stores(RuleBasedStateMachine):
    """A folder, a bucket and a dict, all empty at first."""

    def __init__(self, folder: Path, bucket: Bucket) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=folder))
        opened = open_bucket(f"{bucket.url}/{self.folder.name}")
        self.stores: list[ObjectStore] = [FolderStore(self.folder), opened]
        self.model: dict[str, bytes] = {}
        self.versions: dict[str, list[tuple[bytes, list[str]]]] = {}

    @rule(key=KEYS, data=DATA)
    def put(self, key: str, data: bytes) -> None:
        for store in self.stores:
            store.put(key, data)
        self.model[key] = data

    @rule(key=KEYS, data=DATA)
    def put_if_absent(self, key: str, data: bytes) -> None:
        for store in self.stores:
            assert store.put_if_absent(key, data) == (key not in self.model)
        self.model.setdefault(key, data)

    @rule(key=KEYS)
    def remember_a_version(self, key: str) -> None:
        if key in self.model:
            versions = [store.get(key, MOST).version for store in self.stores]
            self.versions.setdefault(key, []).append((self.model[key], versions))

    @rule(key=KEYS, data=DATA, which=st.integers(0, 3))
    def put_if_match(self, key: str, data: bytes, which: int) -> None:
        known = self.versions.get(key, [])
        if not known:
            return
        before, versions = known[which % len(known)]
        expected = self.model.get(key) == before
        after = []
        for store, version in zip(self.stores, versions, strict=True):
            found = store.put_if_match(key, data, version)
            assert (found is not None) == expected
            after.append(found)
        if expected:
            self.model[key] = data
            self.versions[key].append((data, after))

    @rule(keys=st.lists(KEYS, max_size=3))
    def delete(self, keys: list[str]) -> None:
        for store in self.stores:
            store.delete(*keys)
        for key in keys:
            self.model.pop(key, None)

    @rule(source=KEYS, onto=KEYS)
    def copy(self, source: str, onto: str) -> None:
        for store in self.stores:
            assert store.copy(source, onto) == (source in self.model)
        if source in self.model:
            self.model[onto] = self.model[source]

    @rule(key=KEYS, begin=st.integers(0, 7), length=st.integers(0, 7))
    def get_range(self, key: str, begin: int, length: int) -> None:
        expected = self.model[key][begin : begin + length] if key in self.model else None
        for store in self.stores:
            assert store.get_range(key, begin, begin + length) == expected

    @rule(prefix=PREFIXES)
    def list(self, prefix: str) -> None:
        expected = {key: len(data) for key, data in self.model.items() if not prefix or key.startswith(f"{prefix}/")}
        for store in self.stores:
            assert {listed.key: listed.size_bytes for listed in store.list(prefix)} == expected

    @rule(key=KEYS)
    def read(self, key: str) -> None:
        self.require_same(key)

    def teardown(self) -> None:
        for key in ALL:
            self.require_same(key)
        self.stores[1].delete(*ALL)
        shutil.rmtree(self.folder)

    def require_same(self, key: str) -> None:
        expected = self.model.get(key)
        for store in self.stores:
            found, listed = store.get(key, MOST), store.head(key)
            assert (None if found is None else found.data) == expected
            assert (None if listed is None else listed.size_bytes) == (None if expected is None else len(expected))


@pytest.mark.parametrize("kind", ["s3", "gs", "az"])
def test_a_folder_and_a_bucket_are_both_like_a_dict(
    kind: str, tmp_path: Path, server: LoopbackServer, bucket: Bucket
) -> None:
    run_state_machine_as_test(
        lambda: Stores(tmp_path, bucket),
        settings=settings(
            max_examples=50 if kind == "s3" else 12,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
