"""Asks a cloud questions that a loopback cannot answer, and writes the replies, without data that identify the account.

    python -m infra.record_replies aws|gcp|azure REGION IMAGE STORE_URL FILE

Called by infra/verify_cloud.sh. All questions (infra/questions/) only read, are dry runs, or are expected to be
refused: none rents anything. Each reply can become a fixture: a cloud's literal answer to a request, except for names.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from providers.errors import ProviderError

Questions = Mapping[str, Callable[[], Any]]
"""The requests, each with the question that it answers."""
Refused = Callable[[Exception], tuple[Any, ProviderError | None] | None]
"""A cloud's refusal (JSON), and our error for it; None if the error is not from the cloud."""

_NAMES = (
    (re.compile(r"\barn:[\w-]+:[^\s\"']+"), "arn:aws:...:REMOVED"),
    (re.compile(r"\b\d{12}\b"), "123456789012"),
    (re.compile(r"\b\d{16,20}\b"), "1234567890123456789"),
    (
        re.compile(r"\b(i|ami|vpc|subnet|sg|eni|vol|igw|rtb|sir|r|eipalloc|snap)-[0-9a-f]{8,17}\b"),
        r"\1-0123456789abcdef0",
    ),
    (re.compile(r"\b(?:AKIA|ASIA|AIDA|AROA)[A-Z0-9]{12,}\b"), "AKIAREMOVEDREMOVED00"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b"), "192.0.2.1"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"), "00000000-0000-0000-0000-000000000000"),
    (re.compile(r"Encoded authorization failure message: \S+"), "Encoded authorization failure message: REMOVED"),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "somebody@example.com"),
    (re.compile(r"\bya29\.[\w.-]+|\beyJ[\w-]+\.[\w-]+\.[\w-]+"), "TOKEN-REMOVED"),
    (re.compile(r"\b(sig|skoid|sktid)=[^&\s\"']+"), r"\1=REMOVED"),
)
_SECRET_KEYS = {
    *("UserId", "Account", "HostId", "RequestId", "HTTPHeaders", "OwnerId", "SessionToken", "SecretAccessKey"),
    *("user", "clientOperationId", "fingerprint", "principalId", "tenantId", "trackingId", "activityId"),
}


def sanitised(value: Any, also: tuple[str, ...] = ()) -> Any:
    """A reply without ids, addresses, keys and the texts in `also`, with the same structure."""
    if isinstance(value, Mapping):
        return {key: "REMOVED" if key in _SECRET_KEYS else sanitised(item, also) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sanitised(item, also) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    for name in also:
        text = text.replace(name, "REMOVED")
    for pattern, replacement in _NAMES:
        text = pattern.sub(replacement, text)
    return text


def record(questions: Questions, refused: Refused, also: tuple[str, ...] = ()) -> dict[str, Any]:
    """Question -> the sanitised reply or refusal, and the error that Tradewind raises for it. Failures on this side are
    recorded too, so that one question does not prevent the others from being asked."""
    found: dict[str, Any] = {}
    for what, ask in questions.items():
        try:
            found[what] = {"reply": sanitised(ask(), also)}
        except Exception as error:
            said = refused(error)
            if said is None:
                found[what] = {"not asked": sanitised(f"{type(error).__name__}: {error}", also)}
            else:
                raw, ours = said
                found[what] = {
                    "refusal": sanitised(raw, also),
                    "read as": None if ours is None else type(ours).__name__,
                }
    return found


def main(cloud: str, region: str, image: str, store_url: str, file: str) -> int:
    """Write the file. Returns the exit code: 1 if nothing could be asked."""
    asked = import_module(f"infra.questions.{cloud}")
    bucket = store_url.partition("://")[2].partition("/")[0]
    account = os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    questions, private = asked.questions(region, image, store_url)
    found = record(questions, asked.refused, tuple(filter(None, (bucket, account, *private))))
    Path(file).write_text(json.dumps(found, indent=1, default=str) + "\n")
    return 1 if all("not asked" in each for each in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:6]))
