"""`down` as the store and the cloud see it: it leads while it ends machines and books them, whatever comes between."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from orchestrator.engine.billing.accrue import accrue
from orchestrator.engine.direct_calls import Within
from orchestrator.engine.machines.collect import collect
from orchestrator.engine.machines.shut_down import shut_down
from orchestrator.errors import NotLeaderError
from orchestrator.model import STEP_ORDER, Job, Step
from orchestrator.store import Leadership
from orchestrator.store.leadership.leader import TAKEOVER_S
from providers.errors import TimedOutError
from providers.fake import Fault
from tests.rig import Killed, findings
from tests.rig.installation import HOLDER
from tests.sim.harness import BRISK, RESERVE, SimulatedInstallation, check_truth

T = TypeVar("T")
Install = Callable[..., SimulatedInstallation]
SILENT = [Fault.NO_ANSWER] * 500


def lead(home: SimulatedInstallation, holder: str = "down:here") -> Leadership:
    """As the leader before it has ended."""
    home.store.resign(Leadership(HOLDER, epoch_of(home)))
    leadership = home.store.campaign(holder)
    assert leadership is not None
    return leadership


def epoch_of(home: SimulatedInstallation) -> int:
    leader = home.store.leader()
    assert leader is not None
    return leader.epoch


def down(home: SimulatedInstallation, leadership: Leadership, reported: Callable[[str], None] = lambda _: None) -> int:
    """Returns how many providers were against it."""
    return len(shut_down(home.plane._ctx.installation, leadership, reported))


def up(home: SimulatedInstallation, leadership: Leadership) -> None:
    """The next control plane, after a `down`."""
    home.store.resign(leadership)
    home.start()


def sound(home: SimulatedInstallation) -> None:
    ledger, billed = home.books()
    assert ledger == billed > 0
    found = findings(home, paused=True)
    assert not found, "\n".join(found)


def test_books_that_were_closed_meanwhile_are_not_written_on(home: SimulatedInstallation) -> None:
    job = home.submit(steps=400)
    home.until_step(job, 30)
    stale = home.plane._ctx
    stale.look()
    leadership = lead(home)
    down(home, leadership)
    home.clock.advance(5)
    down(home, leadership)
    stale.leadership = leadership  # as if nothing but its memory were old
    home.clock.advance(300)
    collect(stale.installation, leadership)
    accrue(stale, 0.0)
    assert home.read(lambda tx: tx.job_facts(job.id)).quarantine is None  # the store had nothing to refuse
    sound(home)


def test_a_control_plane_that_woke_after_a_down_books_and_polls_nothing(home: SimulatedInstallation) -> None:
    job = home.submit(steps=400)
    home.until_step(job, 30)
    asleep = home.plane
    asleep._ctx.look()
    leadership = lead(home)
    down(home, leadership)
    home.clock.advance(300)
    polls = home.read(lambda tx: tx.polls("fake"))
    with pytest.raises(NotLeaderError):
        accrue(asleep._ctx, 0.0)
    with pytest.raises(NotLeaderError):
        collect(asleep._ctx.installation, asleep._ctx.leadership)
    assert home.read(lambda tx: tx.polls("fake")) == polls
    up(home, leadership)
    home.settle()
    sound(home)


def test_a_standby_that_takes_over_in_the_middle_deposes_a_down_which_then_ends_no_machine(
    home: SimulatedInstallation,
) -> None:
    jobs = [home.submit(name, steps=60) for name in ("one", "two")]
    for job in jobs:
        home.until_step(job, 5)
    leadership, standby = lead(home), home.open_store()
    asked: list[str] = []
    taken: list[Leadership] = []

    def reported(message: str) -> None:
        asked.append(message)
        if len(asked) == 2:  # it falls asleep between two machines
            assert standby.campaign("standby") is None
            home.clock.advance(TAKEOVER_S + 1)
            won = standby.campaign("standby")
            assert won is not None
            taken.append(won)

    with pytest.raises(NotLeaderError):
        down(home, leadership, reported)
    assert len([instance for instance in home.cloud.instances() if instance.alive]) == 1
    home.plane, home.store = home.control_plane(standby, taken[0]), standby
    home.settle()
    assert [home.job(job).state for job in jobs] == ["finished", "finished"]
    check_truth(home)


def test_of_two_downs_at_once_one_leads_and_the_other_finds_nothing_left(home: SimulatedInstallation) -> None:
    job = home.submit(steps=60)
    home.until_step(job, 5)
    leadership, second = lead(home), home.open_store()
    held: list[Leadership | None] = []
    down(home, leadership, lambda _: held.append(second.campaign("down:there")))
    assert held
    assert held == [None] * len(held)
    home.clock.advance(5)
    home.store.resign(leadership)
    (first_ledger, _), won = home.books(), second.campaign("down:there")
    assert won is not None
    down(home, won)
    assert home.books()[0] >= first_ledger
    with pytest.raises(NotLeaderError):
        down(home, leadership)
    up(home, won)
    home.settle()
    sound(home)


@pytest.mark.parametrize("step", [step for step in STEP_ORDER if step is not Step.DONE])
def test_a_down_in_the_middle_of_a_move_leaves_nothing_and_the_job_can_go_on(
    home: SimulatedInstallation, step: Step
) -> None:
    job = home.submit(steps=40)
    home.until_step(job, 5)
    home.faults.inject("launch", Fault.LOST_REPLY)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until_second_move(job, step)
    leadership = lead(home)
    down(home, leadership)
    assert home.job(job).state == "paused"
    up(home, leadership)
    home.settle()
    sound(home)
    home.ask("resume", job)
    home.until_state(job, "finished")
    home.settle()
    check_truth(home)


def fence_the_target(home: SimulatedInstallation, job: Job) -> None:
    """As a control plane that died right after it."""
    ctx, move = home.plane._ctx, home.migrations(job)[-1]
    assert ctx.checkpoints.fence(ctx.checkpoint_root(job), job.id, move.generation, move.manifest)


@pytest.mark.parametrize("unseen_s", [0.0, 5.0])
def test_a_job_whose_new_machine_has_just_taken_over_and_cannot_be_ended_waits_for_its_end(
    home: SimulatedInstallation, unseen_s: float
) -> None:
    job = home.submit(steps=80)
    source = home.until_step(job, 5)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until(lambda: home.migrations(job)[-1].step is Step.CUTOVER, stride_s=0.1)
    fence_the_target(home, job)
    home.clock.advance(unseen_s)
    home.cloud.crash(source.instance_id or "")
    leadership = lead(home)
    home.faults.inject("terminate", *SILENT)
    assert down(home, leadership) == 1
    up(home, leadership)
    home.ask("resume", job)
    home.run_for(20)
    over = next(run for run in home.read(lambda tx: tx.runs(job_id=job.id)) if run.offer_id == RESERVE.id)
    machine = home.cloud.instance(over.instance_id or "")
    later = home.read(lambda tx: [run for run in tx.runs(job_id=job.id) if run.generation > over.generation])
    assert machine is not None
    assert machine.alive
    assert all(run.training_from_ms is None for run in later)
    home.faults.forget()
    home.until_state(job, "finished")
    home.settle()
    check_truth(home)


@pytest.mark.parametrize("call", ["list_owned", "terminate", "describe", "offers"])
def test_what_a_provider_does_not_answer_to_is_left_to_the_next_control_plane(
    home: SimulatedInstallation, call: str
) -> None:
    job = home.submit(steps=60)
    home.until_step(job, 5)
    leadership = lead(home)
    home.faults.inject(call, *SILENT)
    refused = down(home, leadership)
    assert refused == (1 if call in ("list_owned", "terminate") else 0)
    assert home.job(job).state == "paused"
    home.clock.advance(30)
    home.faults._script.clear()
    up(home, leadership)
    home.settle()
    sound(home)


def test_a_machine_that_no_list_mentions_yet_is_ended_all_the_same(home: SimulatedInstallation) -> None:
    job = home.submit(steps=60)
    home.until(lambda: home.migrations(job)[-1].step is Step.READY if home.migrations(job) else False, stride_s=0.1)
    leadership = lead(home)
    assert not home.plane._ctx.installation.providers["fake"].list_owned(home.store.install_id)
    down(home, leadership)
    home.clock.advance(5)
    assert not [instance for instance in home.cloud.instances() if instance.alive]


@pytest.mark.parametrize("edge", [*range(1, 9)])
def test_a_down_that_dies_anywhere_is_completed_by_the_next_control_plane(
    home: SimulatedInstallation, edge: int
) -> None:
    """At each of the store's and the provider's edges in turn, with one machine."""
    job = home.submit(steps=40)
    home.until_step(job, 5)
    leadership = lead(home)
    home.injector.count, home.injector.at = 0, edge
    with pytest.raises(Killed):
        down(home, leadership)
    up(home, leadership)
    home.settle()
    sound(home)


def test_a_machine_that_a_down_assigned_before_it_died_closes_its_run_when_its_launch_is_given_up(
    home: SimulatedInstallation,
) -> None:
    job = home.submit(steps=40)
    home.faults.inject("launch", Fault.LOST_REPLY)
    home.until(lambda: bool(home.cloud.instances()), stride_s=0.1)
    home.clock.advance(BRISK.listing_lag_s)
    leadership = lead(home)
    home.injector.when = "before terminate".__eq__
    with pytest.raises(Killed):
        down(home, leadership)
    (run,) = home.read(lambda tx: tx.runs(job_id=job.id))
    assert run.complete
    assert run.end is None
    home.ask("pause", job)
    up(home, leadership)
    home.settle()
    (run,) = home.read(lambda tx: tx.runs(job_id=job.id))
    assert run.end == "aborted"
    sound(home)


def test_a_run_that_a_down_ends_while_its_launch_is_not_answered_has_ended_then(home: SimulatedInstallation) -> None:
    """Its machine, which comes later, is not one that the job wants (seed 28286 of the crash fuzz)."""
    job = home.submit(steps=40)
    home.faults.inject("launch", Fault.LOST_REPLY)
    home.until(lambda: bool(home.cloud.instances()), stride_s=0.1)
    leadership, now_ms = lead(home), home.clock.now_ms()
    down(home, leadership)
    (run,) = home.read(lambda tx: tx.runs(job_id=job.id))
    assert (run.end, run.complete) == ("aborted", False)
    assert run.training_to_ms is not None
    assert run.training_to_ms >= now_ms
    up(home, leadership)
    home.settle()
    sound(home)


def test_a_provider_whose_list_is_not_answered_still_ends_the_machines_that_the_store_knows(
    home: SimulatedInstallation,
) -> None:
    home.submit(steps=400)
    home.run_for(30)
    (machine,) = (each.id for each in home.cloud.instances() if each.alive)
    home.faults.inject("list_owned", Fault.NO_ANSWER)
    leadership = lead(home)
    assert down(home, leadership) == 1
    home.clock.advance(5)
    assert not [each.id for each in home.cloud.instances() if each.alive and each.id == machine]
    up(home, leadership)
    home.run_for(30)
    sound(home)


def test_a_provider_that_never_answers_is_reported_and_its_machines_are_left_to_the_next_control_plane(
    home: SimulatedInstallation,
) -> None:
    home.submit(steps=400)
    home.run_for(30)
    leadership = lead(home)
    hang, within = threading.Event(), Within(0.01)

    def ask(provider: str, _call: Callable[[], T], /) -> T:
        return within(provider, hang.wait)  # type: ignore[arg-type, return-value]

    try:
        (refused,) = shut_down(home.plane._ctx.installation, leadership, lambda _: None, ask)
        assert isinstance(refused, TimedOutError)
    finally:
        hang.set()
    up(home, leadership)
    home.run_for(60)
    assert not any(each.alive for each in home.cloud.instances())
    sound(home)
