"""Credentials that expire: asked for at an endpoint on this machine, as AWS's own tools do in containers.

https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from obstore.store import S3Credential

Credentials: TypeAlias = "Callable[[], S3Credential]"

ANSWER_S = 5.0


def of_this_machine() -> Credentials | None:
    """The endpoint that the environment names, with a token; None if there is none, or a key comes first."""
    where = os.environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI")
    token = os.environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
    if not where or not token or os.environ.get("AWS_ACCESS_KEY_ID"):
        return None
    import urllib.request

    request = urllib.request.Request(where, headers={"Authorization": token})
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask() -> S3Credential:
        with direct.open(request, timeout=ANSWER_S) as answer:
            found = json.load(answer)
        return {
            "access_key_id": found["AccessKeyId"],
            "secret_access_key": found["SecretAccessKey"],
            "token": found.get("Token") or None,
            "expires_at": datetime.fromisoformat(found["Expiration"]),
        }

    return ask
