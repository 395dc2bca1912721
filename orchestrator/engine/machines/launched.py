"""Launched: the calls and tokens that launched machines, and the machines and offer that a run got.

An answer to a launch counts only if it names as many machines as were requested. After any other answer it is unclear
what was launched, so the launch is repeated with its token, like one without an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from orchestrator.model import Member, Migration, Run
from orchestrator.store import Tx
from providers.base import Landed, LaunchSpec
from providers.errors import FormatError, UnavailableError

MOST_NAMED = 4
_ASKED_AGAIN = "Tradewind asks again with the same token"


def named(instance_ids: Sequence[str]) -> str:
    """These machines for a message: the first MOST_NAMED by id."""
    left = len(instance_ids) - MOST_NAMED
    return ", ".join(instance_ids[:MOST_NAMED]) + (f" and {left} more" if left > 0 else "")


def launch_key(migration: Migration) -> str:
    """The key of the calls that launch a migration's machine (engine.calls)."""
    return f"launch/{migration.id}"


def at_its_offer(launch: Callable[[LaunchSpec], Sequence[str]], spec: LaunchSpec) -> Landed:
    """The result of a launch that names a single offer. Raises ProviderError."""
    return Landed(spec.offer_id, tuple(launch(spec)))


def answered(launch: Callable[[LaunchSpec], Landed], spec: LaunchSpec) -> Landed:
    """The result of a launch. Raises ProviderError; UnavailableError for an answer that does not name its machines."""
    try:
        landed = launch(spec)
    except FormatError as error:  # an answer that cannot be read does not say that nothing was launched
        raise UnavailableError(str(error), hint=_ASKED_AGAIN) from error
    ids = landed.instance_ids
    if len(ids) != spec.count or len(set(ids)) != spec.count or not all(each and each.isprintable() for each in ids):
        raise UnavailableError(
            f"the answer to a launch names the machines {ids!r:.200}, but {spec.count} were requested",
            hint=_ASKED_AGAIN,
        )
    return landed


def land(tx: Tx, migration: Migration, landed: str) -> str:
    """Record that the machines of a migration's launch are of the offer `landed`, in the transaction that assigns them
    to its run. Returns the offer that counts from now on, such as for the price. An offer that is not one of the
    launch's offers (a cloud may have forgotten the type of a machine that has ended) changes nothing."""
    if landed == migration.offer_id or landed not in migration.also:
        return migration.offer_id
    tx.land(migration, landed)
    return landed


def land_found(tx: Tx, run: Run, token: str, offer_id: str) -> None:
    """Like `land`, for a machine that was found by its launch token."""
    for migration in tx.migrations(job_id=run.job_id, unreadable=lambda *_: None):
        if migration.token == token and migration.target_run_id == run.id:
            land(tx, migration, offer_id)


def launch_tokens(run: Run, runs: Iterable[Run], migrations: Iterable[Migration]) -> list[str]:
    """The tokens of the launches for a run and for earlier runs on its machine. `runs` and `migrations` are its job's.

    A run that takes over a machine, from a failed run or from a standby, launches nothing.
    """
    had_it = {run.id, *(each.id for each in runs if run.instance_id and each.instance_id == run.instance_id)}
    return [move.token for move in migrations if move.target_run_id in had_it and move.attempt > 0]


def with_machines(run: Run, instance_ids: Sequence[str]) -> list[Member]:
    """The run's machines, with these filling the places of unknown ones."""
    fresh = iter(dict.fromkeys(each for each in instance_ids if each not in run.instance_ids))
    return [each if each.instance_id is not None else Member(next(fresh, None)) for each in run.machines]
