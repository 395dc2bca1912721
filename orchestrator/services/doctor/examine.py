"""All checks in order. A check that raises an error is reported as failed; the others still run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from orchestrator.config import Config
from orchestrator.errors import TradewindError
from orchestrator.installation import Installation, open_installation
from orchestrator.services.doctor import objects, state, this_machine
from orchestrator.services.doctor.clouds import account
from orchestrator.services.views import Check, Diagnosis
from providers.base import NeedsNetworks
from providers.collect.permissions import CLOUDS
from providers.errors import ProviderError


def examine(config: Config) -> Diagnosis:
    """Checks this machine, then everything that needs an open store."""
    return Diagnosis(tuple(_checks(config)))


def _checks(config: Config) -> Iterator[Check]:
    yield this_machine.python()
    yield this_machine.package("torch", "train")
    yield this_machine.package("ray", "ray")
    yield this_machine.extras(config)
    yield this_machine.collisions()
    yield this_machine.state_folder(config)
    yield this_machine.variables()
    yield this_machine.disk(config)
    yield _safely("secrets", lambda: this_machine.secrets(config))
    try:
        installation = open_installation(config)
    except TradewindError as error:
        yield Check("store", "fail", str(error), error.hint)
        return
    try:
        look: Callable[[Installation], Check]
        for name, look in (
            ("store", state.store),
            (objects.NAME, objects.store_root),
            (objects.ORDERS, objects.orders),
            ("checkpoints", state.checkpoints_elsewhere),
            ("clock", state.clock),
            ("control plane", state.control_plane),
            ("project limits", state.limits_of_projects),
            ("jobs", state.quarantine),
            ("engine", state.engine),
            ("installation", state.installation),
            ("machines", state.machines),
        ):
            yield _safely(name, lambda look=look: look(installation))  # type: ignore[misc]
        yield from state.hosts(installation)
        for cloud in filter(CLOUDS.__contains__, config.providers.enabled):
            try:
                yield from account(cloud, config)
            except TradewindError as error:
                yield Check(f"{cloud}: account", "fail", str(error), error.hint)
        for name, provider in installation.providers.items():
            if isinstance(provider, NeedsNetworks):
                try:
                    yield from state.networks(installation, provider, name)
                except ProviderError as error:
                    yield Check(f"network of {name}", "fail", str(error), error.hint)
        yield _safely("collected prices", lambda: state.collected_prices(installation))
        for name in installation.providers:
            yield _safely(f"prices of {name}", lambda name=name: state.prices(installation, name))  # type: ignore[misc]
    finally:
        installation.close()


def _safely(name: str, look: Callable[[], Check]) -> Check:
    try:
        return look()
    except (TradewindError, OSError) as error:
        return Check(name, "fail", str(error), getattr(error, "hint", ""))
