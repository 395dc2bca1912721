"""What only a folder has: rights, unfinished files, things that are not regular files, and locks."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest

from trainers.errors import (
    ObjectStoreError,
    StoreDenied,
    StoreFull,
    StoreNotFound,
    StoreReadOnly,
    StoreUnavailable,
    UnreadableObject,
)
from trainers.objects.folder import LOCK_S, FolderStore, Operation, announced
from trainers.objects.opening import open_store

MOST = 100


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "store")


def files(store: FolderStore) -> list[str]:
    return sorted(str(path.relative_to(store.root)) for path in store.root.rglob("*") if not path.is_dir())


@pytest.mark.parametrize("root", ["{}", "file://{}", "file://localhost{}"])
def test_a_folder_is_opened_by_path_or_url(tmp_path: Path, root: str) -> None:
    store = open_store(root.format(tmp_path / "a").replace(" ", "%20"))
    assert store.url == str(tmp_path / "a")
    assert not (tmp_path / "a").exists()
    assert open_store(tmp_path / "a").url == store.url


def test_a_relative_path_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("here")
    monkeypatch.chdir("/")
    store.put("a", b"one")
    assert (tmp_path / "here/a").read_bytes() == b"one"


def test_new_files_are_as_open_as_their_folder_whatever_the_umask(store: FolderStore) -> None:
    for mode, expected in ((0o700, 0o600), (0o750, 0o640), (0o775, 0o664), (0o777, 0o644)):
        store.root.mkdir(exist_ok=True)
        store.root.chmod(mode)
        before = os.umask(0o022)
        try:
            store.put(f"{mode:o}/a", b"one")
            store.put_if_absent(f"{mode:o}/b", b"one")
            store.copy(f"{mode:o}/a", f"{mode:o}/c")
        finally:
            os.umask(before)
        assert {stat.S_IMODE(path.stat().st_mode) for path in (store.root / f"{mode:o}").iterdir()} == {expected}


def test_a_pipe_or_a_folder_is_no_object_and_reading_it_does_not_wait(store: FolderStore) -> None:
    store.prepare("a")
    os.mkfifo(store.root / "a/pipe")
    (store.root / "a/folder").mkdir()
    for key in ("a/pipe", "a/folder"):
        for call in (lambda key=key: store.get(key, MOST), lambda key=key: store.get_range(key, 0, 1)):
            with pytest.raises(UnreadableObject, match="not a regular file"):
                call()
        with pytest.raises(UnreadableObject, match="not a regular file"):
            store.copy(key, "b")
    assert store.head("a/folder") is None
    assert [listed.key for listed in store.list("a")] == ["a/pipe"]


def test_a_symbolic_link_that_leads_to_itself_is_named(store: FolderStore) -> None:
    store.put("a/one", b"1")
    version = store.get("a/one", MOST).version
    (store.root / "a/loop").symlink_to("loop")
    for call in (
        lambda: store.keys("a"),
        store.list,
        lambda: store.keys("a/loop"),
        lambda: store.get("a/loop", MOST),
        lambda: store.head("a/loop"),
        lambda: store.put("a/loop/b", b"2"),
        lambda: store.put_if_match("a/loop", b"2", version),
        lambda: store.settle("a/loop"),
    ):
        with pytest.raises(UnreadableObject, match=r"a/loop.*: a symbolic link leads to itself") as caught:
            call()
        assert caught.value.hint == "remove the link"
    (store.root / "a/loop").unlink()
    (store.root / "a/above").symlink_to("..")
    with pytest.raises(UnreadableObject, match=r"a/above.*: a symbolic link leads to itself"):
        store.keys()


def test_an_unfinished_file_is_not_listed_and_is_swept_when_its_writer_is_dead(store: FolderStore) -> None:
    class Died(BaseException):
        pass

    def die(operation: Operation, _path: Path) -> None:
        if operation in ("link", "replace", "delete"):
            raise Died

    for call in (store.put, store.put_if_absent):
        for key in ("a/1", "a/2"):
            with announced(die), pytest.raises(Died):
                call(key, b"one")
    assert store.list() == []
    assert len(files(store)) == 4
    store.sweep("a", lambda key: key == "a/1")
    assert [name.split(".")[1] for name in files(store)] == ["2", "2"]


def test_a_writer_whose_unfinished_file_was_swept_writes_it_again(store: FolderStore) -> None:
    store.put("a/1", b"zero")
    version = store.get("a/1", MOST).version
    sweeps = []

    def sweep(operation: Operation, _path: Path) -> None:
        if operation in ("link", "replace") and len(sweeps) < 2:
            sweeps.append(operation)
            with announced(lambda _operation, _path: None):
                store.sweep("a", lambda _key: True)

    with announced(sweep):
        store.put("a/1", b"one")
        sweeps.clear()
        assert store.put_if_absent("a/2", b"two")
        sweeps.clear()
        assert store.put_if_match("a/1", b"three", version) is None
        sweeps.clear()
        assert store.put_if_match("a/1", b"three", store.get("a/1", MOST).version) is not None
    assert files(store) == ["a/1", "a/2"]


def test_a_change_at_any_moment_before_the_replacement_is_noticed(store: FolderStore) -> None:
    store.put("a", b"one")
    version = store.get("a", MOST).version

    def change(operation: Operation, path: Path) -> None:
        if operation == "replace":
            with announced(lambda _operation, _path: None):
                store.put_if_match("a", b"theirs", version)

    with announced(change):
        assert store.put_if_match("a", b"ours", version) is None
    assert store.get("a", MOST).data == b"theirs"
    assert files(store) == ["a"]


def test_a_paused_process_delays_others_for_a_bounded_time(tmp_path: Path) -> None:
    slept: list[float] = []
    store = FolderStore(tmp_path / "store", sleep=slept.append)
    store.put("a", b"one")
    version = store.get("a", MOST).version
    with (store.root / "a").open("rb") as paused:
        fcntl.flock(paused, fcntl.LOCK_EX)
        with pytest.raises(StoreUnavailable, match="another process"):
            store.put_if_match("a", b"two", version)
    assert sum(slept) == pytest.approx(LOCK_S, abs=0.1)
    assert store.put_if_match("a", b"two", version)
    assert files(store) == ["a"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, StoreFull),
        (errno.EDQUOT, StoreFull),
        (errno.EROFS, StoreReadOnly),
        (errno.EACCES, StoreReadOnly),
        (errno.EIO, StoreUnavailable),
        (errno.ESTALE, StoreUnavailable),
    ],
)
def test_what_the_operating_system_refuses_to_write_has_a_name(
    store: FolderStore, code: int, kind: type[ObjectStoreError]
) -> None:
    def refuse(operation: Operation, _path: Path) -> None:
        if operation != "read":
            raise OSError(code, os.strerror(code))

    store.put("a", b"one")
    for call in (
        lambda: store.put("a", b"two"),
        lambda: store.put_if_absent("b", b"two"),
        lambda: store.put_if_match("a", b"two", ""),
        lambda: store.copy("a", "b"),
        lambda: store.delete("a"),
        lambda: store.prepare("b"),
        lambda: store.settle(""),
    ):
        with announced(refuse), pytest.raises(kind) as error:
            call()
        assert str(store.root) in str(error.value)
        assert error.value.hint


@pytest.mark.parametrize(
    ("code", "kind"), [(errno.EACCES, StoreDenied), (errno.EIO, StoreUnavailable), (errno.ENOTDIR, StoreNotFound)]
)
def test_what_the_operating_system_refuses_to_read_has_a_name(
    store: FolderStore, code: int, kind: type[ObjectStoreError]
) -> None:
    def refuse(_operation: Operation, _path: Path) -> None:
        raise OSError(code, os.strerror(code))

    for call in (
        lambda: store.get("a", 1),
        lambda: store.get_range("a", 0, 1),
        lambda: store.head("a"),
        lambda: store.list(),
    ):
        with announced(refuse), pytest.raises(kind) as error:
            call()
        assert str(store.root) in str(error.value)
        assert error.value.hint


def test_a_file_in_the_place_of_the_folder_is_named(store: FolderStore) -> None:
    store.root.write_bytes(b"")
    with pytest.raises(StoreReadOnly, match=str(store.root)):
        store.prepare("a")
    with pytest.raises(StoreReadOnly, match=str(store.root)):
        store.put("a", b"")
    with pytest.raises(StoreNotFound, match=str(store.root)):
        store.list()
