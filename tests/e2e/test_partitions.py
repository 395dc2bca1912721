"""A machine that cannot reach the store of orders, reports and checkpoints, in every direction; and one that lies.

The store is an S3 server on its own address. It knows who asks from what is asked: orders are read, and reports and
checkpoints written, by machines; the rest is the control plane's. One job is cut off three times. The first
machine of another lies from the beginning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from orchestrator.model import Run
from tests.clouds.s3 import S3, environment
from tests.clouds.server import Fault, LoopbackServer, Request, serving
from tests.e2e.living import Reference, Tradewind, until
from trainers.checkpoint.store import require_ownership
from trainers.errors import FencedError
from trainers.objects.opening import open_store

pytestmark = pytest.mark.ray

LEASE_S = 12.0
SHORT_S = 5.0


@dataclass(frozen=True)
class Jobs:
    """A job whose machines are cut off, and one that had a machine that lies."""

    cut_off: str
    deceived: str
    liar: Run


@pytest.fixture(scope="module")
def s3() -> S3:
    return S3()


@pytest.fixture(scope="module")
def server(s3: S3) -> Iterator[LoopbackServer]:
    with serving(s3) as started:
        yield started


@pytest.fixture(scope="module")
def remote(s3: S3, server: LoopbackServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tradewind]:
    """An installation whose store is a bucket."""
    with pytest.MonkeyPatch.context() as variables:
        for name, value in environment(server).items():
            variables.setenv(name, value)
        home = Tradewind(
            tmp_path_factory.mktemp("remote"),
            TRADEWIND_STORE_ROOT=f"s3://{s3.bucket}/tw",
            TRADEWIND_LEASE_S=str(LEASE_S),
            TRADEWIND_SUSPECT_AFTER_S="3",
        )
        try:
            home.up()
            yield home
        finally:
            server.faults.clear()
            home.close()


@pytest.fixture(scope="module")
def jobs(remote: Tradewind, server: LoopbackServer) -> Jobs:
    cut_off, deceived = remote.submit("cut-off"), remote.submit("deceived")
    liar = remote.training(deceived, steps=10)
    report, honest = _path(remote, liar, "report"), server.cloud

    def lying(asked: Request):  # type: ignore[no-untyped-def]
        if asked.method == "GET" and asked.path.endswith(report):
            asked = Request("GET", asked.path.removesuffix("report") + "order", asked.query, asked.headers, b"")
        return honest(asked)

    server.cloud = lying
    return Jobs(cut_off, deceived, liar)


def test_a_short_partition_changes_nothing(remote: Tradewind, server: LoopbackServer, jobs: Jobs) -> None:
    job = jobs.cut_off
    run = remote.training(job, steps=10)
    with unanswered(server, of_machine(remote, run, "cut-off")):
        began = time.monotonic()
        until("the short partition is over", lambda: time.monotonic() - began >= SHORT_S)
    reached = remote.step(run)
    until("it trains on", lambda: remote.step(run) > reached + 5)
    seen = remote.runs(job)[-1].last_step
    until("the control plane hears of it", lambda: remote.runs(job)[-1].last_step > seen)
    assert [each.id for each in remote.runs(job)] == [run.id]


@pytest.mark.parametrize("how", ["cut-off", "deaf", "mute"])
def test_a_machine_that_is_cut_off_for_longer_than_its_lease_fences_itself_and_is_replaced(
    remote: Tradewind, server: LoopbackServer, jobs: Jobs, how: str
) -> None:
    """`deaf` hears no orders, `mute` cannot report."""
    job = jobs.cut_off
    run = remote.training(job, steps=1)
    with unanswered(server, of_machine(remote, run, how)):
        successor = remote.training(job, after=run, steps=1)
    last_words = remote.progress(run)
    assert last_words is not None
    assert last_words.state == "fenced"
    assert successor.start_step > 0
    with pytest.raises(FencedError):  # what the zombie would find before a late commit
        require_ownership(open_store(f"{remote.config.store_root}/checkpoints"), job, run.generation)
    assert next(each for each in remote.runs(job) if each.id == run.id).end == "lost"


def test_a_machine_that_reports_garbage_is_replaced(remote: Tradewind, jobs: Jobs) -> None:
    until("it is noticed", lambda: remote.events(jobs.deceived, "run.malformed"))
    assert "its reports are not valid" in remote.events(jobs.deceived, "run.malformed")[0]
    remote.training(jobs.deceived, after=jobs.liar, steps=1)


def test_nothing_is_lost_or_left_and_every_machine_is_booked_exactly(
    remote: Tradewind, jobs: Jobs, reference: Reference
) -> None:
    for job in (jobs.cut_off, jobs.deceived):
        remote.hurry_file(remote.job(job).name).touch()
    for job in (jobs.cut_off, jobs.deceived):
        remote.finish(job)
        assert remote.losses(job) == reference.losses()
        assert remote.weights_hash(job) == reference.weights_hash()
        runs = [run for run in remote.runs(job) if run.instance_id is not None]
        until("its machines are gone", lambda runs=runs: not any(remote.processes(run) for run in runs))  # type: ignore[misc]
        billed = sum(remote.cloud.bill_nano_usd(run.instance_id) for run in runs if run.instance_id is not None)
        with remote.installation.store.read() as tx:
            assert tx.total_nano_usd(job_id=job) == billed


@contextmanager
def unanswered(server: LoopbackServer, match: Callable[[Request], bool]) -> Iterator[None]:
    """A partition: these requests are not answered during the block."""
    fault = Fault(match, times=None, hang=True)
    server.faults.append(fault)
    yield
    server.faults.remove(fault)


def of_machine(home: Tradewind, run: Run, how: str) -> Callable[[Request], bool]:
    """The requests of the machine of a run for its orders, unless it is `mute`, and with its reports, unless `deaf`."""
    order, report = _path(home, run, "order"), _path(home, run, "report")
    return lambda asked: (
        (how != "mute" and asked.method == "GET" and asked.path.endswith(order))
        or (how != "deaf" and asked.method == "PUT" and asked.path.endswith(report))
    )


def _path(home: Tradewind, run: Run, what: str) -> str:
    """How the path of an object of a run's machine ends."""
    move = next(move for move in home.migrations(run.job_id) if move.target_run_id == run.id)
    return f"/{move.token}/{what}"
