"""The command line on a state folder with a past, made once and copied for each test."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from typer import testing
from typer.main import get_command
from typer.testing import CliRunner, Result

from orchestrator.cli.app import app
from orchestrator.config import load_config
from orchestrator.installation import open_installation
from tests.unit.services.recorded_history import Past, record
from trainers.checkpoint import store
from trainers.checkpoint.manifest import Manifest, ManifestName, Piece, TensorEntry
from trainers.checkpoint.place import job_store

REPOSITORY = Path(__file__).parents[3]

Run = Callable[..., Result]

JOB_FILE = """\
name: fresh
train: {entry: "train:main", steps: 500}
resources: {gpu: [V100]}
expected: {gpu: V100, steps_per_s: 4.5}
"""

TASK_FILE = """\
name: fresh
workdir: .
resources: {accelerators: V100, use_spot: true, disk_size: 256}
run: echo $HOME && python train.py $HOME
"""

SCENARIO = """\
traces: [{path: market, on_demand: 3.06, spot: 0.92}]
jobs: [{work: 2h, ratio: 2, overhead: 12 min, checkpoint: 1 GB}]
starts: 2
policies: [greedy, deadline]
"""

RECORDED = """\
provider,region,instance_type,gpu,gpu_count,capacity_type,price_per_hour,effective_at
aws,r,p5,H100,8,spot,8,2026-01-01
"""


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Past]:
    folder = tmp_path_factory.mktemp("recorded") / "state"
    installation = open_installation(load_config({"state_dir": str(folder), "providers.enabled": "fake"}, environ={}))
    try:
        past = record(installation)
        for left in (
            f"jobs/{installation.store.install_id}/job_0/workdir/abc.tar.gz",
            f"runtime/{'5' * 32}/runtime.zip",
        ):
            (folder / left).parent.mkdir(parents=True)
            (folder / left).write_bytes(b"of another year")
            os.utime(folder / left, (0, 0))
        saved(folder / "checkpoints", past.gpt)
        installation.store.backup(folder / "saved.db")
    finally:
        installation.close()
    return folder, past


def saved(root: Path, job: str) -> None:
    """Two checkpoints of generation 3 with most of their data in common, and one that does not count."""
    store.prepare(root, job)
    for generation in (1, 3):
        store.write_fence(root, job, generation, None)
    for generation, step, loss in ((3, 800, 0.5), (3, 1000, 0.25), (1, 390, 0.75)):
        tensors = []
        for number, data in enumerate((b"the same", f"{generation}-{step}".encode())):
            piece = Piece(store.write_chunk(root, job, data, generation), 0, len(data))
            tensors.append(TensorEntry(f"model.{number}", "uint8", (len(data),), (piece,)))
        name, about = ManifestName(generation, step, 1), {"saved_at": 1.75e9 + step, "loss": loss}
        items = {"model": {"weight": {"$": "tensor", "v": 0}, "tied": {"$": "tensor", "v": 0}, "rows": [1, 2]}}
        position = {"epochs_done": 2, "steps_done": step}
        manifest = Manifest(job, name, 1, position, items, tuple(tensors), {}, about=about)
        job_store(root, job).put(store.manifest_key(name), manifest.to_bytes())


@pytest.fixture
def past(recorded: tuple[Path, Past]) -> Past:
    return recorded[1]


@pytest.fixture
def state(recorded: tuple[Path, Past], tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded[0], tmp_path / "state"))


@pytest.fixture
def environment(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A working folder with a job file, and settings in the environment, for this process and for others."""
    (tmp_path / "job.yaml").write_text(JOB_FILE)
    (tmp_path / "train.py").write_text("def main(**args): pass\n")
    (tmp_path / "task.yaml").write_text(TASK_FILE)
    (tmp_path / "recorded.csv").write_text(RECORDED)
    (tmp_path / "rates.csv").write_text("job,gpu,gpu_count,steps_per_s\nfresh,V100,1,4.5\n")
    (tmp_path / "market").mkdir()
    series = {"metadata": {"gap_seconds": 600}, "data": [1] * 20 + [0] * 4 + [1] * 16}
    (tmp_path / "market" / "us-east-1a_v100_1.json").write_text(json.dumps(series))
    (tmp_path / "arena.yaml").write_text(SCENARIO)
    monkeypatch.chdir(tmp_path)
    settings = {"TRADEWIND_STATE_DIR": str(state), "TRADEWIND_PROVIDERS_ENABLED": "fake", "TERM": "dumb"}
    for name in ("TRADEWIND_DEBUG", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return {**os.environ, **settings}


@pytest.fixture(scope="session", autouse=True)
def _one_tree_of_commands() -> Iterator[None]:
    """What typer makes of the functions is the same for each call; for a short command it is most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(testing, "_get_command", cache(get_command))
        yield


@pytest.fixture
def tradewind(environment: dict[str, str]) -> Run:
    runner = CliRunner()

    def run(*arguments: str) -> Result:
        return runner.invoke(app, list(arguments), prog_name="tradewind")

    return run


def a_control_plane_runs(state: Path) -> None:
    """As the store tells it: this very process leads."""
    from orchestrator.store import Store
    from providers.clock import SystemClock

    store = Store.open(f"sqlite:///{state}/tradewind.db", SystemClock())
    assert store.campaign("test") is not None
    store.close()
