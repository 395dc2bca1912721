"""Checks call by call what an account may do."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import cast

from providers.errors import NotFoundError, ProviderError, SetupError


@dataclass(frozen=True, slots=True)
class Access:
    """The result of one check. `remedy` is what would make it work (a policy line, a command); '' if it works.

    If `needed` is False, its purpose is available without the permission.
    """

    what: str
    works: bool
    detail: str
    remedy: str = ""
    needed: bool = True


CLOUDS = {name: f"providers.{name}.permissions" for name in ("aws", "gcp", "azure")}


def cloud_access(cloud: str, settings: object = None) -> list[Access]:
    """Check which account the credentials of this environment belong to and what it may read at a cloud; with the
    `settings` of its provider, also whether machines can be rented with them. Calls the cloud.

    Raises NotFoundError if `cloud` is not one of CLOUDS, and SetupError if its library is not installed.
    """
    if cloud not in CLOUDS:
        raise NotFoundError(f"there is no cloud named {cloud!r}", hint=f"known: {', '.join(CLOUDS)}")
    try:
        module = importlib.import_module(CLOUDS[cloud])
    except ModuleNotFoundError as error:
        remedy = f"pip install 'tradewind[{cloud}]'"
        raise SetupError(f"checking {cloud} needs {error.name}, which is not installed", hint=remedy) from error
    return cast("list[Access]", module.access() if settings is None else module.access(settings=settings))


Attempt = tuple[str, Callable[[], str]]
"""The name of the check, and its call, which returns a detail to show and raises the cloud's exceptions."""


def examine(
    attempts: Sequence[Attempt],
    classify: Callable[[Exception], ProviderError | None],
    *,
    optional: Collection[str] = (),
) -> list[Access]:
    """Run all checks. The first one identifies the account; if it fails, the rest is skipped. Prices do not need the
    `optional` ones.

    Exceptions that `classify` does not know are defects of this program and are raised.
    """
    found: list[Access] = []
    for what, call in attempts:
        try:
            found.append(Access(what, True, call(), needed=what not in optional))
        except Exception as error:
            known = error if isinstance(error, ProviderError) else classify(error)
            if known is None:
                raise
            found.append(Access(what, False, str(known), known.hint, needed=what not in optional))
            if len(found) == 1:
                break
    return found
