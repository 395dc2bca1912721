"""Logging in to a job's machine, where its provider allows that."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.engine.inputs.snapshot import left_out
from orchestrator.engine.machines.launched import launch_tokens
from orchestrator.errors import NotFoundError, ProviderFailure, UsageError
from orchestrator.installation import Installation
from orchestrator.model import Run
from orchestrator.nodes.channel import control_store
from orchestrator.services.jobs.run_files import readable
from orchestrator.services.nodes.latest_report import rank_of
from providers.base import AllowsShell
from providers.errors import ProviderError
from providers.offer import provider_of


def shell_command(
    installation: Installation, ref: str, command: Sequence[str] = (), *, node: int = 0
) -> tuple[str, ...]:
    """The command line that runs `command` (a login shell if empty) on the machine where a job trains now; if it has
    several machines, on number `node`, from 0.

    Raises NotFoundError, UsageError if the machine's provider does not allow it, ProviderFailure, and StoreError.
    """
    with installation.store.read() as tx:
        job = tx.find_job(ref)
        typed = tx.typed_name(job.id, job.name)
        runs = tx.runs(job_id=job.id, unreadable=left_out)
        moves = tx.migrations(job_id=job.id, unreadable=left_out)
    run = _on_a_machine(runs)
    if run is None or run.instance_id is None:
        raise NotFoundError(f"{job.name} has no machine now", hint=f"tradewind status {typed}")
    if not 0 <= node < run.nodes:
        has = "one machine" if run.nodes == 1 else f"{run.nodes} machines, 0 to {run.nodes - 1}"
        raise UsageError(f"{job.name} has no machine {node}: it has {has}", hint=f"tradewind nodes {typed}")
    instance_id = _numbered(installation, run, launch_tokens(run, runs, moves), node)
    if instance_id is None:
        raise NotFoundError(
            f"the machines of {job.name} are starting, so it is not known yet which one is number {node}",
            hint=f"tradewind nodes {typed}",
        )
    name = provider_of(run.offer_id)
    provider = installation.providers.get(name)
    if not isinstance(provider, AllowsShell):
        raise UsageError(
            f"{job.name} is on a machine of {name}, which does not allow logins",
            hint=f"see what it prints: tradewind logs -f {typed}",
        )
    try:
        return tuple(provider.shell(instance_id, command))
    except ProviderError as error:
        raise ProviderFailure(str(error), hint=error.hint) from error


def _on_a_machine(runs: Sequence[Run]) -> Run | None:
    """The run that trains; if none trains, the newest run that has a machine."""
    up = [run for run in runs if run.instance_id is not None and run.end is None and run.state != "ended"]
    training = [run for run in up if run.training_from_ms is not None]
    return max(training or up, key=lambda run: run.generation, default=None)


def _numbered(installation: Installation, run: Run, tokens: Sequence[str], node: int) -> str | None:
    """The run's machine with this number, which the machines choose while they start; None: not chosen yet."""
    if run.nodes == 1 or not tokens:
        return run.instance_id
    with readable():
        store = control_store(installation.control_root)
        ranks = ((each, rank_of(store, tokens[-1], run.nodes, each)) for each in run.instance_ids)
        return next((each for each, rank in ranks if rank == node), None)
