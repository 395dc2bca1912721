"""Outputs through a store: every file arrives under its own name and no other, of the newest generation that has it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.nodes import outputs
from orchestrator.nodes.outputs import (
    OutputWriter,
    copy_out,
    files_below,
    in_one_folder,
    name_of,
    path_of,
    set_aside,
    stored_outputs,
)
from trainers.errors import StoreReadOnly, StoreUnavailable, UnreadableObject
from trainers.objects.base import ObjectStore, is_key
from trainers.objects.folder import FolderStore

SEGMENTS = st.text(min_size=1, max_size=20).filter(
    lambda name: not any(letter in name for letter in "/\0") and name not in (".", "..")
)


def _encodable(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


@given(st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join).filter(_encodable))
@example(".hidden/%2e/100%/a\nb/\udcff")
def test_every_path_has_a_key_of_its_own(path: str) -> None:
    name = name_of(path)
    if name is not None:
        assert is_key(name)
        assert path_of(name) == path


@given(st.text(max_size=40))
@example("../x")
@example("%2E%2E/x")
@example("%2e%2e/x")
@example("/etc/passwd")
@example("a/%2F/b")
@example("a%00b")
@example("a//b")
@example("%61")
def test_no_name_leads_out_and_no_two_names_are_one_path(name: str) -> None:
    path = path_of(name)
    if path is not None:
        assert not os.path.isabs(path)
        assert os.path.normpath(path) == path
        assert not path.startswith("..")
        assert name_of(path) == name


def test_a_path_that_is_too_long_has_no_key() -> None:
    assert name_of("x" * 201) is None
    assert name_of("/".join(["x" * 200] * 5)) is None


class Machine:
    """An output folder of one generation, and what is said about it."""

    def __init__(self, store: ObjectStore, folder: Path, generation: int) -> None:
        self.folder, self.complaints = folder, list[str]()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.writer = OutputWriter(store, folder, generation, self.complaints.append, lambda: None)

    def write(self, path: str, data: bytes) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_bytes(data)

    def read(self) -> dict[str, bytes]:
        return {path: (self.folder / path).read_bytes() for path in files_below(self.folder)}


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "store")


def _contents(store: ObjectStore) -> dict[str, bytes]:
    found = {}
    for path, each in stored_outputs(store).items():
        content = store.get(each.key, 1 << 20)
        assert content is not None
        found[path] = content.data
    return found


def test_what_is_new_or_changed_is_shipped_and_nothing_else(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, put = Machine(store, tmp_path / "out", 1), list[str]()
    put_file = store.put_file

    def counted(key: str, file: BinaryIO) -> None:
        put.append(key)
        put_file(key, file)

    monkeypatch.setattr(store, "put_file", counted)
    machine.write("model.pt", b"one")
    machine.write("runs/.hidden/events%", b"e")
    machine.writer.ship()
    machine.writer.ship()
    assert put == ["outputs/1/model.pt", "outputs/1/runs/%2Ehidden/events%25"]
    machine.write("model.pt", b"changed")
    machine.writer.ship()
    assert put[2:] == ["outputs/1/model.pt"]
    assert _contents(store) == machine.read() == {"model.pt": b"changed", "runs/.hidden/events%": b"e"}


def test_the_next_machine_finds_what_the_one_before_left_and_a_late_one_changes_nothing(
    store: FolderStore, tmp_path: Path
) -> None:
    first, second = Machine(store, tmp_path / "1", 9), Machine(store, tmp_path / "2", 10)
    first.write("history.csv", b"a\n")
    first.write("kept", b"kept")
    first.writer.ship()
    second.writer.take_over()
    assert second.read() == first.read()
    second.write("history.csv", b"a\nb\n")
    second.writer.ship()
    assert sorted(store.keys()) == ["outputs/10/history.csv", "outputs/9/history.csv", "outputs/9/kept"]
    first.write("history.csv", b"a\nwritten by a machine that was replaced\n")
    first.writer.ship()
    assert _contents(store) == {"history.csv": b"a\nb\n", "kept": b"kept"}


def test_a_retry_on_the_same_machine_keeps_what_is_there(store: FolderStore, tmp_path: Path) -> None:
    first = Machine(store, tmp_path / "out", 1)
    first.write("a", b"shipped")
    first.writer.ship()
    first.write("a", b"newer, not shipped")
    again = Machine(store, tmp_path / "out", 2)
    again.writer.take_over()
    assert again.read() == {"a": b"newer, not shipped"}
    again.writer.ship()
    assert _contents(store) == {"a": b"newer, not shipped"}


def test_however_deep_a_folder_is_the_files_before_it_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program can make folders without end: nothing recurses into them."""
    (tmp_path / "out" / "z").mkdir(parents=True)
    (tmp_path / "out" / "a").touch()
    (tmp_path / "out" / "loop").symlink_to("loop")
    monkeypatch.chdir(tmp_path / "out" / "z")
    for _ in range(sys.getrecursionlimit() + 100):
        os.mkdir("d")
        os.chdir("d")
    Path("file").touch()
    try:
        assert [os.path.basename(path) for path in files_below(tmp_path / "out")] == ["a", "file"]
    finally:
        monkeypatch.chdir(tmp_path)
        subprocess.run(["rm", "-rf", tmp_path / "out"], check=True)  # too deep for shutil


def test_links_out_pipes_and_folders_are_not_shipped(store: FolderStore, tmp_path: Path) -> None:
    machine = Machine(store, tmp_path / "out", 1)
    (tmp_path / "secret").write_text("secret")
    (machine.folder / "link").symlink_to(tmp_path / "secret")
    (machine.folder / "folder").symlink_to("/etc")
    machine.write("real", b"real")
    (machine.folder / "inside").symlink_to("real")
    os.mkfifo(machine.folder / "pipe")
    machine.writer.ship()
    assert _contents(store) == {"real": b"real", "inside": b"real"}


def test_what_cannot_be_shipped_is_said_once_and_the_rest_is(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "MOST_FILE_BYTES", 10)
    monkeypatch.setattr(outputs, "MOST_FILES", 3)
    machine = Machine(store, tmp_path / "out", 1)
    for path in ("a" * 201, "large", "small", "too many"):
        machine.write(path, b"x" * (20 if path == "large" else 1))
    machine.writer.ship()
    machine.writer.ship()
    assert list(_contents(store)) == ["small"]
    assert len(machine.complaints) == 3
    for words in ("its name is too long", "large: it is larger than", "more than 3 files"):
        assert any(words in complaint for complaint in machine.complaints)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permissions_holds_up_no_other(store: FolderStore, tmp_path: Path) -> None:
    machine = Machine(store, tmp_path / "out", 1)
    machine.write("closed", b"x")
    machine.write("open", b"x")
    (machine.folder / "closed").chmod(0)
    machine.writer.ship()
    assert list(_contents(store)) == ["open"]
    (machine.folder / "closed").chmod(0o600)
    machine.writer.ship()
    assert sorted(_contents(store)) == ["closed", "open"]
    assert machine.complaints == ["closed: it cannot be read: Permission denied"]


def test_a_file_that_cannot_be_read_holds_up_no_other(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(store, tmp_path / "out", 1)
    machine.write("a", b"x")
    machine.write("b", b"x")

    def refusing(path: Path, *args: str) -> BinaryIO:
        if path.name == "a":
            raise PermissionError(13, "Permission denied")
        return open(path, "rb")

    with monkeypatch.context() as patch:
        patch.setattr(outputs, "open", refusing, raising=False)
        machine.writer.ship()
        machine.writer.ship()
    assert (list(_contents(store)), machine.complaints) == (["b"], ["a: it cannot be read: Permission denied"])
    machine.writer.ship()
    assert sorted(_contents(store)) == ["a", "b"]


def test_of_a_file_that_grows_without_end_what_it_had_is_shipped(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(store, tmp_path / "out", 1)
    machine.write("log", b"one ")

    def grow() -> None:
        assert (machine.folder / "log").stat().st_size < 1000, "it is read for ever"
        with (machine.folder / "log").open("ab") as file:
            file.write(b"more")

    writer = OutputWriter(store, machine.folder, 1, pytest.fail, grow)
    writer.ship()
    assert _contents(store)["log"] == b"one "
    writer.ship()
    assert _contents(store)["log"].startswith(b"one more")


@pytest.mark.parametrize(("before", "after"), [("runs", "runs/1/x"), ("runs/1/x", "runs"), ("runs/1/x", "runs/1")])
@pytest.mark.parametrize("generations", [1, 2])
def test_a_file_that_becomes_a_folder_or_a_folder_that_becomes_a_file(
    store: FolderStore, tmp_path: Path, before: str, after: str, generations: int
) -> None:
    first = Machine(store, tmp_path / "1", 1)
    first.write(before, b"before")
    first.write("other", b"other")
    first.writer.ship()
    machine = first if generations == 1 else Machine(store, tmp_path / "2", 2)
    if generations == 2:
        machine.writer.take_over()
    gone = machine.folder / before.split("/", maxsplit=1)[0]
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    machine.write(after, b"after")
    machine.writer.ship()
    assert _contents(store) == {after: b"after", "other": b"other"}
    machine.writer.ship()
    third = Machine(store, tmp_path / "3", 3)
    third.writer.take_over()
    assert third.read() == {after: b"after", "other": b"other"}


PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)


@given(st.dictionaries(PATHS, st.integers(1, 4)))
def test_paths_that_are_kept_fit_into_one_folder_and_the_newest_is_kept(ages: dict[str, int]) -> None:
    kept = in_one_folder(ages)
    assert not any(other.startswith(f"{path}/") for path in kept for other in kept)
    if ages:
        newest = max(ages.values())
        assert any(ages[path] == newest for path in kept)


@pytest.mark.parametrize(("error", "others"), [(StoreUnavailable("no answer"), False), (StoreReadOnly("not it"), True)])
def test_a_file_that_fails_is_tried_again(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, others: bool
) -> None:
    machine = Machine(store, tmp_path / "out", 1)
    machine.write("a", b"a")
    machine.write("b", b"b")
    put_file = store.put_file

    def failing(key: str, file: object) -> None:
        if key.endswith("a"):
            raise error
        put_file(key, file)

    with monkeypatch.context() as patch:
        patch.setattr(store, "put_file", failing)
        with pytest.raises(type(error)):
            machine.writer.ship()
    assert _contents(store) == ({"b": b"b"} if others else {})
    machine.writer.ship()
    assert _contents(store) == {"a": b"a", "b": b"b"}


def test_keys_that_a_machine_made_up_are_no_outputs(store: FolderStore, tmp_path: Path) -> None:
    for key in ("outputs/x/a", "outputs/1/%2E%2E/out", "outputs/1/%2e", "outputs/1/%2Fetc", "outputs/flat"):
        store.put(key, b"x")
    assert stored_outputs(store) == {}


def test_a_file_appears_only_complete(store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "PIECE_BYTES", 4)
    store.put("outputs/1/a", b"0123456789")
    stored, target, seen = stored_outputs(store)["a"], tmp_path / "to" / "a", list[int]()
    copy_out(store, stored, target, seen.append)
    assert (target.read_bytes(), seen) == (b"0123456789", [4, 4, 2])
    store.put("outputs/1/a", b"new content")
    target.write_bytes(b"before")

    def replaced(_size: int) -> None:
        store.put("outputs/1/a", b"replaced meanwhile")

    with pytest.raises(UnreadableObject, match="changed"):
        copy_out(store, stored, target, replaced)
    assert target.read_bytes() == b"before"
    store.delete("outputs/1/a")
    with pytest.raises(UnreadableObject, match="deleted"):
        copy_out(store, stored, target)
    assert [path.name for path in target.parent.iterdir()] == ["a"]


# Several machines of one run


def of_machine(store: FolderStore, folder: Path, generation: int, machine: int) -> Machine:
    made = Machine(store, folder, generation)
    made.writer = OutputWriter(store, folder, generation, made.complaints.append, lambda: None, machine)
    return made


def test_of_files_of_one_name_that_of_the_first_machine_counts_whichever_ships_last(
    store: FolderStore, tmp_path: Path
) -> None:
    machines = [of_machine(store, tmp_path / str(number), 7, number) for number in range(3)]
    for number, machine in enumerate(machines):
        machine.write(f"own-{number}", b"own")
    for number, machine in enumerate(machines[1:], 1):
        machine.write("notes", f"of {number}".encode())
        machine.writer.ship()
    assert _contents(store)["notes"] == b"of 1"
    machines[0].write("notes", b"of 0")
    machines[0].writer.ship()
    assert _contents(store) == {"notes": b"of 0", "own-0": b"own", "own-1": b"own", "own-2": b"own"}
    aside = {path: store.get(each.key, 1 << 20) for path, each in set_aside(store).items()}
    assert {path: each.data for path, each in aside.items() if each is not None} == {
        "machine-1/notes": b"of 1",
        "machine-2/notes": b"of 2",
    }


def test_a_machine_finds_its_own_files_again_and_those_that_only_others_have(
    store: FolderStore, tmp_path: Path
) -> None:
    for number in range(2):
        machine = of_machine(store, tmp_path / f"1-{number}", 1, number)
        machine.write("log", f"of {number}".encode())
        machine.write(f"own-{number}", b"own")
        machine.writer.ship()
    for number in range(2):
        machine = of_machine(store, tmp_path / f"2-{number}", 2, number)
        machine.writer.take_over()
        assert machine.read() == {"log": f"of {number}".encode(), "own-0": b"own", "own-1": b"own"}


def test_a_newer_run_counts_whichever_machine_of_it_wrote_the_file(store: FolderStore, tmp_path: Path) -> None:
    for generation, number in ((1, 0), (2, 5)):
        machine = of_machine(store, tmp_path / str(generation), generation, number)
        machine.write("notes", str(generation).encode())
        machine.writer.ship()
    assert _contents(store) == {"notes": b"2"}
    assert set_aside(store) == {}
