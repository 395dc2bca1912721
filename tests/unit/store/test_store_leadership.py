"""Leadership: one control plane acts; one that was deposed, even in its sleep, writes nothing more."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.errors import NotLeaderError
from orchestrator.store import TAKEOVER_S, LeaderInfo, Leadership, Store
from orchestrator.store.leadership.leader import Campaign, Process
from providers.clock import VirtualClock

LEAD = "lead = store.campaign('other')\nsay(lead.epoch); hear()\n"
"""Another process takes the lead and waits."""


@pytest.fixture
def standby(url: str, clock: VirtualClock) -> Any:
    opened = Store.open(url, clock)
    yield opened
    opened.close()


def elected(store: Store, holder: str) -> Leadership:
    lead = store.campaign(holder)
    assert lead is not None
    return lead


def test_a_new_store_has_no_leader(store: Store) -> None:
    assert store.leader() is None


def test_the_first_to_campaign_leads_and_is_described(store: Store, clock: VirtualClock) -> None:
    lead = elected(store, "a")
    info = store.leader()
    assert info == LeaderInfo("a", lead.epoch, os.getpid(), Process.own().host, clock.now_ms(), True)
    with store.write(lead) as tx:
        tx.set_task_done("migrate", 1)


def test_a_standby_waits_as_long_as_the_leader_beats(store: Store, standby: Store, clock: VirtualClock) -> None:
    lead = elected(store, "a")
    for _ in range(10):
        assert standby.campaign("b") is None
        store.beat(lead)
        clock.advance(TAKEOVER_S - 1)
    assert standby.campaign("b") is None


def test_a_silent_leader_is_deposed_and_fenced(store: Store, standby: Store, clock: VirtualClock) -> None:
    old = elected(store, "a")
    assert standby.campaign("b") is None
    clock.advance(TAKEOVER_S)
    new = elected(standby, "b")
    assert new.epoch > old.epoch
    with pytest.raises(NotLeaderError, match="leader is now b") as caught, store.write(old):
        pytest.fail("the block of a deposed leader must not run")
    assert caught.value.hint
    with pytest.raises(NotLeaderError):
        store.beat(old)
    with standby.write(new) as tx:
        tx.set_task_done("migrate", 1)


def test_a_standby_counts_only_the_silence_that_it_watched_itself(
    store: Store, standby: Store, clock: VirtualClock
) -> None:
    elected(store, "a")
    clock.advance(100 * TAKEOVER_S)
    assert standby.campaign("b") is None


def test_wall_clocks_do_not_matter(url: str, store: Store) -> None:
    elected(store, "a")
    a_year_ahead = Store.open(url, VirtualClock(1_800_000_000_000))
    assert a_year_ahead.campaign("b") is None
    a_year_ahead.close()


def test_a_leader_that_resigns_is_followed_at_once(store: Store, standby: Store) -> None:
    lead = elected(store, "a")
    assert standby.campaign("b") is None
    store.resign(lead)
    assert standby.leader() is None
    assert elected(standby, "b").epoch > lead.epoch


def test_a_leader_that_is_outranked_is_followed_by_one_beyond_that_epoch(store: Store, standby: Store) -> None:
    lead = elected(store, "a")
    store.outrank(lead, 41)
    with pytest.raises(NotLeaderError):
        store.beat(lead)
    assert elected(standby, "b").epoch == 42


def test_being_outranked_lowers_no_epoch_and_deposes_no_successor(
    store: Store, standby: Store, clock: VirtualClock
) -> None:
    old = elected(store, "a")
    standby.campaign("b")
    clock.advance(TAKEOVER_S)
    new = elected(standby, "b")
    with pytest.raises(NotLeaderError):
        store.outrank(old, 41)
    standby.beat(new)
    standby.outrank(new, 0)
    assert elected(store, "a").epoch == new.epoch + 1


def test_resigning_after_being_deposed_does_not_harm_the_successor(
    store: Store, standby: Store, clock: VirtualClock
) -> None:
    old = elected(store, "a")
    standby.campaign("b")
    clock.advance(TAKEOVER_S)
    new = elected(standby, "b")
    store.resign(old)
    standby.beat(new)


def test_a_control_plane_restarted_under_its_name_succeeds_itself(store: Store, standby: Store) -> None:
    old = elected(store, "a")
    new = elected(standby, "a")
    with pytest.raises(NotLeaderError), store.write(old):
        pass
    with standby.write(new):
        pass


def test_of_two_standbys_one_wins(url: str, store: Store, standby: Store, clock: VirtualClock) -> None:
    elected(store, "a")
    third = Store.open(url, clock)
    assert [standby.campaign("b"), third.campaign("c")] == [None, None]
    clock.advance(TAKEOVER_S)
    assert [standby.campaign("b") is None, third.campaign("c") is None] == [False, True]
    third.close()


def test_a_leader_that_was_killed_is_followed_at_once(store: Store, other_process: Callable[[str], Any]) -> None:
    process = other_process(LEAD)
    process.stdout.readline()
    assert store.campaign("me") is None
    info = store.leader()
    assert info is not None
    assert (info.pid, info.alive) == (process.pid, True)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie: dead, but with its number
    assert elected(store, "me").holder == "me"


def test_a_leader_paused_for_too_long_finds_itself_fenced(
    store: Store, clock: VirtualClock, other_process: Callable[[str], Any]
) -> None:
    process = other_process(
        LEAD + "from orchestrator.errors import NotLeaderError\n"
        "try:\n"
        "    with store.write(lead) as tx: tx.set_task_done('zombie', 1)\n"
        "except NotLeaderError as error: say(f'fenced: {error}')"
    )
    process.stdout.readline()
    process.send_signal(signal.SIGSTOP)
    assert store.campaign("me") is None
    clock.advance(TAKEOVER_S)
    lead = elected(store, "me")
    process.stdin.write("go on\n")
    process.stdin.flush()
    process.send_signal(signal.SIGCONT)
    assert process.stdout.readline() == "fenced: other no longer leads this store; the leader is now me\n"
    with store.write(lead) as tx:
        assert tx.task_done_ms("zombie") is None


def test_silence_counts_from_the_last_beat_that_was_seen() -> None:
    campaign = Campaign()
    assert campaign.silent_s(1, 5, now_s=100.0) == 0
    assert campaign.silent_s(1, 5, now_s=104.0) == 4
    assert campaign.silent_s(1, 6, now_s=109.0) == 0
    assert campaign.silent_s(2, 6, now_s=112.0) == 0


def test_a_process_is_distinguished_from_a_later_one_of_the_same_number() -> None:
    own = Process.own()
    assert own.alive() is True
    assert Process(own.host, own.realm, own.pid, own.start + 1).alive() is False


def test_nothing_is_reported_about_processes_of_other_machines() -> None:
    own = Process.own()
    assert Process(own.host, "another boot/1", own.pid, own.start).alive() is None
    assert Process(own.host, "", own.pid, own.start).alive() is None
