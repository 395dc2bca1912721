"""Launched: with which tokens a machine was launched."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.model import Migration, Run


def launch_tokens(run: Run, runs: Iterable[Run], migrations: Iterable[Migration]) -> list[str]:
    """The tokens of the launches for a run and for earlier runs on its machine. `runs` and `migrations` are its job's.

    A run that takes over a machine, from a failed run or from a standby, launches nothing.
    """
    had_it = {run.id, *(each.id for each in runs if run.instance_id and each.instance_id == run.instance_id)}
    return [move.token for move in migrations if move.target_run_id in had_it and move.attempt > 0]
