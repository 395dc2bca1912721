"""A machine that has nothing but its user data, and the control plane's end of it: a NodeRuntime without an engine.

The machine is a session of processes with an empty environment and a home of its own; the bucket enforces what each key
may do.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.engine.node_runtime import NodeRuntime
from orchestrator.engine.runtime import RunReport, RunSpec
from orchestrator.nodes.access.issuing import Issuer
from orchestrator.nodes.access.lending import Lender
from orchestrator.nodes.boot.launching import Launching, Remote
from orchestrator.nodes.channel import control_store
from orchestrator.nodes.key_file import KeyFile
from orchestrator.nodes.messages import JobFiles
from orchestrator.nodes.packing import contents, pack
from orchestrator.nodes.unpacking import code_key
from tests.clouds.server import LoopbackServer
from tests.e2e.living import PROGRAMS, until
from tests.machines_from_nothing import Host, in_session
from trainers.checkpoint.fences import write_fence
from trainers.objects.opening import open_store
from trainers.spec import TrainerSpec

TOKEN, JOB, RUN = "launch-1", "job-1", "run-1"
PLACE = f"jobs/install/{JOB}"
JOBS_SECRET = "correct-horse-battery-staple-4712"
GZIP = b"\x1f\x8b"


@dataclass
class World:
    """One machine, and what it was made from. `root` is the URL of the installation's place in the bucket."""

    folder: Path
    server: LoopbackServer
    root: str
    runtime: NodeRuntime
    key: KeyFile
    host: Host
    user_data: str

    def report(self) -> RunReport | None:
        return self.runtime.reports([RUN]).get(RUN)

    def reaches(self, state: str) -> RunReport:
        def look() -> RunReport | None:
            assert self.runtime.boot_error(TOKEN) is None, self.runtime.boot_error(TOKEN)
            assert self.host.process is not None
            assert self.host.process.poll() is None, self.host.said()
            found = self.report()
            assert found is None or found.error is None, found.error
            return found if found is not None and found.state == state else None

        found = until(f"the run is {state}", look)
        assert found is not None
        return found

    def processes(self) -> dict[int, str]:
        assert self.host.process is not None
        return dict(in_session(self.host.process.pid))

    def train(self) -> None:
        """Prepare a run, and start it."""
        until("the machine has joined", lambda: self.runtime.joined(TOKEN))
        archive = io.BytesIO()
        digest = pack(contents(PROGRAMS), archive)
        open_store(f"{self.root}/{PLACE}").put(code_key(digest), archive.getvalue())
        self.runtime.prepare(RUN, TOKEN, files=JobFiles(PLACE, digest))
        self.reaches("prepared")
        spec = TrainerSpec(
            job_id=JOB,
            run_id=RUN,
            generation=1,
            attempt=1,
            checkpoint_root=f"{self.root}/checkpoints",
            control_dir="",
            output_dir="",
            workdir="",
            entry="talks:main",
            args={"hurry": str(self.folder / "hurry")},
            steps=100_000,
        )
        self.runtime.start(RunSpec(RUN, JOB, 1, spec.to_json(), {"JOBS_SECRET": JOBS_SECRET}))
        self.reaches("restored")
        write_fence(f"{self.root}/checkpoints", JOB, 1, None)
        self.reaches("training")

    def where(self, *wanted: str) -> list[str]:
        """The places whose bytes contain one of these: the store, files, the console, arguments, what any process was
        started with."""
        places = dict(self._objects()) | {str(path): path.read_bytes() for path in _files(self.folder)}
        for pid in self.processes():
            places |= {f"/proc/{pid}/{name}": _read(f"/proc/{pid}/{name}") for name in ("cmdline", "environ")}
        asked = [each for each in self.server.requests if each.path != "/v1/token"]  # Google's is given a token
        places["requests"] = b"".join(request.path.encode() + request.body for request in asked)
        return [place for place, data in places.items() if any(each.encode() in data for each in wanted)]

    def _objects(self) -> Iterator[tuple[str, bytes]]:
        store = open_store(self.root)
        for listed in store.list():
            found = store.get(listed.key, 1 << 30)  # a log may have grown since
            if found is not None:
                yield listed.key, gzip.decompress(found.data) if found.data.startswith(GZIP) else found.data


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.suffix not in (".py", ".pyc", ".so"):
            yield path


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:  # gone meanwhile
        return b""


@contextmanager
def machine(folder: Path, server: LoopbackServer, root: str) -> Iterator[World]:
    """A machine that boots, in an environment that leads to the server of `root`."""
    key, issuer = KeyFile(folder / "key"), Issuer()
    launching = Launching(root, "install", key, issuer)
    store = control_store(f"{root}/control/install")
    runtime = NodeRuntime(
        store,
        key=key,
        runs_dir=folder / "runs",
        environments=folder / "environments",
        temp_dir=folder / "ray",
        lease_s=60.0,
        launching=launching,
        lender=Lender(store, issuer, launching.scope),
    )
    host = Host(folder)
    user_data = runtime.bootstrap(token=TOKEN, remote=Remote(JOB, RUN, f"{root}/checkpoints"))
    host.boot(user_data)
    try:
        yield World(folder, server, root, runtime, key, host, user_data)
    finally:
        host.end()
        runtime.close()
