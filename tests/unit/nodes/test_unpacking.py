"""Unpacking code on a machine: only what was uploaded, only below its own folder, once."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from pathlib import Path

import pytest

from orchestrator.nodes import unpacking
from orchestrator.nodes.unpacking import CodeError, code_key, unpacked
from trainers.objects.folder import FolderStore


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "store")


def _archive(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(mode="w:gz", fileobj=buffer) as archive:
        for entry, data in entries:
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def _entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, link
    return entry


def _uploaded(store: FolderStore, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    store.put(code_key(digest), data)
    return digest


HARMLESS = _archive((_entry("main.py"), b"print()"))


@pytest.mark.parametrize(
    "entries",
    [
        [(_entry("../out"), b"x")],
        [(_entry("a/../../out"), b"x")],
        [(_entry("link", tarfile.SYMTYPE, "../.."), b""), (_entry("link/out"), b"x")],
        [(_entry("link", tarfile.SYMTYPE, "/"), b"")],
        [(_entry("hard", tarfile.LNKTYPE, "../../out"), b"")],
        [(_entry("null", tarfile.CHRTYPE), b"")],
        [(_entry("pipe", tarfile.FIFOTYPE), b"")],
    ],
    ids=["up", "around", "through a link", "link to the root", "hard link", "device", "pipe"],
)
def test_a_malicious_archive_changes_nothing_outside(
    store: FolderStore, tmp_path: Path, entries: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    machine = tmp_path / "machine" / "workdir"
    digest = _uploaded(store, _archive(*entries))
    before = {path for path in tmp_path.rglob("*") if machine.parent not in path.parents}
    with pytest.raises(CodeError, match="cannot be unpacked"):
        unpacked(store, digest, machine)
    after = {path for path in tmp_path.rglob("*") if machine.parent not in path.parents}
    assert after - before <= {machine.parent}
    assert [path.name for path in machine.iterdir()] == [f".{digest}.lock"], "something was left"


def test_an_absolute_name_is_unpacked_below_the_folder(store: FolderStore, tmp_path: Path) -> None:
    digest = _uploaded(store, _archive((_entry("/etc/motd"), b"x")))
    assert (unpacked(store, digest, tmp_path / "machine") / "etc" / "motd").read_bytes() == b"x"


def test_missing_and_altered_code_are_distinguished(store: FolderStore, tmp_path: Path) -> None:
    digest = _uploaded(store, HARMLESS)
    store.put(code_key(digest), HARMLESS + b"more")
    with pytest.raises(CodeError, match="damaged"):
        unpacked(store, digest, tmp_path / "machine")
    store.delete(code_key(digest))
    with pytest.raises(CodeError, match="no longer in the store") as missing:
        unpacked(store, digest, tmp_path / "machine")
    assert store.where(code_key(digest)) in str(missing.value)
    assert "submit" in missing.value.hint


@pytest.mark.parametrize("limit", ["MOST_BYTES", "MOST_ENTRIES", "MOST_PACKED_BYTES"])
def test_limits_hold(store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    digest = _uploaded(store, _archive((_entry("a"), b"0" * 100), (_entry("b"), b"")))
    monkeypatch.setattr(unpacking, limit, 1)
    with pytest.raises(CodeError):
        unpacked(store, digest, tmp_path / "machine")
    monkeypatch.undo()
    assert unpacked(store, digest, tmp_path / "machine").is_dir()


def test_a_large_archive_is_fetched_in_pieces(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "PIECE_BYTES", 7)
    assert (unpacked(store, _uploaded(store, HARMLESS), tmp_path / "machine") / "main.py").read_bytes() == b"print()"


def test_code_is_unpacked_once_however_many_starts_ask_at_once(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, asked = _uploaded(store, HARMLESS), []
    get_range = store.get_range

    def counted(key: str, begin: int, end: int) -> bytes | None:
        asked.append(key)
        return get_range(key, begin, end)

    monkeypatch.setattr(store, "get_range", counted)
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(unpacked(store, digest, tmp_path / "machine"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(asked) == 1
    assert found == [tmp_path / "machine" / digest] * 4


def test_a_start_that_was_interrupted_is_made_up_for(store: FolderStore, tmp_path: Path) -> None:
    digest = _uploaded(store, HARMLESS)
    (tmp_path / f".{digest}.0000").mkdir()  # killed while it unpacked
    (tmp_path / f".{digest}.0000" / "half").write_text("")
    assert [path.name for path in unpacked(store, digest, tmp_path).iterdir()] == ["main.py"]
