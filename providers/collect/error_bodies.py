"""Recognises an error that arrives with the status of a success, as some gateways send it. No client library does: to
them, it is an empty list, or an object without fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from providers.errors import UnavailableError


def refuse_error(cloud: str, status: int, body: Any) -> None:
    """Raises UnavailableError if the JSON of a successful answer is an error: the call may have taken effect. The error
    that an operation ended with, beside its status, is not one of the call."""
    if not isinstance(body, Mapping) or isinstance(body.get("status"), str):
        return
    error = body.get("error")
    if isinstance(error, Mapping):
        refuse(cloud, status, error.get("code"), error.get("message"))
    elif isinstance(error, str):
        refuse(cloud, status, error, body.get("error_description"))


def refuse_error_in(cloud: str, status: int, content: bytes) -> None:
    """Like `refuse_error`, for the bytes of an answer. What is not JSON is left to who reads the answer."""
    if b'"error"' in content:
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            return
        refuse_error(cloud, status, body)


def refuse(cloud: str, status: int, code: object, message: object) -> None:
    """Raises UnavailableError if an error has a code or a message."""
    said = ": ".join(str(part)[:400] for part in (code, message) if part)
    if said:
        raise UnavailableError(f"{cloud} answered {status} with an error: {said}")
