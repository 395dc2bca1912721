"""Opens a generated fleet: a separate store, a clock fixed at its end, and clouds that rent nothing."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

from orchestrator.config import load_config
from orchestrator.installation import Installation
from orchestrator.store import Store
from orchestrator.web.demo.fleet import Size, write_fleet
from orchestrator.web.demo.market import MACHINES
from providers.clock import VirtualClock
from providers.fake import FakeCloud, FakeProvider

NOW_MS = 1_795_608_000_000
"""2026-11-25 12:00 UTC, fixed so that the figures are always the same."""


@contextmanager
def demo_installation(
    folder: Path | None = None, size: Size | None = None, progress: Callable[[str], None] = lambda _: None
) -> Iterator[Installation]:
    """The generated fleet in `folder` (None: a temporary one, removed at the end), generated if it does not exist
    yet."""
    with TemporaryDirectory(prefix="tradewind-demo-") as made:
        home = Path(made) if folder is None else folder
        if not home.exists() or folder is None:
            unfinished = home if folder is None else home.with_name(f".{home.name}-{secrets.token_hex(4)}")
            unfinished.mkdir(parents=True, exist_ok=True)
            with generated(unfinished) as installation:
                write_fleet(installation, size or Size(), progress)
            if folder is not None:
                with suppress(OSError):  # another process has finished first
                    unfinished.rename(home)
                rmtree(unfinished, ignore_errors=True)
        with generated(home) as installation:
            installation.store.campaign(f"demo/{os.getpid()}")  # as if a control plane ran
            yield installation


@contextmanager
def generated(home: Path, now_ms: int = NOW_MS) -> Iterator[Installation]:
    """The installation in this folder, at a fixed time."""
    config = load_config({"state_dir": str(home), "providers.enabled": "fake"}, environ={}, cwd=home)
    clock = VirtualClock(now_ms)
    fake = FakeProvider(clock, cloud=FakeCloud(clock, seed=1))
    installation = Installation(config, clock, Store.open(config.store_url, clock), dict.fromkeys(MACHINES, fake))
    try:
        yield installation
    finally:
        installation.close()
