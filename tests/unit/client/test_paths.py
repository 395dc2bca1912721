"""A path that no file can have is a usage error with a remedy, whichever method of the SDK gets it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.client import Client
from orchestrator.config import load_config
from orchestrator.errors import SpecError, UsageError

IMPOSSIBLE: tuple[Any, ...] = ("", "a\0b", "\ud800", "x" * 256, "d/" * 2100, b"bytes")
METHODS: dict[str, Callable[[Client, Any], object]] = {
    "jobs.submit": lambda client, path: client.jobs.submit(path),
    "job_files.load": lambda client, path: client.job_files.load(path),
    "job_files.convert": lambda client, path: client.job_files.convert(path),
    "plans.load": lambda client, path: client.plans.load(path),
    "jobs.fetch": lambda client, path: client.jobs.fetch("a", path),
    "speed.import_table": lambda client, path: client.speed.import_table(path),
    "store.backup": lambda client, path: client.store.backup(path),
    "store.restore": lambda client, path: client.store.restore(path),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("path", IMPOSSIBLE, ids=lambda path: f"{path[:4]!a}")
def test_a_path_that_no_file_can_have_is_a_usage_error(method: str, path: Any, tmp_path: Path) -> None:
    with Client(load_config({"state_dir": tmp_path / "s", "providers.enabled": "fake"}, environ={})) as client:
        with pytest.raises(UsageError) as caught:
            METHODS[method](client, path)
        assert caught.value.hint


@pytest.mark.parametrize("path", IMPOSSIBLE[:-1], ids=lambda path: f"{path[:4]!a}")
def test_a_state_folder_that_no_file_system_can_have_is_refused(path: str) -> None:
    with pytest.raises(UsageError):
        Client(state_dir=path)
    with pytest.raises(SpecError, match="state_dir: must"):
        load_config({"state_dir": path}, environ={})
