"""Meaning: what an error code of a cloud means to Tradewind. Each cloud has one table of them (providers.*.codes)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from providers.errors import ProviderError, Scope


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a code means. `source` names where the code is documented or was seen. `action` is the permission that is
    missing if it is not the call's own. How long to wait is not in it: clouds say so with their answers (Retry-After),
    if at all."""

    kind: type[ProviderError]
    scope: Scope
    source: str
    hint: str = ""
    action: str = ""


def row(
    codes: str, kind: type[ProviderError], scope: Scope, source: str, hint: str = ""
) -> Iterator[tuple[str, Meaning]]:
    """A row of such a table: all of these codes (separated by blanks) mean the same."""
    return ((code, Meaning(kind, scope, source, hint)) for code in codes.split())
