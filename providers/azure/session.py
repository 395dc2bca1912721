"""Connections to Azure with an account: credentials, resource SKUs through azure-mgmt-compute, Resource Graph.

Everything except the retail prices needs a subscription.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from typing import Any

from azure.core import exceptions
from azure.core.pipeline.policies import RetryPolicy

from providers.collect.http import Http, Patience, retry_after_s
from providers.collect.pages import Pages
from providers.errors import (
    AuthError,
    ClockSkewError,
    CutOffError,
    ExpiredCredentialsError,
    FormatError,
    NoCredentialsError,
    PermissionDeniedError,
    ProviderError,
    ThrottledError,
    TimedOutError,
    UnavailableError,
)

MANAGEMENT = "https://management.azure.com"
GRAPH_VERSION = "2021-03-01"
SUBSCRIPTION = "AZURE_SUBSCRIPTION_ID"
LONGEST_WAIT_S = 20.0


class ShortWaits(RetryPolicy[Any, Any]):  # type: ignore[misc]  # azure-core is not checked here
    """Limits how long azure-core waits for `Retry-After`, which it otherwise follows without limit; long waits are left
    to the schedule.
    """

    def get_retry_after(self, response: Any) -> float | None:
        """The requested wait in seconds; None if there is none. Overrides azure-core's method."""
        return retry_after_s(response.http_response.headers)

    def is_retry(self, settings: dict[str, Any], response: Any) -> bool:
        """Retry only if the requested wait is at most LONGEST_WAIT_S. Overrides azure-core's method."""
        return bool(super().is_retry(settings, response)) and (
            (self.get_retry_after(response) or 0.0) <= LONGEST_WAIT_S
        )


class Connections:
    """Clients for one subscription. `credential` is an object with `get_token`; None: DefaultAzureCredential, made at
    first use.

    `management` and `ca_file` are for other Azure clouds, private endpoints and emulators. `call_s` is the timeout of a
    call in seconds.
    """

    def __init__(
        self,
        subscription: str | None = None,
        management: str = MANAGEMENT,
        ca_file: str | None = None,
        credential: Any = None,
        call_s: float = 30.0,
        attempts: int = 3,
    ) -> None:
        self.subscription = subscription or os.environ.get(SUBSCRIPTION, "")
        self._management = management.rstrip("/")
        self._ca_file = ca_file
        self._credential = credential
        self._call_s = call_s
        self._attempts = attempts
        self._http = Http(Patience(read_s=call_s, attempts=attempts), ca_file=ca_file)
        self._making = threading.Lock()
        self._compute: Any = None

    @property
    def credential(self) -> Any:
        """The credential, made at first use."""
        with self._making:
            if self._credential is None:
                from azure.identity import DefaultAzureCredential

                self._credential = DefaultAzureCredential(process_timeout=int(self._call_s))
            return self._credential

    def resource_skus(self, region: str) -> Iterator[Any]:
        """What the subscription may start in a region, with restrictions. Raises azure.core's exceptions; FormatError
        for pages that do not end.
        """
        credential = self.credential
        with self._making:
            if self._compute is None:
                from azure.mgmt.compute import ComputeManagementClient

                self._compute = ComputeManagementClient(
                    credential,
                    self.subscription,
                    base_url=self._management,
                    credential_scopes=[f"{self._management}/.default"],
                    connection_verify=self._ca_file or True,
                    retry_policy=ShortWaits(retry_total=self._attempts - 1, retry_backoff_max=self._call_s),
                    connection_timeout=5,
                    read_timeout=self._call_s,
                    timeout=self._call_s * self._attempts,
                )
        links = Pages(f"ARM's resource SKUs of {region}")
        pages = self._compute.resource_skus.list(filter=f"location eq '{region}'").by_page()
        for page in pages:
            yield from page
            if pages.continuation_token:
                links.follow(pages.continuation_token)

    def graph(self, query: str) -> Iterator[list[dict[str, Any]]]:
        """The pages of a Resource Graph query. Raises ProviderError and azure.core's exceptions."""
        token = self.credential.get_token(f"{self._management}/.default").token
        url = f"{self._management}/providers/Microsoft.ResourceGraph/resources?api-version={GRAPH_VERSION}"
        options: dict[str, Any] = {"resultFormat": "objectArray"}
        links = Pages("Resource Graph's answer")
        while True:
            body = {"subscriptions": [self.subscription], "query": query, "options": options}
            try:
                answer = self._http.post_json(url, body, {"Authorization": f"Bearer {token}"})
            except AuthError as error:
                raise denied(str(error), "Microsoft.ResourceGraph/resources/read") from error
            rows = answer.get("data") if isinstance(answer, dict) else None
            if not isinstance(rows, list):
                raise FormatError("Resource Graph's answer has no list 'data'")
            yield [row for row in rows if isinstance(row, dict)]
            if not answer.get("$skipToken"):
                return
            options = {**options, "$skipToken": links.follow(str(answer["$skipToken"]))}


def to_provider_error(error: Exception) -> ProviderError | None:
    """Convert an exception of Azure's libraries to a provider error; None if it is not one of theirs."""
    if isinstance(error, exceptions.HttpResponseError) and error.response is not None:
        return _refused(error)
    if isinstance(error, exceptions.ClientAuthenticationError):  # raised by azure-identity before anything is sent
        return _no_token(str(error))
    if isinstance(error, exceptions.IncompleteReadError | exceptions.DecodeError):
        return CutOffError("the connection ended in the middle of Azure's answer")
    if isinstance(error, exceptions.ServiceRequestTimeoutError | exceptions.ServiceResponseTimeoutError):
        return TimedOutError("Azure did not answer in time")
    if isinstance(error, exceptions.ServiceResponseError):
        text = str(error)
        return TimedOutError("Azure did not answer in time") if "timed out" in text else CutOffError(text[:200])
    if isinstance(error, exceptions.ServiceRequestError):
        return UnavailableError(f"Azure cannot be reached: {str(error)[:200]}")
    return ProviderError(f"azure-core: {error}") if isinstance(error, exceptions.AzureError) else None


def _refused(error: exceptions.HttpResponseError) -> ProviderError:
    message, status = str(error.message)[:400], int(error.status_code or 0)
    code = getattr(error.error, "code", "") or ""
    if status == 429:
        headers = {} if error.response is None else error.response.headers
        return ThrottledError(message, retry_after_s=retry_after_s(headers))
    if code in ("ExpiredAuthenticationToken", "ExpiredToken"):
        return ExpiredCredentialsError(message, hint="run: az login")
    if code == "InvalidAuthenticationToken" and "not yet valid" in message:
        return ClockSkewError(message, hint="set this machine's clock (timedatectl set-ntp true)")
    if status == 401:
        return AuthError(message, hint="run: az login")
    if status == 403:
        found = re.search(r"action '([^']+)'", message)
        return denied(message, found.group(1) if found else "")
    return UnavailableError(message) if status >= 500 else ProviderError(message)


def _no_token(text: str) -> ProviderError:
    if "AADSTS700024" in text or "not within its valid time range" in text:
        return ClockSkewError(text[:300], hint="set this machine's clock (timedatectl set-ntp true)")
    if re.search(r"AADSTS(70043|700082|50173|7000222)", text):
        return ExpiredCredentialsError(text[:300], hint="run: az login")
    return NoCredentialsError(
        "no Azure credentials were found", hint="run: az login; or set AZURE_CLIENT_ID and others"
    )


def denied(message: str, action: str) -> PermissionDeniedError:
    """A refusal, with the command that grants the action."""
    role = "az role assignment create --role Reader --assignee WHO --scope /subscriptions/SUBSCRIPTION"
    return PermissionDeniedError(message, action=action, hint=f"{role} (the role includes {action or '*/read'})")
