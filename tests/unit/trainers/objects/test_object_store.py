"""What every object store does, in a folder and in a bucket."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from trainers.errors import InvalidKey, UnreadableObject
from trainers.objects import bucket
from trainers.objects.base import ObjectStore
from trainers.objects.opening import open_store

MOST = 100


def content(store: ObjectStore, key: str) -> bytes | None:
    found = store.get(key, MOST)
    return None if found is None else found.data


def version(store: ObjectStore, key: str) -> str:
    found = store.get(key, MOST)
    assert found is not None
    return found.version


def keys(store: ObjectStore, prefix: str = "") -> list[str]:
    found = sorted(listed.key for listed in store.list(prefix))
    assert sorted(store.keys(prefix)) == found
    return found


class TestObjectStore:
    def test_what_was_put_is_found_and_a_missing_object_is_none(self, store: ObjectStore) -> None:
        assert content(store, "a/b") is None
        assert store.head("a/b") is None
        assert store.get_range("a/b", 0, 1) is None
        store.put("a/b", b"one")
        store.put("a/b", memoryview(bytearray(b"two")))
        assert content(store, "a/b") == b"two"
        assert content(store, "a/c") is None

    def test_an_empty_object_is_not_a_missing_one(self, store: ObjectStore) -> None:
        store.put("a", b"")
        assert content(store, "a") == b""
        assert store.get_range("a", 0, 4) == b""

    @pytest.mark.parametrize("size_bytes", [0, 1, 12 << 20])
    def test_a_file_is_put_from_where_it_stands(self, store: ObjectStore, tmp_path: Path, size_bytes: int) -> None:
        data = random.Random(0).randbytes(size_bytes)
        (tmp_path / "file").write_bytes(b"before" + data)
        store.put("a/b", b"something else")
        with open(tmp_path / "file", "rb") as file, pytest.MonkeyPatch.context() as patch:
            patch.setattr(bucket, "PART_BYTES", 5 << 20)
            file.seek(len("before"))
            store.put_file("a/b", file)
        found = store.get("a/b", 20 << 20)
        assert found is not None
        assert found.data == data
        assert keys(store) == ["a/b"]

    def test_a_key_may_be_written_when_all_keys_below_it_were_deleted(self, store: ObjectStore) -> None:
        store.put("a/b/c", b"below")
        store.delete("a/b/c")
        store.put("a", b"one")
        assert content(store, "a") == b"one"
        assert keys(store) == ["a"]

    def test_an_object_is_put_once_if_absent(self, store: ObjectStore) -> None:
        assert store.put_if_absent("a/b", bytearray(b"one"))
        assert not store.put_if_absent("a/b", b"two")
        assert not store.put_if_absent("a/b", b"one")
        assert content(store, "a/b") == b"one"
        store.delete("a/b")
        assert store.put_if_absent("a/b", b"two")

    def test_an_object_is_replaced_only_if_it_has_the_version_that_was_read(self, store: ObjectStore) -> None:
        store.put("a", b"one")
        first = version(store, "a")
        second = store.put_if_match("a", bytearray(b"two"), first)
        assert second is not None
        assert second == version(store, "a") != first
        assert store.put_if_match("a", b"late", first) is None
        assert content(store, "a") == b"two"
        assert store.put_if_match("a", b"three", second) is not None
        assert content(store, "a") == b"three"
        store.delete("a")
        assert store.put_if_match("a", b"late", version=first) is None
        assert content(store, "a") is None

    def test_a_range_ends_where_the_object_ends(self, store: ObjectStore) -> None:
        store.put("a", b"0123456789")
        assert store.get_range("a", 2, 5) == b"234"
        assert store.get_range("a", 8, 50) == b"89"
        assert store.get_range("a", 10, 11) == b""
        assert store.get_range("a", 50, 60) == b""
        assert store.get_range("a", 3, 3) == b""

    def test_what_is_too_large_is_refused_and_not_cut(self, store: ObjectStore) -> None:
        store.put("a", b"x" * MOST)
        assert content(store, "a") == b"x" * MOST
        store.put("a", b"x" * (MOST + 1))
        with pytest.raises(UnreadableObject, match=f"a has {MOST + 1} bytes; the limit is {MOST}") as error:
            store.get("a", MOST)
        assert store.where("a") in str(error.value)

    def test_a_prefix_is_a_folder_and_lists_all_depths(self, store: ObjectStore) -> None:
        for key in ("job/a/1", "job/a/2", "job/a/deep/er/3", "job/ab/4", "other"):
            store.put(key, b"xyz")
        assert keys(store) == ["job/a/1", "job/a/2", "job/a/deep/er/3", "job/ab/4", "other"]
        assert keys(store, "job/a") == ["job/a/1", "job/a/2", "job/a/deep/er/3"]
        assert keys(store, "nothing") == []
        (listed,) = store.list("job/ab")
        assert (listed.size_bytes, store.head("job/ab/4")) == (3, listed)

    def test_times_are_those_of_the_store_in_order(self, store: ObjectStore) -> None:
        store.put("a", b"1")
        store.put("b", b"1")
        first, second = store.head("a"), store.head("b")
        assert first is not None
        assert second is not None
        assert 1_600_000_000_000 < first.modified_ms <= second.modified_ms

    def test_deleting_takes_many_keys_and_forgives_missing_ones(self, store: ObjectStore) -> None:
        names = [f"a/{number}" for number in range(5)]
        for name in names:
            store.put(name, b"x")
        store.delete()
        store.delete(*names[1:], "a/never", "b")
        store.delete("a/1")
        assert keys(store) == ["a/0"]

    def test_a_copy_is_independent_of_its_source(self, store: ObjectStore) -> None:
        assert not store.copy("a", "b/c")
        store.put("a", b"one")
        assert store.copy("a", "b/c")
        store.put("a", b"two")
        assert content(store, "b/c") == b"one"
        assert store.copy("a", "b/c")
        assert content(store, "b/c") == b"two"
        assert store.copy("a", "a")
        assert content(store, "a") == b"two"

    def test_a_child_sees_only_its_own_keys(self, store: ObjectStore) -> None:
        store.put("job/a", b"one")
        store.put("b", b"two")
        child = store.child("job").child("runs")
        child.put("c", b"three")
        assert keys(child) == ["c"]
        assert content(store, "job/runs/c") == b"three"
        assert child.where("c") == store.where("job/runs/c")
        assert child.url == f"{store.url}/job/runs"

    def test_an_url_opens_the_same_store_again(self, store: ObjectStore) -> None:
        store.put("a/b", b"one")
        assert content(open_store(store.url), "a/b") == b"one"
        assert content(open_store(store.child("a").url), "b") == b"one"
        assert open_store(store) is store
        assert store.where("a/b") == f"{store.url}/a/b"

    def test_preparing_and_settling_leave_nothing_to_list(self, store: ObjectStore) -> None:
        store.prepare("job/a", "job/b")
        store.prepare("job/a", "job/b")
        store.put("job/a/1", b"x")
        store.settle("job/a")
        store.sweep("job/a", lambda _key: True)
        assert keys(store) == ["job/a/1"]

    @pytest.mark.parametrize(
        "key", ["", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", ".a", "a/.b", "a\n", "a\x00", "a\ud800"]
    )
    def test_what_is_not_a_relative_path_is_refused_everywhere(self, store: ObjectStore, key: str) -> None:
        calls: list[Callable[[], object]] = [
            lambda: store.get(key, 1),
            lambda: store.get_range(key, 0, 1),
            lambda: store.head(key),
            lambda: store.put(key, b""),
            lambda: store.put_if_absent(key, b""),
            lambda: store.put_if_match(key, b"", "x"),
            lambda: store.copy(key, "a"),
            lambda: store.copy("a", key),
            lambda: store.delete("a", key),
            lambda: store.where(key),
            lambda: store.child(key),
        ]
        if key:
            calls += [lambda: store.list(key), lambda: store.prepare(key), lambda: store.settle(key)]
        for call in calls:
            with pytest.raises(InvalidKey, match="not a key"):
                call()

    @pytest.mark.parametrize("key", ["a" * 201, "/".join(["a" * 100] * 9)])
    def test_a_key_that_no_file_system_or_bucket_takes_is_refused(self, store: ObjectStore, key: str) -> None:
        with pytest.raises(InvalidKey):
            store.put(key, b"")

    @pytest.mark.parametrize(
        "key", ["a" * 200, "a b/c+d", "100%/%20", "\u00e9\u4e2d/~x", "q?a=1&b#c", "*[x]{y}|\\^`'\"<>", "CON", "a."]
    )
    def test_unusual_names_are_kept_to_the_letter(self, store: ObjectStore, key: str) -> None:
        store.put(key, b"one")
        assert content(store, key) == b"one"
        assert keys(store) == [key]
        assert store.copy(key, "copy")
        store.delete(key)
        assert keys(store) == ["copy"]

    def test_a_thousand_objects_and_more_are_listed_and_deleted(self, store: ObjectStore) -> None:
        names = [f"a/{number:04}" for number in range(1005)]
        for name in names:
            store.put(name, b"")
        assert keys(store, "a") == names
        store.delete(*names)
        assert keys(store) == []
