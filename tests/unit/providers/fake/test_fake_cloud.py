"""The fake cloud: deterministic, faulty on demand, with books that tell the truth."""

import pytest

from providers.base import LaunchSpec
from providers.billing.charges import disk_nano_usd, rate_card
from providers.clock import VirtualClock
from providers.errors import CapacityError, NotFoundError, QuotaError, ThrottledError, UnavailableError
from providers.fake import Behaviour, FakeCloud, FakeProvider, Fault, Faults
from providers.instance import EndReason, InstanceState
from providers.money import cost_nano_usd, usd

SPOT = "fake/alpha/alpha-1/v100.1/spot"
SPEC = LaunchSpec("t", SPOT, "run", {"tradewind-install": "i"})


def cloud_and_client(seed=0, **behaviour):
    clock = VirtualClock()
    cloud = FakeCloud(clock, seed=seed, behaviour=Behaviour(**behaviour))
    return clock, cloud, FakeProvider(clock, cloud=cloud)


def test_a_client_makes_a_cloud_of_its_own_unless_it_is_given_one():
    provider = FakeProvider(VirtualClock(), seed=4)
    assert provider.launch(SPEC) == FakeProvider(VirtualClock(), seed=4).launch(SPEC)
    assert provider.launch(SPEC) != FakeProvider(VirtualClock(), seed=5).launch(SPEC)


def test_a_lost_reply_leaves_the_instance_and_the_token_finds_it():
    _, cloud, provider = cloud_and_client()
    provider.faults.inject("launch", Fault.LOST_REPLY)
    with pytest.raises(UnavailableError):
        provider.launch(SPEC)
    assert len(cloud.bills()) == 1
    assert provider.launch(SPEC) == (cloud.bills()[0].instance_id,)
    assert len(cloud.bills()) == 1


def test_no_answer_leaves_nothing():
    _, cloud, provider = cloud_and_client()
    provider.faults.inject("launch", Fault.NO_ANSWER)
    with pytest.raises(UnavailableError):
        provider.launch(SPEC)
    assert cloud.bills() == ()


def test_a_launch_that_timed_out_takes_effect_later():
    clock, cloud, provider = cloud_and_client(late_s=20)
    provider.faults.inject("launch", Fault.LATE)
    with pytest.raises(UnavailableError):
        provider.launch(SPEC)
    clock.advance(19)
    assert cloud.instances() == ()
    clock.advance(1)
    assert [found.state for found in cloud.instances()] == [InstanceState.PENDING]


def test_a_repeated_launch_overtakes_the_one_that_timed_out():
    _, cloud, provider = cloud_and_client()
    provider.faults.inject("launch", Fault.LATE)
    with pytest.raises(UnavailableError):
        provider.launch(SPEC)
    ids = provider.launch(SPEC)
    assert [found.id for found in provider.describe(ids)] == list(ids)
    assert len(cloud.bills()) == 1


def test_a_terminate_that_timed_out_takes_effect_later():
    clock, cloud, provider = cloud_and_client(boot_s=10, stop_s=5, late_s=20)
    (instance_id,) = provider.launch(SPEC)
    clock.advance(60)
    provider.faults.inject("terminate", Fault.LATE)
    with pytest.raises(UnavailableError):
        provider.terminate(instance_id)
    assert provider.describe([instance_id])[0].state is InstanceState.RUNNING
    clock.advance(20)
    assert provider.describe([instance_id])[0].state is InstanceState.STOPPING
    clock.advance(5)
    assert cloud.bill(instance_id).end_reason is EndReason.USER


def test_scripted_faults_come_in_order_and_none_means_that_one_works():
    _, _, provider = cloud_and_client()
    provider.faults.inject("launch", Fault.CAPACITY, None, Fault.THROTTLED)
    with pytest.raises(CapacityError):
        provider.launch(SPEC)
    provider.launch(SPEC)
    with pytest.raises(ThrottledError) as caught:
        provider.launch(SPEC)
    assert caught.value.retry_after_s == 1.0


def test_seeded_faults_repeat_and_capacity_errors_hit_launches_only():
    def course(seed):
        faults = Faults(seed, {Fault.CAPACITY: 0.5, Fault.LOST_REPLY: 0.2})
        return [faults.next(call) for _ in range(100) for call in ("launch", "describe")]

    assert course(1) == course(1) != course(2)
    assert Fault.CAPACITY in course(1)[::2]
    assert Fault.CAPACITY not in course(1)[1::2]
    assert Fault.LOST_REPLY in course(1)[1::2]


def test_capacity_is_per_pool_and_all_or_nothing():
    clock, cloud, provider = cloud_and_client(stop_s=5)
    cloud.set_capacity(SPOT, 1)
    with pytest.raises(CapacityError):
        provider.launch(LaunchSpec("both", SPOT, "", count=2))
    (instance_id,) = provider.launch(SPEC)
    with pytest.raises(CapacityError):
        provider.launch(LaunchSpec("more", SPOT, ""))
    provider.launch(LaunchSpec("elsewhere", SPOT.replace("alpha-1", "alpha-2"), ""))
    provider.terminate(instance_id)
    clock.advance(5)
    provider.launch(LaunchSpec("more", SPOT, ""))


def test_the_quota_counts_the_whole_account():
    _, _, provider = cloud_and_client(max_instances=1)
    provider.launch(SPEC)
    with pytest.raises(QuotaError):
        provider.launch(LaunchSpec("more", SPOT.replace("alpha", "beta"), ""))
    assert [(quota.limit, quota.used) for quota in provider.quotas()] == [(1, 1)]


def test_a_withdrawn_offer_is_unknown_to_launch_while_its_instances_go_on():
    _, cloud, provider = cloud_and_client()
    ids = provider.launch(SPEC)
    cloud.withdraw(SPOT)
    assert SPOT not in {offer.id for offer in provider.offers()}
    with pytest.raises(NotFoundError):
        provider.launch(LaunchSpec("new", SPOT, ""))
    assert provider.describe(ids)[0].alive


def test_preemption_with_notice_is_announced_and_then_happens():
    clock, cloud, provider = cloud_and_client()
    (instance_id,) = provider.launch(SPEC)
    start_ms = clock.now_ms()
    cloud.preempt(instance_id, notice_s=120, at_ms=start_ms + 60_000)
    assert provider.describe([instance_id])[0].notice_deadline_ms is None
    clock.advance(60)
    assert provider.describe([instance_id])[0].notice_deadline_ms == start_ms + 180_000
    clock.advance(120)
    ended = provider.describe([instance_id])[0]
    assert (ended.end_reason, ended.billed_to_ms) == (EndReason.PREEMPTED, start_ms + 180_000)


def test_preemption_without_notice_and_a_crash_happen_at_once():
    clock, cloud, provider = cloud_and_client()
    ids = provider.launch(LaunchSpec("two", SPOT, "", count=2))
    clock.advance(60)
    cloud.preempt(ids[0])
    cloud.crash(ids[1])
    found = provider.describe(ids)
    assert [instance.end_reason for instance in found] == [EndReason.PREEMPTED, EndReason.FAILED]
    assert [instance.notice_deadline_ms for instance in found] == [None, None]


def test_seeded_preemptions_are_the_same_in_every_world_of_that_seed():
    def course():
        clock, cloud, provider = cloud_and_client(seed=8, preemptions_per_hour=0.5)
        provider.launch(LaunchSpec("many", SPOT, "", count=50))
        clock.advance(3600)
        return [bill.to_ms for bill in cloud.bills()]

    assert course() == course()
    assert 10 <= sum(to_ms is not None for to_ms in course()) <= 30  # 1 - e^-0.5 = 39 %


def test_scripted_prices_stop_the_drift_and_settle_the_past():
    clock, cloud, provider = cloud_and_client(drift_s=600)
    start_ms = clock.now_ms()
    clock.advance(1800)
    drifted = cloud.price_path(SPOT, clock.now_ms())
    assert len(drifted) == 4
    cloud.set_price(SPOT, usd("0.5"), clock.now_ms() + 1000)
    with pytest.raises(ValueError, match="past prices"):
        cloud.set_price(SPOT, usd("0.1"), start_ms)
    clock.advance(7200)
    assert cloud.price_path(SPOT, clock.now_ms()) == [*drifted, (start_ms + 1_801_000, usd("0.5"))]
    assert {point.offer_id: point.nano_usd_per_hour for point in provider.prices()}[SPOT] == usd("0.5")


def test_the_books_outlive_the_client_and_hold_exact_bills():
    clock, cloud, provider = cloud_and_client(boot_s=30)
    (instance_id,) = provider.launch(SPEC)
    ready_ms = clock.now_ms() + 30_000
    cloud.set_price(SPOT, usd("7.77"), ready_ms + 100_001)
    clock.advance(300)
    restarted = FakeProvider(clock, cloud=cloud)
    restarted.terminate(instance_id)
    clock.advance(300)
    (bill,) = cloud.bills()
    assert (bill.from_ms, bill.to_ms) == (ready_ms, ready_ms + 270_000)
    first = (usd("3.06") // 3) * 100_001 + usd("7.77") * 169_999
    assert bill.machine_nano_usd == first // 3_600_000
    assert bill.machine_nano_usd == cost_nano_usd(cloud.price_path(SPOT, clock.now_ms()), bill.from_ms, bill.to_ms)
    assert bill.charges == {"disk": disk_nano_usd(rate_card("fake"), bill.from_ms, bill.to_ms)}
    assert restarted.bill_nano_usd(instance_id) == bill.amount_nano_usd == first // 3_600_000 + bill.charges["disk"]


def test_a_machine_of_seconds_is_billed_for_the_shortest_time_once_it_has_ended():
    clock, cloud, provider = cloud_and_client(boot_s=30)
    (instance_id,) = provider.launch(SPEC)
    clock.advance(50)
    assert "minimum_charge" not in cloud.bill(instance_id).charges
    provider.terminate(instance_id)
    clock.advance(600)
    bill = cloud.bill(instance_id)
    assert bill.to_ms - bill.from_ms == 20_000
    assert bill.machine_nano_usd + bill.charges["minimum_charge"] == usd("3.06") // 3 * 60 // 3600


def test_what_never_became_ready_costs_what_is_declared_for_a_failed_launch():
    clock, cloud, provider = cloud_and_client(boot_s=30)
    (instance_id,) = provider.launch(SPEC)
    clock.advance(10)
    provider.terminate(instance_id)
    clock.advance(100)
    bill = cloud.bill(instance_id)
    assert (bill.from_ms, bill.machine_nano_usd) == (None, 0)
    assert bill.charges == {"failed_launch": rate_card("fake").failed_launch_nano_usd}


def test_an_instance_is_listed_only_after_the_lag_and_forgotten_after_its_time():
    clock, _, provider = cloud_and_client(listing_lag_s=10, stop_s=5, forget_s=3600)
    (instance_id,) = provider.launch(SPEC)
    assert not provider.list_owned("i")
    clock.advance(10)
    assert [found.id for found in provider.list_owned("i")] == [instance_id]
    provider.terminate(instance_id)
    clock.advance(5 + 3600)
    assert len(provider.describe([instance_id])) == 1
    clock.advance(1)
    assert not provider.describe([instance_id])
