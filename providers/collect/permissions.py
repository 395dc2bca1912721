"""What an account may read, asked call by call: the shape of the answer."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import cast

from providers.errors import NotFoundError, ProviderError, SetupError


@dataclass(frozen=True, slots=True)
class Access:
    """One thing that was tried. `remedy` is what would make it work: a policy line, a command; '' when it works.

    What is not `needed` brings more, but prices are there without it.
    """

    what: str
    works: bool
    detail: str
    remedy: str = ""
    needed: bool = True


CLOUDS = {name: f"providers.{name}.permissions" for name in ("aws", "gcp", "azure")}


def cloud_access(cloud: str) -> list[Access]:
    """Who am I at a cloud, and what may I read there? Asks it, with the credentials of this environment.

    Raises NotFoundError for a cloud that is none of CLOUDS, and SetupError when its library is not installed.
    """
    if cloud not in CLOUDS:
        raise NotFoundError(f"there is nothing to ask of {cloud!r}", hint=f"known: {', '.join(CLOUDS)}")
    try:
        module = importlib.import_module(CLOUDS[cloud])
    except ModuleNotFoundError as error:
        remedy = f"pip install 'tradewind[{cloud}]'"
        raise SetupError(f"asking {cloud} needs {error.name}, which is not installed", hint=remedy) from error
    return cast("list[Access]", module.access())


Attempt = tuple[str, Callable[[], str]]
"""What is tried in words, and the call: it returns a detail to show, and raises what the cloud raises."""


def examine(
    attempts: Sequence[Attempt],
    classify: Callable[[Exception], ProviderError | None],
    *,
    optional: Collection[str] = (),
) -> list[Access]:
    """Try everything; the first one says who one is, and when it fails the rest is not asked. `optional` are the
    attempts that prices do without.

    Exceptions that `classify` doesn't know are faults of this program, and go on.
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
