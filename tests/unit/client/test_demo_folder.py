"""The folder of `make demo`: made, used as a state folder, and removed by the next demo."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.demo.__main__ import SEED, clear, prepare
from orchestrator import Client, UsageError


def test_a_demo_makes_a_folder_that_a_client_takes_and_the_next_demo_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / ".demo"
    monkeypatch.setenv("TRADEWIND_STATE_DIR", str(state))
    monkeypatch.setenv(SEED, "7")
    clear(state)  # there is none yet
    prepare(state, 7)
    with Client(state_dir=state) as client:
        assert client.jobs.list().jobs == ()
    clear(state)
    assert not state.exists()
    state.mkdir()
    with pytest.raises(UsageError, match="not a demo's folder"):
        clear(state)
