"""Finds providers by name through the entry points of installed packages.

A package adds a provider by declaring an entry point in the group `tradewind.providers`, as this one does. A provider
is imported only when it is used: its cloud's library may be missing and takes time to load.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from providers.base import Provider
from providers.errors import NotFoundError, SetupError

GROUP = "tradewind.providers"
OWN_DISTRIBUTION = "tradewind"


def provider_names() -> tuple[str, ...]:
    """Names of all installed providers, sorted; imports none of them."""
    return tuple(sorted({entry.name for entry in entry_points(group=GROUP)}))


def without_provider(clouds: Iterable[str]) -> tuple[str, ...]:
    """The clouds among these without an installed provider, sorted: their prices may be known, but nothing can be
    rented there."""
    return tuple(sorted(set(clouds) - set(provider_names())))


def provider_factory(name: str) -> Callable[..., Provider]:
    """The callable that makes the named provider, imported now.

    Raises NotFoundError (with the closest name) if there is no such provider, and SetupError if it cannot be imported;
    the hint then has the pip command.
    """
    found = entry_points(group=GROUP, name=name)
    if not found:
        names = provider_names()
        near = difflib.get_close_matches(name, names, n=1)
        known = f"installed providers: {', '.join(names)}" if names else "no provider is installed"
        raise NotFoundError(
            f"there is no provider named {name!r}",
            hint=f"did you mean {near[0]!r}? {known}" if near else known,
            scope="cloud",
        )
    if len({entry.value for entry in found}) > 1:
        owners = ", ".join(sorted(_distribution(entry) for entry in found))
        raise SetupError(f"several packages declare a provider named {name!r}: {owners}", hint="uninstall all but one")
    return _load(next(iter(found)))


def _load(entry: EntryPoint) -> Callable[..., Provider]:
    try:
        return cast("Callable[..., Provider]", entry.load())
    except ModuleNotFoundError as error:
        if entry.module.startswith(error.name or ""):  # the provider's own module, which no extra installs
            raise SetupError(
                f"the provider {entry.name!r} is declared as {entry.value}, which does not exist",
                hint=f"reinstall {_distribution(entry)}",
            ) from error
        package = OWN_DISTRIBUTION if _distribution(entry) == OWN_DISTRIBUTION else None
        raise SetupError(
            f"the provider {entry.name!r} needs {error.name}, which is not installed",
            hint=f"pip install '{package}[{entry.name}]'" if package else f"pip install {error.name}",
        ) from error
    except (ImportError, AttributeError) as error:
        raise SetupError(
            f"the provider {entry.name!r} cannot be loaded from {entry.value}: {error}",
            hint=f"reinstall {_distribution(entry)}",
        ) from error


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "its package"
