"""The dead man's switch of a local machine works without any process of ours but the machine's own."""

import contextlib
import os
import select

from providers.clock import VirtualClock
from providers.instance import EndReason, InstanceState
from providers.local import process

FAMILY = "setsid -f bash -c 'trap \"\" TERM; sleep 1000; true'\n(env -i sleep 1000 &)\nsay up\nsleep 1000; true"
HOUR_S = 3600


def await_the_end(machines):
    """Of every process of every machine, its switch included."""
    for pid in machines.provider.processes_left():
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            select.select([handle], [], [])
            os.close(handle)


def test_a_machine_that_is_not_renewed_ends_with_all_its_processes_without_a_request(machines):
    machines.clock = VirtualClock(factor=1e6)  # an hour of the market passes on its own clock in no time
    machines.provider = machines.attach()
    instance_id = machines.up(FAMILY, time_to_live_s=HOUR_S)
    accepted_ms = machines.clock.now_ms()
    await_the_end(machines)
    assert machines.provider.processes_left() == []
    machines.clock.advance(1)
    found = machines.look(instance_id)
    assert (found.state, found.end_reason) == (InstanceState.TERMINATED, EndReason.EXPIRED)
    assert found.billed_to_ms == accepted_ms + HOUR_S * 1000


def test_a_machine_whose_switch_was_ahead_of_the_books_has_expired_too(machines):
    machines.clock = VirtualClock(factor=1e6)
    machines.provider = machines.attach()
    instance_id = machines.up(FAMILY, time_to_live_s=HOUR_S)
    await_the_end(machines)
    found = machines.look(instance_id)
    assert (found.state, found.end_reason) == (InstanceState.TERMINATED, EndReason.EXPIRED)
    assert found.billed_to_ms - found.billed_from_ms <= 1000


def test_a_renewal_is_sent_to_the_machine_and_again_if_that_was_missed(machines):
    instance_id = machines.up("say up; exec sleep 1000", time_to_live_s=HOUR_S)
    deadline = machines.home(instance_id) / "deadline"
    first = deadline.read_text()
    machines.clock.advance(60)
    machines.provider.renew([instance_id], 2 * HOUR_S)
    renewed = deadline.read_text()
    assert renewed.split() == [str(machines.clock.now_ms() + 2 * HOUR_S * 1000), str(2 * HOUR_S + 1)]
    deadline.write_text(first)  # as if the renewal had died in between
    machines.look(instance_id)
    assert deadline.read_text() == renewed


def test_a_machine_that_broke_is_gone_although_its_switch_lives(machines):
    instance_id = machines.up("say up", time_to_live_s=HOUR_S)
    leader = process.claimed_by(machines.home(instance_id))
    os.waitid(os.P_PID, leader.pid, os.WEXITED | os.WNOWAIT)
    while (found := machines.look(instance_id)).alive:
        machines.clock.advance(1)  # the switch may be starting
    assert found.end_reason is EndReason.FAILED
    assert machines.provider.processes_left() == []


def test_a_machine_without_a_time_to_live_has_no_switch(machines):
    instance_id = machines.up("say up; exec sleep 1000")
    assert len(machines.provider.processes_left()) == 1
    assert not (machines.home(instance_id) / "switch").exists()
