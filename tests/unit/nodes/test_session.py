"""Machines are sessions: they are ended with all their processes, and any that survives is reported."""

from __future__ import annotations

import signal
import subprocess

import pytest

from orchestrator.errors import SiteError
from orchestrator.nodes.session import end_session
from providers import processes
from providers.procfs import process_start


def test_a_session_that_does_not_die_is_an_error_that_names_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        with monkeypatch.context() as patience:
            patience.setattr(processes, "_KILL_ROUNDS", 0)
            with pytest.raises(SiteError, match=f"session {leader.pid} do not end: {leader.pid}") as caught:
                end_session(leader.pid)
        assert "ps" in caught.value.hint
        assert process_start(leader.pid) is not None
        end_session(leader.pid)
        assert process_start(leader.pid) is None  # a zombie until it is waited for
    finally:
        leader.kill()
        assert leader.wait() == -signal.SIGKILL
