"""Orders for the control plane: pause, resume, move, cancel and budgets, and how they are answered."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import pytest

from orchestrator.cli.render.screens.jobs import queue
from orchestrator.cli.render.text import Screen
from orchestrator.errors import (
    InfeasibleError,
    LimitError,
    NotFoundError,
    TradewindError,
    UsageError,
)
from orchestrator.installation import Installation
from orchestrator.model import Entry, Step
from orchestrator.services.jobs import commands, current, explain
from tests.unit.services.jobs.conftest import ScriptedClock, script, set_state
from tests.unit.services.recorded_history import ME, OTHER_SPOT, SPOT, Past


def test_orders_are_written_for_the_control_plane(installation: Installation, past: Past) -> None:
    for accepted in (
        commands.pause(installation, "conv", caller=ME),
        commands.migrate(installation, "conv", OTHER_SPOT, caller=ME),
    ):
        assert accepted.job_ids == (past.conv,)
        assert not accepted.control_plane
    set_state(installation, past.conv, "paused")
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
    set_state(installation, past.lstm, "paused")
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
    set_state(installation, past.conv, "paused")
    assert current.job(installation, "conv").note.startswith("paused before its first step: ")
    resumed = commands.resume(installation, "conv", caller=ME).message
    assert resumed == f"conv starts on the offer that is best now; it has reported no step, so {kept}"
    set_state(installation, past.lstm, "paused")
    assert current.job(installation, "lstm").note.startswith("paused before it started: ")
    assert commands.resume(installation, "lstm", caller=ME).message == "lstm starts on the offer that is best now"


def test_a_job_that_is_being_cancelled_takes_no_other_command(installation: Installation, past: Past) -> None:
    """This also holds before a control plane has carried the cancellation out. Cancelling twice is allowed."""
    assert commands.pause(installation, "lstm", caller=ME).message == "lstm will pause before it starts"
    assert "at its next step, with a checkpoint" in commands.pause(installation, "conv", caller=ME).message
    set_state(installation, past.conv, "paused")
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
    set_state(installation, past.conv, "paused")
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
    set_state(installation, past.conv, "paused")
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
def test_the_refusal_of_the_control_plane_is_raised_to_the_caller(
    installation: Installation, past: Past, result: str, error: type[TradewindError]
) -> None:
    assert installation.store.campaign("here") is not None
    script(installation, lambda: None, lambda: _answer(installation, result))
    with pytest.raises(error) as raised:
        commands.migrate(installation, "conv", None, caller=ME)
    assert str(raised.value) == result.partition(": ")[2]
    assert raised.value.hint


def test_an_order_that_was_carried_out_or_is_not_answered_in_time_is_accepted(
    installation: Installation, past: Past
) -> None:
    assert installation.store.campaign("here") is not None
    script(installation, lambda: _answer(installation, "pausing"))
    assert commands.pause(installation, "conv", caller=ME).control_plane
    script(installation, *[lambda: None] * 100)
    assert commands.cancel(installation, "conv", caller=ME).control_plane
    assert isinstance(installation.clock, ScriptedClock)
    assert len(installation.clock.script) >= 50


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


def test_what_is_spent_is_shown_in_cents_like_the_budget(installation: Installation, past: Past) -> None:
    with installation.store.write() as tx:
        (run,) = tx.runs(job_id=past.conv)
        spent = tx.total_nano_usd(job_id=past.conv)
        at = run.created_at_ms
        charge = Entry("e", run.id, past.conv, at, at, "egress", 4_500_000_000 - spent, "billed", SPOT, at)
        tx.add_entries([charge])
    with pytest.raises(UsageError, match=r"conv has already spent \$4\.50$"):
        commands.set_budget(installation, "conv", "4.00", caller=ME)
