"""A log as pieces in a store: what is read is what was written, whatever fails between."""

from __future__ import annotations

import gzip
import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.nodes import log_pieces
from orchestrator.nodes.log_pieces import PieceReader, PieceWriter
from trainers.errors import StoreUnavailable
from trainers.objects.base import Bytes, ObjectStore
from trainers.objects.folder import FolderStore


class Failing(FolderStore):
    """Fails the puts whose turn is in `failures`: False before it took effect, True after."""

    failures: list[bool | None]

    def put(self, key: str, data: Bytes) -> None:
        failure = self.failures.pop(0) if self.failures else None
        if failure is not False:
            super().put(key, data)
        if failure is not None:
            raise StoreUnavailable("no answer")


def _read(reader: PieceReader) -> bytes:
    return b"".join(reader.news())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.binary(max_size=120), st.sampled_from([None, None, False, True]), st.booleans()), max_size=15
    ),
    st.sampled_from([50, 1 << 20]),
)
def test_readers_get_what_was_appended_at_any_time_and_through_any_failure(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bytes, bool | None, bool]], full_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("trail")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_pieces, "PIECE_BYTES", 64)
        patch.setattr(log_pieces, "FULL_BYTES", full_bytes)
        store = Failing(folder / "store")
        store.failures = [failure for _, failure, _ in steps]
        writer, follower = PieceWriter(store, "logs/run/0", folder / "log"), PieceReader(store, "logs/run/0")
        written = followed = b""
        for data, _, reads in steps:
            with open(folder / "log", "ab") as file:
                file.write(data)
            written += data
            with suppress(StoreUnavailable):
                writer.ship()
            if reads:
                followed += _read(follower)
                assert written.startswith(followed)
        store.failures = []
        while writer.waiting_bytes:
            writer.ship()
        assert followed + _read(follower) == written
        assert _read(PieceReader(store, "logs/run/0")) == written
        assert full_bytes == 50 or len(store.keys()) <= len(written) // 64 + 1


def test_nothing_is_read_of_a_log_that_has_not_begun(tmp_path: Path) -> None:
    writer = PieceWriter(FolderStore(tmp_path / "store"), "log", tmp_path / "log")
    writer.ship()
    assert writer.waiting_bytes == 0
    assert _read(PieceReader(FolderStore(tmp_path / "store"), "log")) == b""


def test_a_follower_fetches_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FolderStore(tmp_path / "store")
    writer, reader = PieceWriter(store, "log", tmp_path / "log"), PieceReader(store, "log")
    fetched: list[int] = []
    get_range = store.get_range

    def counted(key: str, begin: int, end: int) -> bytes | None:
        found = get_range(key, begin, end)
        fetched.append(len(found or b""))
        return found

    monkeypatch.setattr(store, "get_range", counted)
    sizes = []
    for _ in range(3):
        with open(tmp_path / "log", "ab") as file:
            file.write(os.urandom(1000))
        writer.ship()
        _read(reader)
        sizes.append(sum(fetched))
    assert sizes[-1] < 3 * 1100


def _damaged(store: ObjectStore, data: bytes) -> bytes:
    store.put("log/0", gzip.compress(b"before ") + data)
    store.put("log/1", gzip.compress(b" after"))
    return _read(PieceReader(store, "log"))


@pytest.mark.parametrize("data", [b"garbage", gzip.compress(b"x" * 10)[:-4] + b"0000"], ids=["no gzip", "wrong hash"])
def test_a_damaged_piece_is_named_and_the_next_ones_are_read(tmp_path: Path, data: bytes) -> None:
    found = _damaged(FolderStore(tmp_path), data)
    assert found.startswith(b"before ")
    assert b"log/0 is damaged" in found
    assert found.endswith(b" after")


def test_a_bomb_fills_one_piece_and_no_memory(tmp_path: Path) -> None:
    found = _damaged(FolderStore(tmp_path), gzip.compress(b"0" * (8 * log_pieces.PIECE_BYTES)))
    assert len(found) == log_pieces.PIECE_BYTES + len(b" after")


def test_a_piece_of_nothing_ends(tmp_path: Path) -> None:
    assert _damaged(FolderStore(tmp_path), gzip.compress(b"") * 500) == b"before  after"


def test_a_piece_that_is_longer_than_its_content_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_pieces, "MOST_PACKED_BYTES", 1000)
    found = _damaged(FolderStore(tmp_path), gzip.compress(b"x") * 100)
    assert b"damaged" in found
    assert found.endswith(b" after")


def test_a_log_that_grows_by_a_few_bytes_at_a_time_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size_bytes in (("PIECE_BYTES", 4096), ("FULL_BYTES", 4096), ("MOST_PACKED_BYTES", 8192)):
        monkeypatch.setattr(log_pieces, name, size_bytes)
    store = FolderStore(tmp_path / "store")
    writer, follower, followed = PieceWriter(store, "log", tmp_path / "log"), PieceReader(store, "log"), b""
    for number in range(900):
        with open(tmp_path / "log", "ab") as file:
            file.write(b"%d\n" % (number % 10))
        writer.ship()
        followed += _read(follower) if number % 7 == 0 else b""
    written = (tmp_path / "log").read_bytes()
    assert followed + _read(follower) == written == _read(PieceReader(store, "log"))
    assert max(each.size_bytes for each in store.list()) <= 4096 + 100


def test_a_log_without_end_is_cut_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_pieces, "MOST_BYTES", 100)
    store = FolderStore(tmp_path / "store")
    writer = PieceWriter(store, "log", tmp_path / "log")
    for data in (b"a" * 90, b"b" * 90):
        with open(tmp_path / "log", "ab") as file:
            file.write(data)
        writer.ship()
    assert writer.waiting_bytes == 0
    found = _read(PieceReader(store, "log"))
    assert found.startswith(b"a" * 90 + b"\n[the rest is not kept")
