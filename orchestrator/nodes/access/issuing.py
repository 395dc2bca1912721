"""Issuing: credentials limited in scope and time, from the store's cloud, and the requests that a machine without
credentials may send."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType

from orchestrator.nodes.access.aws import AwsGrants
from orchestrator.nodes.access.azure import AzureGrants
from orchestrator.nodes.access.gcs import GcsGrants
from orchestrator.nodes.access.grants import Grants, Issued, Signer
from orchestrator.nodes.access.scope import Scope
from orchestrator.nodes.access.signing import utc_now
from trainers.objects.services import BLOB, GCS, S3, Service

_GRANTS: Mapping[str, Callable[..., Grants]] = MappingProxyType(
    {S3.scheme: AwsGrants, GCS.scheme: GcsGrants, BLOB.scheme: AzureGrants}
)


class Issuer:
    """Requests credentials with those of this process. `role` is a role to assume for it (machines.role); `share`: hand
    out this process's own credentials instead."""

    def __init__(
        self,
        now: Callable[[], datetime] = utc_now,
        *,
        role: str | None = None,
        share: bool = False,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._now, self._role, self._share, self._environ = now, role, share, environ
        self._made: dict[str, Grants] = {}

    def issue(self, scope: Scope, name: str) -> Issued:
        """Credentials for this scope. `name` appears in the cloud's logs. Takes seconds at most.

        Raises NoLimitedAccess if the store refuses, SiteError if it does not answer.
        """
        return self._of(scope.service).issue(scope, name)

    def signer(self, scope: Scope, for_s: int) -> Signer:
        """The signer of requests for a machine that has no credentials yet. Raises as `issue` does."""
        return self._of(scope.service).signer(scope, for_s)

    def passed_on(self, service: Service) -> Mapping[str, str]:
        """The variables of this process's environment that lead to the store and are not secret."""
        return {name: self._environ[name] for name in self._of(service).variables if name in self._environ}

    def _of(self, service: Service) -> Grants:
        if service.scheme not in self._made:
            made = _GRANTS[service.scheme](self._now, role=self._role, share=self._share, environ=self._environ)
            self._made[service.scheme] = made
        return self._made[service.scheme]
