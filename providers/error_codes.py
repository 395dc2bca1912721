"""The meaning of a cloud's error code to Tradewind. Each cloud has one table (providers.*.codes)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from providers.errors import ProviderError, Scope


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of a code. `source` names where the code is documented or was observed. `action` is the missing
    permission, if it is not the call's own. It does not say how long to wait: clouds put that into their answers
    (Retry-After), if at all."""

    kind: type[ProviderError]
    scope: Scope
    source: str
    hint: str = ""
    action: str = ""


def row(
    codes: str, kind: type[ProviderError], scope: Scope, source: str, hint: str = ""
) -> Iterator[tuple[str, Meaning]]:
    """A row of a cloud's table: all of these codes (separated by blanks) have the same meaning."""
    return ((code, Meaning(kind, scope, source, hint)) for code in codes.split())
