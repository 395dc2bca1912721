"""Machines whose clocks are an hour slow, and a control plane whose clock is an hour fast."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import scripts.compiler
from providers.clock import SystemClock
from tests.e2e.living import Reference, Tradewind, until

pytestmark = pytest.mark.ray

HOUR_S = 3600
LEASE_S = 8.0


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Preloaded, it adds $WRONG_BY_S to the wall clock of a process. libfaketime would break time.sleep."""
    compiler = scripts.compiler.find()
    assert compiler is not None, scripts.compiler.REMEDY
    built = tmp_path_factory.mktemp("library") / "wrong_clock.so"
    source = Path(__file__).with_name("wrong_clock.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", built, source], check=True)
    return built


def wrong(library: Path, seconds: int) -> dict[str, str]:
    """The variables of a process, and of all that it starts, whose wall clock is wrong by so much."""
    return {"LD_PRELOAD": str(library), "WRONG_BY_S": str(seconds)}


@pytest.fixture(scope="module")
def disagreeing(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tradewind]:
    """An installation whose machines' clocks are an hour slow, and whose control plane's is an hour fast.

    Machines start as `bash user_data`, so that a `bash` of our own can set their clocks.
    """
    folder = tmp_path_factory.mktemp("clocks")
    bash = folder / "bin" / "bash"
    bash.parent.mkdir()
    variables = " ".join(f"{name}='{value}'" for name, value in wrong(library, -HOUR_S).items())
    bash.write_text(f'#!/bin/sh\n{variables} exec /bin/bash "$@"\n')
    bash.chmod(0o755)
    home = Tradewind(
        folder,
        PATH=f"{bash.parent}:{os.environ['PATH']}",
        TRADEWIND_LEASE_S=str(LEASE_S),
        TRADEWIND_SUSPECT_AFTER_S="3",
    )
    try:
        home.environment |= wrong(library, HOUR_S)
        home.up()
        for name in wrong(library, HOUR_S):
            del home.environment[name]
        yield home
    finally:
        home.close()


def test_the_library_sets_the_clock_wrong_and_leaves_durations_right(library: Path) -> None:
    ask = "import time; began = time.monotonic(); time.sleep(0.01); print(time.time(), began)"
    said = subprocess.check_output([sys.executable, "-c", ask], env=os.environ | wrong(library, HOUR_S), text=True)
    shown_s, monotonic = map(float, said.split())
    assert shown_s - SystemClock().now_ms() / 1000 == pytest.approx(HOUR_S, abs=60)
    assert time.monotonic() - monotonic < 60


def test_neither_end_depends_on_the_others_clock(disagreeing: Tradewind, reference: Reference) -> None:
    home = disagreeing
    job = home.submit("disagreeing")
    first = home.training(job, steps=10)
    assert home.environment_of(home.agent(first))["WRONG_BY_S"] == str(-HOUR_S)
    assert home.environment_of(home.leader_pid)["WRONG_BY_S"] == str(HOUR_S)

    began, reached = time.monotonic(), home.step(first)
    until("a lease has passed", lambda: time.monotonic() - began > LEASE_S + 1)
    assert home.step(first) > reached
    assert [run.id for run in home.runs(job)] == [first.id]  # no lease seemed to have run out

    os.kill(home.agent(first), signal.SIGKILL)
    second = home.training(job, after=first, steps=1)
    assert second.start_step > 0
    home.finish(job)
    assert home.losses(job) == reference.losses()
    billed = sum(home.cloud.bill_nano_usd(run.instance_id) for run in home.runs(job) if run.instance_id is not None)
    with home.installation.store.read() as tx:
        assert tx.total_nano_usd(job_id=job) == billed
