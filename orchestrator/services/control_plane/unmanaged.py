"""Unmanaged machines: they have this installation's tag, but its store did not rent them. Users list and end them."""

from __future__ import annotations

from orchestrator.errors import NotFoundError, ProviderFailure, UsageError
from orchestrator.installation import Installation
from orchestrator.services.views import Accepted
from providers.base import Provider
from providers.errors import ProviderError
from providers.instance import Instance


def unknown(installation: Installation) -> list[Instance]:
    """The unmanaged machines of all providers. Raises ProviderFailure."""
    listed = [instance for provider in installation.providers.values() for instance in _listed(installation, provider)]
    with installation.store.read() as tx:
        return [instance for instance in listed if tx.run_of_token(instance.token) is None]


def reap(installation: Installation, instance_id: str) -> Accepted:
    """Ends an unmanaged machine. Raises UsageError for a machine that the store rented, NotFoundError,
    ProviderFailure."""
    for provider in installation.providers.values():
        for instance in _listed(installation, provider):
            if instance.id == instance_id:
                _refuse_known(installation, instance)
                try:
                    provider.terminate(instance_id)
                except ProviderError as error:
                    raise ProviderFailure(str(error), hint=error.hint) from error
                message = f"{instance_id} is being ended; its cost is not in this store's ledger"
                return Accepted("reap", (), message, control_plane=True)
    raise NotFoundError(
        f"no provider lists a running machine {instance_id} of this installation",
        hint="`tradewind doctor` lists unmanaged machines",
    )


def _listed(installation: Installation, provider: Provider) -> list[Instance]:
    try:
        return list(provider.list_owned(installation.store.install_id))
    except ProviderError as error:
        raise ProviderFailure(str(error), hint=error.hint) from error


def _refuse_known(installation: Installation, instance: Instance) -> None:
    with installation.store.read() as tx:
        run_id = tx.run_of_token(instance.token)
    if run_id is not None:
        raise UsageError(
            f"{instance.id} was rented by this store for run {run_id}", hint="pause or cancel the job that uses it"
        )
