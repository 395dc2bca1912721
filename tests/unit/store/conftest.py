"""A store in a real file and in a real Postgres, a stopped clock, and rows to put into it.

Whatever asks for `url` or `store` runs on both; `only_sqlite` keeps those that are about a file to one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from orchestrator.model import Entry, Event, Job, JobSpec, Migration, Run, Step, TrainSpec
from orchestrator.store import Store
from providers.clock import VirtualClock
from providers.offer import CapacityType, Offer
from tests.postgres import Server

T0 = 1_700_000_000_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(T0)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    """The kind of database; overridden by `only_sqlite` and its like."""
    return str(request.param)


_NUMBERS = count(1)


@pytest.fixture
def url(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Where there is no store yet; where the test asks for `store` too, it lies there."""
    made = "store" in request.fixturenames
    if database == "sqlite":
        if made:
            shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "tradewind.db")
        yield f"sqlite:///{tmp_path}/tradewind.db"
        return
    if made:
        scratch: ScratchDatabase = request.getfixturevalue("scratch")
        yield scratch.url
        scratch.wipe()
        return
    server: Server = request.getfixturevalue("postgres")
    name = f"store_{next(_NUMBERS)}"
    yield server.create(name)
    server.drop(name)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store, made once: copying it is ten times faster than making one for each test."""
    path = tmp_path_factory.mktemp("template") / "tradewind.db"
    Store.open(f"sqlite:///{path}", VirtualClock(T0)).close()
    return path


class ScratchDatabase:
    """An empty store in a database that is wiped after each test: copying one takes many times as long."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._name = f"store_{next(_NUMBERS)}"
        self.url = server.create(self._name)
        Store.open(self.url, VirtualClock(T0)).close()
        self._shape = server.sql(_SHAPE, self._name)

    def wipe(self) -> None:
        """Empty the tables; begin again if the test has made others."""
        self._server.sql(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{self._name}'")
        if self._server.sql(_SHAPE, self._name) == self._shape:
            self._server.sql(_WIPE, self._name)
        else:
            self._server.drop(self._name)
            self.__init__(self._server)  # type: ignore[misc]


_SHAPE = """
SELECT version_num, relname, relnamespace, relnatts, pg_class.oid FROM pg_class, schema_revision
WHERE relnamespace >= 'public'::regnamespace AND relkind IN ('r', 'i', 'S') ORDER BY pg_class.oid
"""
_WIPE = """
DO $$ DECLARE each text; BEGIN
  SET LOCAL session_replication_role = replica;
  FOR each IN SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
    AND relname NOT IN ('meta', 'schema_revision', 'leader') LOOP EXECUTE format('DELETE FROM %I', each);
  END LOOP;
  FOR each IN SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'S'
    LOOP EXECUTE format('ALTER SEQUENCE %I RESTART', each);
  END LOOP;
  DELETE FROM meta WHERE key <> 'install_id';
  UPDATE leader SET epoch = 0, beat = 0, holder = NULL;
END $$
"""


@pytest.fixture(scope="session")
def scratch(postgres: Server) -> ScratchDatabase:
    return ScratchDatabase(postgres)


@pytest.fixture
def store(url: str, clock: VirtualClock) -> Iterator[Store]:
    opened = Store.open(url, clock)
    yield opened
    opened.close()


@pytest.fixture
def job() -> Callable[..., Job]:
    def make(job_id: str = "job_A", name: str = "gpt", project: str = "default", at_ms: int = T0) -> Job:
        train = TrainSpec(
            entry="train:main",
            script=None,
            args={"layers": 4},
            workdir="/w",
            env={},
            secrets=("KEY",),
            steps=100,
            epochs=None,
        )
        return Job(job_id, JobSpec(name=name, train=train, project=project), "ann", at_ms, "queued")

    return make


@pytest.fixture
def run() -> Callable[..., Run]:
    def make(run_id: str = "run_A", job_id: str = "job_A", generation: int = 1, **fields: Any) -> Run:
        values: dict[str, Any] = {
            "offer_id": "fake/r/z/t/spot",
            "instance_id": None,
            "state": "provisioning",
            "created_at_ms": T0,
        }
        return Run(run_id, job_id, generation, **values | fields)

    return make


@pytest.fixture
def migration() -> Callable[..., Migration]:
    def make(migration_id: str = "mig_A", run_id: str = "run_A", job_id: str = "job_A", **fields: Any) -> Migration:
        values: dict[str, Any] = {
            "source_run_id": None,
            "target_run_id": run_id,
            "offer_id": "fake/r/z/t/spot",
            "generation": 1,
            "reason": "first placement",
            "step": Step.PROVISION,
            "attempt": 1,
            "token": f"token-{migration_id}",
            "created_at_ms": T0,
            "step_at_ms": T0,
        }
        return Migration(migration_id, job_id, **values | fields)

    return make


@pytest.fixture
def offer() -> Callable[..., Offer]:
    def make(zone: str = "z1", provider: str = "fake", vcpu: int = 8) -> Offer:
        return Offer(provider, "r", zone, "t", "V100", 1, vcpu, 64, CapacityType.SPOT)

    return make


@pytest.fixture
def event() -> Callable[..., Event]:
    def make(event_id: str, **fields: Any) -> Event:
        values: dict[str, Any] = {"at_ms": T0, "kind": "job.submitted", "message": "submitted", "actor": "user:ann"}
        return Event(event_id, **values | fields)

    return make


@pytest.fixture
def entry() -> Callable[..., Entry]:
    def make(entry_id: str, start_ms: int = T0, amount: int = 7, **fields: Any) -> Entry:
        values: dict[str, Any] = {
            "run_id": "run_A",
            "job_id": "job_A",
            "period_start_ms": start_ms,
            "period_end_ms": start_ms + 1000,
            "kind": "compute",
            "amount_nano_usd": amount,
            "basis": "estimated",
            "offer_id": "fake/r/z/t/spot",
            "at_ms": T0,
        }
        return Entry(entry_id, **values | fields)

    return make


@pytest.fixture
def other_process(url: str) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Start `code` in another process with `store` open on the same file; it may talk through stdin and stdout."""
    started: list[subprocess.Popen[str]] = []
    head = (
        "import sys, os\n"
        "from orchestrator.store import Store\n"
        "from providers.clock import SystemClock\n"
        f"store = Store.open({url!r}, SystemClock())\n"
        "def say(word): print(word, flush=True)\n"
        "def hear(): return sys.stdin.readline()\n"
    )

    def start(code: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", head + code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
