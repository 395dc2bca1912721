"""A state folder, store or configuration that cannot be used, and a control plane that is stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

from orchestrator import errors
from tests.disks import mounted
from tests.unit.cli.conftest import REPOSITORY, Run


def test_a_control_plane_that_is_stopped_is_named_with_its_remedy(tradewind: Run, state: Path) -> None:
    """By SIGSTOP, or by Ctrl-Z where it runs in the foreground: it holds the lead and does nothing."""
    leads = (
        "import sys, pathlib, tests.unit.cli.conftest as tests; tests.a_control_plane_runs(pathlib.Path(sys.argv[1]))"
    )
    command = [sys.executable, "-c", f"{leads}; print(flush=True); input()", str(state)]
    shown = [("queue",), ("status", "conv"), ("doctor",), ("nodes",)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            assert not [typed for typed in shown if "is stopped" in tradewind(*typed).output]
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            for typed in (*shown, ("up",), ("wait", "conv", "--timeout", "0")):
                said = " ".join(tradewind(*typed).output.split())
                assert "is stopped" in said, typed
                assert f"kill -CONT {process.pid}" in said, typed
            assert tradewind("up").exit_code == 5  # a script goes on only where jobs are attended to
            assert json.loads(tradewind("status", "conv", "--output", "json").stdout)["control_plane"]["stopped"]
            process.send_signal(signal.SIGCONT)
            os.waitid(os.P_PID, process.pid, os.WCONTINUED)
            assert not [typed for typed in shown if "is stopped" in tradewind(*typed).output]
        finally:
            process.kill()


def test_a_full_disk_is_named_where_jobs_are_listed(tradewind: Run, state: Path, tmp_path: Path) -> None:
    """Their states are the last that could be stored."""
    small = tmp_path / "small"
    small.mkdir()
    with mounted(small, "size=30m"):
        shutil.copytree(state, small / "state")
        typed = ("--state-dir", str(small / "state"))
        assert "is full" not in tradewind(*typed, "queue").output
        with closing(sqlite3.connect(small / "state" / "tradewind.db")) as in_use:  # as by a control plane
            in_use.execute("SELECT count(*) FROM job").fetchone()
            with suppress(OSError), open(small / "other", "wb") as other:
                while True:
                    other.write(bytes(100_000))
            for command in (("queue",), ("status", "conv"), ("nodes",)):
                result = tradewind(*typed, *command)
                assert result.exit_code == 0, result.output
                assert "the disk of the state folder is full" in " ".join(result.output.split()), command
            checks = json.loads(tradewind(*typed, "doctor", "--output", "json").stdout)["checks"]
            (store,) = [each for each in checks if each["name"] == "store"]
            assert store["state"] == "fail"
            assert "the disk is full, so nothing can be stored" in store["found"]
            assert store["fix"].startswith("free some space at ")
            started = tradewind(*typed, "up")
            assert started.exit_code == 5, started.output
            assert "No space left on device" in started.stderr
            assert "hint: free some space" in started.stderr


@pytest.mark.parametrize("command", ["queue", "status conv", "offers", "costs", "events", "doctor", "up", "report"])
def test_a_full_disk_is_named_where_no_control_plane_runs(
    tradewind: Run, state: Path, tmp_path: Path, command: str
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    with mounted(small, "size=30m"):
        shutil.copytree(state, small / "state")
        typed = ("--state-dir", str(small / "state"))
        assert "is full" not in tradewind(*typed, "queue").output
        with suppress(OSError), open(small / "other", "wb", buffering=0) as other:
            while True:
                other.write(bytes(4096))
        result = tradewind(*typed, *command.split())
        assert result.exit_code != 0
        said = " ".join(result.output.split())
        assert "the disk is full" in said
        assert "free some space" in said


def test_a_read_only_state_folder_is_called_that_and_a_copy_of_it_can_be_read(
    tradewind: Run, state: Path, tmp_path: Path
) -> None:
    sealed, copy = tmp_path / "sealed", tmp_path / "copy"
    sealed.mkdir()
    with mounted(sealed, "size=30m"):
        shutil.copytree(state, sealed / "state")
        subprocess.run(["mount", "-o", "remount,ro", str(sealed)], check=True)
        for command in ("queue", "up", "offers"):
            refused = tradewind("--state-dir", str(sealed / "state"), command)
            assert refused.exit_code == 5
            assert f"error: the state folder {sealed / 'state'} is read-only" in refused.stderr
            assert "hint: make it writable; to look only, copy it: cp -r" in refused.stderr
        missing = tradewind("--state-dir", str(sealed / "new"), "queue")
        assert f"the state folder {sealed / 'new'} cannot be created: Read-only file system" in missing.stderr
        subprocess.run(["cp", "-r", str(sealed / "state"), str(copy)], check=True)
    assert "conv" in tradewind("--state-dir", str(copy), "queue").stdout


def test_a_file_in_place_of_the_state_folder_is_called_one(tradewind: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = tradewind("--state-dir", str(tmp_path / "file"), "queue")
    assert refused.exit_code == 5
    assert f"error: the state folder {tmp_path / 'file'} is a file\n" in refused.stderr
    assert "--state-dir" in refused.stderr


@pytest.mark.parametrize("inside", ["", "state"])
def test_a_broken_link_is_named_with_its_target_wherever_a_folder_is_created(
    tradewind: Run, tmp_path: Path, inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, target, whole = tmp_path / "link", tmp_path / "nowhere", tmp_path / "whole"
    link.symlink_to(target)
    whole.mkdir()
    named = f"{link} is a broken link to {target}"
    folder = str(link / inside)
    refused = tradewind("--state-dir", folder, "queue")
    assert refused.exit_code == 5
    assert f"error: the state folder {link / inside} cannot be created: {named}\n" in refused.stderr
    assert f"hint: create {target}, or name another folder with --state-dir" in refused.stderr
    assert named in tradewind("--state-dir", folder, "store", "check").stdout
    backup = tmp_path / "backup.db"
    assert tradewind("--state-dir", str(whole), "queue").exit_code == 0
    assert tradewind("--state-dir", str(whole), "store", "backup", str(backup)).exit_code == 0
    assert named in tradewind("--state-dir", folder, "store", "restore", str(backup), "--yes").stderr
    monkeypatch.setenv("TRADEWIND_STORE_ROOT", folder)
    assert f"store_root cannot be written: {named}" in tradewind("--state-dir", str(whole), "up").stderr
    assert not target.exists()


def test_a_store_from_a_newer_version_is_left_alone(tradewind: Run, state: Path) -> None:
    with closing(sqlite3.connect(state / "tradewind.db")) as connection, connection:
        connection.execute("UPDATE schema_revision SET version_num = 'from_the_future'")
    connection.close()
    result = tradewind("queue")
    assert result.exit_code == 5
    assert "hint:" in result.stderr
    doctor = tradewind("doctor")
    assert doctor.exit_code == 8
    assert "fail  store" in doctor.stdout


def test_a_state_folder_that_cannot_be_created_is_reported(tradewind: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = tradewind("--state-dir", str(tmp_path / "file" / "state"), "queue")
    assert result.exit_code == 5
    assert "TRADEWIND_STATE_DIR" in result.stderr


def test_mistakes_in_the_configuration_are_reported_as_the_document_shows(tradewind: Run, tmp_path: Path) -> None:
    (tmp_path / "tradewind.toml").write_text("[projects.vision]\nwieght = 2\n")
    refused = tradewind("queue")
    assert refused.exit_code == errors.SpecError.exit_code
    assert f"```\n{refused.stderr}```" in (REPOSITORY / "docs" / "projects.md").read_text()
