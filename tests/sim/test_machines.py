"""How machines are polled, and how they end by themselves if they are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from orchestrator.engine.context import Context, Work
from orchestrator.engine.jobs.checkpoints import FileCatalog
from orchestrator.engine.machines import poll
from orchestrator.engine.machines.renewals import RENEW_AFTER
from orchestrator.installation import Installation
from orchestrator.model import Run
from providers.base import LaunchSpec
from providers.fake import FakeProvider, Fault
from providers.instance import EndReason, Instance
from providers.money import usd
from providers.offer import region_of
from tests.sim.harness import BRISK, CHEAP, SimulatedInstallation, check_truth

Install = Callable[..., SimulatedInstallation]
EVERY_S = 30.0
UNATTENDED = {"limits.max_unattended_s": 600.0}


class Counting(FakeProvider):
    """Counts its descriptions by region."""

    described: Counter[str]

    def describe(self, instance_ids: Sequence[str]) -> Sequence[Instance]:
        found = super().describe(instance_ids)
        self.described.update({region_of(instance.offer_id) for instance in found})
        return found


def looking_at_200_machines_in_20_regions(
    install: Install, forget_s: float | None = None
) -> tuple[SimulatedInstallation, Context, Counting]:
    offers = [replace(CHEAP, region=f"region-{number}", zone="1") for number in range(20)]
    behaviour = replace(BRISK, describe_every_s=EVERY_S, forget_s=forget_s)
    home = install(behaviour=behaviour, catalog=[(each, usd("1")) for each in offers])
    provider = Counting(home.clock, cloud=home.cloud)
    provider.described = Counter()
    runs = []
    for number in range(200):
        offer = offers[number % 20]
        (instance_id,) = provider.launch(LaunchSpec(f"token-{number}", offer.id, ""))
        runs.append(Run(f"run-{number}", "job", number, offer.id, instance_id, "training", home.clock.now_ms()))
    installation = Installation(home.config, home.clock, home.store, {provider.name: provider})
    work = Work(runs=tuple(runs))
    return home, Context(installation, home.site, FileCatalog(), home.random, work=work), provider


def test_two_hundred_machines_in_twenty_regions_are_described_in_twenty_calls_an_interval(install: Install) -> None:
    home, ctx, provider = looking_at_200_machines_in_20_regions(install)
    home.clock.advance(10)
    poll.describe(ctx)
    assert len(ctx.instances) == 200
    provider.described.clear()
    intervals = 10
    for _ in range(intervals * int(EVERY_S)):
        home.clock.advance(1)
        poll.describe(ctx)
    assert provider.described == dict.fromkeys((f"region-{number}" for number in range(20)), intervals)


def test_a_region_where_something_is_expected_is_looked_at_more_often_than_the_others(install: Install) -> None:
    home, ctx, provider = looking_at_200_machines_in_20_regions(install)
    home.clock.advance(10)
    poll.describe(ctx)
    reported = next(iter(ctx.instances))
    home.cloud.preempt(reported, notice_s=500)
    home.clock.advance(EVERY_S)
    poll.describe(ctx)
    provider.described.clear()
    for _ in range(10 * int(EVERY_S)):
        home.clock.advance(1)
        poll.describe(ctx)
    assert provider.described["region-0"] == 10 / poll.EXPECTING
    assert provider.described["region-1"] == 10


def test_a_machine_that_some_answers_leave_out_is_not_gone(home: SimulatedInstallation) -> None:
    jobs = [home.submit(name, steps=60) for name in ("one", "two", "three")]
    for job in jobs:
        home.until_step(job, 5)
    for _ in range(6):
        home.faults.inject("describe", Fault.PARTIAL, Fault.PARTIAL, Fault.PARTIAL, None)
    home.settle()
    assert [len(home.runs(job)) for job in jobs] == [1, 1, 1]
    check_truth(home)


def test_a_machine_that_is_left_out_of_every_description_and_once_not_found_either_is_not_gone(
    home: SimulatedInstallation,
) -> None:
    job = home.submit(steps=60)
    run = home.until_step(job, 5)
    home.faults.inject("describe", *[Fault.PARTIAL] * 40)
    home.faults.inject("find", Fault.PARTIAL)
    home.run_for(30)
    assert home.read(lambda tx: tx.run(run.id)).end is None
    home.settle()
    assert len(home.runs(job)) == 1
    check_truth(home)


def test_a_machine_that_was_left_out_for_too_long_is_ended_and_booked_when_it_is_listed_again(
    home: SimulatedInstallation,
) -> None:
    job = home.submit(steps=60)
    run = home.until_step(job, 5)
    for call in ("describe", "list_owned", "find"):
        home.faults.inject(call, *[Fault.PARTIAL] * 40)
    home.until(lambda: home.read(lambda tx: tx.run(run.id)).billed_to_ms is not None)
    assert home.machine(run).alive
    home.until_state(job, "finished")
    home.settle()
    assert home.events(job, "instance.returned")
    check_truth(home)


def test_a_machine_that_stays_left_out_for_the_listing_lag_and_is_not_found_twice_is_gone(install: Install) -> None:
    home, ctx, provider = looking_at_200_machines_in_20_regions(install, forget_s=0.0)
    home.clock.advance(10)
    poll.describe(ctx)
    run = ctx.work.runs[0]
    assert run.instance_id is not None
    home.cloud.crash(run.instance_id)
    home.clock.advance(EVERY_S)
    poll.describe(ctx)
    assert not ctx.gone(run)
    left_out_ms = home.clock.now_ms()
    while not ctx.gone(run):
        home.clock.advance(1)
        poll.describe(ctx)
    assert home.clock.now_ms() == left_out_ms + 18_000  # two of the quick looks, for the lag is 7 s, and one to be sure
    assert provider.listing_lag_s == 7
    assert not any(ctx.gone(other) for other in ctx.work.runs[1:])


def test_machines_outlive_a_control_plane_that_comes_back_in_time(install: Install) -> None:
    home = install(overrides=UNATTENDED)
    job = home.submit(steps=2000)
    home.until_step(job, 5)
    home.clock.advance(600 * (1 - RENEW_AFTER) - 5)
    home.start()
    home.settle(limit_s=3000, stride_s=20)
    assert len(home.runs(job)) == 1
    check_truth(home)


def test_machines_end_by_themselves_when_no_control_plane_comes_back(install: Install) -> None:
    home = install(overrides=UNATTENDED)
    job = home.submit(steps=2000)
    run = home.until_step(job, 5)
    home.clock.advance(5000)
    ended = home.machine(run)
    assert ended.end_reason is EndReason.EXPIRED
    home.start()
    home.settle(limit_s=5000, stride_s=20)
    first, second = home.runs(job)
    assert first.end == "lost"
    assert second.start_step > 500
    signs = home.read(lambda tx: tx.availability(0, home.clock.now_ms()))
    assert "lost" not in {sign.kind for sign in signs}  # no offer is worse for that
    check_truth(home)


def test_a_machine_that_is_wanted_is_renewed_for_as_long_as_it_takes(install: Install) -> None:
    home = install(overrides=UNATTENDED)
    home.faults.inject("renew", Fault.NO_ANSWER, Fault.THROTTLED, None, Fault.LOST_REPLY, Fault.NO_ANSWER)
    job = home.submit(steps=5000)
    home.settle(limit_s=6000, stride_s=20)
    assert len(home.runs(job)) == 1
    check_truth(home)


def test_a_machine_that_cannot_be_ended_ends_by_itself(install: Install) -> None:
    home = install(overrides=UNATTENDED)
    job = home.submit(steps=50)
    run = home.until_step(job, 5)
    home.faults.inject("terminate", *[Fault.NO_ANSWER] * 2000)
    home.ask("cancel", job)
    home.settle(limit_s=900, stride_s=5)
    (bill,) = home.cloud.bills()
    assert bill.end_reason is EndReason.EXPIRED
    assert home.read(lambda tx: tx.run(run.id)).billed_to_ms == bill.to_ms
    check_truth(home)


def test_a_launch_that_stays_unknown_ends_by_itself(home: SimulatedInstallation) -> None:
    home.faults.inject("launch", Fault.LOST_REPLY)
    home.submit(steps=50)
    home.until(lambda: bool(home.cloud.bills()))
    home.clock.advance(4000)
    (instance,) = home.cloud.instances()
    assert instance.end_reason is EndReason.EXPIRED


class Mad(FakeProvider):
    """Says of one machine that it was billed at an instant that cannot be."""

    victim: str
    at_ms: int = 10**19

    def describe(self, instance_ids: Sequence[str]) -> Sequence[Instance]:
        found = super().describe(instance_ids)
        return [replace(each, billed_from_ms=self.at_ms) if each.id == self.victim else each for each in found]


def test_an_impossible_bill_is_reported_and_not_booked_and_the_job_finishes(home: SimulatedInstallation) -> None:
    jobs = [home.submit(name, steps=20) for name in ("one", "two")]
    run = home.until_step(jobs[0], 3)
    provider = Mad(home.clock, cloud=home.cloud)
    provider.victim = str(run.instance_id)
    home.plane._ctx.installation = replace(home.installation, providers={provider.name: provider})
    home.until(lambda: all(home.job(job).state == "finished" for job in jobs))
    (fault,) = home.read(lambda tx: tx.events(kinds=("engine.fault",)))
    assert f"billed_from_ms is {10**19}" in fault.message
    provider.victim = ""
    home.settle()
    check_truth(home)
