"""Spending limits of a job: its budget, which is never exceeded whatever its trainer does, and its max_duration."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.engine.billing.spending_limits import spending
from orchestrator.engine.inputs import snapshot
from orchestrator.engine.inputs.reserves import release_market_s, stop_market_s
from orchestrator.errors import TokenConflictError
from orchestrator.model import Expected, GpuRequest, Job, JobSpec, Resources, Step
from orchestrator.services.jobs import current
from orchestrator.services.jobs.submit import submitted_before
from providers.fake import Fault
from providers.money import usd
from providers.offer import CapacityType
from tests.sim.harness import BRISK, CHEAP, EXPENSIVE, RESERVE, SimulatedInstallation, check_truth, train_spec

Install = Callable[..., SimulatedInstallation]
BUDGET = usd("0.12")  # 432 s of the cheapest machine


def paid(home: SimulatedInstallation) -> int:
    """Once everything is settled."""
    home.settle(limit_s=2000.0)
    ledger, billed = home.books()
    assert ledger == billed
    return ledger


def test_a_budget_pauses_the_job_with_a_checkpoint_before_it_is_passed(home: SimulatedInstallation) -> None:
    job = home.submit(steps=600, budget_nano_usd=BUDGET)
    home.until(lambda: home.job(job).state == "paused", stride_s=3.0)
    assert 0.8 * BUDGET < paid(home) <= BUDGET
    assert home.job(job).state == "paused"
    (asked,), (reported,) = home.events(job, "job.pausing"), home.events(job, "job.paused")
    assert "$0.12 budget is spent so far" in asked.message
    assert "with a checkpoint: $0." in reported.message
    assert home.runs(job)[-1].end == "paused"


def test_a_budget_of_parts_of_a_cent_is_never_rounded_in_what_is_said_of_it(home: SimulatedInstallation) -> None:
    """`status` shows it exactly, so no event contradicts that."""
    job = home.submit(steps=600, budget_nano_usd=usd("0.1249"))
    home.tick()
    home.ask("budget", job, nano_usd=usd("0.1179"))
    home.until(lambda: home.job(job).state == "paused", stride_s=3.0)
    assert "is now $0.1179 (before: $0.1249; " in home.events(job, "job.budget")[0].message
    assert "of its $0.1179 budget is spent so far" in home.events(job, "job.paused")[0].message


def test_a_pause_for_the_budget_says_what_is_kept_and_what_going_on_takes_and_a_larger_one_does(
    home: SimulatedInstallation,
) -> None:
    job = home.submit(steps=600, budget_nano_usd=BUDGET)
    home.until(lambda: home.job(job).state == "paused", stride_s=3.0)
    reported = home.events(job, "job.paused")[0].message
    kept, needed = re.search(r"; \$(\S+) is reserved .* about \$(\S+) more; .*tradewind budget set", reported).groups()  # type: ignore[union-attr]
    assert 0 < float(kept) < 0.2 * BUDGET / 1e9
    left = 600 - home.runs(job)[-1].last_step
    assert float(needed) == pytest.approx(left / 3600, rel=0.1)  # at a dollar per hour and a step per second
    (enough,) = re.search(r"budget set job (\d+\.\d\d), then tradewind resume job", reported).groups()  # type: ignore[union-attr]
    asked = home.ask("budget", job, nano_usd=usd(enough))
    home.ask("resume", job)
    home.settle(stride_s=3.0)
    assert home.answer(asked) == home.events(job, "job.budget")[0].message
    assert home.events(job, "job.budget")[0].actor == "user:me"
    assert home.job(job).state == "finished"
    assert BUDGET < paid(home) <= usd(enough)


@pytest.mark.parametrize("wanted", [0, -1, True, 1.5, "2", None, 10**19])
def test_a_budget_that_is_none_is_refused(home: SimulatedInstallation, wanted: object) -> None:
    job = home.submit(steps=60, budget_nano_usd=BUDGET)
    asked = home.ask("budget", job, nano_usd=wanted)  # type: ignore[arg-type]
    home.tick()
    assert (home.answer(asked) or "").startswith("refused: a budget must be more than 0")
    assert home.job(job).spec.budget_nano_usd == BUDGET


def test_a_budget_below_what_is_spent_is_refused(home: SimulatedInstallation) -> None:
    job = home.submit(steps=600)
    home.until_step(job, 100)
    asked = home.ask("budget", job, nano_usd=usd("0.01"))
    home.tick()
    assert "already spent" in (home.answer(asked) or "")
    assert home.job(job).spec.budget_nano_usd is None


@pytest.mark.parametrize("state", ["starting", "running"])
def test_a_budget_that_does_not_pay_for_ending_the_machines_is_refused_and_the_least_named_is_never_passed(
    install: Install, state: str
) -> None:
    """A machine that starts is billed for a minute at least; one that runs costs something until it has ended."""
    home = install(behaviour=replace(BRISK, boot_s=20.0, stop_s=12.0))
    job = home.submit(steps=600, budget_nano_usd=usd(1))
    if state == "running":
        home.until_step(job, 100)
        home.site.ignore_control(job.id)
    home.tick()
    asked = home.ask("budget", job, nano_usd=home.books()[1] + usd("0.001"))  # type: ignore[arg-type]
    home.tick()
    found = re.search(
        r"^refused: job needs more than \$(\S+) to cover its spending and to end", home.answer(asked) or ""
    )
    assert found is not None, home.answer(asked)
    assert home.job(job).spec.budget_nano_usd == usd(1)
    least = usd(found[1]) + usd("0.003")
    asked = home.ask("budget", job, nano_usd=least)  # type: ignore[arg-type]
    home.tick()
    assert home.job(job).spec.budget_nano_usd == least, home.answer(asked)
    assert paid(home) <= least


def test_a_budget_may_be_raised_although_it_does_not_pay_for_ending_the_machines(home: SimulatedInstallation) -> None:
    job = home.submit(steps=600, budget_nano_usd=BUDGET)
    home.until(lambda: home.job(job).state == "pausing", stride_s=1.0)
    asked = home.ask("budget", job, nano_usd=BUDGET + 1)  # type: ignore[arg-type]
    home.tick()
    assert home.job(job).spec.budget_nano_usd == BUDGET + 1, home.answer(asked)
    assert paid(home) <= BUDGET + 1


def test_a_submission_made_again_is_the_same_job_although_its_budget_was_set_since(home: SimulatedInstallation) -> None:
    job = home.new_job(JobSpec("job", train_spec(600), budget_nano_usd=BUDGET))
    with home.store.write() as tx:
        tx.add_job(job, "once")
    for dollars in ("2.50", "3.50"):
        home.ask("budget", job, nano_usd=usd(dollars))
        home.tick()
    assert home.job(job).spec.budget_nano_usd == usd("3.50")
    found = submitted_before(home.installation, job.spec, "once")
    assert found is not None
    assert (found.id, found.budget_nano_usd) == (job.id, usd("3.50"))
    with pytest.raises(TokenConflictError):
        submitted_before(home.installation, home.job(job).spec, "once")


@pytest.mark.parametrize(("budget", "stride_s"), [(BUDGET, 2.0), (BUDGET, 7.0), (usd("0.15"), 5.0)])
def test_a_trainer_that_never_answers_is_ended_before_the_budget_is_passed(
    install: Install, budget: int, stride_s: float
) -> None:
    home = install(behaviour=replace(BRISK, stop_s=20.0))
    job = home.submit(steps=600, budget_nano_usd=budget)
    home.until_step(job, 5)
    home.site.ignore_control(job.id)
    home.until(lambda: home.job(job).state == "paused", stride_s=stride_s)
    assert 0 < paid(home) <= budget
    assert "did not stop when asked" not in home.events(job, "job.paused")[0].message
    assert "does not cover waiting" in home.events(job, "job.paused")[0].message


def test_the_budget_holds_while_a_pause_that_a_user_asked_for_is_not_answered(home: SimulatedInstallation) -> None:
    job = home.submit(steps=600, budget_nano_usd=BUDGET)
    home.until(lambda: home.books()[1] > 0.7 * BUDGET, stride_s=3.0)
    home.site.ignore_control(job.id)
    home.ask("pause", job)
    assert paid(home) <= BUDGET
    assert home.job(job).state == "paused"
    assert home.events(job, "job.pausing")[0].message == "pausing: requested by user:me"


@pytest.mark.parametrize("step", [Step.READY, Step.CHECKPOINT, Step.RESTORE, Step.CUTOVER])
def test_the_budget_holds_in_the_middle_of_a_move(home: SimulatedInstallation, step: Step) -> None:
    budget = usd("0.20")  # the second machine is billed for a minute at least
    job = home.submit(steps=600, budget_nano_usd=budget)
    home.until(lambda: home.books()[1] > 0.3 * budget, stride_s=3.0)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until_second_move(job, step)
    home.site.ignore_control(job.id)
    home.cloud.set_price(CHEAP.id, usd("2.00"))
    assert paid(home) <= budget
    assert home.job(job).state == "paused"


def test_a_job_is_not_moved_where_its_budget_does_not_last_for_two_machines(home: SimulatedInstallation) -> None:
    job = home.submit(steps=600, budget_nano_usd=BUDGET)
    home.until(lambda: home.books()[1] > 0.5 * BUDGET, stride_s=1.0)
    asked = home.ask("migrate", job, offer_id=RESERVE.id)
    home.tick()
    assert "its budget does not cover two machines" in (home.answer(asked) or "")
    assert paid(home) > 0.8 * BUDGET
    assert len(home.runs(job)) == 1
    assert "with a checkpoint: $0." in home.events(job, "job.paused")[0].message


def test_a_job_is_not_moved_where_its_budget_does_not_last_for_the_egress_of_its_checkpoint(
    home: SimulatedInstallation,
) -> None:
    """400 GB from one region to another cost $20 at 5 cents per GB."""
    job = home.submit(steps=600, budget_nano_usd=usd(10))
    home.until_step(job, 20)
    with home.store.write() as tx:
        tx.set_job_facts(job.id, checkpoint_bytes=400 * 10**9)
    asked = home.ask("migrate", job, offer_id=RESERVE.id)
    home.tick()
    refusal = home.answer(asked) or ""
    assert re.search(
        r"its budget does not cover two machines, and transferring its checkpoint there costs \$20\.", refusal
    )
    assert len(home.runs(job)) == 1


def test_the_egress_of_a_move_counts_against_the_budget_as_soon_as_it_is_owed(home: SimulatedInstallation) -> None:
    """It is booked when the machine ends, but a plan must not spend that money twice."""
    job = home.submit(steps=600, budget_nano_usd=usd(100))
    home.until_step(job, 20)
    with home.store.write() as tx:
        tx.set_job_facts(job.id, checkpoint_bytes=400 * 10**9)
        tx.update_run(home.runs(job)[-1].id, moved_from="fake/beta/beta-1", moved_bytes=400 * 10**9)
        booked = tx.total_nano_usd(job.id)
    with home.store.read() as tx:
        (demand,) = snapshot.inputs(tx, home.clock.now_ms(), home.installation.config).demands
    assert booked < usd(1)
    assert usd(20) < demand.spent_nano_usd < usd(21)


def test_the_egress_of_a_move_is_reserved_until_it_is_owed(install: Install) -> None:
    """400 GB from one region to another cost $20 at 5 cents per GB. Meanwhile the job trains on."""
    home = install(behaviour=replace(BRISK, boot_s=60.0))
    job = home.submit(steps=600, budget_nano_usd=usd(100))
    home.until_step(job, 20)
    with home.store.write() as tx:
        tx.set_job_facts(job.id, checkpoint_bytes=400 * 10**9)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until_state(job, "migrating")
    home.run_for(20.0)
    assert home.migrations(job)[-1].step is Step.READY
    assert usd(20) < spending(home.plane._ctx, home.job(job), home.current(job)).to_end < usd(21)


def test_a_price_that_doubles_unheard_of_does_not_break_the_budget(home: SimulatedInstallation) -> None:
    job = home.submit(steps=600, budget_nano_usd=BUDGET)
    home.until_step(job, 5)
    home.site.ignore_control(job.id)
    home.faults.inject("offers", *[Fault.NO_ANSWER] * 2000)
    home.cloud.set_price(CHEAP.id, usd("2.00"))
    home.until(lambda: home.job(job).state == "paused", stride_s=3.0)
    home.faults._script.clear()
    assert paid(home) <= BUDGET


@pytest.mark.parametrize("dollars", ["0.017", "0.022", "0.028", "0.033", "0.040"])
def test_a_price_that_doubles_while_a_machine_starts_does_not_break_the_budget(install: Install, dollars: str) -> None:
    """A machine is billed for a minute at least, at the price that holds by then."""
    home = install(behaviour=replace(BRISK, boot_s=20.0), catalog=((CHEAP, usd("1.00")),))
    job = home.submit(steps=600, budget_nano_usd=usd(dollars))
    home.tick()
    home.cloud.set_price(CHEAP.id, usd("2.00"))
    home.until(lambda: home.job(job).state == "paused")
    assert paid(home) <= usd(dollars)


def test_no_machine_is_rented_only_to_be_ended_at_once(install: Install) -> None:
    home = install(catalog=((RESERVE, usd("3.00")),), stride_s=0.5)
    job = home.submit(steps=600, budget_nano_usd=usd("0.06"), capacity=(CapacityType.ON_DEMAND,))
    said = why_paused(home, job)
    assert not home.cloud.instances()
    (rents,) = re.findall(r"\$(\d+\.\d\d) is enough to rent a machine", said)
    home.ask("budget", job, nano_usd=usd(rents))  # type: ignore[arg-type]
    home.ask("resume", job)
    home.until_state(job, "running")
    assert paid(home) <= usd(rents)


def test_a_launch_that_was_given_up_counts_until_it_is_known_that_no_machine_came_of_it(install: Install) -> None:
    home = install(behaviour=replace(BRISK, boot_s=5.0, late_s=40.0), catalog=((CHEAP, usd("1.00")),), stride_s=1.0)
    job = home.submit(steps=600, budget_nano_usd=usd("0.045"))
    home.faults.inject("launch", *[Fault.LATE, Fault.NO_ANSWER] * 6)
    for _ in range(3):
        home.run_for(3.0)
        home.ask("pause", job)
        home.until_state(job, "paused")
        home.ask("resume", job)
    assert paid(home) <= usd("0.045")


def test_a_job_that_is_resumed_at_the_end_of_its_budget_rents_nothing_more(home: SimulatedInstallation) -> None:
    job = home.submit(steps=600, budget_nano_usd=BUDGET)
    home.settle(stride_s=3.0)
    spent, machines = paid(home), len(home.cloud.instances())
    for _ in range(5):
        home.ask("resume", job)
        home.run_for(40)
    assert home.books() == (spent, spent)
    assert len(home.cloud.instances()) == machines


def test_max_duration_fails_the_job_once_it_has_trained_so_long_and_waiting_does_not_count(
    home: SimulatedInstallation,
) -> None:
    home.cloud.withdraw(RESERVE.id)
    job = home.submit(steps=5000, max_duration_s=60.0, capacity=(CapacityType.ON_DEMAND,))
    home.run_for(100)
    assert home.job(job).state == "queued"
    home.cloud._listings[RESERVE.id].withdrawn = False
    home.until_step(job, 10)
    home.ask("pause", job)
    home.until_state(job, "paused")
    home.run_for(100)
    home.ask("resume", job)
    home.until_state(job, "failed")
    home.settle()
    assert home.job(job).state == "failed"
    trained_s = sum(((run.training_to_ms or 0) - (run.training_from_ms or 0)) / 1000 for run in home.runs(job))
    assert 60.0 <= trained_s <= 63.0
    error = home.read(lambda tx: tx.job_facts(job.id)).error or ""
    assert "its max_duration is 60 s" in error
    assert error in home.events(job, "job.failed")[0].message
    check_truth(home)


def test_a_job_past_its_max_duration_in_the_middle_of_a_move_keeps_no_machine(home: SimulatedInstallation) -> None:
    job = home.submit(steps=5000, max_duration_s=20.0)
    home.until_step(job, 18)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.settle()
    assert home.job(job).state == "failed"
    check_truth(home)


KNOWN = Expected(GpuRequest("V100"), 1.0)


def why_paused(home: SimulatedInstallation, job: Job) -> str:
    """What its event says once the job is paused, and so what `status` and `queue` say."""
    home.until(lambda: home.job(job).state == "paused")
    said = home.events(job, "job.paused")[0].message
    assert current.job(home.installation, job.id).note == said
    return said


def test_a_job_whose_rest_pays_for_no_offer_is_paused_and_the_budget_named_lets_it_finish(
    home: SimulatedInstallation,
) -> None:
    job = home.submit(steps=600, expected=KNOWN, budget_nano_usd=usd("0.35"))
    run = home.until_step(job, 20)
    for offer in (EXPENSIVE, RESERVE):
        home.reprice(offer.id, "9.00")
    home.tick()
    home.cloud.preempt(home.machine(run).id)
    home.until(lambda: bool(home.events(job, "job.waits")))
    home.run_for(60)
    assert home.job(job).state == "queued", "the offer that it can pay for is only shut for a while"
    home.reprice(CHEAP.id, "9.00")
    said = why_paused(home, job)
    assert re.search(r"would cost \$\S+ over the budget", said)
    assert len(home.cloud.instances()) == 1
    (enough,) = re.findall(r"; to continue: tradewind budget set job (\d+\.\d\d), then tradewind resume job$", said)
    home.ask("budget", job, nano_usd=usd(enough))
    home.ask("resume", job)
    home.until_state(job, "running")
    home.settle(limit_s=2000.0)
    assert home.job(job).state == "finished"
    assert paid(home) <= usd(enough)
    check_truth(home)


def test_a_job_whose_budget_has_become_too_small_before_it_ran_is_paused_and_rents_nothing(
    home: SimulatedInstallation,
) -> None:
    job = home.submit(steps=600, expected=KNOWN, budget_nano_usd=usd("0.05"))
    said = why_paused(home, job)
    assert said.startswith("paused before it started: ")
    (enough,) = re.findall(r"; a budget of \$(\d+\.\d\d) would be enough ", said)
    assert said.endswith(f"; to set it: tradewind budget set job {enough}, then tradewind resume job")
    assert not home.cloud.instances()
    asked = home.ask("budget", job, nano_usd=usd(enough))
    home.tick()
    assert (home.answer(asked) or "").endswith("; to continue: tradewind resume job")
    home.ask("resume", job)
    home.until_state(job, "running")
    home.settle(limit_s=2000.0)
    assert home.job(job).state == "finished"
    assert paid(home) <= usd(enough)


@pytest.mark.parametrize("budget", [usd("0.001"), usd("0.015")])
def test_a_job_of_unknown_speed_whose_budget_covers_no_machine_is_paused_and_says_what_one_takes(
    home: SimulatedInstallation, budget: int
) -> None:
    """A machine here is billed for a minute at least, which costs $0.0167."""
    job = home.submit(steps=600, budget_nano_usd=budget)
    said = why_paused(home, job)
    assert said.endswith("; to set it: tradewind budget set job USD, then tradewind resume job")
    assert not home.cloud.instances()
    (rents,) = re.findall(r"\$(\d+\.\d\d) is enough to rent a machine", said)
    home.ask("budget", job, nano_usd=usd(rents))
    home.ask("resume", job)
    home.until(lambda: bool(home.cloud.instances()))
    assert paid(home) <= usd(rents)


def test_a_job_that_is_paused_before_its_speed_is_known_says_what_a_machine_takes(home: SimulatedInstallation) -> None:
    home.site.prepare_takes(lambda _: 200.0)
    job = home.submit(steps=600, budget_nano_usd=usd("0.05"))
    said = why_paused(home, job)
    assert "budget is spent so far" in said
    (rents,) = re.findall(
        r"; to continue: tradewind budget set job USD \(\$(\d+\.\d\d) is enough to rent a machine; training costs "
        r"more\), then tradewind resume job$",
        said,
    )
    paid(home)
    machines = len(home.cloud.instances())
    home.ask("budget", job, nano_usd=usd(rents))
    home.ask("resume", job)
    home.until(lambda: len(home.cloud.instances()) > machines)
    assert paid(home) <= usd(rents)


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("cents", [18.2, 18.4])
def test_a_budget_that_is_named_as_enough_pays_for_the_least_time_of_a_machine_for_the_last_steps(
    install: Install, nodes: int, cents: float
) -> None:
    """A machine is billed for a minute at least, during which its price may double; the rest takes less."""
    home = install(catalog=((CHEAP, usd("1.00")),))
    budget = round(nodes * cents * usd("0.01"))
    job = home.submit(steps=600, budget_nano_usd=budget, resources=Resources(nodes=nodes))
    enough = named_budget(why_paused(home, job))
    home.ask("budget", job, nano_usd=usd(enough))
    home.ask("resume", job)
    home.until(lambda: len(home.runs(job)) > 1 or len(home.events(job, "job.paused")) > 1)
    home.settle()
    assert home.job(job).state == "finished", home.events(job, "job.paused")[-1].message
    assert paid(home) <= usd(enough)


def test_a_job_that_is_resumed_without_more_money_is_paused_again(home: SimulatedInstallation) -> None:
    job = home.submit(steps=600, expected=KNOWN, budget_nano_usd=usd("0.05"))
    first = why_paused(home, job)
    home.ask("resume", job)
    home.until(lambda: len(home.events(job, "job.paused")) == 2)
    assert why_paused(home, job) == first


def test_a_job_paused_before_its_machine_was_ready_says_once_how_to_continue(install: Install) -> None:
    """Its launch has cost something, so it has started, although no time of a machine is billed."""
    home = install(behaviour=replace(BRISK, boot_s=20.0))
    job = home.submit(steps=600, expected=Expected(GpuRequest("V100"), 1.0))
    home.until_state(job, "starting")
    home.ask("budget", job, nano_usd=usd("0.035"))  # type: ignore[arg-type]
    home.until_state(job, "paused")
    home.settle()
    assert [run.billed_from_ms for run in home.runs(job)] == [None]
    home.ask("resume", job)
    home.until(lambda: len(home.events(job, "job.paused")) > 1)
    assert home.events(job, "job.paused")[-1].message.count("tradewind budget set job") == 1


def named_budget(said: str) -> str:
    (amount,) = re.findall(r"tradewind budget set job (\d+\.\d\d)", said)
    return str(amount)


@pytest.mark.parametrize("new_price", ["1.00", "4.00", "9.00"])
def test_a_budget_that_is_named_as_enough_is_enough_wherever_it_is_named(
    home: SimulatedInstallation, new_price: str
) -> None:
    """The report of a job at risk, the reason of its pause, and the answer to a budget that is still too small. At the
    pause, it is not known yet how long the machine takes to end."""
    too_small = usd("0.15" if new_price == "1.00" else "0.35")
    job = home.submit(steps=600, expected=KNOWN, budget_nano_usd=usd("0.35"))
    home.until_step(job, 20)
    home.ask("budget", job, nano_usd=too_small)
    for offer in (CHEAP, EXPENSIVE, RESERVE):
        home.reprice(offer.id, new_price)
    home.until(lambda: bool(home.events(job, "job.at_risk")), stride_s=1.0)
    at_risk = named_budget(home.events(job, "job.at_risk")[0].message)
    at_pause = named_budget(why_paused(home, job))
    assert usd(at_pause) <= usd(at_risk), "the estimates only become surer"
    ending = round(usd(new_price) * (release_market_s(1.0) + stop_market_s(1.0, 1.1)) / 3600)
    asked = home.ask("budget", job, nano_usd=usd(at_pause) - ending - usd("0.04"))
    home.tick()
    answer = home.answer(asked) or ""
    assert re.search(r"; it (is still|may be) too small to finish; to continue: tradewind budget set job ", answer)
    assert usd(at_pause) - ending - usd("0.01") <= usd(named_budget(answer)) <= usd(at_pause)
    asked = home.ask("budget", job, nano_usd=usd(at_pause))
    home.tick()
    assert (home.answer(asked) or "").endswith(" spent so far); to continue: tradewind resume job")
    home.ask("resume", job)
    home.until_state(job, "running")
    home.settle(limit_s=2000.0)
    assert home.job(job).state == "finished"
    assert paid(home) <= usd(at_pause)
