"""Connections to GCP through google-cloud-compute and google-auth, and the conversion of their exceptions.

Every call has an explicit timeout. Do not wait for operations through the library's own future: it polls through a
second client that ignores the endpoint.
"""

from __future__ import annotations

import re
import threading
import time
from typing import Any

from google.api_core import exceptions
from google.api_core.retry import Retry
from google.auth import exceptions as auth_exceptions

from providers.collect.http import retry_after_s
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

LONGEST_WAIT_S = 20.0
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
THROTTLE_REASONS = ("rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED", "quotaExceeded")


class Connections:
    """Clients of the Compute API, each made once. `project` None: the one of the credentials.

    `endpoint` is for an emulator or a private endpoint; plain http is used without credentials. `credentials` None:
    those of the environment (application default). `call_s` is the timeout of a call, `patience_s` the limit for
    repeated attempts, in seconds.
    """

    def __init__(
        self,
        project: str | None = None,
        endpoint: str | None = None,
        call_s: float = 30.0,
        patience_s: float = 60.0,
        credentials: Any = None,
    ) -> None:
        self.call_s = call_s
        self.retry = Retry(predicate=_is_transient, initial=0.5, maximum=8.0, timeout=patience_s, on_error=_wait)
        self._project = project
        self._endpoint = endpoint
        self._making = threading.Lock()
        self._credentials = credentials
        self._clients: dict[str, Any] = {}
        self._listing = threading.Lock()
        self._zones: dict[str, list[str]] | None = None

    @property
    def project(self) -> str:
        """The project to use. Raises NoCredentialsError if neither an option nor the credentials name one."""
        self.credentials()
        if not self._project:
            raise NoCredentialsError(
                "no GCP project is configured", hint="set GOOGLE_CLOUD_PROJECT, or the option project of the source"
            )
        return self._project

    def credentials(self) -> Any:
        """The credentials of the environment (application default); anonymous for plain http. Raises google.auth's
        exceptions.
        """
        from google.auth import default
        from google.auth.credentials import AnonymousCredentials

        with self._making:
            if self._credentials is None:
                if self._endpoint is not None and self._endpoint.startswith("http://"):
                    self._credentials = AnonymousCredentials()
                else:
                    self._credentials, own = default(scopes=[SCOPE])
                    self._project = self._project or own
            return self._credentials

    def client(self, name: str) -> Any:
        """A client of google.cloud.compute_v1 by class name."""
        from google.cloud import compute_v1

        credentials = self.credentials()
        with self._making:
            if name not in self._clients:
                options = {"api_endpoint": self._endpoint} if self._endpoint else None
                self._clients[name] = getattr(compute_v1, name)(credentials=credentials, client_options=options)
            return self._clients[name]

    def bearer(self) -> dict[str, str]:
        """The header that authorises a plain HTTP call. Raises google.auth's exceptions."""
        from google.auth.transport.requests import Request

        credentials = self.credentials()
        with self._making:
            if not getattr(credentials, "valid", True):
                credentials.refresh(Request())
        headers: dict[str, str] = {}
        credentials.apply(headers)
        return headers

    def zones_by_region(self) -> dict[str, list[str]]:
        """Zones by region. Requested once; concurrent callers wait for the same answer."""
        with self._listing:
            if self._zones is None:
                rows = self.list("RegionsClient")
                self._zones = {row.name: sorted(url.rpartition("/")[2] for url in row.zones) for row in rows}
            return self._zones

    def list(self, client: str, finding_page: Any = None, **fields: Any) -> list[Any]:
        """All items of a list call, page by page; `finding_page` is called with the size of each page."""
        found: list[Any] = []
        pager = self.client(client).list(
            request={**fields, "project": self.project}, timeout=self.call_s, retry=self.retry
        )
        links = Pages(f"GCP's answer to {client}")
        for page in pager.pages:
            items = list(page.items)
            if finding_page is not None:
                finding_page(len(items))
            found += items
            if page.next_page_token:
                links.follow(page.next_page_token)
        return found


def _asked_to_wait_s(error: Exception) -> float:
    response = getattr(error, "response", None)
    return retry_after_s(getattr(response, "headers", {})) or 0.0


def _is_transient(error: Exception) -> bool:
    """True if the call is worth repeating soon. Longer waits are left to the schedule."""
    transient = (
        exceptions.TooManyRequests,
        exceptions.ServiceUnavailable,
        exceptions.BadGateway,
        exceptions.GatewayTimeout,
    )
    return isinstance(error, transient) and _asked_to_wait_s(error) <= LONGEST_WAIT_S


def _wait(error: Exception) -> None:
    """Wait as Retry-After asks: the library backs off by itself but ignores that header."""
    time.sleep(_asked_to_wait_s(error))


def to_provider_error(error: Exception) -> ProviderError | None:
    """Convert an exception of Google's libraries to a provider error; None if it is not one of theirs."""
    import requests
    from google.protobuf.json_format import ParseError

    if isinstance(error, auth_exceptions.DefaultCredentialsError):
        return NoCredentialsError("no GCP credentials were found", hint="run: gcloud auth application-default login")
    if isinstance(error, auth_exceptions.RefreshError):
        return _not_refreshed(str(error))
    if isinstance(error, auth_exceptions.GoogleAuthError):
        return AuthError(f"google-auth: {error}", hint="run: gcloud auth application-default login")
    if isinstance(error, exceptions.RetryError):
        cause = error.cause
        return (to_provider_error(cause) if isinstance(cause, Exception) else None) or UnavailableError(str(error))
    if isinstance(error, exceptions.GoogleAPICallError):
        return _refused(error)
    if isinstance(error, requests.exceptions.Timeout):
        return TimedOutError("GCP did not answer in time")
    if isinstance(error, requests.exceptions.ChunkedEncodingError | requests.exceptions.ContentDecodingError):
        return CutOffError("the connection ended in the middle of GCP's answer")
    if isinstance(error, ParseError):
        return FormatError(f"GCP's answer does not match its library: {str(error)[:200]}")
    if isinstance(error, requests.exceptions.JSONDecodeError):
        return CutOffError("GCP's answer is incomplete JSON")
    if isinstance(error, requests.exceptions.ConnectionError):
        if "Read timed out" in str(error):
            return TimedOutError("GCP did not answer in time")
        if "IncompleteRead" in str(error) or "aborted" in str(error):
            return CutOffError("the connection ended in the middle of GCP's answer")
        return UnavailableError(f"GCP cannot be reached: {type(error).__name__}")
    return None


def _not_refreshed(text: str) -> ProviderError:
    if "reasonable timeframe" in text or "iat" in text:
        return ClockSkewError(
            f"GCP rejects the time of this machine's token: {text[:200]}",
            hint="set this machine's clock (timedatectl set-ntp true)",
        )
    return ExpiredCredentialsError(
        f"GCP credentials are no longer valid: {text[:200]}", hint="run: gcloud auth application-default login"
    )


def _refused(error: exceptions.GoogleAPICallError) -> ProviderError:
    message, code = str(error.message), int(error.code or 0)
    reasons = [str(row.get("reason", "")) for row in error.errors if isinstance(row, dict)]
    if code == 429 or any(reason in THROTTLE_REASONS for reason in reasons):
        return ThrottledError(message, retry_after_s=retry_after_s(getattr(error.response, "headers", {})))
    if code == 401:
        return ExpiredCredentialsError(message, hint="run: gcloud auth application-default login")
    if code == 403 and ("accessNotConfigured" in reasons or "has not been used in project" in message):
        return PermissionDeniedError(
            message, action="compute.googleapis.com", hint="run: gcloud services enable compute.googleapis.com"
        )
    if code == 403:
        action = permission_in(message)
        return PermissionDeniedError(message, action=action, hint=grant(action))
    return UnavailableError(message) if code >= 500 else ProviderError(message)


def permission_in(text: str) -> str:
    """The permission that a refusal names ("Required 'compute.zones.list' permission for ..."), or ''."""
    found = re.search(r"'([a-z]+\.[\w.]+)'", text)
    return found.group(1) if found else ""


def grant(permission: str) -> str:
    """The command that grants what reading prices needs."""
    role = "roles/compute.viewer"
    text = f"gcloud projects add-iam-policy-binding PROJECT --member=MEMBER --role={role}"
    return f"{text} (the role includes {permission})" if permission else text


def listed_regions(connections: Connections) -> list[str]:
    """The project's regions, sorted. Raises ProviderError."""
    try:
        return sorted(connections.zones_by_region())
    except Exception as error:
        known = error if isinstance(error, ProviderError) else to_provider_error(error)
        if known is None:
            raise
        raise known from error
