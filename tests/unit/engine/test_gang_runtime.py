"""NodeRuntime and the machines of one run: each has its own order, and together they report as one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from orchestrator.engine.node_runtime import NodeRuntime
from orchestrator.engine.orders import NotRead
from orchestrator.engine.runtime import RunSpec
from orchestrator.errors import SiteError
from orchestrator.nodes import sealing
from orchestrator.nodes.channel import Channel, places
from orchestrator.nodes.messages import NodeFacts, NodeReport, Order
from orchestrator.nodes.seating import take_seat
from trainers.control import Risk
from trainers.objects.folder import FolderStore
from trainers.spec import SetupSpec

PATIENCE_S = 60.0
NODES = 3
KEY = bytes(32)


class Machine:
    """One machine's end of its channel, written by hand."""

    def __init__(self, store: FolderStore, place: str, boot_token: str) -> None:
        self.channel, self._boot_token, self.key = Channel(store, place), boot_token, sealing.new_key()
        self.beat = 0

    def introduce(self, **fields: object) -> None:
        public = sealing.public_half(self.key)
        proof = sealing.proof(self._boot_token, "boot", public)
        self.channel.put_facts(NodeFacts("boot", public, proof, **fields))  # type: ignore[arg-type]

    def says(self, said: Mapping[str, object]) -> None:
        self.beat += 1
        self.channel.put_report(NodeReport("boot", self.beat, self.order().number, "run-1", said))

    def order(self) -> Order:
        found, _ = self.channel.order()
        assert found is not None
        return found


def until(look: Callable[[], object]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < give_up
        time.sleep(0.005)


def ordered(runtime: NodeRuntime, call: Callable[[], None]) -> None:
    """Repeat a call until all orders are read, then wait until all are written."""

    def taken() -> bool:
        try:
            call()
        except NotRead:
            return False
        return True

    until(taken)
    until(lambda: runtime._orders.idle)


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "control")


@pytest.fixture
def runtime(tmp_path: Path, store: FolderStore) -> Iterator[NodeRuntime]:
    made = NodeRuntime(
        store,
        key=lambda: KEY,
        runs_dir=tmp_path / "runs",
        environments=tmp_path / "environments",
        temp_dir=tmp_path / "ray",
        lease_s=60.0,
    )
    yield made
    made.close()


@pytest.fixture
def machines(store: FolderStore, runtime: NodeRuntime) -> list[Machine]:
    runtime.bootstrap(token="m", nodes=NODES)
    boot_token = sealing.boot_token(KEY, "m")
    return [Machine(store, place, boot_token) for place in places("m", NODES)]


@pytest.fixture
def joined(runtime: NodeRuntime, machines: list[Machine]) -> list[Machine]:
    for rank, machine in enumerate(machines):
        machine.introduce(address=f"10.0.0.{rank}", master_port=4000 + rank)
    until(lambda: runtime.joined("m", NODES))
    return machines


def state(runtime: NodeRuntime) -> str | None:
    found = runtime.reports(["run-1"]).get("run-1")
    return None if found is None else found.state


def doors(store: FolderStore, nodes: int) -> list[Channel]:
    return [Channel(store, place) for place in places("m", nodes)]


def run_spec(trainer: Mapping[str, object], secrets: Mapping[str, str] | None = None) -> RunSpec:
    return RunSpec("run-1", "job-1", 1, trainer, secrets or {})


def test_the_user_data_of_several_machines_is_one_text(runtime: NodeRuntime) -> None:
    assert runtime.bootstrap(token="m", nodes=3) == runtime.bootstrap(token="m", nodes=3)
    assert runtime.bootstrap(token="m", nodes=3) != runtime.bootstrap(token="m")


def test_a_gang_has_joined_when_all_its_machines_have(runtime: NodeRuntime, machines: list[Machine]) -> None:
    for machine in machines:
        assert not runtime.joined("m", NODES)
        machine.introduce()
    until(lambda: runtime.joined("m", NODES))


def test_each_machine_is_ordered_to_execute_its_part(runtime: NodeRuntime, joined: list[Machine]) -> None:
    ordered(runtime, lambda: runtime.prepare("run-1", "m", SetupSpec(root="", log="", workdir="/w"), nodes=NODES))
    assert state(runtime) is None
    for machine in joined:
        machine.says({"state": "prepared"})
    until(lambda: state(runtime) == "prepared")
    ordered(runtime, lambda: runtime.start(run_spec({"control_dir": "c", "processes": 2, "manifest": None})))
    runs = [machine.order().run for machine in joined]
    specs = [run.spec for run in runs if run is not None and run.spec is not None]
    assert [spec["node_rank"] for spec in specs] == [0, 1, 2]
    assert {(spec["nodes"], spec["processes"], spec["master_addr"], spec["master_port"]) for spec in specs} == {
        (NODES, 2, "10.0.0.0", 4000)
    }
    assert len({str(spec["control_dir"]) for spec in specs}) == NODES
    assert len({run.run_dir for run in runs if run is not None}) == NODES
    assert len({str(run.setup["log"]) for run in runs if run is not None and run.setup is not None}) == NODES


def test_secrets_are_sealed_to_each_machine(runtime: NodeRuntime, joined: list[Machine]) -> None:
    ordered(runtime, lambda: runtime.prepare("run-1", "m", nodes=NODES))
    ordered(runtime, lambda: runtime.start(run_spec({}, {"TOKEN": "a secret"})))
    for machine in joined:
        run = machine.order().run
        assert run is not None
        assert run.grant is not None
        sealed = machine.channel.grant(run.grant)
        assert sealed is not None
        assert sealing.opened(machine.key, sealed, "run-1") == {"TOKEN": "a secret"}


def test_every_machine_learns_how_likely_it_is_lost(runtime: NodeRuntime, joined: list[Machine]) -> None:
    ordered(runtime, lambda: runtime.prepare("run-1", "m", nodes=NODES))
    ordered(runtime, lambda: runtime.risk("run-1", Risk(0.5, 2.0)))
    runs = [machine.order().run for machine in joined]
    assert [run and run.risk for run in runs] == [Risk(0.5, 2.0)] * NODES


def test_an_order_for_a_run_goes_to_every_machine(runtime: NodeRuntime, joined: list[Machine]) -> None:
    ordered(runtime, lambda: runtime.prepare("run-1", "m", nodes=NODES))
    ordered(runtime, lambda: runtime.quiesce("run-1", 7))
    assert all((run := machine.order().run) is not None and run.hold is not None for machine in joined)
    ordered(runtime, lambda: runtime.stop("run-1"))
    assert all((run := machine.order().run) is not None and run.stop for machine in joined)
    ordered(runtime, lambda: runtime.kill("run-1"))
    assert all(machine.order().run is None for machine in joined)
    runtime.forget("run-1")
    assert runtime.known() == []


def test_a_run_of_which_one_machine_says_nothing_is_not_reported(runtime: NodeRuntime, joined: list[Machine]) -> None:
    ordered(runtime, lambda: runtime.prepare("run-1", "m", nodes=NODES))
    for machine in joined[:2]:
        machine.says({"state": "training", "step": 3})
    until(lambda: runtime._listener.heard("m/1").report is not None)
    assert state(runtime) is None
    joined[2].says({"state": "failed", "error": "ValueError: no"})
    until(lambda: state(runtime) == "failed")


def test_a_gang_is_not_started_before_machine_0_can_be_reached(runtime: NodeRuntime, machines: list[Machine]) -> None:
    ordered(runtime, lambda: runtime.prepare("run-1", "m", nodes=NODES))
    with pytest.raises(SiteError, match="has not started"):
        runtime.start(run_spec({}))
    assert all((run := machine.order().run) is not None and run.spec is None for machine in machines)


def test_machines_take_the_ranks_as_they_come_and_each_one_once(store: FolderStore) -> None:
    assert [take_seat(doors(store, 2), instance=name, boot="b") for name in ("i-1", "i-2", "i-3")] == [0, 1, None]


def test_a_machine_whose_agent_starts_again_keeps_its_rank_and_one_that_boots_again_gets_none(
    store: FolderStore,
) -> None:
    assert take_seat(doors(store, 3), instance="i-1", boot="first") == 0
    assert take_seat(doors(store, 3), instance="i-1", boot="first") == 0
    assert take_seat(doors(store, 3), instance="i-1", boot="second") is None
    assert take_seat(doors(store, 3), instance="i-2", boot="first") == 1
