"""Connections to GCP through google-cloud-compute and google-auth, and their exceptions in our words.

Everything is asked with an explicit timeout. Operations must not be waited for through the library's own future: it
polls through a second client that ignores the endpoint.
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
    """Clients of the Compute API, made once each. `project` None: the one that the credentials belong to.

    `endpoint` is for an emulator or a private endpoint; plain http is asked without credentials.
    `credentials` None: those of the environment (application default).
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
        self.retry = Retry(predicate=_passes, initial=0.5, maximum=8.0, timeout=patience_s, on_error=_wait)
        self._project = project
        self._endpoint = endpoint
        self._making = threading.Lock()
        self._credentials = credentials
        self._clients: dict[str, Any] = {}
        self._listing = threading.Lock()
        self._zones: dict[str, list[str]] | None = None

    @property
    def project(self) -> str:
        """Raises NoCredentialsError when neither an option nor the credentials name one."""
        self.credentials()
        if not self._project:
            raise NoCredentialsError(
                "no GCP project is named", hint="set GOOGLE_CLOUD_PROJECT, or the option project of the source"
            )
        return self._project

    def credentials(self) -> Any:
        """Of the environment (application default), or none for plain http. Raises google.auth's exceptions."""
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
        """Asked once; who comes meanwhile waits for the same answer."""
        with self._listing:
            if self._zones is None:
                rows = self.list("RegionsClient")
                self._zones = {row.name: sorted(url.rpartition("/")[2] for url in row.zones) for row in rows}
            return self._zones

    def list(self, client: str, finding_page: Any = None, **fields: Any) -> list[Any]:
        """All items of a list call, page by page; `finding_page` is told the size of each."""
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


def _passes(error: Exception) -> bool:
    """Whether a call is worth repeating soon. A longer wait is left to the schedule."""
    passing = (
        exceptions.TooManyRequests,
        exceptions.ServiceUnavailable,
        exceptions.BadGateway,
        exceptions.GatewayTimeout,
    )
    return isinstance(error, passing) and _asked_to_wait_s(error) <= LONGEST_WAIT_S


def _wait(error: Exception) -> None:
    """The library backs off by itself, but does not know Retry-After."""
    time.sleep(_asked_to_wait_s(error))


def in_our_words(error: Exception) -> ProviderError | None:
    """An exception of Google's libraries as one of ours; None when it is none of theirs."""
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
        return (in_our_words(cause) if isinstance(cause, Exception) else None) or UnavailableError(str(error))
    if isinstance(error, exceptions.GoogleAPICallError):
        return _refused(error)
    if isinstance(error, requests.exceptions.Timeout):
        return TimedOutError("GCP did not answer in time")
    if isinstance(error, requests.exceptions.ChunkedEncodingError | requests.exceptions.ContentDecodingError):
        return CutOffError("the connection ended in the middle of GCP's answer")
    if isinstance(error, ParseError):
        return FormatError(f"GCP's answer is not of the form that its library knows: {str(error)[:200]}")
    if isinstance(error, requests.exceptions.JSONDecodeError):
        return CutOffError("GCP's answer is not whole JSON")
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
            f"GCP refuses a token of this machine's time: {text[:200]}",
            hint="set this machine's clock (timedatectl set-ntp true)",
        )
    return ExpiredCredentialsError(
        f"GCP credentials are no longer valid: {text[:200]}", hint="run: gcloud auth application-default login"
    )


def _refused(error: exceptions.GoogleAPICallError) -> ProviderError:
    said, code = str(error.message), int(error.code or 0)
    reasons = [str(row.get("reason", "")) for row in error.errors if isinstance(row, dict)]
    if code == 429 or any(reason in THROTTLE_REASONS for reason in reasons):
        return ThrottledError(said, retry_after_s=retry_after_s(getattr(error.response, "headers", {})))
    if code == 401:
        return ExpiredCredentialsError(said, hint="run: gcloud auth application-default login")
    if code == 403 and ("accessNotConfigured" in reasons or "has not been used in project" in said):
        return PermissionDeniedError(
            said, action="compute.googleapis.com", hint="run: gcloud services enable compute.googleapis.com"
        )
    if code == 403:
        action = permission_in(said)
        return PermissionDeniedError(said, action=action, hint=grant(action))
    return UnavailableError(said) if code >= 500 else ProviderError(said)


def permission_in(text: str) -> str:
    """The permission that a refusal names ("Required 'compute.zones.list' permission for ..."), or ''."""
    found = re.search(r"'([a-z]+\.[\w.]+)'", text)
    return found.group(1) if found else ""


def grant(permission: str) -> str:
    """The command that gives what reading the market needs."""
    role = "roles/compute.viewer"
    text = f"gcloud projects add-iam-policy-binding PROJECT --member=MEMBER --role={role}"
    return f"{text} (it holds {permission})" if permission else text


def listed_regions(connections: Connections) -> list[str]:
    """The project's regions. Raises ProviderError."""
    try:
        return sorted(connections.zones_by_region())
    except Exception as error:
        known = error if isinstance(error, ProviderError) else in_our_words(error)
        if known is None:
            raise
        raise known from error
