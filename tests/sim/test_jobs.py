"""Users' commands, what their code does, and spending limits, which are never exceeded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.engine.context import FAULT_KEY, REPORTED_AGAIN_S
from orchestrator.engine.machines.observe import masked
from orchestrator.engine.runtime import RunReport
from orchestrator.errors import UsageError
from orchestrator.model import Job, JobSpec, Resources, Step, Where
from orchestrator.services.caller import Caller
from orchestrator.services.jobs import commands, current
from providers.base import LaunchSpec
from providers.errors import TimedOutError
from providers.money import usd
from tests.sim.harness import CHEAP, EXPENSIVE, RESERVE, SimulatedInstallation, check_truth, train_spec

Install = Callable[..., SimulatedInstallation]
ME = Caller("me")
NOT_OVER = [step for step in Step if step not in (Step.DONE, Step.ABORTED)]


def at_step(home: SimulatedInstallation, step: Step) -> Job:
    """A job in the middle of a planned move."""
    job = home.submit(steps=25)
    home.until_step(job, 5)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until_second_move(job, step)
    return job


@pytest.mark.parametrize("step", NOT_OVER[1:])
def test_a_job_can_be_paused_and_resumed_at_every_step_of_a_move(home: SimulatedInstallation, step: Step) -> None:
    job = at_step(home, step)
    home.ask("pause", job)
    home.settle()
    assert home.job(job).state == "paused"
    ledger, billed = home.books()
    assert ledger == billed
    home.ask("resume", job)
    home.until_state(job, "finished")
    home.settle()
    assert home.job(job).state == "finished"
    assert all(run.repeated_steps == 0 for run in home.runs(job))
    check_truth(home)


def test_a_pause_on_request_names_the_command_that_continues_the_job(home: SimulatedInstallation) -> None:
    job = at_step(home, Step.TRANSFER)
    home.ask("pause", job)
    home.until_state(job, "paused")
    said = home.events(job, "job.paused")[0].message
    assert said.endswith(": requested by user:me; to continue: tradewind resume job")
    assert current.job(home.installation, job.id).note == said


@pytest.mark.parametrize("step", NOT_OVER[1:])
def test_a_job_can_be_cancelled_at_every_step_of_a_move(home: SimulatedInstallation, step: Step) -> None:
    job = at_step(home, step)
    asked = home.ask("cancel", job)
    home.ask("pause", job)  # changes nothing any more
    home.settle()
    assert home.answer(asked) == "cancelling"
    assert home.job(job).state == "cancelled"
    check_truth(home)


@pytest.mark.parametrize("step", [Step.PROVISION, Step.READY, Step.RESTORE, Step.CUTOVER])
@pytest.mark.parametrize(("command", "state"), [("pause", "paused"), ("cancel", "cancelled")])
def test_a_job_can_be_paused_and_cancelled_at_every_step_of_its_first_placement(
    home: SimulatedInstallation, step: Step, command: str, state: str
) -> None:
    job = home.submit(steps=10)
    if step is not Step.PROVISION:
        home.until(lambda: bool(found := home.migrations(job)) and found[-1].step is step)
    home.ask(command, job)
    home.settle()
    assert home.job(job).state == state
    assert not any(instance.alive for instance in home.cloud.instances())


def test_a_command_on_a_job_that_has_ended_says_so(home: SimulatedInstallation) -> None:
    job = home.submit(steps=3)
    home.settle()
    for command in ("pause", "resume", "cancel", "migrate"):
        asked = home.ask(command, job)
        home.tick()
        assert home.answer(asked) == "refused: job is finished"
        assert home.events(job)[-1].message == f"{command} refused: job is finished"
    missing = home.ask("apply", job, plan_id="plan_x")
    home.tick()
    assert home.answer(missing) == "not found: there is no plan plan_x"


def test_a_resume_that_comes_while_the_job_is_pausing_is_carried_out_once_it_is_paused(
    home: SimulatedInstallation,
) -> None:
    job = home.submit(steps=20)
    home.until_step(job, 5)
    home.ask("pause", job)
    home.tick()
    assert home.job(job).state == "pausing"
    asked = home.ask("resume", job)
    home.until_state(job, "finished")
    assert home.answer(asked) == "queued"
    kinds = [event.kind for event in home.events(job, "job.pausing", "job.paused", "job.resumed")]
    assert kinds == ["job.pausing", "job.paused", "job.resumed"]


def test_the_last_of_pause_and_resume_counts_while_the_job_is_pausing(home: SimulatedInstallation) -> None:
    job = home.submit(steps=20)
    home.until_step(job, 5)
    home.ask("pause", job)
    home.tick()
    dropped = home.ask("resume", job)
    home.ask("pause", job)
    home.settle()
    home.run_for(5)
    assert home.job(job).state == "paused"
    assert (home.answer(dropped) or "").startswith("refused: ")


def test_pause_and_resume_of_the_same_instant_are_carried_out_in_their_order(home: SimulatedInstallation) -> None:
    job = home.submit(steps=20)
    home.until_step(job, 5)
    orders = [home.ask("pause", job), home.ask("resume", job)]
    home.until_state(job, "finished")
    assert [home.answer(order) for order in orders] == ["pausing", "queued"]
    assert [run.end for run in home.runs(job)] == ["paused", "finished"]


def test_a_job_that_a_pending_command_will_pause_can_be_resumed(home: SimulatedInstallation) -> None:
    """The control plane is stopped, so neither is carried out yet."""
    job = home.submit(steps=20)
    home.until_step(job, 5)
    with pytest.raises(UsageError, match="job is running, not paused"):
        commands.resume(home.installation, "job", caller=ME)
    commands.pause(home.installation, "job", caller=ME)
    assert "job resumes as soon as it is paused" in commands.resume(home.installation, "job", caller=ME).message
    home.until_state(job, "finished")
    assert [run.end for run in home.runs(job)] == ["paused", "finished"]
    assert not home.events(job, "command.refused")


def test_pending_pauses_and_resumes_decide_what_else_is_accepted(home: SimulatedInstallation) -> None:
    """The control plane is stopped, so none is carried out yet."""
    job = home.submit(steps=20)
    home.until_step(job, 5)
    for _ in range(2):
        commands.pause(home.installation, "job", caller=ME)
        with pytest.raises(UsageError, match=r"^job is already about to pause$") as refused:
            commands.pause(home.installation, "job", caller=ME)
        assert refused.value.hint == "tradewind resume job"
        commands.resume(home.installation, "job", caller=ME)
        with pytest.raises(UsageError, match=r"^job is running, not paused$"):
            commands.resume(home.installation, "job", caller=ME)
    home.until_state(job, "finished")
    assert not home.events(job, "command.refused")


def test_a_job_that_a_pending_command_will_resume_is_not_resumed_twice(home: SimulatedInstallation) -> None:
    job = home.submit(steps=20)
    home.ask("pause", job)
    home.until_state(job, "paused")
    commands.resume(home.installation, "job", caller=ME)
    with pytest.raises(UsageError, match=r"^job is about to resume$"):
        commands.resume(home.installation, "job", caller=ME)
    home.until_state(job, "finished")
    assert not home.events(job, "command.refused")


def test_code_that_raises_is_tried_again_at_once_where_it_is_then_after_growing_pauses_and_failed_with_its_traceback(
    home: SimulatedInstallation,
) -> None:
    job = home.submit(steps=30, retries=4)
    home.site.raise_at(job.id, 4, 4, 4, 4, 4)
    home.settle()
    assert home.job(job).state == "failed"
    ends = [run.training_to_ms or 0 for run in home.runs(job)]
    starts = [run.created_at_ms for run in home.runs(job)]
    pauses = [start - end for start, end in zip(starts[1:], ends, strict=False)]
    assert [pause == 0 for pause in pauses] == [True, False, True, False]  # at once on each machine, then on another
    assert 2_000 <= pauses[1] < pauses[3]
    facts = home.read(lambda tx: tx.job_facts(job.id))
    assert facts.failures == 5
    assert "ValueError: a bug at step 4" in (facts.error or "")
    assert home.events(job, "job.failed")[0].message.endswith("ValueError: a bug at step 4")
    check_truth(home)


def test_code_that_raises_once_finishes_in_the_end(home: SimulatedInstallation) -> None:
    job = home.submit(steps=20)
    home.site.raise_at(job.id, 12)
    home.settle()
    assert home.job(job).state == "finished"
    assert home.migrations(job)[1].reason == "retry"
    check_truth(home)


@pytest.mark.parametrize(("command", "state"), [("cancel", "cancelled"), ("pause", "paused")])
def test_code_that_raises_while_its_job_is_being_ended_does_not_bring_it_back(
    home: SimulatedInstallation, command: str, state: str
) -> None:
    job = home.submit(steps=20)
    home.until_step(job, 4)
    home.site.raise_at(job.id, 6)
    home.clock.advance(5)
    home.ask(command, job)
    home.settle()
    assert home.job(job).state == state


def test_the_control_plane_forgets_what_it_need_not_remember(home: SimulatedInstallation) -> None:
    for _ in range(4):
        home.submit(steps=8)
        home.settle()
    home.run_for(70)
    assert [key for key in home.plane._ctx.pacing if "/" in key] == []


def test_a_store_that_does_not_say_what_it_keeps_stops_nothing(home: SimulatedInstallation) -> None:
    def unanswered() -> list[str]:
        raise TimedOutError("no answer from store for 30 s")

    home.site.known = unanswered  # type: ignore[method-assign]
    job = home.submit(steps=8)
    home.settle()
    home.run_for(70)
    assert home.job(job).state == "finished"


def test_the_control_plane_forgets_strange_machines_that_are_gone_and_faults_that_are_old(
    home: SimulatedInstallation,
) -> None:
    def remembered(beginning: str) -> list[str]:
        return [key for key in home.plane._ctx.pacing if key.startswith(beginning)]

    (provider,) = home.installation.providers.values()
    tags = {"tradewind-install": home.store.install_id}
    (instance_id,) = provider.launch(LaunchSpec("not of this store", CHEAP.id, "", tags))
    home.saboteur.arm("sweep", times=2)
    home.until(lambda: remembered("unknown:") == [f"unknown:{provider.name}:{instance_id}"])
    home.run_for(70)
    assert remembered("unknown:")
    assert remembered(FAULT_KEY)
    provider.terminate(instance_id)
    home.run_for(20)
    assert not remembered("unknown:")
    assert remembered(FAULT_KEY)
    home.clock.advance(REPORTED_AGAIN_S)
    home.run_for(70)
    assert not remembered(FAULT_KEY)


def test_no_more_instances_than_the_limits_allow_and_the_reason_is_reported_once(install: Install) -> None:
    home = install(overrides={"limits.max_instances": 1})
    first, second = home.submit("first", steps=15), home.submit("second", steps=10)
    most = 0
    for _ in range(60):
        home.tick()
        most = max(most, sum(instance.alive for instance in home.cloud.instances()))
    home.settle()
    assert most == 1
    assert [home.job(job).state for job in (first, second)] == ["finished", "finished"]
    said = home.events(second, "job.waits") + home.events(first, "job.waits")
    assert [event.message.partition(":")[0] for event in said] == ["limits.max_instances is reached (1 of 1 machines)"]
    assert len(home.migrations(second)) == 1
    check_truth(home)


def test_a_first_start_speaks_of_no_checkpoint_and_a_later_one_does(home: SimulatedInstallation) -> None:
    job = home.submit(steps=20)
    home.until_step(job, 6)
    assert not any("checkpoint of" in event.message or "in place" in event.message for event in home.events(job))
    home.ask("pause", job)
    home.until_state(job, "paused")
    home.ask("resume", job)
    home.settle()
    assert any("restored the checkpoint of step" in event.message for event in home.events(job))


def test_a_cancelled_job_is_only_that_whatever_becomes_of_its_machine(home: SimulatedInstallation) -> None:
    jobs = [home.submit(f"job-{number}", steps=200) for number in range(2)]
    home.until_step(jobs[0], 3)
    for job in jobs:
        home.ask("cancel", job)
    home.settle()
    assert [home.events(job, "job.cancelled")[-1].message for job in jobs] == ["cancelled"] * 2
    check_truth(home)


def test_a_job_that_is_cancelled_again_is_cancelled_once(home: SimulatedInstallation) -> None:
    job = home.submit(steps=200)
    home.until_step(job, 3)
    orders = [home.ask("cancel", job) for _ in range(2)]
    home.until_state(job, "cancelled")
    assert [home.answer(order) for order in orders] == ["cancelling"] * 2
    assert len(home.events(job, "job.cancelling")) == 1
    home.settle()
    check_truth(home)


def test_while_a_job_waits_for_a_limit_nobody_forecasts_its_end(install: Install) -> None:
    home = install(overrides={"limits.max_instances": 1})
    for number in range(2):
        home.submit(f"job-{number}", steps=4000)
    home.until(lambda: any(view.state == "running" for view in current.jobs(home.installation).jobs))
    home.run_for(20)
    said = {view.state: view.to_go for view in current.jobs(home.installation).jobs}
    assert said["queued"] == "it is not known when it can start"
    assert said["running"].startswith("$")


@pytest.mark.parametrize("limit", [{"limits.max_instances": 2}, {"limits.max_usd_per_hour": 2.1}])
def test_a_job_that_lost_its_machine_gets_the_next_one_before_new_jobs(
    install: Install, limit: dict[str, object]
) -> None:
    home = install(overrides=limit)
    home.cloud.set_price(EXPENSIVE.id, usd("1.00"))
    training = [home.submit(f"training-{number}", steps=400) for number in range(2)]
    for job in training:
        home.until_step(job, 5)
    new = [home.submit(f"new-{number}", steps=400) for number in range(6)]
    for lost in (training[1], training[0], training[1]):
        home.run_for(20)
        (machine,) = home.runs(lost)[-1].instance_ids
        home.cloud.crash(machine)
        home.until(lambda lost=lost: len(home.runs(lost)) > 1 and home.runs(lost)[-1].end is None)  # type: ignore[misc]
        home.until_state(lost, "running")
        assert not any(home.runs(job) for job in new)


def test_new_jobs_are_not_held_up_by_one_that_wants_more_than_the_limits_allow(install: Install) -> None:
    home = install(overrides={"limits.max_usd_per_hour": 3.0})
    gang = home.submit("gang", steps=400, resources=Resources(nodes=2))
    run = home.until_step(gang, 5)
    for offer in (CHEAP, EXPENSIVE, RESERVE):
        home.cloud.set_price(offer.id, usd("2.0"))
    home.cloud.crash(run.instance_ids[0])
    new = home.submit("new", steps=10)
    home.until_state(new, "finished")
    assert home.job(gang).state == "queued"


def test_no_more_money_per_hour_than_the_limits_allow(install: Install) -> None:
    home = install(overrides={"limits.max_usd_per_hour": 0.5})
    job = home.submit(steps=10)
    home.run_for(30)
    assert home.job(job).state == "queued"
    assert not home.cloud.bills()
    assert "$1.00/h is more than limits.max_usd_per_hour ($0.50)" in home.events(job, "job.waits")[0].message
    home.cloud.set_price(CHEAP.id, usd("0.40"))
    home.settle()
    assert home.job(job).state == "finished"


def test_a_job_that_fits_nowhere_waits_says_why_once_and_starts_when_an_offer_appears(
    home: SimulatedInstallation,
) -> None:
    home.cloud.withdraw(EXPENSIVE.id)
    job = home.submit(steps=10, where=Where(regions=("beta",)), capacity=(EXPENSIVE.capacity_type,))
    home.run_for(60)
    assert home.job(job).state == "queued"
    assert len(home.events(job, "job.waits")) == 1
    home.cloud._listings[EXPENSIVE.id].withdrawn = False
    home.settle()
    assert home.job(job).state == "finished"
    check_truth(home)


def secretive(steps: int = 20) -> JobSpec:
    return JobSpec("secretive", replace(train_spec(steps), secrets=("WANDB_API_KEY",)), retries=0)


def test_a_value_that_a_trainer_reports_in_its_error_does_not_enter_the_store(home: SimulatedInstallation) -> None:
    job = home.submit_job(secretive())
    home.secrets.give({job.id: {"WANDB_API_KEY": "a bug at step 4"}})
    home.site.raise_at(job.id, 4)
    home.settle()
    assert home.job(job).state == "failed"
    assert "ValueError: [secret WANDB_API_KEY]" in (home.read(lambda tx: tx.job_facts(job.id)).error or "")
    assert home.events(job, "job.failed")[0].message.endswith("ValueError: [secret WANDB_API_KEY]")


def test_no_text_that_a_trainer_says_is_taken_with_a_value_in_it(home: SimulatedInstallation) -> None:
    job = home.submit_job(secretive())
    home.secrets.give({job.id: {"WANDB_API_KEY": "0123456789abcdef" * 2}})
    said = RunReport("run_1", "finished", error="0123456789abcdef" * 2, weights_hash="0123456789abcdef" * 2)
    assert "0123456789abcdef" not in str(masked(home.plane._ctx, said))
    innocent = RunReport("run_1", "finished", weights_hash="f" * 32)
    assert masked(home.plane._ctx, innocent) == innocent


def test_a_job_whose_secret_is_missing_waits_and_says_so_until_it_is_given(home: SimulatedInstallation) -> None:
    job = home.submit_job(secretive())
    innocent = home.submit("innocent")
    home.until_state(innocent, "finished")
    assert home.job(job).state == "queued"
    assert home.read(lambda tx: tx.runs(job_id=job.id)) == []
    (reported,) = home.read(lambda tx: tx.events(job_id=job.id, kinds=("job.waits",)))
    assert "tradewind secrets give secretive" in reported.message
    home.secrets.give({job.id: {"WANDB_API_KEY": "hush"}})
    home.settle()
    assert home.job(job).state == "finished"
    assert home.read(lambda tx: tx.job_facts(job.id)).failures == 0
    check_truth(home)


def test_a_new_control_plane_without_the_secret_lets_the_job_train_on_and_recovers_it_once_it_is_given(
    home: SimulatedInstallation,
) -> None:
    job = home.submit_job(secretive(steps=60))
    home.secrets.give({job.id: {"WANDB_API_KEY": "hush"}})
    run = home.until_step(job, 5)
    home.start()
    home.until_step(job, 10)
    (reported,) = home.read(lambda tx: tx.events(job_id=job.id, kinds=("job.missing_secrets",)))
    assert "cannot restart elsewhere" in reported.message
    assert run.instance_id is not None
    home.cloud.crash(run.instance_id)
    home.until_state(job, "queued")
    home.run_for(30)
    assert home.job(job).state == "queued"
    assert len(home.read(lambda tx: tx.runs(job_id=job.id))) == 1
    home.secrets.give({job.id: {"WANDB_API_KEY": "hush"}})
    home.settle()
    assert home.job(job).state == "finished"
    check_truth(home)


def test_a_control_plane_that_takes_over_in_the_middle_of_a_placement_gives_the_machine_back(
    home: SimulatedInstallation,
) -> None:
    job = home.submit_job(secretive())
    home.secrets.give({job.id: {"WANDB_API_KEY": "hush"}})
    home.until(lambda: any(each.step is Step.READY for each in home.read(lambda tx: tx.migrations(job_id=job.id))))
    home.start()
    home.until(lambda: home.job(job).state == "queued" and not home.cloud.quota_used(home.clock.now_ms()))
    assert home.read(lambda tx: tx.job_facts(job.id)).failures == 0
    home.secrets.give({job.id: {"WANDB_API_KEY": "hush"}})
    home.settle()
    assert home.job(job).state == "finished"
    check_truth(home)
