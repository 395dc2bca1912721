"""What fetches chunks for a run that is being prepared never delays the thread that keeps the machine's lease."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from orchestrator.nodes.fetching import Fetching
from orchestrator.nodes.messages import Ahead
from tests.unit.nodes.conftest import until


@pytest.fixture
def busy(tmp_path: Path) -> Path:
    """A folder of this machine with a program that never ends in the place of Python's."""
    (tmp_path / "never").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "never").chmod(0o700)
    return tmp_path


def fetching(folder: Path) -> Fetching:
    (folder / "here").mkdir(exist_ok=True)
    return Fetching(Ahead("s3://b/c", "job-1", 2, trains=False), folder / "here", {**os.environ}, print, shared=False)


def test_questions_about_it_while_it_is_stopped_get_an_answer(busy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(busy / "never"))
    before, errors = sys.getswitchinterval(), list[Exception]()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(100):
            it, stopped = fetching(busy), threading.Event()

            def ask(it: Fetching = it, stopped: threading.Event = stopped) -> None:
                try:
                    while not stopped.is_set():
                        assert it.fetched_bytes == 0
                        assert it.busy in (True, False)
                except Exception as error:
                    errors.append(error)

            asking = threading.Thread(target=ask)
            asking.start()
            it.stop()
            stopped.set()
            asking.join()
            it.clear()
            it.join()  # or it deletes the folder of the next one
    finally:
        sys.setswitchinterval(before)
    assert errors == []


def test_nobody_waits_while_what_was_fetched_is_deleted(busy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(busy / "never"))
    slow, delete = threading.Event(), shutil.rmtree

    def slowly(folder: Path, **options: Any) -> None:
        assert slow.wait(60)
        delete(folder, **options)

    monkeypatch.setattr(shutil, "rmtree", slowly)
    it = fetching(busy)
    (it.folder / "1-chunk").write_bytes(b"chunk")
    clearing = threading.Thread(target=it.clear)
    clearing.start()
    clearing.join(30)
    waited = clearing.is_alive()
    slow.set()
    assert not waited
    until("it is deleted", lambda: not it.folder.exists())
    assert isinstance(it._process, subprocess.Popen)
    assert it._process.poll() is not None
    assert not it.busy
