"""What jobs do, as their user sees it: figures, logs, events, outputs, orders, explanations, offers, doctor."""

from __future__ import annotations

import re
import shutil
import tomllib
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from orchestrator.cli.render.screens.jobs import queue
from orchestrator.cli.render.text import Screen
from orchestrator.engine.billing.machine_cost import machine_cost_nano_usd
from orchestrator.errors import (
    InfeasibleError,
    LimitError,
    NotFoundError,
    PartialFailure,
    TradewindError,
    UsageError,
)
from orchestrator.formats.documents import to_json
from orchestrator.installation import Installation
from orchestrator.model import Entry, Event, Member, Step
from orchestrator.reports.report import report
from orchestrator.services.control_plane import presence
from orchestrator.services.doctor import examine, this_machine
from orchestrator.services.doctor import state as doctor_state
from orchestrator.services.jobs import commands, current, events, explain, fetch, logs, run_files, wait
from orchestrator.services.offers import listing
from orchestrator.services.offers.filters import OfferQuery
from orchestrator.services.offers.views import OfferRow
from orchestrator.services.store import ledger_correction
from providers.clock import VirtualClock
from providers.fake import FakeProvider
from tests.unit.services.recorded_history import ME, ON_DEMAND, OTHER_SPOT, SPOT, Past, submit_job


def test_the_queue_holds_what_has_not_ended_and_sums_what_it_cost(installation: Installation, past: Past) -> None:
    living = current.jobs(installation)
    assert {job.name for job in living.jobs} == {"conv", "lstm"}
    assert living.paid_nano_usd == sum(job.paid_nano_usd for job in living.jobs)
    assert {job.name for job in current.jobs(installation, ended=True).jobs} == {"gpt", "conv", "lstm"}
    assert [job.name for job in current.jobs(installation, project="vision").jobs] == ["conv"]


def test_a_job_shows_its_progress_its_price_and_its_moves(installation: Installation, past: Past) -> None:
    gpt, conv = current.job(installation, "gpt"), current.job(installation, past.conv)
    assert (gpt.step, gpt.total_steps, gpt.runs, gpt.migrations, gpt.steps_repeated) == (1000, 1000, 3, 2, 10)
    assert gpt.offer_id is None
    assert gpt.nano_usd_per_hour is None
    assert (conv.offer_id, conv.zone) == (SPOT, "fake/alpha-1")
    assert conv.nano_usd_per_hour == 1_020_000_000
    assert conv.simulated


def test_the_loss_of_a_job_is_that_of_the_step_shown(installation: Installation, past: Past) -> None:
    def shown(number: int, first_step: int, last_step: int, loss: float | None) -> tuple[int, float | None]:
        with installation.store.write() as tx:
            run = replace(tx.run(past.runs[3]), id=f"run_later_{number}", generation=number, start_step=first_step)
            tx.add_run(replace(run, last_step=last_step, last_loss=loss))
        view = current.job(installation, past.conv)
        return view.step, view.loss

    assert shown(2, 40, 45, 0.3) == (45, 0.3)  # it repeats steps
    assert shown(3, 70, 70, None) == (70, None)  # restored from a step that no run reported
    assert shown(4, 70, 80, 0.2) == (80, 0.2)
    assert shown(5, 80, 80, None) == (80, 0.2)


def test_the_status_tells_what_running_machines_cost_before_it_is_booked(
    installation: Installation, past: Past
) -> None:
    assert isinstance(installation.clock, VirtualClock)
    booked = current.status(installation, "conv")
    installation.clock.advance(3600.0)
    later = current.status(installation, "conv")
    assert later.job.paid_nano_usd == booked.job.paid_nano_usd
    assert later.unbooked_nano_usd >= booked.unbooked_nano_usd + 1_020_000_000
    with installation.store.read() as tx:
        (run,) = tx.runs(job_id=past.conv, unsettled=True)
        cost = machine_cost_nano_usd(tx, run, installation.clock.now_ms())
    assert later.job.paid_nano_usd + later.unbooked_nano_usd == cost
    assert current.status(installation, "gpt").unbooked_nano_usd == 0


def test_the_status_holds_runs_and_the_last_events_in_order(installation: Installation, past: Past) -> None:
    status = current.status(installation, "gpt", events=2)
    assert [run.id for run in status.runs] == list(past.runs[:3])
    assert [event.kind for event in status.events] == ["migration.cutover", "migration.done"]
    assert status.migration is None
    assert not status.control_plane.running


def test_a_leader_is_a_control_plane(installation: Installation) -> None:
    leadership = installation.store.campaign("here")
    assert leadership is not None
    assert presence.control_plane(installation).running
    installation.store.resign(leadership)
    assert not presence.control_plane(installation).running


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
    _state(installation, past.lstm, "failed")
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


@dataclass
class ScriptedClock(VirtualClock):
    """Runs the next act of its script at each pause."""

    script: list[object] = field(default_factory=list)

    def sleep(self, wall_s: float) -> None:
        super().sleep(wall_s)
        assert self.script, "nothing more will happen, and yet somebody waits"
        act = self.script.pop(0)
        assert callable(act)
        act()


@pytest.fixture
def clock() -> VirtualClock:
    return ScriptedClock()


def _script(installation: Installation, *acts: object) -> None:
    assert isinstance(installation.clock, ScriptedClock)
    installation.clock.script.extend(acts)


def _state(installation: Installation, job_id: str, state: str) -> None:
    with installation.store.write() as tx:
        tx.set_job_state(job_id, state)  # type: ignore[arg-type]


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

    _script(installation, write_more, move, write_there, lambda: _state(installation, past.conv, "finished"))
    seen = [(line.number, line.text) for line in logs.logs(installation, "conv", follow=True)]
    assert seen == [(1, "hello from 4"), (1, "unfinished line"), (2, "on the new machine"), (2, "last words")]


def test_a_progress_bar_is_followed_every_few_seconds(installation: Installation, past: Past) -> None:
    log = installation.run_dir(past.runs[3]) / "log"
    log.write_bytes(b"")

    def progress(percent: int) -> None:
        log.write_bytes(log.read_bytes() + b"\r%d%%" % percent)

    def end() -> None:
        log.write_bytes(log.read_bytes() + b"\ndone\n")
        _state(installation, past.conv, "finished")

    _script(installation, *(partial(progress, percent) for percent in range(100)), end)
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
        _state(installation, past.conv, "finished")

    log.write_bytes(b"0%\r100% \xe2\x82")
    _script(installation, *[partial(write, b"")] * 30, partial(write, b"\xac"), *[partial(write, b"")] * 30, end)
    seen = [line.text for line in logs.logs(installation, "conv", follow=True)]
    assert seen == ["100% ", "100% \u20ac", "next"]


def test_events_of_all_jobs_come_with_their_names(installation: Installation, past: Past) -> None:
    found = events.events(installation)
    assert set(found.names.values()) >= {"conv", "gpt"}
    assert found.names[past.conv] == "conv"
    assert {each.job_id for each in found.events if each.job_id is not None} == found.names.keys()
    assert events.events(installation, "conv").names == {}
    assert next(events.follow(installation)).names == found.names


def test_following_events_yields_each_once_and_ends_with_the_job(installation: Installation, past: Past) -> None:
    def cancel() -> None:
        commands.cancel(installation, "conv", caller=ME)
        _state(installation, past.conv, "cancelled")

    _script(installation, cancel)
    batches = list(events.follow(installation, "conv"))
    kinds = [event.kind for batch in batches for event in batch.events]
    assert kinds == ["job.submitted", "migration.provision", "migration.cutover", "migration.done"]


def test_waiting_returns_the_job_once_it_has_ended(installation: Installation, past: Past) -> None:
    seen: list[str] = []
    _script(installation, lambda: None, lambda: _state(installation, past.conv, "failed"))
    view = wait.wait(installation, "conv", progress=lambda job: seen.append(job.state))
    assert view.state == "failed"
    assert seen == ["running", "running", "failed"]


def test_waiting_gives_up_after_its_time(installation: Installation, past: Past) -> None:
    _script(installation, *[lambda: None] * 10)
    with pytest.raises(PartialFailure, match="still running after 1 s"):
        wait.wait(installation, "conv", timeout_s=1.0)


def _book(installation: Installation, run_id: str) -> None:
    with installation.store.write() as tx:
        tx.update_run(run_id, state="ended", end="finished", billed_to_ms=installation.clock.now_ms())


def test_waiting_continues_until_the_last_machine_is_booked(installation: Installation, past: Past) -> None:
    assert installation.store.campaign("here") is not None
    seen: list[str] = []
    _script(
        installation,
        lambda: _state(installation, past.conv, "finished"),
        lambda: None,
        lambda: _book(installation, past.runs[3]),
    )
    assert wait.wait(installation, "conv", progress=lambda job: seen.append(job.state)).state == "finished"
    assert seen == ["running", "finished", "finished", "finished"]


def test_waiting_for_a_cost_that_does_not_become_final_says_so(installation: Installation, past: Past) -> None:
    assert installation.store.campaign("here") is not None
    _state(installation, past.conv, "finished")
    _script(installation, *[lambda: None] * 10)
    with pytest.raises(PartialFailure, match=r"is finished, .* not fully booked"):
        wait.wait(installation, "conv", timeout_s=1.0)


def _pause(installation: Installation, job_id: str, why: str) -> None:
    with installation.store.write() as tx:
        tx.set_job_state(job_id, "paused")
        now = installation.clock.now_ms()
        tx.add_event(Event(id=f"ev_{why}", at_ms=now, kind="job.paused", message=why, actor="me", job_id=job_id))


def test_waiting_returns_at_a_pause_with_its_reason(installation: Installation, past: Past) -> None:
    _script(installation, lambda: _pause(installation, past.conv, "paused at step 50: its budget is spent"))
    view = wait.wait(installation, "conv")
    assert (view.state, view.note) == ("paused", "paused at step 50: its budget is spent")


def test_waiting_continues_at_a_pause_that_its_user_has_already_ended(installation: Installation, past: Past) -> None:
    _pause(installation, past.conv, "paused")
    commands.resume(installation, "conv", caller=ME)
    _script(installation, lambda: _state(installation, past.conv, "finished"))
    assert wait.wait(installation, "conv").state == "finished"


def test_a_timeout_does_not_promise_progress_without_a_control_plane(installation: Installation, past: Past) -> None:
    with pytest.raises(PartialFailure) as alone:
        wait.wait(installation, "conv", timeout_s=0)
    assert "tradewind up" in alone.value.hint
    assert installation.store.campaign("here") is not None
    with pytest.raises(PartialFailure) as led:
        wait.wait(installation, "conv", timeout_s=0)
    assert led.value.hint == "it keeps running; see: tradewind status conv"


def test_a_paused_job_tells_why_whatever_happened_since(installation: Installation, past: Past) -> None:
    _pause(installation, past.conv, "paused at step 50: its budget is spent")
    with installation.store.write() as tx:
        now = installation.clock.now_ms()
        tx.add_event(
            Event(id="ev_z", at_ms=now, kind="instance.adopted", message="left over", actor="x", job_id=past.conv)
        )
    assert current.job(installation, "conv").note == "paused at step 50: its budget is spent"
    view = explain.explain(installation, "conv")
    assert view.headline == "conv is paused at step 50: its budget is spent"
    assert view.decisions == ()


def test_a_paused_job_says_which_budget_was_set_since(installation: Installation, past: Past) -> None:
    why = "paused at step 50: its budget is spent; to continue: tradewind budget set conv 9, then tradewind resume conv"
    for at_s, (kind, message) in enumerate(
        [("job.budget", "an older budget"), ("job.paused", why), ("job.budget", "8 is set"), ("job.budget", "9 is set")]
    ):
        with installation.store.write() as tx:
            tx.set_job_state(past.conv, "paused")
            now = installation.clock.now_ms() + at_s
            tx.add_event(Event(id=f"ev_{at_s}", at_ms=now, kind=kind, message=message, actor="me", job_id=past.conv))
    assert current.job(installation, "conv").note == "paused at step 50: its budget is spent; since then: 9 is set"


def test_a_job_that_was_ended_without_being_paused_has_no_old_reason(installation: Installation, past: Past) -> None:
    _pause(installation, past.conv, "paused at step 50: its budget is spent")
    with installation.store.write() as tx:
        now = installation.clock.now_ms()
        tx.add_event(Event(id="ev_z", at_ms=now, kind="job.resumed", message="resumed", actor="me", job_id=past.conv))
    assert "its last checkpoint" in current.job(installation, "conv").note


@pytest.mark.parametrize(("state", "how"), [("finished", "finished at step 9"), ("cancelled", "cancelled")])
def test_an_ended_job_says_how_it_ended_also_if_its_move_is_completed_after_that(
    installation: Installation, past: Past, state: Literal["finished", "cancelled"], how: str
) -> None:
    with installation.store.write() as tx:
        now = installation.clock.now_ms()
        tx.set_job_facts(past.conv, finished_at_ms=now)
        tx.set_job_state(past.conv, state)
        tx.add_event(Event("ev_x", now, f"job.{state}", how, "control-plane", job_id=past.conv))
        tx.add_event(Event("ev_y", now, "migration.done", "manual: now elsewhere", "control-plane", job_id=past.conv))
    assert current.job(installation, "conv").note == how


def test_resuming_after_a_pause_is_not_a_move(installation: Installation, past: Past) -> None:
    with installation.store.read() as tx:
        found, runs = tx.migrations(job_id=past.gpt), tx.runs(job_id=past.gpt)
    assert len(current.moved(runs, found)) == 2
    assert len(current.moved(runs, [replace(migration, reason="resume") for migration in found])) == 0


def test_fetch_of_a_job_without_outputs_says_so(installation: Installation, past: Past, tmp_path: Path) -> None:
    installation.output_dir(past.conv).mkdir(parents=True)  # as every trainer makes it
    with pytest.raises(NotFoundError, match="conv has written no outputs"):
        fetch.fetch(installation, "conv", tmp_path / "out")


def test_fetch_of_a_job_that_has_not_run_says_why_there_is_nothing(
    installation: Installation, past: Past, tmp_path: Path
) -> None:
    with pytest.raises(NotFoundError, match=r"^lstm has not run yet: submitted, objective cheapest$") as waiting:
        fetch.fetch(installation, "lstm", tmp_path / "out")
    assert waiting.value.hint == "see why it waits: tradewind explain lstm"
    with installation.store.write() as tx:
        now = installation.clock.now_ms()
        tx.set_job_facts(past.lstm, finished_at_ms=now)
        tx.set_job_state(past.lstm, "cancelled")
        tx.add_event(
            Event(id="ev_z", at_ms=now, kind="job.cancelled", message="too late", actor="me", job_id=past.lstm)
        )
    with pytest.raises(NotFoundError, match=r"^lstm never ran: too late$") as ended:
        fetch.fetch(installation, "lstm", tmp_path / "out")
    assert ended.value.hint == "see what happened: tradewind events lstm"
    assert not (tmp_path / "out").exists()


def test_fetch_brings_only_the_outputs_that_the_job_file_names(
    installation: Installation, past: Past, tmp_path: Path
) -> None:
    fetched = fetch.fetch(installation, "gpt", tmp_path / "out")
    assert [(file.path, file.size_bytes) for file in fetched.files] == [("weights/final.pt", 7)]
    assert (tmp_path / "out" / "weights" / "final.pt").read_bytes() == b"weights"
    assert not (tmp_path / "out" / "scratch.txt").exists()
    assert fetched.missing == ()


def test_fetch_says_what_is_missing_and_follows_no_link_out(
    installation: Installation, past: Past, tmp_path: Path
) -> None:
    weights = installation.output_dir(past.gpt) / "weights"
    shutil.rmtree(weights)
    weights.mkdir()
    (tmp_path / "private").write_text("mine")
    (weights / "link").symlink_to(tmp_path / "private")
    assert fetch.fetch(installation, "gpt", tmp_path / "out").missing == ("weights",)
    with pytest.raises(NotFoundError, match="no outputs"):
        fetch.fetch(installation, "conv")


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_fetch_into_a_place_that_cannot_be_a_folder_is_refused(
    installation: Installation, past: Past, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match=r"is a file, not a folder|cannot be created") as refused:
        fetch.fetch(installation, "gpt", tmp_path / place)
    assert "--to" in refused.value.hint
    assert (tmp_path / "file").read_text() == "in the way"


def test_outputs_of_two_jobs_of_one_name_are_not_mixed(
    installation: Installation, past: Past, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    second = submit_job(installation, "gpt")
    other = installation.output_dir(second.id) / "weights" / "final.pt"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"second")
    for _ in range(2):  # again, while it runs
        assert fetch.fetch(installation, past.gpt).folder == "gpt"
    with pytest.raises(UsageError, match=f"of another job with this name, {past.gpt}") as refused:
        fetch.fetch(installation, second.id)
    assert (tmp_path / "gpt" / "weights" / "final.pt").read_bytes() == b"weights"
    assert f"--to {second.id};" in refused.value.hint
    fetch.fetch(installation, second.id, Path(second.id))
    fetch.fetch(installation, second.id, Path("gpt"))  # which the user has named
    with pytest.raises(UsageError, match=second.id):
        fetch.fetch(installation, past.gpt)


def test_orders_are_written_for_the_control_plane(installation: Installation, past: Past) -> None:
    for accepted in (
        commands.pause(installation, "conv", caller=ME),
        commands.migrate(installation, "conv", OTHER_SPOT, caller=ME),
    ):
        assert accepted.job_ids == (past.conv,)
        assert not accepted.control_plane
    _state(installation, past.conv, "paused")
    commands.resume(installation, "conv", caller=ME)
    commands.cancel(installation, "conv", caller=ME)
    with installation.store.read() as tx:
        orders = [(each.kind, each.job_id, dict(each.args)) for each in tx.open_commands()]
    assert orders == [
        ("pause", past.conv, {}),
        ("migrate", past.conv, {"offer_id": OTHER_SPOT}),
        ("resume", past.conv, {}),
        ("cancel", past.conv, {}),
    ]


def test_what_no_control_plane_has_carried_out_yet_is_shown(installation: Installation, past: Past) -> None:
    assert "requested" not in queue(current.jobs(installation), Screen())
    for dollars in ("150", "200"):
        commands.set_budget(installation, "lstm", dollars, caller=ME)
    commands.migrate(installation, "conv", OTHER_SPOT, caller=ME)
    for _ in range(2):
        commands.cancel(installation, "lstm", caller=ME)
    seen = {job.id: job for job in current.jobs(installation).jobs}
    assert seen[past.lstm].requested == ("budget", "cancel")
    assert seen[past.lstm].note.endswith("; budget of $200.00 requested; cancel requested")
    assert seen[past.conv].note.endswith(f"; migrate to {OTHER_SPOT} requested")
    _state(installation, past.lstm, "paused")
    assert explain.explain(installation, "lstm").headline.startswith("lstm is paused")
    (shown,) = [
        line
        for line in queue(current.jobs(installation), Screen(width=80)).splitlines()
        if line.startswith("requested")
    ]
    assert set(shown.split(": ")[1].split(", ")) == {"migrate conv", "budget lstm", "cancel lstm"}
    with installation.store.write() as tx:
        for command in tx.open_commands():
            tx.close_command(command.id, "done")
    assert all(job.requested == () for job in current.jobs(installation).jobs)


def test_no_checkpoint_is_promised_of_a_program_that_has_reported_no_step(
    installation: Installation, past: Past
) -> None:
    with installation.store.write() as tx:
        tx._connection.exec_driver_sql(f"UPDATE run SET last_step = 0, start_step = 0 WHERE job_id = '{past.conv}'")
    kept = "only data that its program saved in $TRADEWIND_CHECKPOINT_DIR is kept"
    asked = commands.pause(installation, "conv", caller=ME).message
    assert asked == f"conv will pause; it has reported no step yet, so {kept}"
    _state(installation, past.conv, "paused")
    assert current.job(installation, "conv").note.startswith("paused before its first step: ")
    resumed = commands.resume(installation, "conv", caller=ME).message
    assert resumed == f"conv starts on the offer that is best now; it has reported no step, so {kept}"
    _state(installation, past.lstm, "paused")
    assert current.job(installation, "lstm").note.startswith("paused before it started: ")
    assert commands.resume(installation, "lstm", caller=ME).message == "lstm starts on the offer that is best now"


def test_a_job_that_is_being_cancelled_takes_no_other_command(installation: Installation, past: Past) -> None:
    """This also holds before a control plane has carried the cancellation out. Cancelling twice is allowed."""
    assert commands.pause(installation, "lstm", caller=ME).message == "lstm will pause before it starts"
    assert "at its next step, with a checkpoint" in commands.pause(installation, "conv", caller=ME).message
    _state(installation, past.conv, "paused")
    for _ in range(2):
        commands.cancel(installation, "conv", caller=ME)
    for command in (
        partial(commands.pause, installation, "conv"),
        partial(commands.resume, installation, "conv"),
        partial(commands.migrate, installation, "conv", OTHER_SPOT),
        partial(commands.set_budget, installation, "conv", "100"),
    ):
        with pytest.raises(UsageError, match="conv is being cancelled"):
            command(caller=ME)


def test_a_pause_that_overtakes_a_waiting_resume_promises_no_checkpoint(installation: Installation, past: Past) -> None:
    _state(installation, past.conv, "paused")
    commands.resume(installation, "conv", caller=ME)
    assert commands.pause(installation, "conv", caller=ME).message == "conv stays paused"


def test_invalid_commands_are_refused(installation: Installation, past: Past) -> None:
    with pytest.raises(UsageError, match="gpt is finished"):
        commands.cancel(installation, "gpt", caller=ME)
    with pytest.raises(UsageError, match="not paused"):
        commands.resume(installation, "conv", caller=ME)
    with pytest.raises(UsageError, match="only a running job"):
        commands.migrate(installation, "lstm", None, caller=ME)
    with pytest.raises(NotFoundError, match="does not exist"):
        commands.migrate(installation, "conv", "fake/moon/moon-1/v100.1/spot", caller=ME)
    with pytest.raises(UsageError, match="already"):
        commands.migrate(installation, "conv", SPOT, caller=ME)
    _state(installation, past.conv, "paused")
    with pytest.raises(UsageError, match="already paused"):
        commands.pause(installation, "conv", caller=ME)


def test_a_move_to_what_the_job_file_rules_out_is_infeasible(installation: Installation, past: Past) -> None:
    with pytest.raises(InfeasibleError, match=r"cannot move to .*: GPU A100-80GB is not in resources\.gpu"):
        commands.migrate(installation, "conv", OTHER_SPOT.replace("v100", "a100-80gb"), caller=ME)
    with installation.store.read() as tx:
        assert not tx.open_commands()


def test_a_second_move_is_refused_while_one_is_under_way(installation: Installation, past: Past) -> None:
    with installation.store.write() as tx:
        first = tx.migrations(job_id=past.conv)[0]
        tx.add_migration(replace(first, id="mig_x", target_run_id=past.runs[2], token="x", step=Step.READY))
    with pytest.raises(UsageError, match="already being moved"):
        commands.migrate(installation, "conv", OTHER_SPOT, caller=ME)


def _answer(installation: Installation, result: str) -> None:
    with installation.store.write() as tx:
        (order,) = tx.open_commands()
        tx.close_command(order.id, result)


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ("refused: conv is finished", UsageError),
        ("not found: offer x", NotFoundError),
        ("infeasible: no other offer fits conv", InfeasibleError),
        ("over limit: 8 instances are up", LimitError),
    ],
)
def test_the_refusal_of_the_control_plane_is_raised_to_whoever_asked(
    installation: Installation, past: Past, result: str, error: type[TradewindError]
) -> None:
    assert installation.store.campaign("here") is not None
    _script(installation, lambda: None, lambda: _answer(installation, result))
    with pytest.raises(error) as raised:
        commands.migrate(installation, "conv", None, caller=ME)
    assert str(raised.value) == result.partition(": ")[2]
    assert raised.value.hint


def test_an_order_that_was_carried_out_or_is_not_answered_in_time_is_accepted(
    installation: Installation, past: Past
) -> None:
    assert installation.store.campaign("here") is not None
    _script(installation, lambda: _answer(installation, "pausing"))
    assert commands.pause(installation, "conv", caller=ME).control_plane
    _script(installation, *[lambda: None] * 100)
    assert commands.cancel(installation, "conv", caller=ME).control_plane
    assert isinstance(installation.clock, ScriptedClock)
    assert len(installation.clock.script) >= 50


def test_a_queued_job_is_explained_by_what_it_waits_for_now_and_not_by_the_plan_at_its_submission(
    installation: Installation, past: Past
) -> None:
    job = submit_job(installation, "later")
    planned = explain.explain(installation, "later")
    assert planned.headline.startswith("later is queued: cheapest to finish")
    said = (planned.decisions[0].reason, "waits until gpt finished")
    for number, why in enumerate(said):
        with installation.store.write() as tx:
            tx.add_event(Event(f"ev_9{number}", planned.planned_at_ms or 0, "job.waits", why, "me", job_id=job.id))
        view = explain.explain(installation, "later")
        assert (view.headline, view.decisions) == (f"later is queued: {why}", planned.decisions)


def test_a_job_is_explained_by_its_latest_plan_and_what_followed(installation: Installation, past: Past) -> None:
    view = explain.explain(installation, "conv")
    assert view.headline.startswith(f"conv is running on {SPOT}: ")
    (decided,) = view.decisions
    assert decided.choices[0].role == "choose"
    assert all(choice.reason for choice in decided.choices[1:] if choice.role != "baseline")
    assert [event.kind for event in view.history] == ["job.submitted", "migration.cutover", "migration.done"]


def test_a_migration_is_explained_with_its_steps_and_its_promise(installation: Installation, past: Past) -> None:
    view = explain.explain(installation, past.migrations[2])
    assert view.headline == f"gpt moved from {ON_DEMAND} to {OTHER_SPOT}: cheaper offer, $1.50 saving expected"
    assert [(step.step, step.duration_s) for step in view.steps] == [
        ("begun", 60.0),
        ("provision", 240.0),
        ("cutover", 300.0),
        ("done", None),
    ]
    assert explain.explain(installation, past.runs[2]).subject == f"migration {past.migrations[2]}"


def test_a_plan_is_explained_and_an_unknown_thing_is_not_found(installation: Installation, past: Past) -> None:
    with installation.store.read() as tx:
        plan = tx.latest_plan(past.conv)
    assert plan is not None
    assert "1 job and starts or moves 1" in explain.explain(installation, plan.id).headline
    for ref in ("plan_x", "mig_x", "run_x", "job_x", "nobody"):
        with pytest.raises(NotFoundError):
            explain.explain(installation, ref)


def test_a_failed_job_is_explained_by_the_last_line_of_its_traceback(installation: Installation, past: Past) -> None:
    with installation.store.write() as tx:
        tx.set_job_state(past.conv, "failed")
        tx.set_job_facts(past.conv, error="Traceback\n  File x\nValueError: bad shape\n")
    assert explain.explain(installation, "conv").headline.endswith("failed on " + SPOT + ": ValueError: bad shape")


def test_offers_are_listed_cheapest_first_with_their_ages(installation: Installation) -> None:
    def listed_for(**wanted: object) -> tuple[OfferRow, ...]:
        return listing.offers(installation.config, lambda: installation, OfferQuery.of(**wanted), now_ms=0).offers

    listed = listed_for(cloud=["fake"])
    prices = [offer.nano_usd_per_hour or 0 for offer in listed]
    assert prices == sorted(prices)
    assert len(listed) == 24
    assert {offer.age_s for offer in listed} == {0.0}
    assert {offer.gpu for offer in listed_for(gpu="nvidia-h100", spot=True)} == {"H100"}
    with pytest.raises(UsageError, match="H900"):
        listed_for(gpu="H900")


def test_the_doctor_has_a_remedy_for_what_does_not_hold(installation: Installation) -> None:
    diagnosis = examine(installation.config)
    names = [check.name for check in diagnosis.checks]
    assert {"python", "torch", "ray", "imports", "state folder", "disk", "store", "clock"} <= set(names)
    assert not diagnosis.failed
    assert all(check.fix for check in diagnosis.checks if check.state == "fail")
    assert to_json(diagnosis)["schema"] == "tradewind/doctor/v1"


def test_the_doctor_names_variables_that_are_no_settings() -> None:
    mine = {
        "TRADEWIND_LEASE_S": "30",
        "TRADEWIND_OUTPUT_DIR": "/x",
        "TRADEWIND_PROVIDERS_LAMBDA_KEY": "k",
        "HOME": "/h",
    }
    assert this_machine.variables(mine).state == "ok"
    check = this_machine.variables({**mine, "TRADEWIND_FOO": "1"})
    assert (check.state, check.found) == ("warn", "TRADEWIND_FOO: is not a setting")
    assert check.fix == "list the settings: tradewind config show"
    check = this_machine.variables(
        {**mine, "TRADEWIND_FOO": "1", "TRADEWIND_LEASE": "30", "TRADEWIND_STORE_ROOTS_": ""}
    )
    assert check.found == "TRADEWIND_FOO, TRADEWIND_LEASE: are not settings"
    check = this_machine.variables({"TRADEWIND_STATE_FOLDER": "/x"})
    assert check.fix == 'did you mean "TRADEWIND_STATE_DIR"? or list the settings: tradewind config show'


def test_the_doctor_warns_of_no_variable_that_the_documents_or_the_program_name() -> None:
    root = Path(this_machine.__file__).parents[3]
    files = [root / "README.md", *(root / "docs").glob("*.md")]
    files += [each for name in ("orchestrator", "providers", "trainers") for each in (root / name).rglob("*.py")]
    named = {name for file in files for name in re.findall(r"\bTRADEWIND_[A-Z][A-Z_]*[A-Z]\b", file.read_text())}
    assert len(named) > 50
    assert this_machine.variables(dict.fromkeys(named, "1")).state == "ok"


def test_the_doctor_knows_every_extra(installation: Installation) -> None:
    declared = tomllib.loads((Path(this_machine.__file__).parents[3] / "pyproject.toml").read_text())
    packages = declared["project"]["optional-dependencies"]
    assert this_machine.EXTRA_MODULES.keys() == packages.keys() - {"all", "dev"}
    own = {
        extra: [each for each in packages[extra] if not each.startswith("tradewind[")]
        for extra in this_machine.EXTRA_MODULES
    }
    assert {extra: len(modules) for extra, modules in this_machine.EXTRA_MODULES.items()} == {
        extra: len(needed) for extra, needed in own.items()
    }
    found = this_machine.extras(installation.config)
    assert found.state == "ok"
    assert "web" in found.found.split(", ")


def test_an_extra_counts_only_with_all_its_packages_and_the_dashboard_needs_its_own(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(this_machine.EXTRA_MODULES, "web", ("fastapi", "no_such_module"))
    config = replace(installation.config, web=replace(installation.config.web, port=8080))
    found = this_machine.extras(config)
    assert (found.state, found.fix) == ("warn", "pip install 'tradewind[web]'")
    assert "web.port" in found.found
    assert "web" not in this_machine.extras(replace(config, web=replace(config.web, port=None))).found.split(", ")


def test_the_doctor_sees_a_failing_provider_and_jobs_that_wait_for_a_control_plane(
    installation: Installation, past: Past
) -> None:
    provider = installation.providers["fake"]
    assert isinstance(provider, FakeProvider)
    submit_job(installation, "other")
    assert doctor_state.control_plane(installation).state == "warn"
    with installation.store.write() as tx:
        now = installation.clock.now_ms()
        tx.record_poll("fake", now, now, 0, 0, "the cloud said no")
    check = doctor_state.prices(installation, "fake")
    assert check.state == "warn"
    assert "the cloud said no" in check.found
    assert check.fix


def test_the_doctor_sees_a_state_folder_that_cannot_be_made(installation: Installation, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = replace(installation.config, state_dir=tmp_path / "file" / "state")
    check = this_machine.state_folder(config)
    assert check.state == "fail"
    assert check.fix


def test_a_missing_extra_names_its_pip_command() -> None:
    check = this_machine.package("no-such-distribution", "train")
    assert (check.state, check.fix) == ("warn", "pip install 'tradewind[train]'")


@pytest.mark.parametrize("amount", ["0", "-2", "nan", "inf", "", "2 EUR", "1e3", float("nan"), -1.0, 10**12, "2;3"])
def test_an_invalid_budget_is_refused(installation: Installation, amount: str | float) -> None:
    with pytest.raises(UsageError) as caught:
        commands.set_budget(installation, "conv", amount, caller=ME)
    assert caught.value.hint
    with installation.store.read() as tx:
        assert all(command.kind != "budget" for command in tx.open_commands())


def test_a_budget_is_ordered_for_a_job_that_has_not_ended_and_may_not_be_spent_already(
    installation: Installation, past: Past
) -> None:
    accepted = commands.set_budget(installation, "conv", "250 USD", caller=ME)
    assert "conv becomes $250.00" in accepted.message
    with installation.store.read() as tx:
        assert [each.args for each in tx.open_commands() if each.kind == "budget"] == [{"nano_usd": 250 * 10**9}]
    with pytest.raises(UsageError, match="already spent") as caught:
        commands.set_budget(installation, "conv", "0.000001", caller=ME)
    assert re.fullmatch(
        r"to finish it: tradewind budget set conv \d+\.\d\d; the smallest allowed budget: tradewind budget set conv "
        r"\d+\.\d\d; or stop spending: tradewind pause conv",
        caught.value.hint,
    )
    with pytest.raises(UsageError, match="gpt is finished"):
        commands.set_budget(installation, "gpt", "250", caller=ME)


def test_a_budget_is_confirmed_as_it_was_typed(installation: Installation, past: Past) -> None:
    assert (
        "the budget of conv becomes $9.2589" in commands.set_budget(installation, "conv", "9.2589", caller=ME).message
    )


def test_what_is_spent_is_told_in_cents_like_the_budget(installation: Installation, past: Past) -> None:
    with installation.store.write() as tx:
        (run,) = tx.runs(job_id=past.conv)
        spent = tx.total_nano_usd(job_id=past.conv)
        at = run.created_at_ms
        charge = Entry("e", run.id, past.conv, at, at, "egress", 4_500_000_000 - spent, "billed", SPOT, at)
        tx.add_entries([charge])
    with pytest.raises(UsageError, match=r"conv has already spent \$4\.50$"):
        commands.set_budget(installation, "conv", "4.00", caller=ME)


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
