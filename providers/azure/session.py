"""Connections to Azure with an account: credentials, resource SKUs through azure-mgmt-compute, Resource Graph.

Everything except the retail prices needs a subscription.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from azure.core import exceptions
from azure.core.pipeline import policies
from azure.mgmt.core.exceptions import ARMErrorFormat

from providers.azure.codes import meaning
from providers.azure.logins import LOGIN, no_token
from providers.collect.error_bodies import refuse_error
from providers.collect.http import Http, Patience, retry_after_s
from providers.collect.pages import Pages
from providers.errors import (
    AuthError,
    ClockSkewError,
    ConflictError,
    CutOffError,
    FormatError,
    PermissionDeniedError,
    ProviderError,
    ThrottledError,
    TimedOutError,
    UnavailableError,
)
from providers.key_files import refuse_open

MANAGEMENT = "https://management.azure.com"
GRAPH_VERSION = "2021-03-01"
SUBSCRIPTION = "AZURE_SUBSCRIPTION_ID"
LONGEST_WAIT_S = 20.0
ONCE: dict[str, Any] = {"retry_total": 0}
"""The option for a call that azure-core must not repeat, because Azure may have carried it out."""


class ShortWaits(policies.RetryPolicy[Any, Any]):  # type: ignore[misc]  # azure-core is not checked here
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


class NoErrors(policies.SansIOHTTPPolicy[Any, Any]):  # type: ignore[misc]  # azure-core is not checked here
    """Raises UnavailableError for an error with the status of a success. Stands before the policy that decodes answers,
    because the first policy of a pipeline is the last to see an answer."""

    def on_response(self, request: Any, response: Any) -> None:
        """Overrides azure-core's method."""
        status = int(response.http_response.status_code)
        if status < 300:
            refuse_error("Azure", status, response.context.get(policies.ContentDecodePolicy.CONTEXT_NAME))


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
    def ca_file(self) -> str | None:
        """The certificate authorities that Azure is verified with; None: those of its libraries."""
        return self._ca_file

    @property
    def credential(self) -> Any:
        """The credential, made at first use. Raises SetupError for a certificate whose key every user can read."""
        with self._making:
            if self._credential is None:
                from azure.identity import DefaultAzureCredential

                # the exception has the reason; without a handler, Python would print the library's log
                logging.getLogger("azure.identity").addHandler(logging.NullHandler())
                refuse_open(os.environ.get("AZURE_CLIENT_CERTIFICATE_PATH"))
                self._credential = DefaultAzureCredential(process_timeout=int(self._call_s))
            return self._credential

    @property
    def compute(self) -> Any:
        """The client of azure-mgmt-compute, made at first use. Its calls raise azure.core's exceptions; those with ONCE
        are sent once. It does not register the subscription for a service, as it otherwise would, waiting for minutes.
        """
        credential = self.credential
        with self._making:
            if self._compute is None:
                from azure.mgmt.compute import ComputeManagementClient
                from azure.mgmt.core.policies import ARMChallengeAuthenticationPolicy

                self._compute = ComputeManagementClient(
                    credential,
                    self.subscription,
                    base_url=self._management,
                    connection_verify=self._ca_file or True,
                    connection_timeout=5,
                    read_timeout=self._call_s,
                    policies=[
                        policies.RequestIdPolicy(),
                        policies.HeadersPolicy(),
                        policies.UserAgentPolicy("tradewind"),
                        policies.ProxyPolicy(),
                        NoErrors(),
                        policies.ContentDecodePolicy(),
                        ShortWaits(
                            retry_total=self._attempts - 1,
                            retry_backoff_max=self._call_s,
                            timeout=self._call_s * self._attempts,
                        ),
                        ARMChallengeAuthenticationPolicy(credential, f"{self._management}/.default"),
                    ],
                )
            return self._compute

    def resource_skus(self, region: str) -> Iterator[Any]:
        """What the subscription may start in a region, with restrictions. Raises azure.core's exceptions; FormatError
        for pages that do not end.
        """
        listed = self.compute.resource_skus.list(filter=f"location eq '{region}'")
        return rows_of(f"ARM's resource SKUs of {region}", listed)

    def send(self, method: str, path: str, version: str, body: object = None, **options: Any) -> Any:
        """The answer to a request without a client library: `path` begins with a slash or is a complete URL. Raises
        azure.core's exceptions, also for an unsuccessful answer."""
        from azure.core.rest import HttpRequest

        url = path if path.startswith("https://") else f"{self._management}{path}"
        query = {} if "api-version=" in url else {"api-version": version}
        request = HttpRequest(method, url, params=query, json=body)
        answer = self.compute.send_request(request, **options)
        answer.read()
        if answer.status_code >= 400:
            raise exceptions.HttpResponseError(response=answer, error_format=ARMErrorFormat)
        return answer

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


def rows_of(what: str, listed: Any) -> Iterator[Any]:
    """The rows of azure-core's answer in pages; `what` names it in errors. azure-core itself follows a circle of pages
    without end. Raises azure.core's exceptions; FormatError for pages that do not end."""
    links, pages = Pages(what), listed.by_page()
    for page in pages:
        yield from page
        if pages.continuation_token:
            links.follow(pages.continuation_token)


def to_provider_error(error: Exception) -> ProviderError | None:
    """Convert an exception of Azure's libraries to a provider error; None if it is not one of theirs."""
    unread = isinstance(error, exceptions.IncompleteReadError | exceptions.DecodeError)
    if isinstance(error, exceptions.HttpResponseError) and error.response is not None and not unread:
        return _refused(error)
    if isinstance(error, exceptions.ClientAuthenticationError):  # raised by azure-identity before anything is sent
        return no_token(str(error))
    if unread:
        return CutOffError(f"Azure's answer is incomplete or is not JSON: {str(error)[:200]}")
    if isinstance(error, exceptions.ServiceRequestTimeoutError | exceptions.ServiceResponseTimeoutError):
        return TimedOutError("Azure did not answer in time")
    if isinstance(error, exceptions.ServiceResponseError):
        text = str(error)
        return TimedOutError("Azure did not answer in time") if "timed out" in text else CutOffError(text[:200])
    if isinstance(error, exceptions.ServiceRequestError):
        return UnavailableError(f"Azure cannot be reached: {str(error)[:200]}")
    return ProviderError(f"azure-core: {error}") if isinstance(error, exceptions.AzureError) else None


def error_code(error: BaseException) -> str:
    """Azure's code of a refusal; "" for any other exception."""
    return _code(error) if isinstance(error, exceptions.HttpResponseError) else ""


def refusal(code: str, message: str, status: int = 0, headers: Mapping[str, str] | None = None) -> ProviderError:
    """The error for a refusal with this code, by a call or by a long operation."""
    text = f"{code}: {message}"[:400] if code else message[:400]
    found = meaning(code, message)
    if status == 429 or (found is not None and found.kind is ThrottledError):
        return ThrottledError(text, retry_after_s=retry_after_s(headers or {}))
    if code == "InvalidAuthenticationToken" and "not yet valid" in message:
        return ClockSkewError(text, hint="set this machine's clock (timedatectl set-ntp true)")
    if found is not None and found.kind is PermissionDeniedError:
        action = re.search(r"action '([^']+)'", message)
        return denied(text, action.group(1) if action else "")
    if found is not None:
        return found.kind(text, hint=found.hint, scope=found.scope)
    if status == 401:
        return AuthError(text, hint=LOGIN)
    if status == 403:
        return denied(text, "")
    if status in (409, 412):
        return ConflictError(text)
    return UnavailableError(text) if status >= 500 else ProviderError(text)


def _refused(error: exceptions.HttpResponseError) -> ProviderError:
    headers = {} if error.response is None else error.response.headers
    message = str(getattr(error.error, "message", None) or error.message)
    return refusal(_code(error), message, int(error.status_code or 0), headers)


def _code(error: exceptions.HttpResponseError) -> str:
    return str(getattr(error.error, "code", "") or "")


def denied(message: str, action: str) -> PermissionDeniedError:
    """The error for a refusal, with the command that grants the action."""
    if action and not action.endswith("/read"):
        hint = f"`tradewind doctor --policy azure` prints a role that includes {action}"
        return PermissionDeniedError(message, action=action, hint=hint)
    role = "az role assignment create --role Reader --assignee WHO --scope /subscriptions/SUBSCRIPTION"
    return PermissionDeniedError(message, action=action, hint=f"{role} (the role includes {action or '*/read'})")
