"""The agent of a machine, on a real folder store, with a real process for the trainer, without Ray."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.nodes import sealing
from orchestrator.nodes.agent import Agent
from orchestrator.nodes.channel import Channel, Pace
from orchestrator.nodes.cluster import Cluster
from orchestrator.nodes.crew import Crew
from orchestrator.nodes.messages import Hold, NodeReport, Order, RunOrder
from providers.local.metadata import write_notice
from providers.notice import Notice
from tests.unit.nodes.conftest import Direct, Stub, until
from trainers.control import ControlDirectory, Risk
from trainers.objects.folder import FolderStore

LEASE_S = 60.0


class Home:
    """An agent, and the control plane's end of its channel."""

    def __init__(self, folder: Path, machine: Stub, crew: Direct) -> None:
        self.folder = folder / "control"
        self.store = FolderStore(self.folder)
        self.plane = Channel(self.store, "m")
        self.crew, self.machine, self.runs = crew, machine, folder / "runs"
        self.agent = Agent(Channel(self.store, "m"), Pace(0.0, 0.0, 0.0, 0.0), crew, machine)
        self.agent.introduce("boot-token")
        self.number = 0

    def order(self, run: RunOrder | None) -> None:
        self.number += 1
        self.plane.replace_order(Order(self.number, LEASE_S, run), self.plane.order()[1])

    def look(self) -> None:
        self.agent.exchange()
        self.agent.look()

    def run(self, run_id: str = "run-1") -> RunOrder:
        return RunOrder(run_id, str(self.runs / run_id))

    def spec(self, run_id: str = "run-1") -> dict[str, object]:
        return {"control_dir": str(self.runs / run_id / "control")}

    def control(self, run_id: str = "run-1") -> ControlDirectory:
        return ControlDirectory(self.runs / run_id / "control")

    def reported(self) -> NodeReport:
        found = self.plane.report()
        assert found is not None
        return found

    def until_it_reports(self, state: str, run_id: str = "run-1") -> NodeReport:
        def look() -> bool:
            self.look()
            said = self.reported().said
            return self.reported().run_id == run_id and said is not None and said["state"] == state

        until(f"{run_id} is {state}", look)
        return self.reported()


@pytest.fixture
def home(tmp_path: Path, machine: Stub, crew: Direct) -> Home:
    return Home(tmp_path, machine, crew)


def test_it_introduces_itself_with_a_key_and_a_proof(home: Home) -> None:
    facts = home.plane.facts()
    assert facts is not None
    assert sealing.is_proven("boot-token", facts.boot, facts.public_key, facts.proof)
    home.look()
    assert home.reported().boot == facts.boot


def test_it_prepares_then_trains_what_it_is_ordered_and_says_which_order_it_follows(home: Home) -> None:
    home.order(home.run())
    assert home.until_it_reports("prepared").order == 1
    home.order(replace(home.run(), spec=home.spec()))
    report = home.until_it_reports("training")
    assert (report.order, report.said and report.said["step"]) == (2, 3)


def test_the_trainer_learns_how_likely_its_machine_is_lost_and_when_that_changes(home: Home) -> None:
    home.order(replace(home.run(), spec=home.spec(), risk=Risk(0.5, 1.0)))
    home.look()
    assert home.control().risk() == Risk(0.5, 1.0)
    home.order(replace(home.run(), spec=home.spec(), risk=Risk(0.25)))
    home.look()
    assert home.control().risk() == Risk(0.25)


def test_secrets_reach_the_trainer_only_sealed_for_its_run(home: Home) -> None:
    facts = home.plane.facts()
    assert facts is not None
    sealed = sealing.seal(facts.public_key, "run-1", {"TOKEN": "hush-hush"})
    ordered = replace(home.run(), spec=home.spec(), grant=sealing.digest(sealed))
    home.order(ordered)
    home.look()
    assert home.reported().order == 0, "it follows an order without its secrets"
    other = sealing.seal(facts.public_key, "run-2", {"TOKEN": "of another run"})
    home.plane.put_grant(sealing.digest(other), other)
    home.look()
    assert home.reported().order == 0
    home.plane.put_grant(sealing.digest(sealed), sealed)
    home.until_it_reports("training")
    assert json.loads((home.machine.folder / "order.json").read_text())["secrets"] == {"TOKEN": "hush-hush"}
    written = b"".join(path.read_bytes() for path in home.folder.rglob("*") if path.is_file())
    assert b"hush-hush" not in written


def test_a_hold_lasts_as_long_as_ordered_from_when_it_arrives_and_is_taken_back(home: Home) -> None:
    home.order(home.run())
    home.until_it_reports("prepared")
    began = time.monotonic()
    home.order(replace(home.run(), hold=Hold(1, 2, 30.0)))
    home.look()
    first = home.control().quiesce()
    assert first is not None
    assert began + 30.0 <= first.until_monotonic_s <= time.monotonic() + 30.0
    assert first.successor == 2
    home.look()
    assert home.control().quiesce() == first, "the same order does not last longer"
    home.order(replace(home.run(), hold=Hold(2, 2, 30.0)))
    home.look()
    second = home.control().quiesce()
    assert second is not None
    assert second.until_monotonic_s > first.until_monotonic_s
    home.order(home.run())
    home.look()
    assert home.control().quiesce() is None


def test_a_run_that_the_newest_order_does_not_name_is_ended_and_the_next_gets_a_process_of_its_own(home: Home) -> None:
    home.order(replace(home.run(), spec=home.spec()))
    home.until_it_reports("training")
    before = home.machine.process.pid
    home.order(home.run("run-2"))
    home.until_it_reports("prepared", "run-2")
    assert home.crew.ended == ["run-1"]
    assert home.machine.process.pid != before
    home.order(None)
    home.look()
    assert home.crew.ended == ["run-1", "run-2"]
    assert home.reported().run_id is None


def test_stop_and_sigterm_ask_the_run_to_save_and_end(home: Home) -> None:
    home.order(home.run())
    home.until_it_reports("prepared")
    assert not home.control().stop_requested()
    home.order(replace(home.run(), stop=True))
    home.look()
    assert home.control().stop_requested()
    home.order(home.run("run-2"))
    home.until_it_reports("prepared", "run-2")
    home.agent.stop()
    assert home.control("run-2").stop_requested()


def test_a_notice_of_the_provider_is_passed_on_to_the_run(home: Home) -> None:
    write_notice(home.machine.folder / "metadata.json", Notice("preemption", 123.0))
    home.look()  # nothing runs yet
    home.order(home.run())
    home.look()
    assert home.control().notice() is not None


def test_a_warning_of_the_provider_is_passed_on_to_the_run_and_is_no_notice(home: Home) -> None:
    write_notice(home.machine.folder / "metadata.json", Notice("rebalance", None))
    home.order(home.run())
    home.look()
    assert home.control().warned()
    assert home.control().notice() is None
    write_notice(home.machine.folder / "metadata.json", Notice("preemption", 123.0))
    home.look()
    assert home.control().notice() is not None


def test_a_notice_of_the_provider_is_reported_with_the_time_that_is_left(home: Home) -> None:
    """The control plane may not see it otherwise: some clouds tell only the machine."""
    home.order(replace(home.run(), spec=home.spec()))
    said = home.until_it_reports("training").said
    assert said is not None
    assert "notice_s" not in said
    write_notice(home.machine.folder / "metadata.json", Notice("preemption", time.monotonic() + 90.0))
    home.look()
    home.look()  # without waiting for the next report to be due
    said = home.reported().said
    assert said is not None
    assert 80 < said["notice_s"] <= 90.0


def test_the_lease_is_renewed_only_while_messages_can_be_exchanged(home: Home) -> None:
    home.order(replace(home.run(), spec=home.spec()))
    home.until_it_reports("training")
    _due(home.agent)
    home.look()
    before = home.control().lease_until()
    assert before is not None
    assert before <= time.monotonic() + LEASE_S
    away = home.folder.with_name("away")
    for breaks, mends in (
        (lambda: home.folder.rename(away), lambda: _back(away, home.folder)),
        (lambda: _garbled(home, b"{"), lambda: home.order(replace(home.run(), spec=home.spec()))),
    ):
        kept = (home.folder / "m" / "order").read_bytes()
        breaks()
        if not home.folder.exists():
            home.folder.write_text("in the way")
        _due(home.agent)
        last = home.control().lease_until()
        home.look()
        _due(home.agent)
        home.look()
        now = home.control().lease_until()
        assert last is not None
        assert now is not None
        assert now <= max(last, before) + 1.0, "it renewed its lease alone"
        if not (home.folder / "m").exists():
            mends()
        else:
            home.store.put("m/order", kept)
        _due(home.agent)
        moment = time.monotonic()
        home.look()
        renewed = home.control().lease_until()
        assert renewed is not None
        assert renewed >= moment + LEASE_S


def test_a_trainer_that_dies_by_itself_is_reported_with_its_status(home: Home) -> None:
    home.order(replace(home.run(), spec=home.spec()))
    home.until_it_reports("training")
    home.machine.process.kill()
    home.machine.process.wait()
    said = home.until_it_reports("failed").said
    assert said is not None
    assert said["exit_status"] == -9


def _due(agent: Agent) -> None:
    agent._leased_at = float("-inf")
    agent._reported_at = float("-inf")


def _back(away: Path, root: Path) -> None:
    root.unlink()
    away.rename(root)


def _garbled(home: Home, words: bytes) -> None:
    home.store.put("m/order", words)


Breaks = Callable[[], object]


def test_a_machine_whose_orders_are_gone_renews_its_lease_no_more(home: Home) -> None:
    home.order(replace(home.run(), spec=home.spec()))
    home.until_it_reports("training")
    home.store.delete("m/order")
    before = home.agent._renewed_at
    home.look()
    assert home.agent._renewed_at == before


def test_a_second_start_of_a_machine_learns_that_it_is_not_the_first(home: Home, crew: Direct, machine: Stub) -> None:
    again = Agent(Channel(home.store, "m"), Pace(0.0, 0.0, 0.0, 0.0), crew, machine)
    assert not again.introduce("boot-token")
    facts = home.plane.facts()
    assert facts is not None
    assert facts.boot == home.agent._boot


def test_an_older_order_is_not_carried_out_and_ends_the_lease(home: Home) -> None:
    home.order(home.run())
    older = (home.folder / "m" / "order").read_bytes()
    home.order(replace(home.run(), spec=home.spec()))
    home.until_it_reports("training")
    before = home.agent._renewed_at
    home.store.put("m/order", older)  # restored from a copy
    home.look()
    assert home.crew.actor is not None, "the run was ended"
    assert home.agent._renewed_at == before


def test_an_actor_that_does_not_answer_is_no_contact(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.order(replace(home.run(), spec=home.spec()))
    home.until_it_reports("training")
    home.look()
    monkeypatch.setattr(home.crew, "heard", lambda run_id: ({"state": "training"}, 1000.0))
    before = home.agent._renewed_at
    home.look()
    assert home.agent._renewed_at == before


def test_a_full_disk_does_not_end_the_agent(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.order(replace(home.run(), spec=home.spec()))
    home.until_it_reports("training")
    _due(home.agent)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(ControlDirectory, "put_lease", full)
        home.look()
    _due(home.agent)
    home.look()
    assert home.control().lease_until() is not None


@pytest.mark.parametrize(("said", "last"), [("training", "absent"), ("prepared", "absent"), ("finished", "finished")])
def test_when_another_machine_of_the_run_is_gone_it_says_so_before_it_ends(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, last: str
) -> None:
    ended, why = threading.Event(), list[str]()
    crew = Crew(Cluster(tmp_path / "real"), why.append)
    for name, answer in (("start", None), ("gather", None), ("dead", "machine 1 of the run is gone")):
        monkeypatch.setattr(crew._cluster, name, lambda answer=answer: answer)
    home.order(home.run())
    home.until_it_reports("prepared")
    crew._heard = ("run-1", {"state": said, "step": 7}, time.monotonic())
    monkeypatch.setattr(home.crew, "heard", crew.heard)
    crew.run()
    ended.set()
    home.agent.talk(ended)
    assert why == ["machine 1 of the run is gone"]
    failure = {"error": why[0]} if last == "absent" else {}
    assert home.reported().said == {"state": last, "step": 7, **failure}


def test_no_pace_is_without_a_pause(home: Home) -> None:
    pace = Pace.of(home.store)
    assert min(pace.poll_s, pace.eager_s) >= 0.01
    assert max(pace.news_s, pace.beat_s) <= 1.0


def test_a_machine_asks_less_often_while_nobody_waits_for_it(home: Home) -> None:
    pace = Pace.of(home.store)
    assert 2 * pace.eager_s < pace.poll_s <= 0.1
