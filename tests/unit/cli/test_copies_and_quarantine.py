"""What the command line says and does about copies of a store, machines that it did not rent, and quarantine."""

from __future__ import annotations

import json
import random
import re
import shlex
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import Result

from orchestrator.config import Config, load_config
from orchestrator.engine.machines import claims
from orchestrator.errors import NotFoundError, SupersededError, UsageError
from orchestrator.installation import open_installation
from providers.base import LaunchSpec
from providers.procfs import process_start
from tests.unit.services.recorded_history import Past

Run = Callable[..., Result]
OFFER = "local/north/north-a/sim.small/on_demand"


@pytest.fixture
def on_this_host(environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A fresh installation on the local provider, which the command line uses from now on."""
    settings = {"TRADEWIND_STATE_DIR": str(tmp_path / "here"), "TRADEWIND_PROVIDERS_ENABLED": "local"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return load_config(environ={**environment, **settings}, cwd=tmp_path)


def act(config: Config) -> None:
    """As a control plane does when it begins."""
    with closing(open_installation(config)) as installation:
        leadership = installation.store.campaign("test")
        assert leadership is not None
        assert claims.renew(installation, leadership, installation.providers["local"], random.Random())
        installation.store.resign(leadership)


def check(tradewind: Run, name: str) -> dict[str, str]:
    checks = json.loads(tradewind("doctor", "--output", "json").stdout)["checks"]
    (found,) = (each for each in checks if each["name"] == name)
    return dict(found)


def test_a_copy_of_a_store_takes_over_after_adopt_and_not_before(
    on_this_host: Config, tradewind: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    act(on_this_host)
    assert tradewind("store", "backup", "copy.db").exit_code == 0
    act(on_this_host)
    monkeypatch.setenv("TRADEWIND_STORE_URL", f"sqlite:///{tmp_path}/copy.db")
    before = check(tradewind, "installation")
    assert before["state"] == "fail"
    assert "tradewind store adopt" in before["fix"]
    asked = tradewind("store", "adopt")
    assert (asked.exit_code, check(tradewind, "installation")["state"]) == (UsageError.exit_code, "fail")
    assert "add --yes" in asked.stderr
    adopted = tradewind("store", "adopt", "--yes")
    assert adopted.exit_code == 0
    assert "takes over the machines" in adopted.output
    assert check(tradewind, "installation")["state"] == "ok"


def test_the_advice_about_a_copied_state_folder_works_as_it_is_written(
    on_this_host: Config, tradewind: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, copy = on_this_host.state_dir, tmp_path / "a copy"
    with closing(open_installation(on_this_host)) as installation:
        assert installation.store.campaign("original") is not None
    with subprocess.Popen(["sleep", "100"]) as original:
        waiting = threading.Thread(target=original.wait)
        waiting.start()
        with closing(sqlite3.connect(served / "tradewind.db")) as connection, connection:
            own = (original.pid, process_start(original.pid))
            connection.execute("UPDATE leader SET pid = ?, pid_start = ?", own)
        shutil.copytree(served, copy)
        refused = tradewind("--state-dir", str(copy), "up")
        assert refused.exit_code == SupersededError.exit_code
        commands = [shlex.split(each)[1:] for each in re.findall(r"`(tradewind [^`]*)`", refused.stderr)]
        assert commands == [
            ["--state-dir", str(served), "down", "--keep-jobs"],
            ["--state-dir", str(copy), "store", "adopt"],
            ["--state-dir", str(copy), "up"],
        ]
        end, adopt, up = commands
        assert tradewind(*end).exit_code == 0
        waiting.join(10)
        assert original.poll() is not None
        assert tradewind(*adopt, "--yes").exit_code == 0

        def refuse(*_arguments: object, **_more: object) -> None:
            raise OSError("no process can be started")

        monkeypatch.setattr(subprocess, "Popen", refuse)
        begun = tradewind(*up)
        assert "starting the control plane" in begun.stderr
        assert "no process can be started" in begun.stderr


def test_reap_ends_a_machine_that_the_store_did_not_rent_and_no_other(on_this_host: Config, tradewind: Run) -> None:
    with closing(open_installation(on_this_host)) as installation:
        tags = {"tradewind-install": installation.store.install_id}
        (instance_id,) = installation.providers["local"].launch(
            LaunchSpec("another's", OFFER, "exec sleep 100\n", tags)
        )
    try:
        reported = check(tradewind, "machines")
        assert reported["state"] == "warn"
        assert reported["fix"].endswith(f"tradewind reap {instance_id}")
        asked = tradewind("reap", instance_id)
        assert asked.exit_code == UsageError.exit_code
        assert check(tradewind, "machines")["state"] == "warn"
    finally:
        done = tradewind("reap", instance_id, "--yes")
    assert done.exit_code == 0
    assert "is being ended" in done.output
    again = tradewind("reap", instance_id, "--yes")
    assert again.exit_code == NotFoundError.exit_code
    assert instance_id in again.stderr


def test_status_queue_and_doctor_say_that_a_job_is_in_quarantine_and_what_broke(
    environment: dict[str, str], tradewind: Run, past: Past, tmp_path: Path
) -> None:
    with (
        closing(open_installation(load_config(environ=environment, cwd=tmp_path))) as installation,
        installation.store.write() as tx,
    ):
        tx.set_job_facts(past.conv, quarantine="place: ZeroDivisionError: by zero", quarantined_at_ms=past.start_ms)
        tx.set_job_state(past.conv, "paused")
    status = tradewind("status", "conv")
    assert status.exit_code == 0
    assert "in quarantine" in status.stdout
    assert "place: ZeroDivisionError: by zero" in status.stdout
    assert json.loads(tradewind("status", "conv", "--output", "json").stdout)["job"]["quarantine"].startswith("place: ")
    assert "quarantined" in tradewind("queue").stdout
    reported = check(tradewind, "jobs")
    assert reported["state"] == "fail"
    assert "tradewind resume conv" in reported["fix"]


def test_doctor_without_a_control_plane_tells_jobs_that_run_from_jobs_that_wait(
    tradewind: Run, state: Path, past: Past
) -> None:
    with closing(sqlite3.connect(state / "tradewind.db")) as connection, connection:
        connection.execute("UPDATE leader SET holder = NULL")
        connection.execute("UPDATE job SET state = 'paused' WHERE finished_at_ms IS NULL")
        connection.execute("UPDATE job SET state = 'running' WHERE id = ?", (past.conv,))
    assert check(tradewind, "control plane")["found"] == "not running, and 1 job runs unattended"
    with closing(sqlite3.connect(state / "tradewind.db")) as connection, connection:
        connection.execute("UPDATE job SET state = 'queued' WHERE id = ?", (past.lstm,))
    found = check(tradewind, "control plane")["found"]
    assert found == "not running, and 1 job runs unattended and 1 job waits for it"
