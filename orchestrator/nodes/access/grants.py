"""Grants: what the store of each cloud gives out to machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from orchestrator.errors import SiteError
from orchestrator.nodes.access.scope import Scope


class NoLimitedAccess(SiteError):
    """The store gives out no credentials that are limited to a job."""


@dataclass(frozen=True, slots=True)
class Issued:
    """Credentials that are valid for `for_s` from now; `values` are those of trainers.objects.credentials.Lent."""

    values: Mapping[str, str]
    for_s: float


class Signer(Protocol):
    """Makes requests that whoever has them can send until they expire.

    A request's URL is `endpoint` + its path + "?" + `query` and `suffix`, joined by "&"; every one has `headers`, and
    one that creates an object, `once`, too.
    """

    @property
    def endpoint(self) -> str:
        """The URL of the service, without a path."""
        ...

    @property
    def query(self) -> str:
        """What all URLs share."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Of all requests."""
        ...

    @property
    def once(self) -> Mapping[str, str]:
        """Of those that create an object if it is absent."""
        ...

    def suffix(self, method: str, path: str, *, if_absent: bool = False) -> str:
        """What is the URL's own, of a path /bucket/key, which is quoted."""
        ...


class Grants(Protocol):
    """Of one cloud."""

    @property
    def variables(self) -> tuple[str, ...]:
        """Those that lead to its stores, and are no secret."""
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
