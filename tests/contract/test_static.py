"""The provider of machines that people own keeps the contract, on a host behind a real sshd.

The host's monotonic clock is the test's: a program in place of its Python reads it from a file.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from providers.base import Provider
from providers.clock import VirtualClock
from providers.static import StaticProvider
from providers.static.hosts import read_hosts
from providers.testing import ProviderContract
from tests.machines.lab import Kind, Laboratory, laboratory
from tests.machines.owned import declared

SHIFTED_PYTHON = """#!/bin/bash
exec python3 -I -c 'if True:
    import sys, time
    clock_gettime = time.clock_gettime
    time.clock_gettime = lambda clock: float(open("/tmp/clock").read()) if clock == 7 else clock_gettime(clock)
    exec(sys.stdin.read())'
"""
_numbers = itertools.count()


@pytest.fixture(scope="module")
def lab() -> Iterator[Laboratory]:
    with laboratory({"one": Kind(programs={"shifted-python": SHIFTED_PYTHON})}) as lab:
        yield lab


class TestStatic(ProviderContract):
    offer_id = "static/one/one/cpu.4/on_demand"
    # One child in a process group of its own, one in a session of its own; none of them heeds SIGTERM.
    user_data = "trap '' TERM\nset -m\nsleep 1000 &\nsetsid sleep 1000 &\nset +m\nexec sleep 1000\n"

    @pytest.fixture(autouse=True)
    def _cloud(self, lab: Laboratory, tmp_path: Path) -> Iterator[None]:
        self.one, self.folder, self.clock = lab.hosts["one"], tmp_path / "static", VirtualClock()
        folder = f"~/cloud-{next(_numbers)}"
        self.hosts = read_hosts(declared(lab, "one", slots=4, python="shifted-python", folder=folder))
        self._set_clock()
        with lab.in_office():
            yield
        for instance in self.one.processes().values():
            assert "sleep" in instance  # of a test that did not end its machines
        self.one.kill_all()

    def connect(self) -> Provider:
        return StaticProvider(self.hosts, self.folder, self.clock)

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def advance(self, market_s: float) -> None:
        self.clock.advance(market_s)
        self._set_clock()

    def _set_clock(self) -> None:
        path = Path(f"/proc/{self.one.pid}/root/tmp/clock")
        partial = path.with_name("clock.new")
        partial.write_text(repr(1000 + self.clock.monotonic_s()))
        partial.replace(path)
