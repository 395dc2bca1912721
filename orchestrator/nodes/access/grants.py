"""Grants: the credentials and signed requests that each cloud's store gives to machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from orchestrator.errors import SiteError
from orchestrator.nodes.access.scope import Scope


class NoLimitedAccess(SiteError):
    """The store does not issue credentials limited to a job."""


@dataclass(frozen=True, slots=True)
class Issued:
    """Credentials that are valid for `for_s` from now; `values` are those of trainers.objects.credentials.Lent."""

    values: Mapping[str, str]
    for_s: float


class Signer(Protocol):
    """Makes signed requests that any holder can send until they expire.

    A request's URL is `endpoint` + its path + "?" + `query` and `suffix`, joined by "&"; every one has `headers`, and
    one that creates an object, `once`, too.
    """

    @property
    def endpoint(self) -> str:
        """The URL of the service, without a path."""
        ...

    @property
    def query(self) -> str:
        """The part that all URLs share."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of all requests."""
        ...

    @property
    def once(self) -> Mapping[str, str]:
        """The additional headers of requests that create an object if it is absent."""
        ...

    def suffix(self, method: str, path: str, *, if_absent: bool = False) -> str:
        """The part specific to one URL, for a quoted path /bucket/key."""
        ...


class Grants(Protocol):
    """The grants of one cloud."""

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that lead to its stores and are not secret."""
        ...

    def issue(self, scope: Scope, name: str) -> Issued:
        """See Issuer.issue."""
        ...

    def signer(self, scope: Scope, for_s: int) -> Signer:
        """See Issuer.signer."""
        ...


def url(signer: Signer, method: str, path: str, *, if_absent: bool = False) -> str:
    """The whole URL of a request."""
    query = "&".join(filter(None, (signer.query, signer.suffix(method, path, if_absent=if_absent))))
    return f"{signer.endpoint}{path}?{query}" if query else f"{signer.endpoint}{path}"
