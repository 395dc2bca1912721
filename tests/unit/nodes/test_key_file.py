"""The installation's secret key: made once, no matter who asks first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from orchestrator.nodes.key_file import KEY_BYTES, KeyFile


def test_threads_that_need_the_key_first_at_the_same_time_get_the_same_one(tmp_path: Path) -> None:
    for number in range(20):
        key = KeyFile(tmp_path / f"key-{number}")
        with ThreadPoolExecutor(8) as pool:
            found = {*pool.map(lambda ask: ask(), [key] * 8)}
        (only,) = found
        assert len(only) == KEY_BYTES
        assert KeyFile(tmp_path / f"key-{number}")() == only
