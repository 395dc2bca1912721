"""The Billing Catalog over HTTP: with an API key, or where there is none or it is refused, with the credentials' token.

The catalog is public, so that either is enough.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from providers.collect.http import Http, RefusedError
from providers.collect.pages import Pages
from providers.errors import AuthError, FormatError, PermissionDeniedError, ProviderError
from providers.gcp.session import Connections, in_our_words

BILLING = "https://cloudbilling.googleapis.com"
COMPUTE_ENGINE = "6F81-5844-456A"
PAGE_ROWS = 5000
API_KEY = "GOOGLE_API_KEY"
"""Environment variable."""
BAD_KEY = re.compile(r"api[ _]key", re.I)
"""In the text of a 400, as which Google answers a key that is none; a 401 or 403 needs no such word."""


class BillingCatalog:
    """`key_refused` is why the key was given up: it is not tried again."""

    def __init__(self, http: Http, connections: Connections, base: str = BILLING) -> None:
        self._http = http
        self._connections = connections
        self._url = f"{base.rstrip('/')}/v1/services/{COMPUTE_ENGINE}/skus"
        self.key_refused: ProviderError | None = None

    def pages(self, asked: Mapping[str, str]) -> Iterator[list[Any]]:
        """The SKUs of Compute Engine, page by page. `asked` are parameters beside the page's size and token.

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
            self.key_refused = AuthError("it is not made of letters, digits, - and _")
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
            known = None if isinstance(error, ProviderError) else in_our_words(error)
            if self.key_refused is not None and isinstance(known, AuthError):  # google-auth has no token to give
                raise self._denied(known) from error
            raise

    def _denied(self, error: AuthError) -> ProviderError:
        also = f"; {API_KEY} is refused, too: {self.key_refused}" if self.key_refused is not None else ""
        remedy = f"gcloud services enable cloudbilling.googleapis.com; or set {API_KEY} to an API key that may use it"
        return PermissionDeniedError(f"{error}{also}", action="cloudbilling.googleapis.com", hint=remedy)
