"""Reads the Billing Catalog over HTTP with an API key or, if there is none or it is rejected, with the credentials'
token.

The catalogue is public, so either is enough.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from providers.collect.http import Http, RefusedError
from providers.collect.pages import Pages
from providers.errors import AuthError, FormatError, PermissionDeniedError, ProviderError
from providers.gcp.session import Connections, to_provider_error

BILLING = "https://cloudbilling.googleapis.com"
COMPUTE_ENGINE = "6F81-5844-456A"
PAGE_ROWS = 5000
API_KEY = "GOOGLE_API_KEY"
"""Environment variable."""
BAD_KEY = re.compile(r"api[ _]key", re.I)
"""Identifies a rejected key in the text of a 400 answer; for 401 and 403 the status is enough."""


class BillingCatalog:
    """Pages of SKUs. `key_refused` is why the API key was rejected; it is then not used again."""

    def __init__(self, http: Http, connections: Connections, base: str = BILLING) -> None:
        self._http = http
        self._connections = connections
        self._url = f"{base.rstrip('/')}/v1/services/{COMPUTE_ENGINE}/skus"
        self.key_refused: ProviderError | None = None

    def pages(self, asked: Mapping[str, str]) -> Iterator[list[Any]]:
        """The SKUs of Compute Engine, page by page. `asked` are parameters in addition to page size and token.

        Source: cloud.google.com/billing/docs/reference/rest/v1/services.skus/list. Raises ProviderError.
        """
        query = {"pageSize": str(PAGE_ROWS), **asked}
        links = Pages("the Billing Catalog")
        token = ""
        while True:
            body = self._get({**query, "pageToken": token} if token else query)
            rows = body.get("skus", []) if isinstance(body, dict) else None
            if not isinstance(rows, list):
                raise FormatError("the Billing Catalog's answer has no list of SKUs")
            yield rows
            if not body.get("nextPageToken"):
                return
            token = links.follow(str(body["nextPageToken"]))

    def _get(self, query: Mapping[str, str]) -> Any:
        key = os.environ.get(API_KEY, "").strip()
        if key and self.key_refused is None and not (key.isascii() and key.isprintable()):
            self.key_refused = AuthError("it contains characters other than letters, digits, - and _")
        if key and self.key_refused is None:
            try:
                return self._http.get_json(self._url, query, {"X-Goog-Api-Key": key})
            except (AuthError, RefusedError) as error:
                if isinstance(error, RefusedError) and not (error.status == 400 and BAD_KEY.search(str(error))):
                    raise
                self.key_refused = error
        try:
            return self._http.get_json(self._url, query, self._connections.bearer())
        except AuthError as error:
            raise self._denied(error) from error
        except Exception as error:
            known = None if isinstance(error, ProviderError) else to_provider_error(error)
            if self.key_refused is not None and isinstance(known, AuthError):  # google-auth has no token, either
                raise self._denied(known) from error
            raise

    def _denied(self, error: AuthError) -> ProviderError:
        also = f"; {API_KEY} was rejected, too: {self.key_refused}" if self.key_refused is not None else ""
        remedy = f"gcloud services enable cloudbilling.googleapis.com; or set {API_KEY} to an API key for it"
        return PermissionDeniedError(f"{error}{also}", action="cloudbilling.googleapis.com", hint=remedy)
