"""The local cloud: notices, ends, billing and overrides, driven by its callers."""

import signal
import time
from dataclasses import replace

import pytest

from providers.base import Covered, LaunchSpec, LimitsByQuota
from providers.billing.charges import disk_nano_usd, minimum_nano_usd, rate_card
from providers.clock import AcceleratedClock
from providers.errors import CapacityError, NotFoundError, QuotaError, UnavailableError
from providers.instance import EndReason, InstanceState
from providers.local import LocalProvider
from providers.local.metadata import read_notice
from providers.local.provider import HISTORY_MS
from providers.money import cost_nano_usd, usd
from providers.notice import Notice
from providers.processes import signal_all

WAIT = "say up; while :; do sleep 0.05; done"  # short naps: bash runs a trap only between commands
STUBBORN = f"trap 'say term' TERM; {WAIT}"
SPOT = "local/north/north-a/sim.small/spot"


def test_a_notice_is_reported_kept_and_followed_by_sigterm_and_then_sigkill(machines):
    instance_id = machines.up(STUBBORN)
    start_ms = machines.clock.now_ms()
    machines.provider.preempt(instance_id, notice_s=120)
    reported = machines.look(instance_id)
    assert (reported.state, reported.notice_deadline_ms) == (InstanceState.RUNNING, start_ms + 120_000)
    metadata = machines.home(instance_id) / "metadata.json"
    assert read_notice(metadata) == Notice("preemption", 120.0)

    machines.clock.advance(119.9)
    assert machines.look(instance_id).state is InstanceState.RUNNING
    machines.clock.advance(0.1)
    assert machines.look(instance_id).state is InstanceState.STOPPING
    assert machines.hear() == "term"
    machines.clock.advance(0.9)
    assert machines.look(instance_id).state is InstanceState.STOPPING
    machines.clock.advance(0.1)
    ended = machines.look(instance_id)
    assert (ended.state, ended.end_reason) == (InstanceState.TERMINATED, EndReason.PREEMPTED)
    assert ended.billed_to_ms == start_ms + 121_000
    assert machines.provider.processes_left() == []


def test_a_notice_lost_in_a_crash_or_damaged_is_reported_again(machines):
    instance_id = machines.up(WAIT)
    machines.provider.preempt(instance_id, notice_s=120)
    metadata = machines.home(instance_id) / "metadata.json"
    for damage in (b'{"notice": null}', b"\xff"):
        metadata.write_bytes(damage)
        machines.attach().tick()
        assert read_notice(metadata) == Notice("preemption", 120.0)


def test_a_deadline_that_passed_between_calls_is_applied_at_the_next_call(machines):
    instance_id = machines.up(STUBBORN)
    machines.provider.preempt(instance_id, notice_s=120)
    machines.clock.advance(7200)
    machines.provider = machines.attach()
    assert machines.look(instance_id).state is InstanceState.STOPPING
    assert machines.hear() == "term"
    machines.clock.advance(1)
    assert machines.look(instance_id).end_reason is EndReason.PREEMPTED


def test_preemption_without_notice_is_over_when_the_call_returns(machines):
    instance_id = machines.up(STUBBORN)
    machines.attach().preempt(instance_id)
    assert machines.look(instance_id).end_reason is EndReason.PREEMPTED
    assert machines.provider.processes_left() == []


def test_a_crash_is_a_failure_and_not_ours(machines):
    instance_id = machines.up(WAIT)
    machines.provider.crash(instance_id)
    assert machines.look(instance_id).end_reason is EndReason.FAILED


def test_a_user_may_end_what_is_already_under_notice(machines):
    instance_id = machines.up(WAIT)
    machines.provider.preempt(instance_id, notice_s=120)
    machines.provider.terminate(instance_id)
    assert machines.look(instance_id).end_reason is EndReason.USER


def test_a_machine_whose_processes_vanished_has_failed_as_of_its_discovery(machines):
    instance_id = machines.up(WAIT)
    machines.provider.tick()
    signal_all(instance_id, machines.provider._books.record(instance_id).leader, signal.SIGKILL)
    machines.clock.advance(50)
    end_ms = machines.clock.now_ms()
    while machines.look(instance_id).alive:  # the kernel may take a moment
        pass
    ended = machines.look(instance_id)
    assert (ended.end_reason, ended.billed_to_ms) == (EndReason.FAILED, end_ms)


def test_a_machine_lives_as_long_as_any_of_its_processes(machines):
    instance_id = machines.up("(say up; sleep 1000; true) & disown; exit 0")
    for _ in range(3):
        assert machines.look(instance_id).state is InstanceState.RUNNING


def test_a_machine_that_came_up_in_another_boot_is_gone(machines):
    instance_id = machines.up(WAIT)
    claim = machines.home(instance_id) / "claim"
    before = claim.read_text()
    claim.write_text("another-boot " + before.partition(" ")[2])
    machines.provider.tick()
    record = machines.provider._books.record(instance_id)
    assert record.leader.boot_id == "another-boot"
    assert machines.look(instance_id).alive  # its processes still say whose they are
    machines.provider.terminate(instance_id)
    assert not machines.look(instance_id).alive


def test_a_machine_that_cannot_start_is_reported_to_its_launcher_hides_no_other_and_starts_later(machines):
    good = machines.up(WAIT)
    spec = machines.spec(WAIT, token="bad")
    blocker = machines.home(machines.provider._id("bad", 0))
    blocker.write_text("in the way")
    with pytest.raises(UnavailableError, match="could not be started"):
        machines.provider.launch(spec)
    assert {found.state for found in machines.provider.list_owned("i")} == {
        InstanceState.RUNNING,
        InstanceState.PENDING,
    }
    assert machines.look(good).state is InstanceState.RUNNING
    blocker.unlink()
    machines.provider.tick()
    assert machines.hear("bad") == "up"


@pytest.mark.parametrize("with_notice", [True, False])
def test_the_market_reclaims_spot_machines_in_the_background(machines, with_notice):
    market = machines.provider.market
    reclaim = market.reclaim_after(SPOT, machines.clock.now_ms())
    while reclaim.with_notice is not with_notice:
        reclaim = market.reclaim_after(SPOT, reclaim.at_ms)
    machines.clock.advance((reclaim.at_ms - machines.clock.now_ms()) / 1000 - 60)
    machines.provider.set_capacity(SPOT, 1, machines.clock.now_ms() + 1)
    instance_id = machines.up(WAIT, offer_id=SPOT)
    machines.clock.advance(59)
    machines.provider = machines.attach(background_preemptions=True, notice_s=90.0)
    assert machines.look(instance_id).notice_deadline_ms is None
    machines.clock.advance(1)
    machines.attach().tick()  # background preemptions are off for this one
    assert machines.look(instance_id).notice_deadline_ms == (reclaim.at_ms + 90_000 if with_notice else None)
    machines.clock.advance(90)
    machines.look(instance_id)
    machines.clock.advance(1)
    assert machines.look(instance_id).end_reason is EndReason.PREEMPTED


def test_time_to_live_comes_before_a_later_preemption(machines):
    instance_id = machines.up(WAIT, time_to_live_s=60)
    machines.provider.preempt(instance_id, notice_s=120)
    machines.clock.advance(60)
    assert machines.look(instance_id).end_reason is EndReason.EXPIRED


def test_billing_is_in_whole_seconds_at_the_prices_shown(machines):
    machines.clock.advance(0.4)
    start_ms = machines.clock.now_ms() - 400
    instance_id = machines.up(WAIT)
    changed_ms = machines.provider.set_price(machines.offer_id, usd("36"), start_ms + 10_000)
    machines.clock.advance(20.1)
    machines.provider.terminate(instance_id)
    ended = machines.look(instance_id)
    assert changed_ms == start_ms + 10_000
    assert (ended.billed_from_ms, ended.billed_to_ms) == (start_ms, start_ms + 21_000)
    old = machines.provider.market.price(machines.offer_id, start_ms)
    time, card = (old * 10_000 + usd("36") * 11_000) // 3_600_000, rate_card("local")
    minimum = minimum_nano_usd(card, [(start_ms, old), (changed_ms, usd("36"))], start_ms, start_ms + 21_000)
    disk = disk_nano_usd(card, start_ms, start_ms + 21_000)
    assert machines.attach().bill_nano_usd(instance_id) == time + minimum + disk
    assert minimum > disk > 0


def test_an_override_never_rewrites_the_past_and_every_client_sees_it(machines):
    before_ms = machines.clock.now_ms()
    since_ms = machines.provider.set_price(SPOT, usd("0.01"), before_ms - 500_000, before_ms + 60_000)
    assert since_ms > before_ms
    market_price = machines.provider.market.price(SPOT, before_ms)

    def shown():
        return {point.offer_id: point.nano_usd_per_hour for point in machines.attach().prices()}[SPOT]

    assert shown() == market_price
    machines.clock.advance(1)
    assert shown() == usd("0.01")
    machines.clock.advance(60)
    points = [point for point in machines.provider.price_history(before_ms) if point.offer_id == SPOT]
    assert [point.nano_usd_per_hour for point in points][:3] == [market_price, usd("0.01"), shown()]
    assert points[1].effective_at_ms == since_ms
    assert {point.source for point in points} == {"local market (simulated)"}


def test_the_history_of_rented_offers_has_no_gap_however_long_there_was_no_request(machines):
    two_months_s = 60 * 86_400
    machines.provider.set_capacity(SPOT, 1, machines.clock.now_ms() + 1000)
    polled_ms = machines.clock.now_ms()
    ended_id = machines.up(WAIT, offer_id=SPOT)
    machines.clock.advance(two_months_s)
    machines.provider.terminate(ended_id)
    living_id = machines.up(WAIT, token="second")
    machines.clock.advance(two_months_s)
    history = machines.attach().price_history(polled_ms)
    for instance_id in (ended_id, living_id):
        found = machines.look(instance_id)
        end_ms = machines.clock.now_ms() if found.billed_to_ms is None else found.billed_to_ms
        path = [(each.effective_at_ms, each.nano_usd_per_hour) for each in history if each.offer_id == found.offer_id]
        disk = disk_nano_usd(rate_card("local"), found.billed_from_ms, end_ms)
        bill = machines.provider.bill_nano_usd(instance_id)
        assert bill == cost_nano_usd(path, found.billed_from_ms, end_ms) + disk
    others = [each.effective_at_ms for each in history if each.offer_id not in (SPOT, machines.offer_id)]
    assert sum(at_ms < machines.clock.now_ms() - HISTORY_MS for at_ms in others) <= len(machines.provider.offers())


def test_a_pool_without_capacity_refuses_all_or_nothing_until_it_has_some(machines):
    now_ms = machines.clock.now_ms()
    machines.provider.set_capacity(SPOT, 0, now_ms + 10_000)
    with pytest.raises(CapacityError, match="no capacity"):
        machines.attach().launch(machines.spec(WAIT, offer_id=SPOT))
    machines.provider.set_capacity(SPOT, 1, now_ms + 10_000)
    with pytest.raises(CapacityError):
        machines.provider.launch(machines.spec(WAIT, offer_id=SPOT, count=2))
    machines.up(WAIT, offer_id=SPOT)
    with pytest.raises(CapacityError):
        machines.provider.launch(machines.spec(WAIT, token="second", offer_id=SPOT))
    machines.clock.advance(10)
    assert machines.provider._books.capacity_override(SPOT, machines.clock.now_ms()) is None


def test_this_machine_is_protected_by_a_quota(machines):
    provider = machines.attach(max_instances=1)
    machines.up(WAIT)
    with pytest.raises(QuotaError, match="at most 1"):
        provider.launch(machines.spec(WAIT, token="second"))
    (quota,) = provider.quotas()
    assert (quota.limit, quota.used, quota.owned, quota.covers) == (1, 1, True, Covered("machines"))
    assert isinstance(provider, LimitsByQuota)
    assert provider.quotas_limit_plans


def test_unknown_names_are_answered_with_the_nearest_one(machines):
    with pytest.raises(NotFoundError) as caught:
        machines.provider.set_price(SPOT.replace("small", "smal"), 1)
    assert SPOT in caught.value.hint
    for call in (machines.provider.crash, machines.provider.preempt, machines.provider.bill_nano_usd):
        with pytest.raises(NotFoundError, match="never had"):
            call("local-nobody")


def test_a_wall_clock_that_jumps_moves_no_price_bill_or_deadline(tmp_path, monkeypatch):
    clock = AcceleratedClock(60.0, 1_750_000_000_000, time.monotonic())
    provider = LocalProvider(tmp_path, clock, background_preemptions=False)
    spec = LaunchSpec("a", "local/north/north-a/sim.small/on_demand", "exec sleep 1000")
    (first,) = provider.launch(spec)
    with monkeypatch.context() as jump:
        jump.setattr(time, "time", lambda: 4e9)
        jump.setattr(time, "time_ns", lambda: 4 * 10**18)
        (second,) = provider.launch(replace(spec, token="b"))
        living = provider.describe([first, second])
        for instance in living:
            provider.terminate(instance.id)
        ended = provider.describe([first, second])
        bills = [provider.bill_nano_usd(instance.id) for instance in ended]
    for instance in ended:
        assert instance.end_reason is EndReason.USER
        assert instance.billed_to_ms - instance.billed_from_ms < 3_600_000
        assert instance.billed_to_ms <= clock.now_ms() + 1000
    assert max(bills) < usd("0.30")
