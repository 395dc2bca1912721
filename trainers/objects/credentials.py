"""Credentials that expire: requested from an endpoint on this machine.

For S3, the endpoint has the protocol of AWS's container credentials, so the libraries of a job's code use it, too:
https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html. Google's and Azure's tools know no
such endpoint that is protected by a secret: for them, the endpoint answers in the form of `Lent`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

ANSWER_S = 5.0
WHERE, WITH = "TRADEWIND_ACCESS_URI", "TRADEWIND_ACCESS_TOKEN"
BEARER = "GOOGLE_BEARER_TOKEN"
SILENT = "the agent of this machine does not return credentials"


@dataclass(frozen=True, slots=True)
class Lent:
    """Credentials until `expires_at`. `values` by name: for S3 the environment variables of AWS; for Google's storage
    BEARER; for Azure a shared access signature for each folder, az://container/folder."""

    values: Mapping[str, str]
    expires_at: datetime


Credentials: TypeAlias = Callable[[], Lent]


def of_aws_container() -> Credentials | None:
    """The endpoint in AWS's variables; None if they name none, or a key has priority."""
    where = os.environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI")
    token = os.environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
    if not where or not token or os.environ.get("AWS_ACCESS_KEY_ID"):
        return None

    def lent(found: Any) -> Lent:
        values = {"AWS_ACCESS_KEY_ID": found["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": found["SecretAccessKey"]}
        if found.get("Token"):
            values["AWS_SESSION_TOKEN"] = found["Token"]
        return Lent(values, datetime.fromisoformat(found["Expiration"]))

    return _asking(where, token, lent)


def of_this_machine() -> Credentials | None:
    """The endpoint of this machine's agent; None if the environment does not name it."""
    where, token = os.environ.get(WHERE), os.environ.get(WITH)
    if not where or not token:
        return None

    def lent(found: Any) -> Lent:
        return Lent({**found["values"]}, datetime.fromisoformat(found["expires_at"]))

    return _asking(where, token, lent)


def _asking(where: str, token: str, lent: Callable[[Any], Lent]) -> Credentials:
    """A function that asks an endpoint and parses the answer with `lent`. It raises OSError with SILENT."""
    import urllib.request
    from http.client import HTTPException

    request = urllib.request.Request(where, headers={"Authorization": token})
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask() -> Lent:
        try:
            with direct.open(request, timeout=ANSWER_S) as answer:
                return lent(json.load(answer))
        except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
            raise OSError(f"{SILENT}: {type(error).__name__}: {error}") from error

    return ask
