"""The books of the local provider: durable, and clear about what is wrong with them."""

import sqlite3
from contextlib import closing, suppress

import pytest

from providers.base import LaunchSpec
from providers.billing.charges import Usage
from providers.clock import VirtualClock
from providers.errors import SetupError, UnavailableError
from providers.instance import EndReason
from providers.local import LocalProvider
from providers.local.books import Books, Record
from tests.disks import mounted


def books_with_one(tmp_path):
    books = Books(tmp_path / "books.db", 0)
    with books.transaction():
        books.accept("t", "f", [Record("i", "t", "o", "", {"a": "b"}, 1000)])
    return books


def test_what_was_written_is_found_by_the_next_process(tmp_path):
    first = books_with_one(tmp_path)
    second = Books(tmp_path / "books.db", 0)
    assert second.uid == first.uid
    assert second.fingerprint("t") == "f"
    assert second.living() == [Record("i", "t", "o", "", {"a": "b"}, 1000)] == second.of_token("t")


@pytest.mark.parametrize("opened", [True, False])
def test_a_full_disk_is_named_when_the_books_are_opened_and_when_they_are_written(tmp_path, opened):
    with mounted(tmp_path, "size=1m") as disk:
        books = books_with_one(disk)
        if opened:
            books = None  # the last process that had them open deletes the index of the journal
        with suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        with pytest.raises(UnavailableError, match="the disk is full, so the books of the local provider") as refused:
            (Books(disk / "books.db", 0) if opened else books).accept("u", "f" * 200_000, [])
        assert refused.value.hint == f"free some space at {disk}, then try again"
        (disk / "filler").unlink()
        assert Books(disk / "books.db", 0).fingerprint("t") == "f"


def test_a_transaction_that_raises_leaves_nothing(tmp_path):
    books = Books(tmp_path / "books.db", 0)

    def give_up():
        with books.transaction():
            books.accept("t", "f", [])
            raise KeyError("no")

    with pytest.raises(KeyError):
        give_up()
    assert books.fingerprint("t") is None


def test_the_earlier_end_wins_and_a_closed_interval_stays_closed(tmp_path):
    books = books_with_one(tmp_path)
    books.begin_ending("i", EndReason.PREEMPTED, 9000, gentle=True, notice_deadline_s=3.0)
    books.begin_ending("i", EndReason.EXPIRED, 9500)
    books.begin_ending("i", EndReason.USER, 5000)
    books.ended("i", 5100)
    books.begin_ending("i", EndReason.FAILED, 1)
    books.ended("i", 7000)
    record = books.record("i")
    assert (record.ending_reason, record.ended_ms, record.gentle) == (EndReason.USER, 5100, False)
    assert (record.notice_deadline_ms, record.notice_deadline_s) == (9000, 3.0)


def test_what_breaks_before_its_announced_end_has_failed(tmp_path):
    books = books_with_one(tmp_path)
    books.begin_ending("i", EndReason.PREEMPTED, 9000, gentle=True, notice_deadline_s=3.0)
    books.ended("i", 8000)
    assert books.record("i").ending_reason is EndReason.FAILED


def test_damaged_books_say_so_with_a_remedy(tmp_path):
    (tmp_path / "books.db").write_bytes(b"this is no database, but long enough to be taken for one" * 100)
    with pytest.raises(SetupError, match="damaged") as caught:
        LocalProvider(tmp_path, VirtualClock())
    assert "move this folder away" in caught.value.hint


def test_a_damaged_row_says_so_with_a_remedy(tmp_path):
    books = books_with_one(tmp_path)
    with closing(sqlite3.connect(tmp_path / "books.db")) as db, db:
        db.execute("UPDATE instances SET tags = '{'")
    db.close()
    with pytest.raises(SetupError, match="damaged"):
        books.living()


def test_books_of_an_older_version_are_brought_up_to_this_one(tmp_path):
    books_with_one(tmp_path)
    with closing(sqlite3.connect(tmp_path / "books.db")) as db, db:
        db.execute("DROP TABLE usage")
        db.execute("PRAGMA user_version = 2")
    db.close()
    usage = Usage(("local", "north", "north-a"), ("local", "south", "south-a"), 7, 9)
    Books(tmp_path / "books.db", 0).meter("i", usage)
    assert Books(tmp_path / "books.db", 0).usage("i") == usage


def test_books_of_a_newer_version_are_left_alone(tmp_path):
    Books(tmp_path / "books.db", 0)
    with closing(sqlite3.connect(tmp_path / "books.db")) as db, db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(SetupError, match="newer version") as caught:
        Books(tmp_path / "books.db", 0)
    assert "update tradewind" in caught.value.hint


def test_another_seed_is_refused_because_bills_depend_on_it(tmp_path):
    LocalProvider(tmp_path, VirtualClock(), 1)
    with pytest.raises(SetupError, match="seed 1, not 2"):
        LocalProvider(tmp_path, VirtualClock(), 2)


def test_a_folder_that_cannot_be_made_is_unavailable(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnavailableError) as caught:
        LocalProvider(tmp_path / "file" / "local", VirtualClock())
    assert "disk" in caught.value.hint


def test_books_that_cannot_be_written_lose_nothing_and_launch_nothing(tmp_path):
    provider = LocalProvider(tmp_path, VirtualClock())
    provider._books._db.execute("PRAGMA query_only = ON")  # as on a disk that was remounted read-only
    spec = LaunchSpec("t", provider.offers()[1].id, "exec sleep 1000")
    with pytest.raises(UnavailableError):
        provider.launch(spec)
    assert not (tmp_path / "instances").exists()


def test_ids_of_two_markets_on_one_machine_differ(tmp_path):
    spec = LaunchSpec("t", "local/north/north-a/sim.small/on_demand", "true")
    ids = [LocalProvider(tmp_path / name, VirtualClock()).launch(spec) for name in "ab"]
    assert ids[0] != ids[1]
