"""A sample of the crash fuzz, and proof that it would find what it looks for: bugs are planted, and it sees them.

The whole of it is benchmarks/crash_fuzz.py; a failing seed is replayed with the command that the assertion prints.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine import bring_up, handover, reap
from orchestrator.engine.context import Context
from orchestrator.sim import EDGES, PostgresSlate, Slate, findings, play
from orchestrator.sim.catalog import SimCatalog
from providers.fake import Fault
from tests.postgres import Server
from tests.sim.harness import BRISK, Installation

SEEDS = (3, 25, 58, 80)  # which lean to four different edges
DOUBLED, BEHIND = (8,), (10,)  # seeds that come upon the bugs planted below


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_full_of_deaths_leaks_doubles_and_loses_nothing(
    seed: int, tmp_path: Path, slates: list[Slate]
) -> None:
    outcome = play(seed, tmp_path, slates[0])
    replay = f"python -m benchmarks.crash_fuzz --seed {seed} --store sqlite --replay"
    assert not outcome.findings, "\n".join([*outcome.findings, replay])
    assert sum(outcome.deaths.values()) > 0
    assert set(outcome.deaths) <= set(EDGES)


def test_a_history_is_the_same_on_postgres(tmp_path: Path, slates: list[Slate], postgres: Server) -> None:
    slate = PostgresSlate(postgres.create("history"))
    try:
        here, there = (play(58, tmp_path, each, story=True) for each in (slates[0], slate))
        again = play(58, tmp_path, slate)
    finally:
        slate.close()
        postgres.drop("history")
    assert here == there
    assert again.digest == here.digest


def found(tmp_path: Path, slate: Slate, what: str, seeds: Sequence[int]) -> bool:
    """Whether one of these histories has such a finding."""
    return any(line.startswith(what) for seed in seeds for line in play(seed, tmp_path, slate).findings)


@contextmanager
def planted(monkeypatch: pytest.MonkeyPatch, where: object, name: str, bug: Callable[..., Any]) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(where, name, bug)
        yield


def test_a_launch_without_a_token_of_its_intent_is_found_out(
    tmp_path: Path, slates: list[Slate], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = bring_up.launch_spec

    def careless(*args: Any) -> Any:
        return replace(honest(*args), token=secrets.token_hex(8))

    with planted(monkeypatch, bring_up, "launch_spec", careless):
        assert found(tmp_path, slates[0], "doubled", DOUBLED)


def test_a_lost_launch_that_nobody_asks_after_is_found_out(
    install: Callable[..., Installation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told as a scene: one history in a hundred or so comes upon a machine that dies before any list mentions it."""

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


def test_a_target_that_starts_behind_its_source_is_found_out(
    tmp_path: Path, slates: list[Slate], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rules forbid it: the engine looks once more before it fences, and the source voids what it waited for."""
    monkeypatch.setattr(SimCatalog, "void", lambda *_: True)
    with planted(monkeypatch, handover, "_outdated", lambda ctx, move: None):
        assert found(tmp_path, slates[0], "lost work", BEHIND)
