"""A machine with folders of its own: the agent with a real process for the trainer, over a folder and over S3."""

from __future__ import annotations

import errno
import io
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.nodes import courier
from orchestrator.nodes.agent import Agent
from orchestrator.nodes.channel import Channel, Pace
from orchestrator.nodes.log_pieces import PieceReader, log_prefix, metrics_prefix
from orchestrator.nodes.messages import Ahead, JobFiles, NodeReport, Order, RunOrder
from orchestrator.nodes.outputs import OutputWriter, stored_outputs
from orchestrator.nodes.packing import contents, pack
from orchestrator.nodes.unpacking import code_key
from tests.clouds.s3 import S3, environment
from tests.clouds.server import serving
from tests.unit.nodes.conftest import Direct, Stub, until
from trainers.checkpoint import store
from trainers.checkpoint.manifest import Manifest, ManifestName, Piece, TensorEntry
from trainers.control import ControlDirectory
from trainers.errors import StoreUnavailable
from trainers.objects.base import ObjectStore
from trainers.objects.opening import open_store

PLACE = "jobs/install/job-1"
# Does what its order file says, one line of JSON after the other, until there is a last state.
TRAINER = """
import json, os, signal, socket, sys, time
os.chdir(sys.argv[1])
listener = socket.socket(socket.AF_UNIX)
listener.bind("trainer.sock")
listener.listen(1)
connection, _ = listener.accept()
line = connection.makefile("rw")
line.write('{"state": "prepared", "error": null}\\n'); line.flush()
order = json.loads(line.readline() or "null")
if order is None:
    sys.exit(0)
if "setup" in order:
    open("setup.json", "w").write(json.dumps(order["setup"]))
    line.write('{"state": "prepared", "error": null}\\n'); line.flush()
    order = json.loads(line.readline() or "null")
spec = order["spec"]
found = {name: open(spec["workdir"] + "/" + name).read() for name in os.listdir(spec["workdir"])}
before = {name: open(spec["output_dir"] + "/" + name).read() for name in os.listdir(spec["output_dir"])}
run = os.path.dirname(spec["control_dir"])
open("found.json", "w").write(json.dumps({"spec": spec, "code": found, "outputs": before}))
number = 0
while True:
    path = spec["args"]["todo"] + f"/{number}"
    if not os.path.exists(path):
        time.sleep(0.01)
        continue
    todo, number = json.load(open(path)), number + 1
    open(run + "/log", "a").write(todo.get("log", ""))
    open(run + "/metrics.jsonl", "a").write(todo.get("metrics", ""))
    for name, text in todo.get("outputs", {}).items():
        open(spec["output_dir"] + "/" + name, "w").write(text)
    open(spec["control_dir"] + "/.progress", "w").write(json.dumps(todo["progress"]))
    os.rename(spec["control_dir"] + "/.progress", spec["control_dir"] + "/progress.json")
    if todo["progress"]["state"] in ("finished", "failed"):
        line.readline()
        sys.exit(0)
"""


class Remote(Stub):
    """Its trainer writes what the test asks for."""

    def command(self) -> list[str]:
        return [*super().command()[:3], TRAINER, str(self.folder)]


class Far:
    """The control plane's end, and a machine that shares only the store with it."""

    def __init__(self, root: ObjectStore, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(courier, "LOOK_S", 0.01)
        self.root, self.job = root, root.child(PLACE)
        self.todo, self.number, self.orders = folder / "todo", 0, 0
        self.todo.mkdir()
        code = folder / "code"
        code.mkdir()
        (code / "main.py").write_text("print('trains')")
        archive = io.BytesIO()
        self.digest = pack(contents(code), archive)
        self.archive = archive.getvalue()
        self.job.put(code_key(self.digest), self.archive)
        instance = folder / "machine"
        instance.mkdir()
        self.machine, self.crew = Remote(instance), Direct(folder / "ray")
        control = root.child("control/install")
        self.plane = Channel(control, "m")
        self.agent = Agent(self.plane, Pace(0.0, 0.0, 0.0, 0.0), self.crew, self.machine, root=root)
        self.agent.introduce("boot-token")

    def order(
        self,
        run_id: str | None = "run-1",
        *,
        train: bool = False,
        generation: int = 1,
        ahead: Ahead | None = None,
        **changed: Any,
    ) -> None:
        self.orders += 1
        spec = {
            **dict.fromkeys(("control_dir", "output_dir", "workdir"), ""),
            "generation": generation,
            "args": {"todo": str(self.todo)},
        }
        files = JobFiles(PLACE, self.digest, ahead=ahead)
        run = None if run_id is None else RunOrder(run_id, files=files, spec=spec if train else None, **changed)
        self.plane.replace_order(Order(self.orders, 60.0, run), self.plane.order()[1])

    def do(self, state: str, **asked: Any) -> None:
        """Have the trainer write and report."""
        progress = {"state": state, "step": 3, **asked.pop("progress", {})}
        (self.todo / ".new").write_text(json.dumps({**asked, "progress": progress}))
        (self.todo / ".new").rename(self.todo / f"{self.number}")
        self.number += 1

    def look(self) -> NodeReport | None:
        self.agent.exchange()
        self.agent.look()
        return self.plane.report()

    def said(self) -> dict[str, Any]:
        report = self.look()
        return {} if report is None or report.said is None else dict(report.said)

    def until(self, state: str) -> dict[str, Any]:
        until(f"it reports {state}", lambda: self.said().get("state") == state)
        return self.said()

    def found(self) -> dict[str, Any]:
        return json.loads((self.machine.folder / "found.json").read_text())

    def log(self, run_id: str = "run-1", prefix: Callable[..., str] = log_prefix) -> bytes:
        return b"".join(PieceReader(self.job, prefix(run_id)).news())

    def outputs(self) -> dict[str, bytes]:
        contents = {path: self.job.get(each.key, 1 << 20) for path, each in stored_outputs(self.job).items()}
        return {path: found.data for path, found in contents.items() if found is not None}


@pytest.fixture(scope="module")
def s3() -> Iterator[tuple[S3, dict[str, str]]]:
    s3 = S3()
    with serving(s3) as server:
        yield s3, environment(server)


@pytest.fixture(params=["folder", "bucket"])
def far(
    request: pytest.FixtureRequest,
    s3: tuple[S3, dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Far]:
    url = str(tmp_path / "store")
    if request.param == "bucket":
        s3[0].ensure_bucket()
        for name, value in s3[1].items():
            monkeypatch.setenv(name, value)
        url = f"s3://{s3[0].bucket}/{tmp_path.name}"
    monkeypatch.setenv("TRADEWIND_INSTANCE_DIR", str(tmp_path / "machine"))
    monkeypatch.delenv("TRADEWIND_METADATA", raising=False)
    far = Far(open_store(url), tmp_path, monkeypatch)
    yield far
    far.order(None)
    far.look()
    far.machine.end()


def test_a_run_works_in_the_machines_own_folders_and_leaves_everything_in_the_store(far: Far) -> None:
    far.order()
    assert far.until("prepared")["state"] == "prepared"
    far.order(train=True)
    far.do("training", log="hello\n", metrics='{"step": 1}\n')
    far.until("training")
    found = far.found()
    assert found["code"] == {"main.py": "print('trains')"}
    own = str(far.machine.folder)
    assert all(found["spec"][name].startswith(own) for name in ("control_dir", "output_dir", "workdir"))
    until("the log arrives", lambda: far.log() == b"hello\n")
    far.do("finished", log="bye\n", metrics='{"step": 2}\n', outputs={"model.pt": "weights"})
    assert far.until("finished")["step"] == 3
    assert far.log() == b"hello\nbye\n"
    assert far.log(prefix=metrics_prefix) == b'{"step": 1}\n{"step": 2}\n'
    assert far.outputs() == {"model.pt": b"weights"}


def test_the_next_run_has_the_outputs_so_far(far: Far) -> None:
    far.job.put("outputs/1/history.csv", b"of another machine")
    far.order(train=True, generation=2)
    far.do("failed", outputs={"history.csv": "longer"})
    far.until("failed")
    assert far.found()["outputs"] == {"history.csv": "of another machine"}
    assert far.outputs() == {"history.csv": b"longer"}


def test_outputs_are_shipped_at_each_checkpoint(far: Far) -> None:
    far.order(train=True)
    far.do("training", outputs={"a": "1"}, progress={"manifest": "1-1-1"})
    until("the first arrives", lambda: far.said() and far.outputs() == {"a": b"1"})
    far.do("training", outputs={"a": "changed", "b": "new"}, progress={"manifest": "1-2-1"})
    until("the next arrive", lambda: far.said() and far.outputs() == {"a": b"changed", "b": b"new"})


def test_a_set_up_gets_the_code_and_folders_of_the_machine(far: Far) -> None:
    far.order(setup={"root": "", "log": "", "workdir": "", "command": "true"})
    far.until("prepared")
    setup = json.loads((far.machine.folder / "setup.json").read_text())
    assert (Path(setup["workdir"]) / "main.py").exists()
    assert setup["command"] == "true"
    assert Path(setup["log"]).parent == far.machine.folder / "runs" / "run-1"
    assert setup["root"].startswith(str(far.machine.folder))


def test_code_that_does_not_fit_on_the_disk_is_the_machines_failure(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    def unpacked(*_: object) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(courier, "unpacked", unpacked)
    far.order()
    said = far.until("failed")
    assert "disk is full" in said["error"]
    assert not said.get("setup_failed")
    assert not said.get("permanent")


@pytest.mark.parametrize("missing", [True, False])
def test_code_that_is_missing_or_damaged_fails_the_run_and_says_so(far: Far, missing: bool) -> None:
    if missing:
        far.job.delete(code_key(far.digest))
    else:
        far.job.put(code_key(far.digest), far.archive[:-10])
    far.order()
    said = far.until("failed")
    assert said["setup_failed"]
    assert said["permanent"]
    assert ("no longer in the store" if missing else "damaged") in said["error"]
    assert "submit the job again" in said["error"]


def checkpoint(far: Far) -> Ahead:
    """A checkpoint of four bytes, which a machine may fetch ahead for the next run."""
    store.prepare(far.root, "job-1")
    store.write_fence(far.root, "job-1", 1, None)
    chunk = store.write_chunk(far.root, "job-1", b"lora", 1)
    entry = TensorEntry("weights", "uint8", (4,), (Piece(chunk, 0, 4),))
    store.commit(far.root, Manifest("job-1", ManifestName(1, 5, 1), 1, {}, {}, (entry,), {}))
    return Ahead(far.root.url, "job-1", 2, trains=False)


def test_what_a_run_will_restore_is_fetched_while_it_is_prepared_and_deleted_once_it_trains(far: Far) -> None:
    ahead = checkpoint(far)
    far.order(ahead=ahead)
    far.until("prepared")
    until("it is fetched", lambda: far.said().get("fetching") is False)
    assert far.said()["fetched_bytes"] == 4
    far.order(train=True, generation=2, ahead=ahead)
    far.do("restored")
    far.until("restored")
    folder = Path(far.found()["spec"]["fetched"])
    assert [path.read_bytes() for path in folder.iterdir()] == [b"lora"]
    far.do("training")
    assert "fetching" not in far.until("training")
    until("it is deleted", lambda: not folder.exists())


def test_a_run_that_ends_before_it_trains_leaves_nothing_that_was_fetched(far: Far) -> None:
    far.order(ahead=checkpoint(far))
    until("it is fetched", lambda: far.said().get("fetched_bytes") == 4)
    far.order(None)
    far.look()
    until("it is deleted", lambda: [*(far.machine.folder / "fetched").iterdir()] == [])


@pytest.mark.parametrize("needs", ["the code", "the outputs"])
def test_what_was_fetched_is_deleted_if_the_job_needs_its_room(
    far: Far, needs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = far.machine.folder / "fetched"
    of, name = (courier, "unpacked") if needs == "the code" else (OutputWriter, "take_over")
    possible = getattr(of, name)

    def full(*arguments: Any) -> Any:
        if not tried:
            until("it is fetched", lambda: [*fetched.glob("*/*")])
        tried.append(True)
        if [*fetched.glob("*/*")]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return possible(*arguments)

    tried = list[bool]()
    monkeypatch.setattr(of, name, full)
    far.order(ahead=checkpoint(far))
    far.until("prepared")
    far.order(train=True, generation=2)
    far.do("training")
    far.until("training")
    assert len(tried) == 2


def test_checkpoints_that_cannot_be_fetched_hold_nothing_up(far: Far) -> None:
    far.order(ahead=Ahead("s3://nowhere-at-all/x", "job-1", 2, trains=True))
    far.until("prepared")
    far.order(train=True, generation=2)
    far.do("training")
    far.until("training")


def test_while_the_store_is_down_training_goes_on_and_the_end_waits(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    far.order(train=True)
    far.do("training")
    far.until("training")
    sent = far.agent._courier
    assert sent is not None
    down = True
    for name in ("put", "put_file"):
        method = getattr(sent._store, name)

        def failing(*args: Any, method: Callable[..., object] = method) -> object:
            if down:
                raise StoreUnavailable("no answer")
            return method(*args)

        monkeypatch.setattr(sent._store, name, failing)
    control = ControlDirectory(sent.run_dir / "control")
    far.do("training", log="one\n", progress={"step": 4})
    until("it goes on", lambda: far.said().get("step") == 4)
    far.agent._leased_at = float("-inf")
    before = control.lease_until()
    far.look()
    after = control.lease_until()
    assert before is not None
    assert after is not None
    assert after > before, "the lease waits for the log"
    far.do("finished", log="two\n", outputs={"model.pt": "weights"}, progress={"weights_hash": "abc"})
    until("it has ended", lambda: (found := control.progress()) is not None and found.state == "finished")
    for _ in range(5):
        said = far.said()
        assert (said["state"], said["weights_hash"]) == ("training", None), "the control plane would end the machine"
        assert said["ships"], "nor may it, when the run's other machines have ended"
    down = False
    assert far.until("finished")["weights_hash"] == "abc"
    assert far.log() == b"one\ntwo\n"
    assert far.outputs() == {"model.pt": b"weights"}


@pytest.mark.parametrize("state", ["finished", "quiesced"])
def test_a_store_that_stays_down_holds_an_end_back_for_a_bounded_time_and_a_handover_for_ever(
    far: Far, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    far.order(train=True)
    far.do("training")
    far.until("training")
    sent = far.agent._courier
    assert sent is not None
    now = sent._monotonic()
    monkeypatch.setattr(sent, "_monotonic", lambda: now)

    def failing(*_args: Any) -> None:
        raise StoreUnavailable("no answer")

    for name in ("put", "put_file"):
        monkeypatch.setattr(sent._store, name, failing)
    far.do(state, log="lost\n", outputs={"a": "lost"})
    control = ControlDirectory(sent.run_dir / "control")
    until("it has ended", lambda: (found := control.progress()) is not None and found.state == state)
    assert far.said()["state"] == "training"
    assert far.said()["ships"] is (state == "finished")
    now += courier.STUCK_S - 1.0
    assert far.said()["state"] == "training"
    now += 2.0
    assert far.said()["state"] == ("finished" if state == "finished" else "training")


def test_a_machine_lets_go_of_a_run_when_all_of_it_is_stored(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control plane ends the machine of a cancelled job then: the last lines of its log are often the reason."""
    far.order(train=True)
    far.do("training")
    far.until("training")
    sent = far.agent._courier
    assert sent is not None
    let_go, put = threading.Event(), sent._store.put

    def slow(key: str, data: bytes) -> None:
        let_go.wait()
        put(key, data)

    monkeypatch.setattr(sent._store, "put", slow)
    far.do("training", log="the last words\n", progress={"step": 4})
    log = sent.run_dir / "log"
    until("it has written", lambda: log.exists() and log.stat().st_size > 0)
    far.order(None)
    for _ in range(3):
        report = far.look()
        assert report is not None
        assert (report.order, report.run_id) == (far.orders - 1, None)
    let_go.set()
    until("it lets go", lambda: (report := far.look()) is not None and report.order == far.orders)
    assert far.log() == b"the last words\n"


def test_a_run_that_is_ended_at_once_still_ships_what_it_wrote(far: Far) -> None:
    far.order(train=True)
    far.do("training", log="said before the end\n", outputs={"a": "1"})
    far.until("training")
    far.order("run-2", train=True, generation=2)
    until("the rest arrives", lambda: far.look() and far.log() == b"said before the end\n" and far.outputs())
    assert far.outputs() == {"a": b"1"}


def test_a_machine_that_is_to_end_ships_what_there_is_at_once(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courier, "LOG_EVERY_S", 1e6)
    far.order(train=True)
    far.do("training", log="first\n")
    far.until("training")
    until("the first line arrives", lambda: far.log() == b"first\n")
    far.do("training", log="last\n", outputs={"a": "1"}, progress={"step": 4})
    until("it was written", lambda: far.said().get("step") == 4)
    far.agent.stop()
    until("everything arrives", lambda: far.look() and far.log() == b"first\nlast\n" and far.outputs())
    assert far.outputs() == {"a": b"1"}


def test_what_cannot_be_stored_is_in_the_log(far: Far) -> None:
    far.order(train=True)
    far.do("finished", outputs={"x" * 230: "1", "\udcff" * 230: "1", "z": "1"})
    far.until("finished")
    until("it is said", lambda: far.log().count(b"an output is not stored") == 2)
    assert far.outputs() == {"z": b"1"}


def test_an_order_that_names_other_folders_is_not_carried_out(far: Far) -> None:
    order = far.plane.order()
    files = JobFiles("jobs/install/job-1", "../../etc")
    for run in (RunOrder("run-1", files=files), RunOrder("../run", files=replace(files, code=far.digest))):
        far.orders += 1
        far.plane.replace_order(Order(far.orders, 60.0, run), far.plane.order()[1])
        report = far.look()
        assert report is None or report.run_id is None
    assert order is not None
