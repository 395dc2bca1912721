"""Copies of a store have one installation's id: of all of them one acts, and none ends what it did not rent."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.engine.context import Context
from orchestrator.engine.control import ControlPlane
from orchestrator.engine.jobs.checkpoints import FileCatalog
from orchestrator.engine.machines import claims
from orchestrator.engine.machines.shut_down import shut_down
from orchestrator.engine.machines.sweep import UNKNOWN
from orchestrator.errors import SupersededError
from orchestrator.installation import Installation
from orchestrator.store import Store
from orchestrator.store.recovery.backups import back_up, restore
from providers.base import LaunchSpec
from providers.fake import FakeProvider, Fault
from tests.rig.installation import HOLDER
from tests.sim.harness import CHEAP, SimulatedInstallation, check_truth

Install = Callable[..., SimulatedInstallation]


class Copy:
    """A copy of an installation's store, and a control plane of its own on it."""

    def __init__(self, home: SimulatedInstallation, path: Path) -> None:
        back_up(home.database.url, path)
        self.store = Store.open(f"sqlite:///{path}", home.clock, random=home.random)
        self.provider = FakeProvider(home.clock, cloud=home.cloud)
        self.installation = Installation(home.config, home.clock, self.store, {self.provider.name: self.provider})
        leadership = None
        while leadership is None:  # the leader that it was copied with shows no life
            leadership = self.store.campaign("copy")
            home.clock.advance(1)
        self.leadership = leadership
        self.ctx = Context(self.installation, home.site, FileCatalog(), home.random, leadership=leadership)
        self.plane = ControlPlane(self.ctx)


def adopted_copy(home: SimulatedInstallation, path: Path) -> Copy:
    """A copy of the store of a living installation that was allowed to take over, and has."""
    home.until_step(home.submit(steps=400), 3)
    copy = Copy(home, path)
    home.run_for(claims.CLAIM_EVERY_S + 5)
    with copy.store.write() as tx:
        tx.allow_adoption()
    copy.plane.tick()
    return copy


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    return tmp_path / "copy.db"


def living(home: SimulatedInstallation) -> int:
    return sum(instance.alive for instance in home.cloud.instances())


def test_the_control_plane_of_an_older_copy_ends_nothing_and_says_why(
    home: SimulatedInstallation, elsewhere: Path
) -> None:
    first = home.submit(steps=200)
    home.until_step(first, 3)
    copy = Copy(home, elsewhere)
    second = home.submit(steps=200)
    home.until_step(second, claims.CLAIM_EVERY_S + 5)
    with pytest.raises(SupersededError) as caught:
        copy.plane.tick()
    assert "tradewind store adopt" in caught.value.hint
    with pytest.raises(SupersededError):
        shut_down(copy.installation, copy.leadership, lambda _: None)
    assert living(home) == 2
    home.settle()
    assert [home.job(job).state for job in (first, second)] == ["finished", "finished"]
    check_truth(home)
    copy.store.close()


def test_of_a_store_and_its_fresh_copy_only_one_continues(home: SimulatedInstallation, elsewhere: Path) -> None:
    home.until_step(home.submit(steps=200), 3)
    copy = Copy(home, elsewhere)
    copy.plane.tick()  # nobody has acted since it was made: it is the same store, further on
    with pytest.raises(SupersededError):
        home.run_for(claims.CLAIM_EVERY_S + 5)
    copy.plane.tick()
    assert living(home) == 1
    copy.store.close()


def test_a_copy_that_is_ordered_to_take_over_does_and_the_other_stops(
    home: SimulatedInstallation, elsewhere: Path
) -> None:
    copy = adopted_copy(home, elsewhere)
    with pytest.raises(SupersededError):
        home.run_for(claims.CLAIM_EVERY_S + 5)
    for _ in range(3):
        home.clock.advance(claims.CLAIM_EVERY_S)
        copy.plane.tick()  # once it has taken over, it is the one that is known
    with copy.store.write() as tx:
        assert tx.claim("fake").adoption == tx.adoption()
    copy.store.close()


def test_a_permission_to_take_over_is_used_once(home: SimulatedInstallation, elsewhere: Path) -> None:
    copy = adopted_copy(home, elsewhere)
    with home.store.write() as tx:
        tx.allow_adoption()
    home.run_for(claims.CLAIM_EVERY_S + 5)
    with pytest.raises(SupersededError):
        copy.plane.tick()
    copy.store.close()


def test_a_control_plane_that_dies_at_any_moment_of_its_claim_knows_its_store_again(
    home: SimulatedInstallation,
) -> None:
    job = home.submit(steps=100)
    home.until_step(job, 3)
    for fault in (Fault.LOST_REPLY, Fault.NO_ANSWER, Fault.LOST_REPLY):
        home.faults.inject("replace_claim", fault)
        home.start()
        home.run_for(2)
    home.faults.inject("replace_claim", *[Fault.NO_ANSWER] * (2 * claims.MOST_WORDS))
    home.start()
    home.settle()
    assert home.job(job).state == "finished"
    check_truth(home)


def test_a_provider_that_does_not_answer_holds_a_new_control_plane_up_for_a_minute_at_most(
    home: SimulatedInstallation,
) -> None:
    job = home.submit(steps=300)
    home.until_step(job, 3)
    home.faults.inject("claim", *[Fault.NO_ANSWER] * 500)
    home.start()
    step = home.runs(job)[0].last_step
    home.run_for(claims.PATIENCE_S / 2)
    assert home.runs(job)[0].last_step == step  # it does not act
    home.until_step(job, 100)
    home.settle()
    check_truth(home)


def test_a_machine_that_this_store_did_not_rent_is_reported_once_and_left_alone(home: SimulatedInstallation) -> None:
    stray = LaunchSpec("stray", CHEAP.id, "", {"tradewind-install": home.store.install_id, "tradewind-run": "run_x"})
    (stray_id,) = home.cloud.launch(stray, home.clock.now_ms()).instance_ids
    foreign = LaunchSpec("foreign", CHEAP.id, "", {"tradewind-install": "somebody else's"})
    home.cloud.launch(foreign, home.clock.now_ms())
    home.run_for(20)
    home.start()
    home.run_for(20)
    assert living(home) == 2
    (reported,) = home.read(lambda tx: tx.events(kinds=(UNKNOWN,)))
    assert reported.data["instance_id"] == stray_id
    assert f"tradewind reap {stray_id}" in reported.message


def test_a_store_that_is_restored_in_place_keeps_its_machines(
    install: Install, elsewhere: Path, tmp_path: Path
) -> None:
    home = install()
    job = home.submit("first", steps=300)
    home.until_step(job, 3)
    back_up(home.database.url, elsewhere)
    home.submit("second", steps=300)
    home.run_for(claims.CLAIM_EVERY_S + 20)
    path = tmp_path / "there.db"
    back_up(home.database.url, path)  # as it is now: what the backup is put in the place of
    url = f"sqlite:///{path}"
    with closing(Store.open(url, home.clock)) as store:
        leadership = store.campaign(HOLDER)
        assert leadership is not None
        store.resign(leadership)
    restore(url, elsewhere, home.clock.now_ms())
    with closing(Store.open(url, home.clock, random=home.random)) as store:
        leadership = store.campaign("restored")
        provider = FakeProvider(home.clock, cloud=home.cloud)
        installation = Installation(home.config, home.clock, store, {provider.name: provider})
        plane = ControlPlane(Context(installation, home.site, FileCatalog(), home.random, leadership=leadership))
        for _ in range(20):
            plane.tick()
            home.clock.advance(1)
        with store.read() as tx:
            (run,) = tx.runs()
            (reported,) = tx.events(kinds=(UNKNOWN,))  # what was rented since the backup
        assert run.end is None
        assert home.machine(run).alive
        assert living(home) == 2
        assert reported.data["instance_id"] != run.instance_id
