"""A sample of the crash fuzz, and proof that it would find what it looks for: bugs are planted, and it sees them.

The whole of it is benchmarks/crash_fuzz.py; a failing seed is replayed with the command that the assertion prints.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine import compartment
from orchestrator.engine.billing import accrue
from orchestrator.engine.context import Context
from orchestrator.engine.machines import observe, poll, reap, sweep
from orchestrator.engine.migration import bring_up, handover
from orchestrator.engine.runtime import RunReport
from orchestrator.model import Member, Run, Step
from orchestrator.store.leadership import leader
from providers.fake import Fault
from tests.postgres import Server
from tests.rig import (
    EDGES,
    PAUSE_EDGES,
    SAVE_EDGES,
    Nap,
    PostgresScratchDatabase,
    ScratchDatabase,
    findings,
    history,
    play,
    site,
)
from tests.rig.crash_points import WatchedCatalog
from tests.rig.folder import Folder
from tests.rig.harm import forged
from tests.rig.trainer import Trainer
from tests.rig.world import FakeWorld
from tests.sim.harness import BRISK, RESERVE, SimulatedInstallation
from trainers.checkpoint import store
from trainers.checkpoint.fences import Fence
from trainers.checkpoint.manifest import ManifestName
from trainers.errors import StoreReadOnly
from trainers.objects import folder
from trainers.objects.folder import FolderStore

SEEDS = (10,)  # of many; each leans to other edges


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_full_of_deaths_and_sleepers_leaks_doubles_and_loses_nothing(
    seed: int, memory: Path, databases: list[ScratchDatabase]
) -> None:
    outcome = play(seed, memory, databases[0])
    replay = f"python -m benchmarks.crash_fuzz --seed {seed} --store sqlite --replay"
    assert not outcome.findings, "\n".join([*outcome.findings, replay])
    for struck, edges in ((outcome.deaths, EDGES), (outcome.pauses, PAUSE_EDGES), (outcome.naps, SAVE_EDGES)):
        assert sum(struck.values()) > 0
        assert set(struck) <= set(edges)


class Brief(FakeWorld):
    """Random events end early."""

    chaos_s = 40.0


@pytest.mark.timeout(300)  # twice a history, and each statement is a message to the server
def test_a_history_is_the_same_on_postgres(
    memory: Path, databases: list[ScratchDatabase], postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A brief one, of a seed with which it makes nearly every statement of a whole history."""
    for kind in ("DEATHS", "PAUSES", "NAPS"):
        monkeypatch.setattr(history, kind, 8)
    database = PostgresScratchDatabase(postgres.create("history"))
    try:
        here, there = (play(4, memory, each, story=True, world=Brief()) for each in (databases[0], database))
    finally:
        database.close()
        postgres.drop("history")
    assert here == there
    assert here.completed > 10
    assert min(sum(struck.values()) for struck in (here.deaths, here.pauses, here.naps)) >= 8


@contextmanager
def planted(monkeypatch: pytest.MonkeyPatch, where: object, name: str, bug: Callable[..., Any]) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(where, name, bug)
        yield


def test_a_launch_without_a_token_of_its_intent_is_found_out(
    home: SimulatedInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = bring_up.launch_spec

    def careless(*args: Any) -> Any:
        return replace(honest(*args), token=secrets.token_hex(8))

    home.faults.inject("launch", Fault.LOST_REPLY)
    with planted(monkeypatch, bring_up, "launch_spec", careless):
        home.submit()
        home.run_for(10)
    assert any(line.startswith("doubled") for line in findings(home))


def test_a_lost_launch_that_is_never_looked_up_is_detected(
    install: Callable[..., SimulatedInstallation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a scene: one history in a hundred or so comes upon a machine that dies before any list mentions it."""

    def forgetful(ctx: Context, run: Any) -> bool:
        with ctx.write() as tx:
            tx.update_run(run.id, state="ended")
        return True

    home = install(behaviour=replace(BRISK, listing_lag_s=60.0))
    home.faults.inject("launch", *[Fault.LOST_REPLY] * 6)
    job = home.submit()
    home.until(lambda: bool(home.cloud.bills()))
    with planted(monkeypatch, reap, "_find_out", forgetful):
        home.ask("cancel", job)
        home.run_for(4)
        (machine,) = home.cloud.instances()
        home.cloud.crash(machine.id)
        home.settle()
    assert any(line.startswith("money") for line in findings(home))


def asleep_before(home: SimulatedInstallation, edge: str) -> Nap[bool]:
    """The control plane that falls asleep there."""
    home.injector.sleep_when = edge.__eq__
    home.until(lambda: home.asleep is not None)
    nap, home.asleep = home.asleep, None
    assert nap is not None
    return nap


def test_a_control_plane_that_fences_after_it_was_deposed_is_found_out(
    home: SimulatedInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without void fences: it wakes long after its move was given up."""
    for where in (WatchedCatalog, Folder):
        monkeypatch.setattr(where, "void", lambda *_, **_look: True)
    job = home.submit(steps=260)
    home.until_step(job, 10)
    home.ask("migrate", job, offer_id=RESERVE.id)
    home.until(lambda: len(home.migrations(job)) == 2)
    nap = asleep_before(home, "before link fence")
    home.take_over()
    home.cloud.crash(home.machine(home.runs(job)[-1]).id)
    home.until_step(job, 100)
    assert nap.go()
    home.settle()
    assert any(line.startswith("lost work") for line in findings(home))


def test_a_control_plane_that_is_never_refused_is_found_out(
    home: SimulatedInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sleeps in the middle of its tick until another one leads."""
    home.submit(steps=60)
    nap = asleep_before(home, "before progress")
    home.take_over()
    with planted(monkeypatch, leader, "fence", lambda *_: None):
        assert nap.go()
    home.settle()
    assert any(line.startswith("trespass") for line in findings(home))


def falls_asleep(home: SimulatedInstallation, run: Run, edge: str) -> None:
    """The trainer of a run, with its whole machine, in the middle of its next save."""
    asleep: list[Trainer] = []
    home.site.naps.when = edge.__eq__
    home.site.naps.asleep = lambda trainer: asleep.append(trainer) or trainer.sleep(with_host=True)  # type: ignore[func-returns-value]
    home.until(lambda: bool(asleep))
    assert asleep[0].run_id == run.id


def test_a_zombie_whose_checkpoint_counts_is_found_out(
    home: SimulatedInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sleeps between its look at the fences and its commit, until another generation has the job."""

    def believing(root: Path, job_id: str, _generation: int) -> list[ManifestName]:
        return sorted(store.manifests(root, job_id), key=lambda name: name.step, reverse=True)

    home.faults.inject("terminate", *[Fault.NO_ANSWER] * 1000)
    job = home.submit(steps=200)
    run = home.until_step(job, 31)
    falls_asleep(home, run, "before link manifest")
    home.until(lambda: (now := home.current(job)) is not None and now.id != run.id, limit_s=300.0)
    home.site.wake(run.id, renewed=True)
    (slipped,) = home.checkpoints.slipped[job.id]
    assert slipped in map(str, store.manifests(home.checkpoints.root, job.id))
    second = home.current(job)
    assert second is not None
    with planted(monkeypatch, store, "counting", believing):
        home.cloud.crash(home.machine(second).id)
        home.until(lambda: (now := home.current(job)) is not None and now.id not in (run.id, second.id))
    assert any(line.startswith("fence") for line in findings(home))


def test_a_handover_from_an_outdated_checkpoint_is_detected(
    home: SimulatedInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer whose lease ran out wakes in its save, and commits between the choice of a checkpoint and the fence."""
    home.faults.inject("terminate", *[Fault.NO_ANSWER] * 1000)
    job = home.submit(steps=200)
    run = home.until_step(job, 21)
    falls_asleep(home, run, "before link manifest")
    home.until(lambda: any(move.step is Step.TRANSFER for move in home.migrations(job)), limit_s=300.0)
    with planted(monkeypatch, handover, "_outdated", lambda *_: None):
        home.site.wake(run.id, renewed=True)
        home.clock.advance(3)
        home.until(lambda: (now := home.current(job)) is not None and now.id != run.id)
    assert any(line.startswith("lost work") for line in findings(home))


def test_a_trainer_that_trips_over_another_ones_collector_is_found_out(
    home: SimulatedInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def brittle(self: FolderStore, key: str, data: bytes) -> bool:
        if (before := folder._before.get()) is not None:
            before("link", Path(self.where(key)))
        raise StoreReadOnly(f"{self.where(key)}: No such file or directory")

    job = home.submit(steps=60)
    home.until_step(job, 3)
    with planted(monkeypatch, FolderStore, "put_if_absent", brittle):
        home.until(lambda: home.current(job) is None)
    home.settle()
    assert any(line.startswith("blamed") for line in findings(home))


def test_a_fault_that_stops_other_jobs_as_well_is_found_out(
    home: SimulatedInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compartments that blame every job for what broke in one."""
    innocent, struck = home.submit("innocent", steps=30), home.submit("struck", steps=30)
    home.until_step(innocent, 3)
    honest = compartment.strike

    def blaming(ctx: Context, where: Any, error: Exception, _job_id: str | None, about: str = "") -> None:
        for job in (innocent, struck):
            honest(ctx, where, error, job.id, about)

    home.saboteur.arm("stopping", struck.id)
    with planted(monkeypatch, compartment, "strike", blaming):
        home.until(lambda: bool(home.events(innocent, "job.quarantined")))
    assert any(line.startswith("harmed") for line in findings(home, paused=True, culprits={struck.id}))


def test_a_forged_final_report_that_is_accepted_is_detected(
    home: SimulatedInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = home.submit("forger", steps=60, retries=0)
    home.site.raise_at(job.id, 20)
    home.site.misbehave(job.id, forged)
    with planted(monkeypatch, observe, "contradiction", lambda *_: None):
        home.until(lambda: home.job(job).state in ("finished", "failed"))
    home.settle()
    assert any(line.startswith("lost:") for line in findings(home, culprits={job.id}))


def test_giving_up_a_machine_because_one_answer_omitted_it_is_detected(
    home: SimulatedInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rules stand against it: absence is confirmed, and whatever is listed again is ended and booked."""

    def hasty(ctx: Context, provider: Any, _region: str, runs: Sequence[Run]) -> None:
        ids = [run.instance_id for run in runs if run.instance_id is not None]
        described = {instance.id: instance for instance in provider.describe(ids)}
        ctx.instances |= {each: described.get(each) for each in ids}

    monkeypatch.setattr(sweep, "_came_back", lambda *_: False)

    job = home.submit(steps=40)
    home.until_step(job, 3)
    with planted(monkeypatch, poll, "_look", hasty):
        home.faults.inject("describe", *[Fault.PARTIAL] * 2)
        home.run_for(10)
    home.run_for(120)
    assert any(line.startswith("leaked") for line in findings(home))


def test_a_down_that_books_until_it_asked_and_not_until_the_machine_ended_is_found_out(
    home: SimulatedInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = accrue.settle

    def hasty(installation: Any, leadership: Any, run: Run, machines: Sequence[Member]) -> bool:
        early_ms = installation.clock.now_ms() - 1000
        return honest(installation, leadership, run, [replace(each, billed_to_ms=early_ms) for each in machines])

    job = home.submit(steps=40)
    home.until_step(job, 3)
    home.clock.advance(0.25)
    with planted(monkeypatch, accrue, "settle", hasty):
        home.go_down()
        home.clock.advance(30)
        home.go_down()
    home.start()
    home.run_for(30)
    assert any(line.startswith("money") for line in findings(home, paused=True))


def test_an_altered_fence_that_is_accepted_is_detected(
    home: SimulatedInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names no checkpoint any more: the successor starts from scratch."""

    def believing(_cls: type[Fence], raw: bytes, _job: str, generation: int, _folder: Path) -> Fence:
        said = json.loads(raw)
        return Fence(generation, said["manifest"], "void" in said)

    job = home.submit(steps=60)
    home.until_step(job, 31)
    honest = WatchedCatalog.fence

    def altered(catalog: WatchedCatalog, root: Path, job_id: str, generation: int, manifest: str | None) -> bool:
        done = honest(catalog, root, job_id, generation, manifest)
        home.checkpoints.spoil_fence(job_id, lambda data: re.sub(rb'"[0-9]+-[0-9]+-[0-9]+"', b"null", data))
        return done

    monkeypatch.setattr(WatchedCatalog, "fence", altered)
    with planted(monkeypatch, Fence, "from_bytes", classmethod(believing)):
        home.ask("migrate", job, offer_id=RESERVE.id)
        home.until(lambda: len(home.site.book()) == 2)
        home.run_for(20)
        assert any(line.startswith("lost work") for line in findings(home, paused=True, culprits={job.id}))


def test_garbage_that_is_accepted_is_detected(home: SimulatedInstallation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every word of a node, without a look at whether it can be."""
    job = home.submit("gabbler", steps=60)
    home.until_step(job, 3)
    home.site.garble(job.id, state="finished", step=60, weights_hash="\x1b[31m")
    monkeypatch.setattr(observe, "contradiction", lambda *_: None)
    with planted(monkeypatch, site, "report_of", lambda run_id, said: RunReport(**(said | {"run_id": run_id}))):
        home.until(lambda: home.job(job).state in ("finished", "failed", "paused"))
    home.site.garble(job.id)
    home.settle()
    assert any(line.startswith("lost:") for line in findings(home, paused=True, culprits={job.id}))
