"""NodeRuntime on a folder: what it makes of what machines write, and that no order of an earlier control plane counts.

The machine's end of the channel is written by hand, so that it can lie.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.node_runtime import NodeRuntime
from orchestrator.engine.orders import NotRead
from orchestrator.engine.runtime import RunReport, RunSpec
from orchestrator.errors import SiteError
from orchestrator.nodes import sealing
from orchestrator.nodes.channel import Channel
from orchestrator.nodes.key_file import KeyFile
from orchestrator.nodes.messages import JobFiles, NodeFacts, NodeReport, Order
from trainers.objects.folder import FolderStore

PATIENCE_S = 60.0
SECRET = "correct-horse-battery-staple"


class Machine:
    """A machine's end of the channel."""

    def __init__(self, folder: Path, runtime: NodeRuntime, token: str = "m") -> None:
        self.channel = Channel(FolderStore(folder / "control"), token)
        self.key = sealing.new_key()
        self.beat = 0
        script = runtime.bootstrap(token=token)
        self.boot_token = script.split('"boot_token":"')[1].partition('"')[0]

    def introduce(self, *, token: str | None = None, boot: str = "boot") -> bool:
        public = sealing.public_half(self.key)
        return self.channel.put_facts(NodeFacts(boot, public, sealing.proof(token or self.boot_token, boot, public)))

    def says(self, run_id: str | None, said: Mapping[str, object] | None, *, order: int, ago_s: float = 0.0) -> None:
        self.beat += 1
        self.channel.put_report(NodeReport("boot", self.beat, order, run_id, said, ago_s))

    def order(self) -> Order:
        found, _ = self.channel.order()
        assert found is not None
        return found


class Runtime(NodeRuntime):
    """Waits until each order is written. Raises why it is not."""

    def prepare(self, *args: Any, **fields: Any) -> None:
        self._settle(lambda: super(Runtime, self).prepare(*args, **fields))

    def start(self, spec: RunSpec) -> None:
        self._settle(lambda: super(Runtime, self).start(spec))

    def quiesce(self, run_id: str, successor: int) -> None:
        self._settle(lambda: super(Runtime, self).quiesce(run_id, successor))

    def resume(self, run_id: str) -> None:
        self._settle(lambda: super(Runtime, self).resume(run_id))

    def parted(self, run_id: str) -> bool:
        found: list[bool] = []
        self._settle(lambda: found.append(super(Runtime, self).parted(run_id)))
        return found[-1]

    def stop(self, run_id: str) -> None:
        self._settle(lambda: super(Runtime, self).stop(run_id))

    def kill(self, run_id: str) -> None:
        self._settle(lambda: super(Runtime, self).kill(run_id))

    def _settle(self, call: Callable[[], None]) -> None:
        lines = self._orders._lines
        for line in lines.values():
            line.trouble, line.retry_s = None, float("-inf")

        def taken() -> bool:
            try:
                call()
            except NotRead:
                return False
            return True

        until(taken)
        until(lambda: self._orders.idle or any(line.trouble for line in lines.values()))
        for trouble in (line.trouble for line in lines.values() if line.trouble):
            raise trouble


def until(look: Callable[[], object]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < give_up
        time.sleep(0.005)


@pytest.fixture
def open_runtime(tmp_path: Path) -> Iterator[Callable[[], NodeRuntime]]:
    opened = []

    def another() -> NodeRuntime:
        opened.append(
            Runtime(
                FolderStore(tmp_path / "control"),
                key=KeyFile(tmp_path / "key"),
                runs_dir=tmp_path / "runs",
                environments=tmp_path / "environments",
                temp_dir=tmp_path / "ray",
                lease_s=60.0,
            )
        )
        return opened[-1]

    yield another
    for runtime in opened:
        runtime.close()


@pytest.fixture
def runtime(open_runtime: Callable[[], NodeRuntime]) -> NodeRuntime:
    return open_runtime()


@pytest.fixture
def machine(tmp_path: Path, runtime: NodeRuntime) -> Machine:
    return Machine(tmp_path, runtime)


def report(runtime: NodeRuntime, run_id: str = "run-1") -> RunReport | None:
    return runtime.reports([run_id]).get(run_id)


def state(runtime: NodeRuntime, run_id: str = "run-1") -> str | None:
    found = report(runtime, run_id)
    return None if found is None else found.state


def test_a_repeated_launch_has_the_same_user_data_and_another_machine_another(
    runtime: NodeRuntime, open_runtime: Callable[[], NodeRuntime]
) -> None:
    assert runtime.bootstrap(token="m") == open_runtime().bootstrap(token="m")
    assert runtime.bootstrap(token="m") != runtime.bootstrap(token="n")


def test_a_machine_joins_with_the_proof_of_its_own_boot_token_alone(runtime: NodeRuntime, machine: Machine) -> None:
    assert not runtime.joined("m")
    machine.introduce(token="that of another machine")
    machine.says(None, None, order=0)
    until(lambda: runtime._listener.heard("m").facts is not None)
    assert not runtime.joined("m")
    with pytest.raises(SiteError, match="has not started"):
        runtime.prepare("run-1", "m", secrets={"TOKEN": SECRET})
    assert not machine.introduce(), "a machine starts once"


def test_a_machine_joins_with_its_proof(runtime: NodeRuntime, machine: Machine) -> None:
    assert not runtime.joined("m")
    assert machine.introduce()
    until(lambda: runtime.joined("m"))


def test_only_a_machine_with_the_folders_of_this_host_is_given_one(runtime: NodeRuntime, machine: Machine) -> None:
    files = JobFiles("jobs/i/job-1", "0" * 64)
    for run_id, given in (("run-1", None), ("run-2", files)):
        runtime.prepare(run_id, "m", files=given)
        order, _ = machine.channel.order()
        assert order is not None
        assert order.run is not None
        assert (order.run.files, order.run.run_dir == "") == (given, given is not None)


def test_a_machine_that_cannot_be_used_says_why_with_the_proof_of_its_boot_token(
    runtime: NodeRuntime, machine: Machine
) -> None:
    why = "the machine has too little disk"
    assert runtime.boot_error("m") is None
    machine.channel.put_facts(NodeFacts("boot", "", sealing.error_proof(machine.boot_token, "boot", why), why))
    until(lambda: runtime.boot_error("m"))
    assert runtime.boot_error("m") == why
    assert not runtime.joined("m")


def test_an_error_that_somebody_else_wrote_is_not_believed(runtime: NodeRuntime, machine: Machine) -> None:
    machine.channel.put_facts(NodeFacts("boot", "", sealing.error_proof("another token", "boot", "no"), "no"))
    assert not runtime.joined("m")
    until(lambda: runtime._listener.heard("m").facts is not None)
    assert runtime.boot_error("m") is None
    assert not runtime.joined("m")


def test_a_run_goes_from_starting_to_what_its_machine_says_of_it(runtime: NodeRuntime, machine: Machine) -> None:
    machine.introduce()
    until(lambda: runtime.joined("m"))
    until(lambda: state(runtime) == "absent")  # no machine was asked to execute it
    runtime.prepare("run-1", "m")
    machine.says(None, None, order=0)
    until(lambda: state(runtime) == "starting")
    machine.says("run-1", {"state": "prepared"}, order=1)
    until(lambda: state(runtime) == "prepared")
    runtime.start(RunSpec("run-1", "job-1", 1, {"steps": 5}, {"TOKEN": SECRET}))
    ordered = machine.order().run
    assert ordered is not None
    assert ordered.spec == {"steps": 5}
    assert ordered.grant is not None
    assert sealing.opened(machine.key, machine.channel.grant(ordered.grant) or b"", "run-1") == {"TOKEN": SECRET}
    machine.says("run-1", {"state": "training", "step": 4, "loss": 0.5}, order=2, ago_s=3.0)
    until(lambda: state(runtime) == "training")
    found = report(runtime)
    assert found is not None
    assert (found.step, found.loss) == (4, 0.5)
    assert found.silent_s >= 3.0, "its actor has not answered for so long"


def test_no_secret_is_in_any_byte_that_was_written(runtime: NodeRuntime, machine: Machine, tmp_path: Path) -> None:
    machine.introduce()
    until(lambda: runtime.joined("m"))
    runtime.prepare("run-1", "m", secrets={"TOKEN": SECRET})
    runtime.start(RunSpec("run-1", "job-1", 1, {}, {"TOKEN": SECRET}))
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert SECRET.encode() not in written
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0


def test_the_next_control_plane_finds_the_run_and_the_one_before_it_can_change_nothing(
    runtime: NodeRuntime, open_runtime: Callable[[], NodeRuntime], machine: Machine
) -> None:
    machine.introduce()
    runtime.prepare("run-1", "m")
    machine.says("run-1", {"state": "training"}, order=1)
    successor = open_runtime()
    successor.lead(1)
    until(lambda: state(successor) == "training")
    successor.quiesce("run-1", 2)
    held = machine.order()
    for why in ("another control plane has changed", "a later control plane", "a later control plane"):
        with pytest.raises(SiteError, match=why):
            runtime.kill("run-1")
    with pytest.raises(SiteError, match="a later control plane"):
        runtime.prepare("run-9", "m")
    assert machine.order() == held
    successor.resume("run-1")


def test_a_machine_has_parted_from_a_killed_run_when_it_follows_that_order(
    runtime: NodeRuntime, machine: Machine
) -> None:
    machine.introduce()
    runtime.prepare("run-1", "m")
    machine.says("run-1", {"state": "training"}, order=1)
    until(lambda: state(runtime) == "training")
    assert not runtime.parted("run-1")
    runtime.kill("run-1")
    assert not runtime.parted("run-1")
    machine.says(None, None, order=2)
    until(lambda: runtime.parted("run-1"))


def test_a_kill_takes_the_run_out_of_the_order_and_it_is_absent_whatever_the_machine_says(
    runtime: NodeRuntime, machine: Machine
) -> None:
    machine.introduce()
    runtime.prepare("run-1", "m")
    machine.says("run-1", {"state": "training"}, order=1)
    until(lambda: state(runtime) == "training")
    runtime.kill("run-1")
    runtime.kill("run-1")
    assert machine.order().run is None
    assert state(runtime) == "absent"
    with pytest.raises(SiteError, match="has no order"):
        runtime.stop("run-1")


def test_another_attempt_on_the_machine_replaces_the_run_there(runtime: NodeRuntime, machine: Machine) -> None:
    machine.introduce()
    runtime.prepare("run-1", "m")
    runtime.prepare("run-2", "m")
    machine.says("run-1", {"state": "failed"}, order=1)
    until(lambda: state(runtime, "run-2") == "starting")
    machine.says("run-2", {"state": "prepared"}, order=2)
    until(lambda: state(runtime, "run-2") == "prepared")
    assert state(runtime, "run-1") == "absent"


def test_repeated_calls_give_no_new_order_but_a_repeated_hold_does(runtime: NodeRuntime, machine: Machine) -> None:
    machine.introduce()
    for call in (
        lambda: runtime.prepare("run-1", "m"),
        lambda: runtime.start(RunSpec("run-1", "job-1", 1, {"steps": 5}, {})),
        lambda: runtime.stop("run-1"),
        lambda: runtime.resume("run-1"),
    ):
        call()
        number = machine.order().number
        call()
        assert machine.order().number == number
    runtime.quiesce("run-1", 2)
    number = machine.order().number
    runtime.quiesce("run-1", 2)
    assert machine.order().number == number + 1


@pytest.mark.parametrize(
    "words",
    [
        b"\xff",
        b"{}",
        b'{"boot":"boot","beat":1,"order":1,"run_id":"run-1","said":{"state":"training","step":-1}}',
        b'{"boot":"boot","beat":1,"order":1,"run_id":"run-1","said":{"state":"king"}}',
        b'{"boot":"boot","beat":1,"order":1,"run_id":"run-1","said":{"state":"training"},"said_ago_s":"NaN"}',
        b'{"boot":"boot","beat":1,"order":1,"run_id":"run-1","said":{"state":"training"},"said_ago_s":1e400}',
        b"x" * (1 << 19),
    ],
)
def test_garbage_is_a_malformed_report(runtime: NodeRuntime, machine: Machine, words: bytes) -> None:
    machine.introduce()
    runtime.prepare("run-1", "m")
    machine.channel._store.put("m/report", words)
    until(lambda: report(runtime) is not None)
    found = report(runtime)
    assert found is not None
    assert found.state == "malformed", found


def test_silence_is_measured_by_the_readers_own_clock_whatever_the_machine_says_of_time(
    runtime: NodeRuntime, machine: Machine
) -> None:
    machine.introduce()
    runtime.prepare("run-1", "m")
    machine.says("run-1", {"state": "training"}, order=1, ago_s=-1e6)
    until(lambda: state(runtime) == "training")
    found = report(runtime)
    assert found is not None
    assert 0.0 <= found.silent_s < PATIENCE_S
    # the same report does not count as a sign of life again
    until(lambda: (later := report(runtime)) is not None and later.silent_s > found.silent_s)


def test_a_report_that_arrives_after_a_later_one_is_neither_news_nor_a_sign_of_life(
    runtime: NodeRuntime, machine: Machine
) -> None:
    machine.introduce()
    runtime.prepare("run-1", "m")
    machine.says("run-1", {"state": "training", "step": 3}, order=1)
    machine.says("run-1", {"state": "finished", "step": 9}, order=1)
    until(lambda: state(runtime) == "finished")
    machine.channel.put_report(NodeReport("boot", 1, 1, "run-1", {"state": "training", "step": 3}))
    until(lambda: (later := report(runtime)) is not None and later.silent_s > 0.0)
    found = report(runtime)
    assert found is not None
    assert (found.state, found.step) == ("finished", 9)


@pytest.mark.parametrize("late", [False, True], ids=["the same", "the next"])
def test_a_machine_whose_report_is_deleted_is_silent(
    runtime: NodeRuntime, open_runtime: Callable[[], NodeRuntime], machine: Machine, late: bool
) -> None:
    """Each control plane reports it as silent. Otherwise its lease would never end."""
    machine.introduce()
    runtime.prepare("run-1", "m")
    machine.says("run-1", {"state": "prepared"}, order=1)
    runtime.start(RunSpec("run-1", "job-1", 1, {}, {}))
    machine.says("run-1", {"state": "training"}, order=2)
    until(lambda: state(runtime) == "training")
    machine.channel._store.delete("m/report")
    asked = open_runtime() if late else runtime
    until(lambda: (found := report(asked)) is not None and found.state == "silent" and found.silent_s > 0.0)
    found = report(asked)
    assert found is not None
    assert found.silent_s < PATIENCE_S
    machine.says("run-1", {"state": "training"}, order=2)
    until(lambda: state(asked) == "training")


def test_a_store_that_cannot_be_read_is_an_error_and_no_sign_about_the_run(
    runtime: NodeRuntime, machine: Machine, tmp_path: Path
) -> None:
    machine.introduce()
    runtime.prepare("run-1", "m")
    machine.says("run-1", {"state": "training"}, order=1)
    until(lambda: state(runtime) == "training")
    control = tmp_path / "control"
    control.rename(tmp_path / "away")
    control.write_text("in the way")

    def refused() -> bool:
        try:
            return report(runtime) is None
        except SiteError as error:
            return str(control) in str(error)

    until(refused)
    control.unlink()
    (tmp_path / "away").rename(control)

    def answers() -> bool:
        try:
            return state(runtime) == "training"
        except SiteError:
            return False

    until(answers)


def test_what_is_kept_of_a_run_is_forgotten_with_its_machine(
    runtime: NodeRuntime, machine: Machine, tmp_path: Path
) -> None:
    machine.introduce()
    runtime.prepare("run-1", "m")
    runtime.prepare("run-2", "m")  # another attempt on the same machine
    machine.says("run-2", {"state": "prepared"}, order=2)
    assert sorted(runtime.known()) == ["run-1", "run-2"]
    runtime.forget("run-1")
    assert machine.order().run is not None, "the machine's orders went with the first attempt"
    runtime.forget("run-2")
    runtime.forget("run-2")
    assert runtime.known() == []
    assert not [path for path in (tmp_path / "control").rglob("*") if path.is_file()]
    until(lambda: state(runtime, "run-2") == "absent")


def test_a_pause_of_the_control_plane_is_no_silence_of_the_machine(runtime: NodeRuntime, machine: Machine) -> None:
    machine.introduce()
    runtime.prepare("run-1", "m")
    machine.says("run-1", {"state": "training"}, order=1)
    until(lambda: state(runtime) == "training")
    heard = runtime._listener.heard("m")
    watched = runtime._listener._watched["m"]
    runtime._listener.close()
    watched.heard = replace(heard, since_s=heard.since_s - 1000.0, read_s=heard.read_s - 1000.0)  # as after a pause
    found = report(runtime)
    assert found is not None
    assert found.silent_s < 100.0


def test_a_new_control_plane_takes_an_order_over_before_the_former_can_change_it(
    runtime: NodeRuntime, open_runtime: Callable[[], NodeRuntime], machine: Machine
) -> None:
    runtime.lead(1)
    machine.introduce()
    runtime.prepare("run-1", "m")
    machine.says("run-1", {"state": "training"}, order=1)
    successor = open_runtime()
    successor.lead(2)
    until(lambda: state(successor) == "training")  # it has only looked
    with pytest.raises(SiteError):
        runtime.kill("run-1")
    with pytest.raises(SiteError, match="a later control plane"):
        runtime.kill("run-1")
    assert machine.order().run is not None


def test_two_first_orders_at_once_and_only_one_writer_believes_that_it_won(
    runtime: NodeRuntime, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = machine.channel._store
    honest = type(store).put_if_absent

    def overtaken(self: FolderStore, key: str, data: bytes) -> bool:
        won = honest(self, key, data)
        if key.endswith("/order"):
            self.put(key, b'{"number":2,"lease_s":60,"epoch":7}')  # a later control plane, just after it
        return won

    machine.introduce()
    with monkeypatch.context() as race:
        race.setattr(FolderStore, "put_if_absent", overtaken)
        with pytest.raises(SiteError, match="another control plane"):
            runtime.prepare("run-1", "m")
    with pytest.raises(SiteError, match="a later control plane"):
        runtime.prepare("run-1", "m")


def test_a_report_that_cannot_be_read_while_others_can_is_the_machines_fault(
    runtime: NodeRuntime, machine: Machine, tmp_path: Path
) -> None:
    other = Machine(tmp_path, runtime, "n")
    for each, run_id in ((machine, "run-1"), (other, "run-2")):
        each.introduce()
        runtime.prepare(run_id, each.channel.token)
        each.says(run_id, {"state": "training"}, order=1)
    until(lambda: {state(runtime), state(runtime, "run-2")} == {"training"})
    own = tmp_path / "control" / "m" / "report"
    own.unlink()
    own.symlink_to(own)

    def judged() -> bool:
        reports = runtime.reports(["run-1", "run-2"])
        return [reports[run_id].state for run_id in ("run-1", "run-2")] == ["malformed", "training"]

    until(judged)


def test_a_machine_that_damages_its_own_order_is_judged_even_if_it_is_the_only_one(
    runtime: NodeRuntime, open_runtime: Callable[[], NodeRuntime], machine: Machine
) -> None:
    """Nothing is wrong with the store: the run fails, instead of training unseen for ever."""
    machine.introduce()
    runtime.prepare("run-1", "m")
    machine.says("run-1", {"state": "training"}, order=1)
    until(lambda: state(runtime) == "training")
    (machine.channel._store.put("m/order", b"{"))
    successor = open_runtime()
    successor.lead(2)
    until(lambda: state(successor) == "malformed")


@pytest.mark.parametrize("words", [b"", b"\xff\xfe \x00 9", b"m 0", b"m 12345", b"../m", b"m\n"])
def test_a_run_whose_machines_are_not_known_is_judged_even_if_it_is_the_only_one(
    runtime: NodeRuntime, open_runtime: Callable[[], NodeRuntime], machine: Machine, words: bytes
) -> None:
    machine.introduce()
    runtime.prepare("run-1", "m")
    machine.says("run-1", {"state": "training"}, order=1)
    machine.channel._store.put("runs/run-1", words)
    successor = open_runtime()
    until(lambda: state(successor) == "malformed")
    successor.forget("run-1")
    assert successor.known() == []


def test_a_damaged_key_is_refused(runtime: NodeRuntime, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"")
    with pytest.raises(SiteError, match="is damaged: it has 0 bytes, not 32") as caught:
        runtime.bootstrap(token="m")
    assert "delete it" in caught.value.hint
