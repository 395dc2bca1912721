"""One launch asks for a machine of any of several offers: it is booked where it lands, also after a death."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.engine.migration import bring_up
from orchestrator.model import Job, Resources, Step, Where
from providers.fake import Fault
from providers.money import usd
from providers.offer import Offer, region_of
from tests.rig.wires import Delay
from tests.sim.harness import BRISK, CHEAP, EXPENSIVE, RESERVE, SimulatedInstallation, check_truth
from tests.sim.test_down import down, lead, sound, up
from tests.sim.test_slow_calls import slow

Install = Callable[..., SimulatedInstallation]
ZONES = tuple(replace(CHEAP, zone=f"alpha-{number}") for number in range(1, 7))
TICK_S = 0.5
ANY = replace(BRISK, most_offers=6)


def six_zones(install: Install, **fields: Any) -> SimulatedInstallation:
    """The last of them alone has room; and another region."""
    prices = [(offer, usd(f"1.0{number}")) for number, offer in enumerate(ZONES)]
    home = install(catalog=(*prices, (EXPENSIVE, usd("1.60"))), behaviour=ANY, **fields)
    full(home, ZONES[:-1])
    return home


@pytest.fixture
def home(install: Install) -> SimulatedInstallation:
    return six_zones(install)


def full(home: SimulatedInstallation, offers: tuple[Offer, ...]) -> None:
    for offer in offers:
        home.cloud.set_capacity(offer.id, 0)


def rented(home: SimulatedInstallation, job: Job) -> bool:
    return any(run.instance_id for run in home.runs(job))


def said_of(home: SimulatedInstallation, kind: str) -> list[str]:
    """The offers of which this was recorded."""
    return [each.offer_id for each in home.read(lambda tx: tx.availability(0, 1 << 60)) if each.kind == kind]


def finished(home: SimulatedInstallation, job: Job) -> None:
    home.settle()
    assert home.job(job).state == "finished"
    check_truth(home)


def test_five_zones_without_room_cost_one_call(home: SimulatedInstallation) -> None:
    calls: list[str] = []
    home.injector.when = lambda edge: calls.append(edge) or False  # type: ignore[func-returns-value]
    job = home.submit()
    began_s = home.clock.monotonic_s()
    home.until(lambda: rented(home, job), stride_s=TICK_S)
    assert home.clock.monotonic_s() - began_s <= 2 * TICK_S
    assert calls.count("before launch") == 1
    (run,), (migration,) = home.runs(job), home.migrations(job)
    assert run.offer_id == migration.offer_id == ZONES[-1].id
    assert migration.also == tuple(offer.id for offer in ZONES[1:])
    (event,) = home.events(job, "migration.provision")
    assert ZONES[-1].id in event.message
    assert "6 offers" in event.message
    assert said_of(home, "launched") == [ZONES[-1].id]
    assert not said_of(home, "refused"), "nobody said so of the zones that were passed over"
    finished(home, job)


def test_the_cheapest_zone_with_room_is_taken(home: SimulatedInstallation) -> None:
    home.cloud.set_capacity(ZONES[1].id, None)
    job = home.submit()
    home.until(lambda: rented(home, job))
    assert [run.offer_id for run in home.runs(job)] == [ZONES[1].id]
    finished(home, job)


def test_where_no_zone_has_room_none_is_asked_again_and_another_region_is_tried(home: SimulatedInstallation) -> None:
    full(home, ZONES)
    job = home.submit()
    home.until(lambda: rented(home, job))
    assert [region_of(run.offer_id) for run in home.runs(job)] == ["alpha", "beta"]
    assert sorted(said_of(home, "refused")) == [offer.id for offer in ZONES]
    finished(home, job)


def test_where_offers_cannot_be_asked_for_together_none_is_blamed_and_each_is_asked_for(install: Install) -> None:
    prices = [(offer, usd(f"1.0{number}")) for number, offer in enumerate(ZONES)]
    home = install(catalog=tuple(prices), behaviour=replace(ANY, not_together=True))
    full(home, ZONES[:2])
    job = home.submit()
    began_s = home.clock.monotonic_s()
    home.until(lambda: rented(home, job), stride_s=TICK_S)
    assert home.clock.monotonic_s() - began_s <= 10 * TICK_S
    assert said_of(home, "refused") == [offer.id for offer in ZONES[:2]]
    first, *later = home.migrations(job)
    assert first.also
    assert not any(each.also for each in later)
    assert [each.offer_id for each in later] == [offer.id for offer in ZONES[:3]]
    assert len({each.token for each in (first, *later)}) == 4
    assert not home.events(job, "placement.wasted")
    finished(home, job)


@pytest.mark.parametrize("edge", ["after launch", "before step provision>ready", "after step provision>ready"])
def test_a_death_between_the_launch_and_its_record_loses_nothing(home: SimulatedInstallation, edge: str) -> None:
    home.injector.when = lambda name: name == edge
    job = home.submit()
    home.until(lambda: bool(home.injector.deaths), stride_s=TICK_S)
    assert len(home.cloud.bills()) == 1
    home.until(lambda: rented(home, job))
    assert [run.offer_id for run in home.runs(job)] == [ZONES[-1].id]
    finished(home, job)
    assert len(home.cloud.bills()) == 1


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.LATE])
def test_a_launch_whose_answer_is_lost_is_asked_for_again(home: SimulatedInstallation, fault: Fault) -> None:
    home.faults.inject("launch", fault)
    job = home.submit()
    finished(home, job)
    assert [run.offer_id for run in home.runs(job)] == [ZONES[-1].id]
    assert len(home.cloud.bills()) == 1


def test_the_request_stays_the_same_when_prices_and_zones_change(home: SimulatedInstallation) -> None:
    """With another one, its token would be refused, and the machine of the first try ended."""
    home.faults.inject("launch", Fault.LOST_REPLY)
    job = home.submit()
    home.until(lambda: bool(home.cloud.bills()), stride_s=TICK_S)
    home.reprice(ZONES[3].id, "1.30")
    home.cloud.set_capacity(ZONES[0].id, None)
    home.start()
    finished(home, job)
    assert [(run.offer_id, run.end) for run in home.runs(job)] == [(ZONES[-1].id, "finished")]


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.LATE])
def test_a_machine_that_is_found_later_is_booked_where_it_is(home: SimulatedInstallation, fault: Fault) -> None:
    home.faults.inject("launch", *[fault] * 6)
    job = home.submit()
    home.until(lambda: any(migration.attempt > 1 for migration in home.migrations(job)))
    home.ask("cancel", job)
    home.settle()
    (run,), (migration,), (bill,) = home.runs(job), home.migrations(job), home.cloud.bills()
    assert migration.step is Step.ABORTED
    assert run.offer_id == migration.offer_id == bill.offer_id == ZONES[-1].id
    assert run.instance_id == bill.instance_id
    check_truth(home)


def test_a_machine_that_a_list_shows_is_booked_where_it_is(home: SimulatedInstallation) -> None:
    """Its launch took effect after everybody had stopped looking for it."""
    home.faults.inject("launch", *[Fault.NO_ANSWER] * 6)
    job = home.submit()
    home.until(lambda: any(migration.attempt > 1 for migration in home.migrations(job)))
    home.ask("cancel", job)
    home.settle()
    (migration,) = home.migrations(job)
    spec = bring_up.launch_spec(home.plane._ctx, migration, job, home.site.bootstrap(token=migration.token))
    home.cloud.launch(spec, home.clock.now_ms())
    home.run_for(5)
    home.settle()
    (run,), (bill,) = home.runs(job), home.cloud.bills()
    assert run.offer_id == bill.offer_id == ZONES[-1].id
    check_truth(home)


def test_down_books_a_machine_where_it_is(home: SimulatedInstallation) -> None:
    home.faults.inject("launch", Fault.LOST_REPLY)
    job = home.submit()
    home.until(lambda: bool(home.cloud.bills()), stride_s=0.1)
    assert not rented(home, job)
    home.clock.advance(60.0)
    leadership = lead(home)
    down(home, leadership)
    home.clock.advance(5.0)
    up(home, leadership)
    home.settle()
    (bill, *_), (run, *_) = home.cloud.bills(), home.runs(job)
    assert bill.amount_nano_usd > 0
    assert run.offer_id == bill.offer_id == ZONES[-1].id
    sound(home)


def test_a_gang_lands_whole_in_one_zone(home: SimulatedInstallation) -> None:
    for offer in ZONES[:4]:
        home.cloud.set_capacity(offer.id, 2)
    home.cloud.set_capacity(ZONES[4].id, 3)
    job = home.submit(resources=Resources(nodes=3))
    home.until(lambda: rented(home, job))
    (run,) = home.runs(job)
    assert run.offer_id == ZONES[4].id
    assert len(run.instance_ids) == 3
    finished(home, job)


def test_a_zone_that_costs_clearly_more_is_not_asked(install: Install) -> None:
    catalog = ((ZONES[0], usd("1.00")), (ZONES[1], usd("1.04")), (ZONES[2], usd("1.20")), (EXPENSIVE, usd("1.02")))
    home = install(catalog=catalog, behaviour=ANY)
    job = home.submit()
    home.until(lambda: bool(home.migrations(job)))
    assert home.migrations(job)[0].also == (ZONES[1].id,)
    finished(home, job)


def test_a_machine_bought_otherwise_or_elsewhere_is_not_as_good(install: Install) -> None:
    """Nor is another type, for a cloud that does not mix them."""
    others = (
        replace(CHEAP, zone="alpha-2", capacity_type=RESERVE.capacity_type),
        replace(CHEAP, zone="alpha-2", instance_type="v100.other"),
        replace(CHEAP, region="gamma", zone="gamma-1"),
    )
    home = install(catalog=((CHEAP, usd("1.00")), *((each, usd("1.00")) for each in others)), behaviour=ANY)
    job = home.submit()
    home.until(lambda: bool(home.migrations(job)))
    assert home.migrations(job)[0].also == ()
    finished(home, job)


LARGER = replace(CHEAP, zone="alpha-2", instance_type="v100.large", vcpu=CHEAP.vcpu * 2)


@pytest.mark.parametrize("edge", ["", "after launch", "before step provision>ready"])
def test_a_larger_machine_is_taken_where_the_first_type_has_no_room(install: Install, edge: str) -> None:
    """It is booked, trained on and paid for as what it is, also after a death."""
    catalog = ((CHEAP, usd("1.00")), (LARGER, usd("1.04")), (EXPENSIVE, usd("1.60")))
    home = install(catalog=catalog, behaviour=replace(ANY, mixes_types=True))
    full(home, (CHEAP,))
    home.injector.when = lambda name: name == edge
    job = home.submit()
    home.until(lambda: rented(home, job))
    assert home.migrations(job)[0].also == (LARGER.id,)
    assert len(home.cloud.bills()) == 1
    finished(home, job)
    (run,), (bill,) = home.runs(job), home.cloud.bills()
    assert run.offer_id == bill.offer_id == LARGER.id
    assert len(home.injector.deaths) == bool(edge)


def test_a_zone_that_has_just_taken_a_machine_away_is_not_asked(home: SimulatedInstallation) -> None:
    for offer in ZONES:
        home.cloud.set_capacity(offer.id, None)
    job = home.submit(steps=60)
    run = home.until_step(job, 10)
    assert run.offer_id == ZONES[0].id
    home.cloud.preempt(run.instance_id or "")
    home.until(lambda: len(home.migrations(job)) > 1)
    again = home.migrations(job)[1]
    assert again.reason == "lost"
    assert again.also
    assert run.offer_id not in (again.offer_id, *again.also)
    finished(home, job)


def test_a_voluntary_move_has_one_target(home: SimulatedInstallation) -> None:
    full(home, ZONES)
    job = home.submit(steps=20_000)
    home.until_step(job, 20)
    for offer in ZONES:
        home.cloud.set_capacity(offer.id, None)
        home.reprice(offer.id, "0.40")
    before = len(home.migrations(job))
    home.until(lambda: len(home.migrations(job)) > before, limit_s=7200, stride_s=5.0)
    move = home.migrations(job)[-1]
    assert (move.reason, move.also) == ("cheaper offer", ())
    home.ask("cancel", job)
    home.settle()
    check_truth(home)


def test_a_limit_that_a_zone_would_pass_keeps_it_out(install: Install) -> None:
    home = six_zones(install, overrides={"limits.max_usd_per_hour": 1.025})
    home.cloud.set_capacity(ZONES[1].id, None)
    job = home.submit()
    home.until(lambda: bool(home.migrations(job)))
    assert home.migrations(job)[0].also == tuple(offer.id for offer in ZONES[1:3])
    finished(home, job)


def test_a_cloud_without_such_calls_is_asked_zone_by_zone(install: Install) -> None:
    home = install(catalog=tuple((offer, usd("1.00")) for offer in ZONES), behaviour=BRISK)
    full(home, ZONES[:1])
    job = home.submit()
    home.until(lambda: rented(home, job))
    assert [(run.offer_id, move.also) for run, move in zip(home.runs(job), home.migrations(job), strict=True)] == [
        (ZONES[0].id, ()),
        (ZONES[1].id, ()),
    ]
    finished(home, job)


# --- between the decision and the launch ---


def decided_long_before(install: Install, **fields: Any) -> tuple[SimulatedInstallation, Job]:
    """A job whose launch waits for the store, and whose first zone has no room."""
    prices = [(offer, usd("1.00")) for offer in ZONES[:4]]
    home = install(catalog=(*prices, (RESERVE, usd("3.00"))), behaviour=ANY, **fields)
    full(home, ZONES[:1])
    slow(home, Delay(200.0), only="user-data")
    job = home.submit(steps=50)
    home.until(lambda: bool(home.migrations(job)))
    assert home.migrations(job)[0].also == tuple(offer.id for offer in ZONES[1:4])
    home.run_for(5)
    return home, job


def launched_at_last(home: SimulatedInstallation, job: Job) -> None:
    home.run_for(100)
    home.wires.rate = 0.0
    finished(home, job)


def test_zones_that_cost_more_by_then_are_not_asked(install: Install) -> None:
    home, job = decided_long_before(install)
    for zone in ZONES[1:3]:
        home.reprice(zone.id, "20.00")
    launched_at_last(home, job)
    assert [run.offer_id for run in home.runs(job) if run.instance_id] == [ZONES[3].id]
    assert home.migrations(job)[0].also == (ZONES[3].id,)


def test_zones_that_are_withdrawn_or_in_back_off_by_then_are_not_asked(install: Install) -> None:
    home, job = decided_long_before(install)
    home.cloud.withdraw(ZONES[1].id)
    home.run_for(90)
    with home.plane._ctx.write() as tx:
        tx.add_availability(ZONES[2].id, home.clock.now_ms(), "refused", "another run", "no capacity")
    launched_at_last(home, job)
    assert [run.offer_id for run in home.runs(job) if run.instance_id] == [ZONES[3].id]


def test_a_zone_that_would_pass_a_limit_by_then_is_left_out(install: Install) -> None:
    """And the launch goes on without it."""
    home, job = decided_long_before(install, overrides={"limits.max_usd_per_hour": 3.01})
    home.reprice(ZONES[1].id, "1.02")
    home.reprice(ZONES[2].id, "1.03")
    other = home.submit("other", steps=300, where=Where(regions=(RESERVE.region,)))
    home.run_for(2)
    assert not home.runs(other), "both would pass the limit, wherever the first one lands"
    home.ask("cancel", other)
    launched_at_last(home, job)


def test_a_price_that_rises_after_a_lost_answer_ends_no_machine(install: Install) -> None:
    catalog = ((ZONES[0], usd("1.00")), (ZONES[1], usd("1.04")))
    home = install(catalog=catalog, behaviour=ANY, overrides={"limits.max_usd_per_hour": 1.05})
    home.faults.inject("launch", Fault.LOST_REPLY)
    job = home.submit(steps=50)
    home.until(lambda: bool(home.cloud.bills()), stride_s=0.1)
    home.reprice(ZONES[1].id, "1.30")
    finished(home, job)
    assert len(home.cloud.bills()) == 1


@pytest.mark.parametrize("together", [True, False])
def test_a_limit_holds_wherever_launches_under_way_land(install: Install, together: bool) -> None:
    catalog = ((ZONES[0], usd("1.00")), (ZONES[1], usd("1.04")))
    home = install(catalog=catalog, behaviour=ANY, overrides={"limits.max_usd_per_hour": 2.05})
    full(home, ZONES[:1])
    slow(home, Delay(3.0), only="launch")
    jobs = [home.submit("first", steps=60)]
    home.run_for(0 if together else 2)
    jobs.append(home.submit("second", steps=60))
    most = 0
    for _ in range(100):
        home.tick(0.5)
        most = max(most, sum(instance.alive for instance in home.cloud.instances()))
    assert most == 1, "two in the second zone cost $2.08 an hour"
    for job in jobs:
        finished(home, job)


def test_what_a_launch_under_way_may_take_of_a_quota_is_not_planned_for_another(install: Install) -> None:
    """The first may get the larger machine, so the second must not count on that much."""
    catalog = ((CHEAP, usd("1.00")), (LARGER, usd("1.04")), (EXPENSIVE, usd("5.00")))
    units = CHEAP.vcpu + LARGER.vcpu
    home = install(catalog=catalog, behaviour=replace(ANY, mixes_types=True, max_instances=units, vcpus_count=True))
    full(home, (CHEAP,))
    home.run_for(3)
    slow(home, Delay(5.0), only="launch")
    first = home.submit("first", steps=60)
    home.until(lambda: bool(home.migrations(first)), stride_s=0.5)
    assert home.migrations(first)[0].also == (LARGER.id,)
    home.run_for(1)
    second = home.submit("second", steps=60)
    home.until(lambda: bool(home.migrations(second)), stride_s=0.5)
    assert home.migrations(second)[0].also == ()
    for job in (first, second):
        finished(home, job)
