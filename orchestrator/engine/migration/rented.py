"""Rented: how many machines exist or may exist within some limits, and the most that they cost per hour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.config import Config
from orchestrator.engine.inputs.rent_limits import Limits
from orchestrator.model import Run
from orchestrator.store import Tx


@dataclass(frozen=True, slots=True)
class Rented:
    """All runs that have or may have machines. `also`: by run, the further offers that a launch under way may use.
    `unreadable`: jobs with an unreadable run, which may have a machine. `projects`: by job; empty if no project has a
    table. `prices`: of offers, in nano-USD per hour."""

    runs: Sequence[Run]
    also: Mapping[str, tuple[str, ...]]
    unreadable: Sequence[str]
    projects: Mapping[str, str]
    prices: Mapping[str, int]

    def within(self, limits: Limits) -> tuple[int, int]:
        """(machines, nano-USD per hour) that count within these limits. A launch counts at its highest possible
        price."""
        whole = limits.project is None
        runs = [run for run in self.runs if whole or self.projects.get(run.job_id) == limits.project]
        unreadable = [
            each for each in self.unreadable if whole or self.projects.get(each) in (limits.project, None, "")
        ]
        machines = sum(map(_machines_left, runs)) + len(unreadable)
        return machines, sum(_machines_left(run) * self._highest_price(run) for run in runs)

    def of_job(self, job_id: str) -> tuple[int, int]:
        """The same for one job's own machines."""
        runs = [run for run in self.runs if run.job_id == job_id]
        return sum(map(_machines_left, runs)), sum(_machines_left(run) * self._highest_price(run) for run in runs)

    def _highest_price(self, run: Run) -> int:
        return max(self.prices.get(each, 0) for each in (run.offer_id, *self.also.get(run.id, ())))


def rented(tx: Tx, now_ms: int, config: Config, offers: Iterable[str], besides: str | None = None) -> Rented:
    """What is rented now, including the prices of these `offers`. The run `besides` does not count."""
    unreadable: list[str] = []
    runs = [run for run in tx.unsettled_runs(lambda job_id, _error: unreadable.append(job_id)) if run.id != besides]
    also = _also(tx, runs)
    named = {*offers, *(each for run in runs for each in (run.offer_id, *also.get(run.id, ())))}
    prices = {point.offer_id: point.nano_usd_per_hour for point in tx.payable_as_of(now_ms, named)}
    projects = {}
    if config.projects.tables:
        projects = {each.id: each.project for each in tx.outlines_of({*unreadable, *(run.job_id for run in runs)})}
    return Rented(runs, also, unreadable, projects, prices)


def _also(tx: Tx, runs: Sequence[Run]) -> dict[str, tuple[str, ...]]:
    waiting = {run.job_id: run.id for run in runs if run.instance_id is None}
    moves = tx.migrations_of(list(waiting), open=True) if waiting else {}
    return {move.target_run_id: move.also for each in moves.values() for move in each if move.also}


def _machines_left(run: Run) -> int:
    """How many machines of a run exist or may exist."""
    return sum(each.billed_to_ms is None for each in run.machines)
