"""Shut down: ends and books every machine of this installation, under the leadership of the store.

Work that cannot be completed now (an unresponsive provider, a machine that stops slowly, an unreadable row) stays in
the store for the next control plane.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from orchestrator.engine.billing.accrue import settle_all
from orchestrator.engine.billing.comparisons import conclude_all
from orchestrator.engine.direct_calls import Ask, at_once
from orchestrator.engine.inputs.snapshot import left_out
from orchestrator.engine.machines import claims
from orchestrator.engine.machines.launched import land_found, with_machines
from orchestrator.errors import RowError
from orchestrator.installation import Installation
from orchestrator.store import Leadership
from providers.base import Provider
from providers.errors import ProviderError
from providers.instance import Instance
from providers.offer import provider_of


def shut_down(
    installation: Installation, leadership: Leadership, progress: Callable[[str], None], ask: Ask = at_once
) -> list[ProviderError]:
    """End all machines, then close their books. Returns the providers' errors. `ask` makes the calls to providers.

    Raises NotLeaderError as soon as a control plane has taken over; then no further machine is ended, since it may be
    needed. Raises SupersededError, without ending anything, on a copy of a store that acts on these machines.
    """
    claims.check(installation, ask)
    refused = []
    for provider in installation.providers.values():
        try:
            _end_machines(installation, leadership, provider, progress, ask)
        except ProviderError as error:
            refused.append(error)
    settle_all(installation, leadership, ask)
    conclude_all(installation, leadership)
    return refused


def _end_machines(
    installation: Installation,
    leadership: Leadership,
    provider: Provider,
    progress: Callable[[str], None],
    ask: Ask,
) -> None:
    """End the machines that the provider lists if this store rented them, and those that only the store knows. Tries
    each machine even if another one, or the list, fails. Raises the last ProviderError."""
    failed: ProviderError | None = None
    listed: Sequence[Instance] = ()
    try:
        listed = ask(provider.name, partial(provider.list_owned, installation.store.install_id))
    except ProviderError as error:
        failed = error
    with installation.store.read() as tx:
        owned = {each.id: (each, run_id) for each in listed if (run_id := tx.run_of_token(each.token)) is not None}
        known = {
            instance_id
            for run in tx.unsettled_runs(unreadable=left_out)
            if provider_of(run.offer_id) == provider.name
            for instance_id in run.instance_ids
        }
    for instance_id in sorted(known | owned.keys()):
        progress(f"ending instance {instance_id}")
        installation.store.beat(leadership)
        _adopt(installation, leadership, *owned.get(instance_id, (None, None)))
        try:
            ask(provider.name, partial(provider.terminate, instance_id))
        except ProviderError as error:
            failed = error
    if failed is not None:
        raise failed


def _adopt(installation: Installation, leadership: Leadership, instance: Instance | None, run_id: str | None) -> None:
    """Book a machine whose launch was not recorded, on the run that it was rented for.

    The write transaction also checks the leadership: a process that lost it ends nothing.
    """
    with (
        installation.store.write(leadership) as tx,
        suppress(RowError),
    ):  # the run cannot be read: its machine is ended anyway
        if instance is not None and run_id is not None:
            run = tx.run(run_id)
            machines = with_machines(run, [instance.id])
            if machines != list(run.machines):
                tx.set_machines(run_id, machines)
                land_found(tx, run, instance.token, instance.offer_id)
