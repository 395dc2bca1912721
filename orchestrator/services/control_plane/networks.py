"""What a cloud needs before machines can be rented: networks, and the bucket of `store_root` if it belongs to that
cloud. `up --cloud` creates them, `down --cloud` removes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from orchestrator.errors import ProviderFailure, TradewindError, UsageError, one_of
from orchestrator.installation import Installation
from orchestrator.services.control_plane.buckets import store_bucket
from orchestrator.services.views import NetworkList
from providers.base import NeedsNetworks, Provider
from providers.bucket import Bucket
from providers.clock import Clock
from providers.errors import ProviderError, ThrottledError, UnavailableError
from providers.instance import InstanceState
from providers.network import Network
from providers.registry import provider_names

WAITS_FOR_S = 600.0
ASK_EVERY_S = 5.0
MOST_NAMED = 5

Progress = Callable[[str], None]
Found = TypeVar("Found")


def networks(installation: Installation, clouds: Sequence[str]) -> NetworkList:
    """Existing networks and buckets, by cloud and region. Raises UsageError, ProviderFailure."""
    try:
        return _listed(installation, clouds)
    except ProviderError as error:
        raise ProviderFailure(str(error), hint=error.hint) from error


def set_up(
    installation: Installation, clouds: Sequence[str], progress: Progress, *, clock: Clock | None = None
) -> NetworkList:
    """Create what is missing in these clouds. Raises UsageError for a cloud that is not enabled, ProviderFailure."""
    needing = {name: _needing(installation, name) for name in clouds}
    clock = clock or installation.outside_clock
    for name, provider in needing.items():
        bucket = store_bucket(installation, name)
        _finished(partial(provider.set_up, installation.store.install_id, progress), progress, clock)
        if bucket is not None:  # at Azure, in the resource group that was just created
            _finished(partial(bucket.make, progress), progress, clock)
    return _finished(partial(_listed, installation, clouds), progress, clock)


def tear_down(
    installation: Installation, clouds: Sequence[str], progress: Progress, *, clock: Clock | None = None
) -> NetworkList:
    """Remove everything in these clouds, except buckets that are not empty or that Tradewind did not create. Waits for
    machines that are ending. Raises UsageError while machines are up there, and for a cloud that is not enabled;
    ProviderFailure. Networks are removed even if the bucket cannot be removed."""
    needing = {name: _needing(installation, name) for name in clouds}
    clock = clock or installation.outside_clock
    failed: TradewindError | None = None

    def remove(provider: NeedsNetworks) -> None:
        _refuse_machines(installation, provider)
        provider.tear_down(installation.store.install_id, progress)

    for name, provider in needing.items():
        _finished(partial(_refuse_machines, installation, provider), progress, clock)
        try:  # first, because at Azure the bucket is in the resource group
            if (bucket := store_bucket(installation, name)) is not None:
                _finished(partial(bucket.remove, progress), progress, clock)
        except TradewindError as error:
            failed = failed or error
        _finished(partial(remove, provider), progress, clock)
    if failed is not None:
        raise failed
    return _finished(partial(_listed, installation, clouds), progress, clock)


def _listed(installation: Installation, clouds: Sequence[str]) -> NetworkList:
    found: list[Network] = []
    buckets: list[Bucket | None] = []
    for name in dict.fromkeys(clouds):
        found += _needing(installation, name).networks(installation.store.install_id)
        if (bucket := store_bucket(installation, name)) is not None:
            buckets.append(bucket.found())
    return NetworkList(tuple(found), tuple(each for each in buckets if each is not None))


def _needing(installation: Installation, name: str) -> NeedsNetworks:
    provider = installation.providers.get(name)
    if provider is None:
        if name not in provider_names():
            raise UsageError(f'there is no provider "{name}"', hint=one_of(name, provider_names()))
        enabled = ", ".join(installation.providers)
        hint = f"add it to providers.enabled in tradewind.toml (enabled: {enabled})"
        raise UsageError(f"the provider {name} is not enabled", hint=hint)
    if not isinstance(provider, NeedsNetworks):
        raise UsageError(f"the provider {name} needs no networks", hint="its machines can be rented without them")
    return provider


def _refuse_machines(installation: Installation, provider: NeedsNetworks) -> None:
    """Raises UsageError while machines are up, UnavailableError while some are ending."""
    assert isinstance(provider, Provider)
    listed = [each for each in provider.list_owned(installation.store.install_id) if each.alive]
    up = sorted(each.id for each in listed if each.state is not InstanceState.STOPPING)
    if up:
        named = ", ".join(up[:MOST_NAMED]) + (f" and {len(up) - MOST_NAMED} more" if len(up) > MOST_NAMED else "")
        raise UsageError(
            f"machines of this installation are up on {provider.name}: {named}",
            hint="first run: tradewind down; for machines that this does not end: tradewind reap MACHINE",
        )
    if listed:
        what = "1 machine is" if len(listed) == 1 else f"{len(listed)} machines are"
        raise UnavailableError(f"{what} still ending on {provider.name}")


def _finished(do: Callable[[], Found], progress: Progress, clock: Clock) -> Found:
    """Repeat `do` until it has finished, no sooner than the cloud asks. Raises ProviderFailure."""
    began_s = clock.monotonic_s()
    while True:
        try:
            return do()
        except (UnavailableError, ThrottledError) as error:
            wait_s = max(ASK_EVERY_S, error.retry_after_s or 0.0)
            if wait_s > WAITS_FOR_S:
                hint = error.hint or f"run the command again in {wait_s:.0f} s: it continues where it stopped"
                raise ProviderFailure(f"the cloud asks to wait for {wait_s:.0f} s: {error}", hint=hint) from error
            if clock.monotonic_s() - began_s + wait_s > WAITS_FOR_S:
                hint = error.hint or "run the command again: it continues where it stopped"
                raise ProviderFailure(f"not finished after {WAITS_FOR_S:.0f} s: {error}", hint=hint) from error
            progress(f"waiting: {error}")
            clock.sleep(wait_s)
        except ProviderError as error:
            raise ProviderFailure(str(error), hint=error.hint) from error
