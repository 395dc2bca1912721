"""A whole Tradewind on this machine, for tests: its settings, processes and jobs, and waiting for things to happen.

Everything is looked at from outside: the store, the files of runs, /proc, the command line.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

from orchestrator import Client
from orchestrator.config import load_config
from orchestrator.installation import open_installation
from orchestrator.model import Job, Migration, Run
from orchestrator.nodes.channel import Channel, control_store, machines_of
from orchestrator.nodes.messages import NodeReport
from providers.local import LocalProvider
from providers.procfs import process_start
from trainers.control import ControlDirectory, Progress
from trainers.spec import TrainerSpec

PROGRAMS = Path(__file__).parent / "programs"
MAIN = (sys.executable, "-c", "from orchestrator.cli import main; main()")
STEPS = 400
PATIENCE_S = 200.0  # a condition that comes true costs none of it, however busy the machine
POLL_S = 0.2
SECRET = "correct-horse-battery-staple-4711"

T = TypeVar("T")


def until(what: str, look: Callable[[], T], patience_s: float = PATIENCE_S, poll_s: float = POLL_S) -> T:
    """What `look` returns as soon as that is something. Fails naming `what` when it takes too long."""
    give_up = time.monotonic() + patience_s
    while not (found := look()):
        assert time.monotonic() < give_up, f"waited {patience_s:.0f} s in vain until {what}"
        time.sleep(poll_s)
    return found


class Tradewind:
    """One installation below `folder`: `environment` is that of all its processes."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.state = folder / "state"
        self.work = folder / "work"
        self.work.mkdir()
        self.hurry = folder / "hurry"
        self.environment = os.environ | {
            "TRADEWIND_STATE_DIR": str(self.state),
            "TRADEWIND_PROVIDERS_LOCAL_HAZARD": "false",
            "TRADEWIND_POLICY_MAX_MIGRATIONS_PER_DAY": "0",  # no voluntary moves unless a test asks for them
            **settings,
        }
        self.config = load_config(environ=self.environment, cwd=folder)
        self.client = Client(self.config)
        self.installation = open_installation(self.config)
        self._control_planes: list[subprocess.Popen[bytes]] = []

    # Commands and processes

    def command(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run `tradewind ...`; it must exit with `code`."""
        done = subprocess.run(
            [*MAIN, *arguments], env=self.environment, cwd=self.work, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == code, f"{arguments} exited with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done

    def start_control_plane(self, *command: str) -> subprocess.Popen[bytes]:
        """A control plane as a child, without waiting for it."""
        with (self.state / "control-plane.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *(command or ("-m", "orchestrator.daemon"))],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._control_planes.append(process)
        return process

    def up(self) -> None:
        """Start a control plane and wait until it leads. Quicker than `tradewind up`."""
        pid = self.start_control_plane().pid
        until("the control plane leads", lambda: self.led_by(pid))

    @property
    def leader_pid(self) -> int:
        view = self.client.control_plane.status()
        assert view.pid is not None
        return view.pid

    def led_by(self, pid: int) -> bool:
        view = self.client.control_plane.status()
        return view.running and view.pid == pid

    def kill_control_plane(self) -> None:
        """kill -9, confirmed."""
        pid = self.leader_pid
        os.kill(pid, signal.SIGKILL)
        until("the control plane is dead", lambda: process_start(pid) is None)

    def end_control_plane(self) -> None:
        """As `tradewind down --keep-jobs` does."""
        self.client.control_plane.down(keep_jobs=True)

    @property
    def cloud(self) -> LocalProvider:
        provider = self.installation.providers["local"]
        assert isinstance(provider, LocalProvider)
        return provider

    # Jobs

    def submit(self, name: str, *, train: Mapping[str, object] | None = None, **fields: object) -> str:
        """Submit a job that trains tiny:main unless `train` of the job file says otherwise. Returns its id."""
        tiny = {"entry": "tiny:main", "steps": STEPS, "args": {"hurry": str(self.hurry_file(name))}}
        document = {
            "name": name,
            "train": {"workdir": str(PROGRAMS), **(train or tiny)},
            "resources": {"gpu": ["SIM-L"]},
            "capacity": ["on_demand"],  # of which there is always enough
            **fields,
        }
        path = self.work / f"{name}.yaml"
        path.write_text(json.dumps(document))  # JSON is YAML
        return self.client.jobs.submit(path).id

    def hurry_file(self, name: str) -> Path:
        return self.hurry.with_name(f"hurry-{name}")

    def finish(self, job_id: str) -> Job:
        """Let a tiny job run through; it must finish."""
        self.hurry_file(self.job(job_id).name).touch()
        return self.ended(job_id, "finished")

    def ended(self, job_id: str, state: str) -> Job:
        view = self.client.jobs.wait(job_id, timeout_s=PATIENCE_S)
        assert view.state == state, self.story(job_id)
        until("its machines are booked", lambda: not self.unsettled(job_id))
        return self.job(job_id)

    def job(self, job_id: str) -> Job:
        with self.installation.store.read() as tx:
            return tx.job(job_id)

    def error(self, job_id: str) -> str:
        with self.installation.store.read() as tx:
            return tx.job_facts(job_id).error or ""

    def log(self, job_id: str) -> str:
        """What its runs have written. Quicker than `tradewind logs`, which loads the libraries of a control plane."""
        return "\n".join(line.text for line in self.client.jobs.logs(job_id))

    def weights_hash(self, job_id: str) -> str | None:
        with self.installation.store.read() as tx:
            return tx.job_facts(job_id).weights_hash

    def runs(self, job_id: str) -> list[Run]:
        with self.installation.store.read() as tx:
            return sorted(tx.runs(job_id=job_id), key=lambda run: run.generation)

    def unsettled(self, job_id: str) -> list[Run]:
        with self.installation.store.read() as tx:
            return [run for run in tx.unsettled_runs() if run.job_id == job_id]

    def migrations(self, job_id: str) -> list[Migration]:
        with self.installation.store.read() as tx:
            return tx.migrations(job_id=job_id)

    def training(self, job_id: str, *, after: Run | None = None, steps: int = 5) -> Run:
        """The job's newest run, once it has trained `steps` steps (and is newer than `after`)."""

        def look() -> Run | None:
            run = next((run for run in reversed(self.runs(job_id)) if run.training_from_ms is not None), None)
            if run is None or (after is not None and run.generation <= after.generation):
                return None
            reported = self.progress(run)
            return run if reported is not None and reported.step >= reported.start_step + steps else None

        try:
            found = until(f"{self.job(job_id).name} trains", look)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story(job_id)}") from None
        assert found is not None
        return found

    def events(self, job_id: str, kind: str) -> list[str]:
        with self.installation.store.read() as tx:
            return [event.message for event in tx.events(job_id=job_id, kinds=(kind,))]

    def story(self, job_id: str) -> str:
        """Its audit trail, for the message of a test that failed."""
        with self.installation.store.read() as tx:
            return "\n".join(f"{event.kind}: {event.message}" for event in tx.events(job_id=job_id))

    # What runs say of themselves

    def progress(self, run: Run) -> Progress | None:
        return ControlDirectory(self.installation.run_dir(run.id) / "control").progress()

    def step(self, run: Run) -> int:
        reported = self.progress(run)
        return 0 if reported is None else reported.step

    def reported(self, run: Run, rank: int = 0) -> NodeReport:
        """What the agent of one of a run's machines reported last."""
        store = control_store(self.installation.control_root)
        report = Channel(store, machines_of(store, run.id)[rank]).report()
        assert report is not None
        return report

    def losses(self, job_id: str) -> dict[int, str]:
        """Step -> loss as hexadecimal; a step that was repeated must have had the same loss each time."""
        found: dict[int, str] = {}
        for run in self.runs(job_id):
            for step, loss in losses(self.installation.run_dir(run.id)):
                assert found.setdefault(step, loss) == loss, f"step {step} was repeated with another loss"
        return found

    def rented(self, job_id: str) -> set[str]:
        """Every machine that the cloud's own books know of for a job."""
        with closing(sqlite3.connect(self.state / "local" / "books.db")) as books:
            return {id for id, tags in books.execute("SELECT id, tags FROM instances") if job_id in tags}

    def other_offer(self, run: Run) -> str:
        """An on-demand offer of the same speed elsewhere: there is always room."""
        offers = [offer.id for offer in self.cloud.offers() if offer.gpu == "SIM-L" and not offer.spot]
        return next(offer for offer in offers if offer != run.offer_id)

    # Processes of a machine

    def processes(self, run: Run, name: str = "") -> dict[int, str]:
        """Pid -> command of every living process that has the environment of a run's instance, and `name` in its
        command."""
        mark = f"TRADEWIND_INSTANCE_ID={run.instance_id}".encode()
        return {pid: command for pid, command in _living(name) if mark in _read(pid, "environ").split(b"\0")}

    def session(self, leader: int) -> dict[int, str]:
        """Pid -> command of every living process of a session."""
        return {pid: command for pid, command in _living() if _read_session(pid) == leader}

    def agent(self, run: Run) -> int:
        """The process that talks to the control plane."""
        return named(self.processes(run), "orchestrator.nodes.agent")

    def environment_of(self, pid: int) -> dict[str, str]:
        """The environment with which a process was started."""
        pairs = (line.decode(errors="replace").partition("=") for line in _read(pid, "environ").split(b"\0") if line)
        return {name: value for name, _, value in pairs}

    # The end

    def left_behind(self) -> list[str]:
        """Processes that were started by this installation and still live."""
        warnings = (f"TRADEWIND_STATE_DIR={self.state}".encode(), str(self.config.site.temp_dir).encode())
        found = [
            f"{pid} {command}"
            for pid, command in _living()
            if pid != os.getpid() and any(mark in _read(pid, "environ") + _read(pid, "cmdline") for mark in warnings)
        ]
        return found + [f"{pid} of an instance" for pid in self.cloud.processes_left()]

    def close(self) -> None:
        try:
            self.client.control_plane.down(force=True)
        finally:
            for process in self._control_planes:
                process.kill()
                process.wait()
            self.client.close()
            self.installation.close()


def losses(run_dir: Path) -> Iterator[tuple[int, str]]:
    """(step, loss) of one run; a line that a kill has cut is passed over."""
    path = run_dir / "metrics.jsonl"
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        yield row["step"], row["loss_hex"]


def alive(pid: int) -> bool:
    """Whether there is such a process; a zombie is none."""
    return process_start(pid) is not None


def named(processes: Mapping[int, str], name: str) -> int:
    """The one process whose command has `name` in it."""
    (pid,) = [pid for pid, command in processes.items() if name in command]
    return pid


def listening(pids: Collection[int]) -> set[tuple[str, int]]:
    """(address as /proc/net writes it, port) of every TCP socket on which these processes listen."""
    sockets = set()
    for pid in pids:
        with suppress(OSError):  # gone meanwhile
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    sockets.add(os.readlink(descriptor))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *fields = line.split()
            if state == "0A" and f"socket:[{fields[5]}]" in sockets:
                address, _, port = local.partition(":")
                found.add((address, int(port, 16)))
    return found


class Reference:
    """tiny:main without any interruption, in the background."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        hurry = folder / "hurry"
        (folder / "control").mkdir(parents=True)
        hurry.touch()
        TrainerSpec(
            job_id="reference",
            run_id="reference",
            generation=1,
            attempt=1,
            checkpoint_root=str(folder / "checkpoints"),
            control_dir=str(folder / "control"),
            output_dir=str(folder / "outputs"),
            workdir=str(PROGRAMS),
            entry="tiny:main",
            args={"hurry": str(hurry)},
            steps=STEPS,
        ).save(folder / "spec.json")
        self._process = subprocess.Popen(
            ["nice", sys.executable, "-m", "trainers.runner", str(folder / "spec.json"), "--standalone"],
            stderr=subprocess.DEVNULL,
        )

    def losses(self) -> dict[int, str]:
        assert self._process.wait(timeout=PATIENCE_S) == 0
        return dict(losses(self._folder))

    def weights_hash(self) -> str | None:
        reported = ControlDirectory(self._folder / "control").progress()
        return reported.weights_hash if reported is not None else None

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def _living(name: str = "") -> Iterator[tuple[int, str]]:
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        command = _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace")
        if name in command and alive(pid):
            yield pid, command


def _read_session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # gone meanwhile
        return b""
