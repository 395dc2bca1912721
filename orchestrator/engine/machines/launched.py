"""Launched: by which calls and with which tokens a machine was launched, and which machines a run got."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.model import Member, Migration, Run

MOST_NAMED = 4


def named(instance_ids: Sequence[str]) -> str:
    """These machines, for a message: the first MOST_NAMED by id."""
    left = len(instance_ids) - MOST_NAMED
    return ", ".join(instance_ids[:MOST_NAMED]) + (f" and {left} more" if left > 0 else "")


def launch_key(migration: Migration) -> str:
    """The key of the calls that launch a migration's machine (engine.calls)."""
    return f"launch/{migration.id}"


def launch_tokens(run: Run, runs: Iterable[Run], migrations: Iterable[Migration]) -> list[str]:
    """The tokens of the launches for a run and for earlier runs on its machine. `runs` and `migrations` are its job's.

    A run that takes over a machine, from a failed run or from a standby, launches nothing.
    """
    had_it = {run.id, *(each.id for each in runs if run.instance_id and each.instance_id == run.instance_id)}
    return [move.token for move in migrations if move.target_run_id in had_it and move.attempt > 0]


def with_machines(run: Run, instance_ids: Sequence[str]) -> list[Member]:
    """The run's machines with these in the places of those that are not known."""
    fresh = iter([each for each in instance_ids if each not in run.instance_ids])
    return [each if each.instance_id is not None else Member(next(fresh, None)) for each in run.machines]
