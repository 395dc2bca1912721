"""Machines that cannot reach the store of orders, reports and checkpoints, in every direction; and one that lies.

The store is an S3 server on its own address. It knows who asks from what is asked: orders are read, and reports and
checkpoints written, by machines; the rest is the control plane's. All jobs train side by side and are cut off at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
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
JOBS = ("brief", "cut-off", "deaf", "mute", "liar")


@dataclass(frozen=True)
class Cut:
    """A job, and the run that was cut off."""

    job: str
    run: Run


class Partition:
    """Requests of machines that are not answered."""

    def __init__(self, server: LoopbackServer) -> None:
        self._server = server

    def begin(self, match: Callable[[Request], bool]) -> Fault:
        fault = Fault(match, times=None, hang=True)
        self._server.faults.append(fault)
        return fault

    def heal(self, fault: Fault) -> None:
        self._server.faults.remove(fault)


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
            home.command("up")
            yield home
        finally:
            server.faults.clear()
            home.close()


@pytest.fixture(scope="module")
def cut(remote: Tradewind, server: LoopbackServer) -> dict[str, Cut]:
    """Five jobs, four of which lose their store, and one whose report is replaced by garbage."""
    jobs = {name: remote.submit(name) for name in JOBS}
    found = {name: Cut(job, remote.training(job, steps=10)) for name, job in jobs.items()}
    partition = Partition(server)
    order, report = (
        {name: f"/{_token(remote, each)}/{what}" for name, each in found.items()} for what in ("order", "report")
    )

    def from_machine(name: str) -> Callable[[Request], bool]:
        return lambda asked: (
            (asked.method, asked.path.endswith(order[name])) == ("GET", True)
            or (asked.method == "PUT" and asked.path.endswith(report[name]))
        )

    brief = partition.begin(from_machine("brief"))
    began = time.monotonic()
    partition.begin(from_machine("cut-off"))
    partition.begin(lambda asked: asked.method == "GET" and asked.path.endswith(order["deaf"]))
    partition.begin(lambda asked: asked.method == "PUT" and asked.path.endswith(report["mute"]))
    honest = server.cloud

    def lying(asked: Request):  # type: ignore[no-untyped-def]
        if asked.method == "GET" and asked.path.endswith(report["liar"]):
            asked = Request("GET", asked.path.removesuffix("report") + "order", asked.query, asked.headers, b"")
        return honest(asked)

    server.cloud = lying
    until("the short partition is over", lambda: time.monotonic() - began >= SHORT_S)
    partition.heal(brief)
    return found


def test_a_short_partition_changes_nothing(remote: Tradewind, cut: dict[str, Cut], reference: Reference) -> None:
    brief = cut["brief"]
    reached = remote.step(brief.run)
    until("it trains on", lambda: remote.step(brief.run) > reached + 5)
    seen = remote.runs(brief.job)[-1].last_step
    until("the control plane hears of it", lambda: remote.runs(brief.job)[-1].last_step > seen)
    assert [run.id for run in remote.runs(brief.job)] == [brief.run.id]
    remote.finish(brief.job)
    assert remote.losses(brief.job) == reference.losses()


@pytest.mark.parametrize("name", ["cut-off", "deaf", "mute"])
def test_a_machine_that_is_cut_off_for_longer_than_its_lease_fences_itself_and_is_replaced(
    remote: Tradewind, cut: dict[str, Cut], reference: Reference, name: str
) -> None:
    """`deaf` hears no orders, `mute` cannot report."""
    victim = cut[name]
    successor = remote.training(victim.job, after=victim.run, steps=1)
    last_words = remote.progress(victim.run)
    assert last_words is not None
    assert last_words.state == "fenced"
    assert successor.start_step > 0
    with pytest.raises(FencedError):  # what the zombie would find before a late commit
        require_ownership(open_store(f"{remote.config.store_root}/checkpoints"), victim.job, victim.run.generation)
    remote.finish(victim.job)
    assert remote.runs(victim.job)[0].end == "lost"
    assert remote.losses(victim.job) == reference.losses()


def test_a_machine_that_reports_garbage_is_replaced_and_its_job_loses_nothing(
    remote: Tradewind, cut: dict[str, Cut], reference: Reference
) -> None:
    liar = cut["liar"]
    until("it is noticed", lambda: remote.events(liar.job, "run.malformed"))
    assert "its reports are not valid" in remote.events(liar.job, "run.malformed")[0]
    remote.finish(liar.job)
    assert remote.losses(liar.job) == reference.losses()


def test_nothing_is_left_and_every_machine_is_booked_exactly(remote: Tradewind, cut: dict[str, Cut]) -> None:
    for each in cut.values():
        remote.ended(each.job, "finished")
        runs = [run for run in remote.runs(each.job) if run.instance_id is not None]
        until("its machines are gone", lambda runs=runs: not any(remote.processes(run) for run in runs))  # type: ignore[misc]
        billed = sum(remote.cloud.bill_nano_usd(run.instance_id) for run in runs if run.instance_id is not None)
        with remote.installation.store.read() as tx:
            assert tx.total_nano_usd(job_id=each.job) == billed


def _token(home: Tradewind, cut: Cut) -> str:
    return next(move.token for move in home.migrations(cut.job) if move.target_run_id == cut.run.id)
