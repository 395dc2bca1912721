"""Connections to GCP through google-cloud-compute and google-auth, and the conversion of their exceptions.

Every call has an explicit timeout. Do not wait for operations through the library's own future: it polls through a
second client that ignores the endpoint.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from google.api_core import exceptions
from google.api_core.retry import Retry
from google.auth import exceptions as auth_exceptions

from providers.collect.error_bodies import refuse_error_in
from providers.collect.http import retry_after_s
from providers.collect.pages import Pages
from providers.errors import (
    AuthError,
    CutOffError,
    FormatError,
    NoCredentialsError,
    PermissionDeniedError,
    ProviderError,
    QuotaError,
    ThrottledError,
    TimedOutError,
    UnavailableError,
)
from providers.gcp.codes import ALL_REGIONS, CHANGED, CODES
from providers.gcp.logins import KEY_FILE, LOGIN, not_found, not_refreshed
from providers.key_files import refuse_open

LONGEST_WAIT_S = 20.0
PAGE_ROWS = 500
DEFAULT_KEYS = "~/.config/gcloud/application_default_credentials.json"
"""Where `gcloud auth application-default login` puts the credentials."""
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
RESOURCE_MANAGER = "https://cloudresourcemanager.googleapis.com"
STORAGE = "https://storage.googleapis.com"
STORAGE_ADDRESS = "GOOGLE_BASE_URL"
"""The environment variable with another address of Cloud Storage; the object store reads it as well."""
PLACES = "constraints/gcp.resourceLocations"
"""The constraint of an organisation's policy that limits where something may be made."""
_CONSTRAINT = re.compile(r"constraints/[a-zA-Z]+\.\w+|customConstraints/custom\.\w+")
_RATE = "quota metric"
"""Text in a refusal for too many calls; its reason may otherwise look like that of a machine quota."""
_BY_STATUS = {401: "authError", 403: "forbidden", 404: "notFound", 409: "alreadyExists", 412: "conditionNotMet"}


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
        exceptions, and SetupError for a key file that every user can read.
        """
        from google.auth import default
        from google.auth.credentials import AnonymousCredentials

        with self._making:
            if self._credentials is None:
                if self._endpoint is not None and self._endpoint.startswith("http://"):
                    self._credentials = AnonymousCredentials()
                else:
                    refuse_open(os.environ.get(KEY_FILE) or DEFAULT_KEYS)
                    self._credentials, own = default(scopes=[SCOPE])
                    self._project = self._project or own
            return self._credentials

    @property
    def resource_manager(self) -> str:
        """The address of the Resource Manager API; an emulator serves all APIs at its endpoint."""
        return self._endpoint or RESOURCE_MANAGER

    def client(self, name: str) -> Any:
        """A client of google.cloud.compute_v1 by class name."""
        from google.cloud import compute_v1

        credentials = self.credentials()
        with self._making:
            if name not in self._clients:
                options = {"api_endpoint": self._endpoint} if self._endpoint else None
                made = getattr(compute_v1, name)(credentials=credentials, client_options=options)
                made.transport._session.hooks["response"].append(_refuse_error)
                self._clients[name] = made
            return self._clients[name]

    def ask(self, client: str, method: str, **fields: Any) -> Any:
        """The answer to a call, which is repeated while GCP is busy. Raises ProviderError."""
        return self._call(client, method, self.retry, self.call_s, fields)

    def once(self, client: str, method: str, timeout_s: float | None = None, **fields: Any) -> Any:
        """The answer to a call that is sent once. Raises ProviderError."""
        return self._call(client, method, None, self.call_s if timeout_s is None else timeout_s, fields)

    def _call(self, client: str, method: str, retry: Any, timeout_s: float, fields: Mapping[str, Any]) -> Any:
        with converted():
            request = {"project": self.project, **fields} if "project" not in fields else dict(fields)
            return getattr(self.client(client), method)(request=request, timeout=timeout_s, retry=retry)

    def aggregated(self, client: str, wanted: str) -> Iterator[tuple[str, Any]]:
        """(zone, its list) of all zones, page by page. Raises ProviderError."""
        links = Pages(f"GCP's answer to {client}")
        with converted():
            pager = self.ask(client, "aggregated_list", filter=wanted, max_results=PAGE_ROWS)
            for page in pager.pages:
                for scope, listed in page.items.items():
                    if scope.startswith("zones/"):
                        yield scope.removeprefix("zones/"), listed
                if page.next_page_token:
                    links.follow(page.next_page_token)

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

    def send(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: object = None
    ) -> Mapping[str, Any]:
        """Cloud Storage's answer to a request to a path below /storage/v1/, which is sent once. Raises
        ProviderError."""
        from google.auth.transport.requests import AuthorizedSession

        address = os.environ.get(STORAGE_ADDRESS) or self._endpoint or STORAGE
        url = f"{address.rstrip('/')}/storage/v1/{path}"
        with converted(), AuthorizedSession(self.credentials()) as session:
            session.hooks["response"].append(_refuse_error)
            answer = session.request(method, url, params=query, json=body, timeout=self.call_s, allow_redirects=False)
            if answer.status_code >= 300:
                raise exceptions.from_http_response(answer)
            found = answer.json() if answer.content else {}
        if not isinstance(found, dict):
            raise FormatError(f"GCP's answer to {method} {path} is not a JSON object")
        return found

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


def _refuse_error(answer: Any, **_: Any) -> None:
    """A hook of requests. Raises UnavailableError for an error with the status of a success."""
    if answer.status_code < 300:
        refuse_error_in("GCP", answer.status_code, answer.content)


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


def provider_error(error: BaseException) -> ProviderError:
    """Any exception of a call as a provider error. An unknown one says that the call may have taken effect."""
    if isinstance(error, ProviderError):
        return error
    known = to_provider_error(error) if isinstance(error, Exception) else None
    return known or UnavailableError(f"the gcp provider failed: {error!r}", hint="run: tradewind doctor")


def to_provider_error(error: Exception) -> ProviderError | None:
    """Convert an exception of Google's libraries to a provider error; None if it is not one of theirs."""
    import requests
    from google.protobuf.json_format import ParseError

    if isinstance(error, auth_exceptions.DefaultCredentialsError):
        return not_found(error)
    if isinstance(error, auth_exceptions.RefreshError):
        return not_refreshed(error)
    if isinstance(error, auth_exceptions.TransportError):
        return UnavailableError(f"Google's token service cannot be reached: {str(error)[:200]}")
    if isinstance(error, auth_exceptions.GoogleAuthError):
        return AuthError(f"google-auth: {error}", hint=LOGIN)
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


def _refused(error: exceptions.GoogleAPICallError) -> ProviderError:
    message, status = str(error.message), int(error.code or 0)
    reasons = [str(row.get("reason", "")) for row in error.errors if isinstance(row, dict)]
    if status == 429 or _RATE in message:
        reasons.insert(0, "rateLimitExceeded")
    elif status == 403 and "has not been used in project" in message:
        reasons.insert(0, "accessNotConfigured")
    reasons.append(_BY_STATUS.get(status, ""))
    reason = next((reason for reason in reasons if reason in CODES), None)
    if reason is None:
        return UnavailableError(message) if status >= 500 else ProviderError(message)
    after_s = retry_after_s(getattr(error.response, "headers", {}))
    return _error(reason, f"{reason}: {message}", after_s)


def is_done(operation: Any) -> bool:
    """Whether an operation has ended, successfully or not."""
    return bool(operation.status.name == "DONE")


def failure(operation: Any) -> ProviderError | None:
    """Why an operation failed; None if it has not failed."""
    if not operation.error.errors:
        return None
    rows: Sequence[Any] = operation.error.errors
    row = next((row for row in rows if row.code in CODES), rows[0])
    text = f"{operation.operation_type}: {row.code}: {row.message}"
    return _error(row.code, text, None) if row.code in CODES else ProviderError(text)


def _error(code: str, message: str, after_s: float | None) -> ProviderError:
    meaning = CODES[code]
    if code in CHANGED and (constraint := _CONSTRAINT.search(message)):
        return _forbidden(constraint[0], message)
    if meaning.kind is PermissionDeniedError:
        action = permission_in(message)
        if "enable" in meaning.hint:
            return PermissionDeniedError(message, action="compute.googleapis.com", hint=meaning.hint)
        return PermissionDeniedError(message, action=action, hint=meaning.hint or grant(action))
    scope = "account" if meaning.kind is QuotaError and ALL_REGIONS in message else meaning.scope
    after_s = after_s if meaning.kind is ThrottledError else None
    return meaning.kind(message, hint=meaning.hint, scope=scope, retry_after_s=after_s)


def _forbidden(constraint: str, message: str) -> PermissionDeniedError:
    """The error for an action that a policy of the organisation forbids, whatever the account's permissions: repeating
    it does not help."""
    where = constraint == PLACES
    instead = "name other regions (providers.gcp.regions, store_region)" if where else "ask its administrator"
    hint = (
        f"a policy of the organisation forbids it: {instead}, or have the project exempted from {constraint}: "
        "console.cloud.google.com/iam-admin/orgpolicies"
    )
    return PermissionDeniedError(message, action=constraint, hint=hint, scope="region" if where else "account")


@contextmanager
def converted() -> Iterator[None]:
    """The exceptions of Google's libraries, and those of reading what GCP answered, as ProviderErrors."""
    try:
        yield
    except ProviderError:
        raise
    except Exception as error:
        raise provider_error(error) from error


def permission_in(text: str) -> str:
    """The permission that a refusal names ("Required 'compute.zones.list' permission for ..."), or ''."""
    found = re.search(r"'([a-z]+\.[\w.]+)'", text)
    return found.group(1) if found else ""


def grant(permission: str) -> str:
    """The command that grants a permission of the Compute API, or of Cloud Storage."""
    reads = permission.endswith((".list", ".get", ".aggregatedList")) or not permission
    role = "roles/compute.viewer" if reads else "roles/compute.instanceAdmin.v1"
    if permission.startswith("storage."):
        role = "roles/storage.admin"
    text = f"gcloud projects add-iam-policy-binding PROJECT --member=MEMBER --role={role}"
    return f"{text} (the role includes {permission})" if permission else text


def listed_regions(connections: Connections) -> list[str]:
    """The project's regions, sorted. Raises ProviderError."""
    with converted():
        return sorted(connections.zones_by_region())
