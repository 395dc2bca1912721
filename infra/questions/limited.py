"""Asks a store, with a machine's limited access, for a missing object: is the answer 404 or 403?"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from orchestrator.nodes.access.issuing import Issuer
from orchestrator.nodes.access.scope import scope_of
from trainers.objects.services import BLOB, place_of

ANSWER_S = 30.0
MOST_BYTES = 4096


def missing_object(store_url: str) -> Callable[[], dict[str, Any]]:
    """Ask for an object below `store_url` (gs:// or az://), and for a list of its objects, with limited access."""
    folder = f"{store_url.rstrip('/')}/limited"

    def asked() -> dict[str, Any]:
        place, values = place_of(folder), Issuer().issue(scope_of((folder,)), "tradewind-verify").values
        key = quote(f"{place.prefix}/missing")
        if place.service is BLOB:
            account = os.environ["AZURE_STORAGE_ACCOUNT_NAME"]
            at = (os.environ.get("AZURE_STORAGE_ENDPOINT") or f"https://{account}.blob.core.windows.net").rstrip("/")
            signature = values[place.url]
            return {
                "object": _get(f"{at}/{place.bucket}/{key}?{signature}", {}),
                "list": _get(
                    f"{at}/{place.bucket}?restype=container&comp=list&delimiter=/"
                    f"&prefix={quote(place.prefix)}/&{signature}",
                    {},
                ),
            }
        at = (os.environ.get("GOOGLE_BASE_URL") or "https://storage.googleapis.com").rstrip("/")
        token = {"Authorization": f"Bearer {values['GOOGLE_BEARER_TOKEN']}"}
        return {
            "object": _get(f"{at}/{place.bucket}/{key}", token),
            "list": _get(f"{at}/{place.bucket}?list-type=2&prefix={quote(place.prefix)}/", token),
        }

    return asked


def _get(url: str, headers: Mapping[str, str]) -> dict[str, Any]:
    try:
        with urlopen(Request(url, headers=dict(headers)), timeout=ANSWER_S) as answer:
            return {"status": answer.status, "body": answer.read(MOST_BYTES).decode(errors="replace")}
    except HTTPError as error:
        with error:
            return {"status": error.code, "body": error.read(MOST_BYTES).decode(errors="replace")}
