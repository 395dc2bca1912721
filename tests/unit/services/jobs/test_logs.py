"""Logs of jobs, also across runs, ranks and progress bars, and followed while they grow."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from orchestrator.errors import (
    UsageError,
)
from orchestrator.installation import Installation
from orchestrator.model import Member
from orchestrator.reports.report import report
from orchestrator.services.jobs import explain, logs, run_files, wait
from orchestrator.services.store import ledger_correction
from tests.unit.services.jobs.conftest import script, set_state
from tests.unit.services.recorded_history import ME, OTHER_SPOT, Past


def test_logs_are_stitched_across_runs_with_number_and_zone(installation: Installation, past: Past) -> None:
    lines = [(line.number, line.zone, line.text) for line in logs.logs(installation, "gpt")]
    assert lines == [
        (1, "fake/alpha-1", "hello from 1"),
        (2, "fake/alpha-1", "hello from 2"),
        (3, "fake/beta-1", "hello from 3"),
        (1, "fake/alpha-1", "unfinished"),
        (2, "fake/alpha-1", "unfinished"),
        (3, "fake/beta-1", "unfinished"),
    ]


@pytest.mark.parametrize(
    "damage",
    [
        "job SET spec = '{' WHERE id",
        "run SET last_step = 'x' WHERE job_id",
        "migration SET step = 'x' WHERE job_id",
    ],
)
def test_what_cannot_be_read_of_a_job_hides_neither_its_log_nor_what_others_cost_and_do(
    installation: Installation, past: Past, damage: str
) -> None:
    with installation.store.write() as tx:
        tx._connection.exec_driver_sql(f"UPDATE {damage} = '{past.conv}'")
    set_state(installation, past.lstm, "failed")
    assert bool(list(logs.logs(installation, "conv"))) == ("run" not in damage)
    assert {row.job.name for row in report(installation).jobs} == {"gpt", "conv", "lstm"}
    assert wait.wait(installation, "lstm").state == "failed"
    assert explain.explain(installation, "conv").history
    assert ledger_correction.correct(installation, "", "gpt", dry_run=True, caller=ME).dry_run


def test_of_a_long_line_only_its_begin_is_kept_and_the_rest_is_counted(installation: Installation, past: Past) -> None:
    size = 3 * run_files.CHUNK_BYTES + 5
    with (installation.run_dir("run_1") / "log").open("wb") as file:
        for _ in range(3):
            file.write(b"x" * run_files.CHUNK_BYTES)
        file.write(b"x" * 5 + b"\nshort\r\n" + b"\xc3\xa9" * logs.LONGEST_LINE_BYTES)
    lines = [line.text for line in logs.logs(installation, "gpt") if line.number == 1]
    kept = "x" * logs.LONGEST_LINE_BYTES
    assert lines[:2] == [f"{kept}...[{size - logs.LONGEST_LINE_BYTES} more bytes]", "short"]
    assert lines[2].endswith(f"\u00e9...[{logs.LONGEST_LINE_BYTES} more bytes]")


def test_of_a_progress_bar_the_last_state_is_shown_and_what_follows_it(installation: Installation, past: Past) -> None:
    bars = b"".join(b"\r%4d/4000 |#####   | loss 0.1" % number for number in range(1, 4001))
    with (installation.run_dir("run_1") / "log").open("wb") as file:
        file.write(b"loading\r\n" + bars + b"\nTraceback (most recent call last):\n  boom\n" + b"50%\r\r" + bars)
    lines = [line.text for line in logs.logs(installation, "gpt") if line.number == 1]
    last = "4000/4000 |#####   | loss 0.1"
    assert lines == ["loading", last, "Traceback (most recent call last):", "  boom", last]


def test_the_progress_bars_of_several_processes_keep_their_ranks(installation: Installation, past: Past) -> None:
    with (installation.run_dir("run_1") / "log").open("wb") as file:
        file.write(b"".join(b"[rank %d] \r10%%\r20%%\r%d%%\n" % (rank, 90 + rank) for rank in range(2)))
    with installation.store.read() as tx:
        (run, *_) = tx.runs(job_id=tx.find_job("gpt").id)
    tail = logs._Tail(run, 1, run_files.appended(installation, run, run_files.LOG), alone=False)
    assert [(line.rank, line.text) for line in tail.read(0.0)] == [(0, "[rank 0] 90%"), (1, "[rank 1] 91%")]


def test_following_logs_continues_across_a_migration_and_ends_with_the_job(
    installation: Installation, past: Past
) -> None:
    first = installation.run_dir(past.runs[3]) / "log"
    second = installation.run_dir("run_next") / "log"

    def write_more() -> None:
        first.write_bytes(first.read_bytes() + b" line\n")

    def move() -> None:
        with installation.store.write() as tx:
            old = tx.run(past.runs[3])
            tx.update_run(old.id, state="ended", end="moved")
            tx.add_run(
                replace(old, id="run_next", generation=2, offer_id=OTHER_SPOT, created_at_ms=old.created_at_ms + 1)
            )

    def write_there() -> None:
        second.parent.mkdir(parents=True)
        second.write_bytes(b"on the new machine\nlast words")

    script(installation, write_more, move, write_there, lambda: set_state(installation, past.conv, "finished"))
    seen = [(line.number, line.text) for line in logs.logs(installation, "conv", follow=True)]
    assert seen == [(1, "hello from 4"), (1, "unfinished line"), (2, "on the new machine"), (2, "last words")]


def test_a_progress_bar_is_followed_every_few_seconds(installation: Installation, past: Past) -> None:
    log = installation.run_dir(past.runs[3]) / "log"
    log.write_bytes(b"")

    def progress(percent: int) -> None:
        log.write_bytes(log.read_bytes() + b"\r%d%%" % percent)

    def end() -> None:
        log.write_bytes(log.read_bytes() + b"\ndone\n")
        set_state(installation, past.conv, "finished")

    script(installation, *(partial(progress, percent) for percent in range(100)), end)
    seen = [line.text for line in logs.logs(installation, "conv", follow=True)]
    assert seen == ["0%", "25%", "50%", "75%", "99%", "done"]


def test_a_progress_bar_that_did_not_move_again_is_shown_once_and_never_half_a_character(
    installation: Installation, past: Past
) -> None:
    log = installation.run_dir(past.runs[3]) / "log"

    def write(more: bytes) -> None:
        log.write_bytes(log.read_bytes() + more)

    def end() -> None:
        write(b"\nnext\n")
        set_state(installation, past.conv, "finished")

    log.write_bytes(b"0%\r100% \xe2\x82")
    script(installation, *[partial(write, b"")] * 30, partial(write, b"\xac"), *[partial(write, b"")] * 30, end)
    seen = [line.text for line in logs.logs(installation, "conv", follow=True)]
    assert seen == ["100% ", "100% \u20ac", "next"]


def test_the_log_of_several_machines_names_the_rank_of_each_line_and_can_be_of_one(
    installation: Installation, past: Past
) -> None:
    with installation.store.write() as tx:
        (run,) = tx.runs(job_id=past.conv)
        tx.set_machines(run.id, [Member("m-0"), Member("m-1")])
    folder = installation.run_dir(run.id)
    for place, text in ((folder, "[rank 0] first\n"), (folder / "machines" / "1", "set up\n[rank 1] second\n")):
        place.mkdir(parents=True, exist_ok=True)
        (place / "log").write_text(text)
    lines = [(line.machine, line.rank, line.text) for line in logs.logs(installation, "conv")]
    assert lines == [(0, 0, "[rank 0] first"), (1, None, "set up"), (1, 1, "[rank 1] second")]
    assert [line.text for line in logs.logs(installation, "conv", rank=1)] == ["[rank 1] second"]
    with pytest.raises(UsageError, match="2 processes: ranks 0 to 1"):
        list(logs.logs(installation, "conv", rank=2))


def test_the_only_process_of_a_job_has_rank_0_whatever_it_prints(installation: Installation, past: Past) -> None:
    (installation.run_dir(past.runs[0]) / "log").write_text("[rank 7] is what it says\n")
    assert {line.rank for line in logs.logs(installation, "gpt")} == {0}
    with pytest.raises(UsageError, match="one process"):
        list(logs.logs(installation, "gpt", rank=7))
